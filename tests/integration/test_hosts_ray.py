"""Ray finds hosts, starts an agent on each with its config, and reports what died; the key is in nothing that Ray keeps."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from integration.bad_days import KEY, alive, of_process
from integration.ray_hosts import RayHosts, places_of

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
DRIVER, STAND_IN = TESTS / "integration" / "placement_driver.py", TESTS / "support" / "stand_in_agent.py"
LONGEST_S = 120.0


class Driver:
    """A driver on host 0 with three stand-ins, which write to *folder*; a line of its output at a time."""

    def __init__(self, cluster: RayHosts, folder: Path) -> None:
        self.folder = folder
        (folder / "key").write_text(KEY)
        words = [str(DRIVER), cluster.address, "3", str(folder / "key"), str(STAND_IN), str(folder / "{address}")]
        self.process = cluster.python(0, *words)
        self.hosts = self.line()["hosts"]
        assert self.line() == {"started": 3}
        for host in self.hosts:
            until(lambda host=host: self.path(host["address"]).exists())

    def path(self, address: str) -> Path:
        return self.folder / address / "agent.json"

    def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None and self.process.stderr is not None
        text = self.process.stdout.readline()
        if text == "":
            raise AssertionError(self.process.stderr.read())
        found: dict[str, Any] = json.loads(text)
        return found

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def agents(self) -> dict[str, dict[str, Any]]:
        """What each stand-in wrote, by the address of its host."""
        return {host["address"]: json.loads(self.path(host["address"]).read_text()) for host in self.hosts}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for end in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert end is not None
            end.close()

    def close(self) -> None:
        """Let it end the agents and leave."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        while not self.line().get("closed"):
            pass
        assert self.process.wait(LONGEST_S) == 0


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_agents_start_on_three_hosts_and_none_is_left(cluster: RayHosts, tmp_path: Path) -> None:
    with Driver(cluster, tmp_path) as driver:
        agents = driver.agents()
        assert sorted(agents) == cluster.addresses
        assert len({agent["network"] for agent in agents.values()}) == len({host["node"] for host in driver.hosts}) == 3
        assert len({(host["fastllmload"], host["python"], host["compiled"]) for host in driver.hosts}) == 1
        for number, host in enumerate(driver.hosts):
            agent = agents[host["address"]]
            config = json.dumps({"key": KEY, "host": number}, separators=(",", ":")) + "\n"
            assert agent["config"] == hashlib.sha256(config.encode()).hexdigest()
            assert agent["session"] == agent["parent"] and agent["priority"] == host["priority"]
        driver.tell("again")
        assert driver.line() == {"again": "hosts-missing"}
        driver.tell("kill 1")
        line = driver.line()
        assert (line["host"], line["address"]) == (1, driver.hosts[1]["address"]) and "signal 9" in line["ended"]
        driver.close()
        assert not [agent["pid"] for agent in agents.values() if alive(agent["pid"])]


def test_the_key_is_in_nothing_that_ray_keeps(cluster: RayHosts, tmp_path: Path) -> None:
    with Driver(cluster, tmp_path) as driver:
        processes = cluster.processes()
        assert len([pid for pid in processes if "ray::HostActor" in of_process(pid, "cmdline")]) >= 3
        assert {agent["pid"] for agent in driver.agents().values()} <= set(processes)
        assert places_of(KEY, processes, [cluster.folder]) == []
        driver.close()
        assert places_of(KEY, cluster.processes(), [cluster.folder]) == []


def test_a_key_is_found_where_there_is_one(tmp_path: Path) -> None:
    """`places_of` finds it in a file, in arguments and in an environment."""
    (tmp_path / "log").write_text(f"Bearer {KEY}")
    with subprocess.Popen(["sleep", "60"], env={**os.environ, "TEST_KEY": KEY}) as child:
        until(lambda: "sleep" in of_process(child.pid, "cmdline"))
        found = places_of(KEY, [child.pid], [tmp_path])
        child.kill()
    assert found == [str(tmp_path / "log"), f"/proc/{child.pid}/environ"]


def test_agents_outlive_a_driver_that_was_killed(cluster: RayHosts, tmp_path: Path) -> None:
    """Long enough to close their folders: Ray ends the actors, and the agents end by themselves (agent.py)."""
    with Driver(cluster, tmp_path) as driver:
        agents = driver.agents()
        actors = [pid for pid in cluster.processes() if "ray::HostActor" in of_process(pid, "cmdline")]
        driver.process.kill()
        until(lambda: not any(alive(pid) for pid in actors))
        time.sleep(2)  # nothing else happens that one could wait for
        assert all(alive(agent["pid"]) for agent in agents.values())
        for agent in agents.values():
            os.kill(agent["pid"], signal.SIGKILL)


def test_doctor_checks_each_host(cluster: RayHosts) -> None:
    asked = cluster.python(0, "-m", "fastllmload", "doctor", "--ray", cluster.address)
    said, errors = asked.communicate(timeout=LONGEST_S)
    assert asked.returncode in (0, 1) and errors == "", errors
    lines = said.splitlines()
    assert sorted(line.split()[0] for line in lines[:3]) == cluster.addresses
    checks = {line[:20].strip(): line[20:].split() for line in lines[5 : lines.index("", 4)]}
    assert checks["software"] == checks["compiled modules"] == checks["access to Ray"] == ["3"]
    assert "driver's clock" in checks
    assert {"open files", "local ports", "cores", "packet ring", "priority of agents"} <= checks.keys()
    assert lines[-1].endswith("checks on 3 hosts")


@pytest.mark.parametrize(
    ("without", "token"),
    [(["RAY_AUTH_TOKEN"], None), (["RAY_AUTH_TOKEN", "RAY_AUTH_MODE"], None), (["RAY_AUTH_TOKEN"], "0" * 64)],
)
def test_without_the_token_of_the_cluster_one_sentence_says_so(
    cluster: RayHosts, without: list[str], token: str | None
) -> None:
    environment = {name: text for name, text in cluster.environment.items() if name not in without}
    if token is not None:
        environment["RAY_AUTH_TOKEN"] = token
    asked = cluster.python(0, "-m", "fastllmload", "doctor", "--ray", cluster.address, environment=environment)
    _, errors = asked.communicate(timeout=LONGEST_S)
    assert asked.returncode == 2 and "[ray-token-refused]" in errors, errors


def test_where_nothing_listens_one_sentence_says_so(cluster: RayHosts) -> None:
    asked = cluster.python(0, "-m", "fastllmload", "doctor", "--ray", f"{cluster.addresses[1]}:6")
    _, errors = asked.communicate(timeout=LONGEST_S)
    assert asked.returncode == 2 and "[ray-unreachable]" in errors and cluster.addresses[1] in errors


def test_a_host_whose_ray_was_killed_is_reported(cluster: RayHosts, tmp_path: Path) -> None:
    """The last test of this cluster, which has lost a host then."""
    with Driver(cluster, tmp_path) as driver:
        number = next(n for n, host in enumerate(driver.hosts) if host["address"] == cluster.addresses[2])
        (raylet,) = [pid for pid in cluster.processes(2) if "/raylet/raylet" in of_process(pid, "cmdline")]
        os.kill(raylet, signal.SIGKILL)
        line = driver.line()
        assert (line["host"], line["address"]) == (number, cluster.addresses[2])
        assert "node" in line["ended"] or "killed" in line["ended"]  # the end of its agent may be known first
        driver.close()


@pytest.mark.usefixtures("installed")
def test_a_ray_of_one_node_is_started_and_ended(tmp_path: Path) -> None:
    """Its processes inherit neither the key nor the user's environment of Ray."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed (extra `ray`)")
    (tmp_path / "key").write_text(KEY)
    words = [str(DRIVER), "local", "1", str(tmp_path / "key"), str(STAND_IN), str(tmp_path / "agent")]
    environment = {**os.environ, "OPENAI_API_KEY": KEY, "PYTHONPATH": str(TESTS.parent / "src")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, *words], text=True, env=environment, **pipes) as driver:
        assert driver.stdout is not None
        line = driver.stdout.readline()
        assert line and len(json.loads(line)["hosts"]) == 1, driver.communicate()
        assert json.loads(driver.stdout.readline()) == {"started": 1}
        until((tmp_path / "agent" / "agent.json").exists)
        family = descendants(driver.pid)
        assert len(family) > 3
        assert places_of(KEY, family, []) == []
        said, errors = driver.communicate(timeout=LONGEST_S)
    assert driver.returncode == 0 and "closed" in said, errors
    until(lambda: not any(alive(pid) for pid in family))


def descendants(root: int) -> list[int]:
    found, new = [], [root]
    while new:
        listed = [child for pid in new for child in of_process(pid, f"task/{pid}/children").split()]
        new = [int(child) for child in listed]
        found += new
    return found
