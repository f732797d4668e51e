"""Agents are started, waited for and killed on a host; differing hosts, and a missing Ray, are refused."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from refusals import codes, raises_code

from fastllmload.cli.commands.run import placement_of
from fastllmload.engine.hosts.group import StartingAgents
from fastllmload.engine.hosts.placement import cluster, host_actor
from fastllmload.engine.hosts.placement.cluster import differences, distinct, refuse_differences
from fastllmload.engine.hosts.placement.host_actor import HostActor, HostFacts, facts_here
from fastllmload.errors import Interrupted
from fastllmload.settings import Hosts

FACTS = HostFacts(
    name="a", address="10.0.0.1", node="1", cpus=4, priority=0, fastllmload="1.0", python="3.11.7", machine="x86_64",
    compiled="c0ffee",
)  # fmt: skip
CONFIG = b'{"key": "sk-canary-51"}\n'
STAND_IN = Path(__file__).parents[4] / "support" / "stand_in_agent.py"


def other(**changed: object) -> HostFacts:
    return HostFacts(**{**{name: getattr(FACTS, name) for name in FACTS.__struct_fields__}, **changed})  # type: ignore[arg-type]


@pytest.fixture
def agent_of(tmp_path: Path) -> Iterator[Callable[..., HostActor]]:
    """Makes an actor whose agent is the stand-in, in the folder of the test."""
    made: list[HostActor] = []

    def make(*way: str) -> HostActor:
        made.append(HostActor([str(STAND_IN), str(tmp_path), *way]))
        return made[-1]

    yield make
    for actor in made:
        actor.kill()
        actor._errors.close()


def test_the_facts_of_this_host_are_those_of_its_software() -> None:
    found = facts_here("7", "10.0.0.7")
    assert (found.node, found.address) == ("7", "10.0.0.7")
    assert found.python == sys.version.split()[0] and found.cpus >= 1
    assert differences(found, facts_here("8", "10.0.0.8")) == []


@pytest.mark.parametrize(
    ("changed", "value"),
    [
        ({"fastllmload": "2.0"}, "2.0"),
        ({"python": "3.12.1"}, "3.12.1"),
        ({"compiled": "decaf"}, "decaf"),
    ],
)
def test_other_software_is_refused_with_the_host_and_both_versions(changed: dict[str, object], value: str) -> None:
    name = next(iter(changed))
    with raises_code("hosts-differ", "b (10.0.0.2)", value, getattr(FACTS, name)):
        refuse_differences(FACTS, [FACTS, other(name="b", address="10.0.0.2", **changed)])


def test_compiled_modules_of_another_architecture_are_not_compared() -> None:
    assert differences(FACTS, other(machine="aarch64", compiled="decaf")) == []
    assert len(differences(FACTS, other(machine="aarch64", compiled="decaf", python="3.12.1"))) == 1


def test_hosts_that_share_a_name_are_called_by_their_address() -> None:
    hosts = [
        other(name="b", address="10.0.0.3"),
        other(name="b", address="10.0.0.2"),
        other(name="a", address="10.0.0.4"),
    ]
    assert [host.name for host in distinct(hosts)] == ["10.0.0.2", "10.0.0.3", "a"]


def test_an_agent_gets_its_config_on_stdin_and_nothing_of_it_is_in_its_arguments_or_environment(
    agent_of: Callable[..., HostActor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-51")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "sk-canary-51")
    actor = agent_of()
    actor.start(CONFIG)
    found = report(tmp_path)
    assert found["config"] == hashlib.sha256(CONFIG).hexdigest()
    assert found["session"] != os.getsid(0)
    for name in ("cmdline", "environ"):
        assert b"sk-canary" not in Path(f"/proc/{found['pid']}/{name}").read_bytes()
    actor.kill()
    assert "signal 9" in actor.ended()


@pytest.mark.parametrize(
    ("way", "clause"),
    [("0", "agent ended"), ("3", "code 3: the last words"), ("-15", "signal 15")],
)
def test_the_end_of_an_agent_is_described(agent_of: Callable[..., HostActor], way: str, clause: str) -> None:
    actor = agent_of(way)
    actor.start(CONFIG)
    assert clause in actor.ended()


def test_an_agent_that_gets_no_config_ends_without_a_word() -> None:
    """As that of a host which the run does not need, whose actor Ray ends."""
    actor = HostActor(cluster.AGENT)
    assert actor._agent is not None and actor._agent.stdin is not None
    actor._agent.stdin.close()
    assert actor.ended() == "the agent ended" and os.fstat(actor._errors.fileno()).st_size == 0
    actor._errors.close()


def test_an_agent_remains_when_the_actor_has_died_with_its_children(
    agent_of: Callable[..., HostActor], tmp_path: Path
) -> None:
    """As Ray kills them."""
    actor = agent_of()
    actor.start(CONFIG)
    found = report(tmp_path)
    child = actor._agent
    assert child is not None and found["parent"] == child.pid
    os.kill(child.pid, signal.SIGKILL)
    actor.ended()
    os.kill(found["pid"], 0)
    actor.kill()
    wait_until(lambda: found["pid"] not in host_actor.session_members(found["session"]))


def test_without_ray_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    with raises_code("ray-missing", "`ray`"):
        placed_on(Hosts(address="auto"))


def test_the_process_that_uses_ray_has_no_key_and_a_token_of_its_own_for_a_ray_that_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-51")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of the user")
    found, again = cluster.environment(cluster.LOCAL), cluster.environment(cluster.LOCAL)
    assert "OPENAI_API_KEY" not in found and found["RAY_USAGE_STATS_ENABLED"] == "0"
    assert found["RAY_AUTH_MODE"] == "token" and len(found["RAY_AUTH_TOKEN"]) == 64
    assert found["RAY_AUTH_TOKEN"] != again["RAY_AUTH_TOKEN"]
    assert cluster.environment("10.0.0.1:6379")["RAY_AUTH_TOKEN"] == "of the user"


class Config(msgspec.Struct, frozen=True):
    key: str


ANSWERING = """
import socket, sys
from fastllmload.engine.hosts.placement.host_actor import facts_here
from fastllmload.engine.hosts.placement.cluster import (
    Call, Close, AgentEnded, Find, Found, KillAgent, Messages, Refusal, Request, Results, StartAgents, AgentsStarted
)
messages = Messages(socket.socket(fileno=int(sys.argv[1])), Request)
while True:
    request = messages.receive()
    if isinstance(request, Find):
        if request.wanted.hosts == 9:
            messages.send(Refusal("hosts-missing", "9 are not there"))
        elif request.wanted.hosts == 8:
            sys.exit("Fatal: no more of that")
        elif request.wanted.hosts == 7:
            messages.receive()
        else:
            facts = facts_here("n2", "10.0.0.2"), facts_here("n1", "10.0.0.1")
            messages.send(Found(facts, ("10.0.0.3",), "10.0.0.1"))
    elif isinstance(request, StartAgents):
        assert request.configs["n1"] == '{"key":"one"}\\n', request.configs
        messages.send(AgentEnded("n2", "the agent ended"))
        messages.send(AgentsStarted())
    elif isinstance(request, KillAgent):
        messages.send(AgentEnded(request.node, "the agent was killed by signal 9"))
    elif isinstance(request, Close):
        break
"""


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in the place of the process that uses Ray."""
    monkeypatch.setattr(cluster, "find_spec", lambda name: True)
    monkeypatch.setattr(cluster, "RAY_PROCESS", (sys.executable, "-c", ANSWERING))


def placed_on(wanted: Hosts) -> cluster.RayPlacement:
    placed = cluster.RayPlacement(wanted)
    placed.find()
    return placed


@pytest.mark.usefixtures("answering")
def test_agents_are_in_the_order_of_their_hosts_and_their_ends_are_polled() -> None:
    placed = placed_on(Hosts(address="auto"))
    try:
        assert [host.name for host in placed.hosts()] == [
            "10.0.0.1",
            "10.0.0.2",
        ] and placed.driver_address == "10.0.0.1"
        assert codes(placed.warnings)[0] == "hosts-busy" and "10.0.0.3" in placed.warnings[0]
        first, second = placed.start([Config("one"), Config("two")])
        assert (first.node.node, first.poll(), second.poll()) == ("n1", None, "the agent ended")
        first.kill()
        wait_until(lambda: first.poll() is not None)
        assert "signal 9" in str(first.poll()) and placed.lost() is None
    finally:
        placed.close()


@pytest.mark.usefixtures("answering")
@pytest.mark.parametrize(
    ("hosts", "code", "value"), [(9, "hosts-missing", "9"), (8, "ray-unreachable", "no more of that")]
)
def test_a_refusal_and_an_end_of_that_process_are_one_sentence(hosts: int, code: str, value: str) -> None:
    with raises_code(code, value):
        placed_on(Hosts(address="auto", hosts=hosts))


SILENT = """
import socket, sys, time, types
from fastllmload.engine.hosts.placement import ray_process
from fastllmload.engine.hosts.placement.cluster import Messages, Request
sys.modules["ray"] = types.SimpleNamespace(
    init=lambda **options: time.sleep(600), exceptions=types.SimpleNamespace(RayError=OSError)
)
ray_process.CONNECTED_S = 0.1
ray_process.serve(Messages(socket.socket(fileno=int(sys.argv[1])), Request))
"""


def test_a_ray_that_does_not_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose head has ended: `ray.init` tries for many minutes, and nothing can interrupt it."""
    monkeypatch.setattr(cluster, "find_spec", lambda name: True)
    monkeypatch.setattr(cluster, "RAY_PROCESS", (sys.executable, "-c", SILENT))
    with raises_code("ray-unreachable", "--ray auto", "0.1 s"):
        cluster.RayPlacement(Hosts(address="auto")).find()


@pytest.mark.usefixtures("answering")
def test_an_interrupt_does_not_wait_for_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that uses Ray may wait for hosts for a long time."""
    ended: list[int | None] = []
    end = cluster.RayPlacement._end

    def ending(placed: cluster.RayPlacement, seconds: float) -> None:
        end(placed, seconds)
        ended.append(placed._process.returncode)

    def interrupted(messages: cluster.Messages, seconds: float | None = None) -> None:
        raise Interrupted("interrupted", "interrupted before the run began")

    monkeypatch.setattr(cluster.RayPlacement, "_end", ending)
    monkeypatch.setattr(cluster.Messages, "receive", interrupted)
    with raises_code("interrupted"):
        placed_on(Hosts(address="auto", hosts=7))
    assert ended == [-signal.SIGTERM]


@pytest.mark.usefixtures("answering")
def test_a_run_that_ends_before_ray_has_its_hosts_does_not_wait_for_them() -> None:
    placed = cluster.RayPlacement(Hosts(address="auto", hosts=7))
    starting = StartingAgents(placed)
    starting.refuse_failed()
    starting.close()
    assert placed._process.returncode == -signal.SIGTERM
    with raises_code("ray-unreachable"):
        starting.refuse_failed()


@pytest.mark.usefixtures("answering")
def test_a_refusal_of_hosts_is_raised_where_they_are_needed() -> None:
    starting = StartingAgents(cluster.RayPlacement(Hosts(address="auto", hosts=9)))
    with raises_code("hosts-missing", "9"):
        starting.wait(print)
    starting.close()


def test_ray_looks_for_hosts_while_the_program_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Hosts] = []
    monkeypatch.setattr(cluster, "RayPlacement", made.append)
    wanted = Hosts(address="10.0.0.1:6379")
    assert placement_of(Hosts()) is None and made == []
    placement_of(wanted)
    assert made == [wanted]


@pytest.mark.usefixtures("answering")
def test_agents_are_not_ended_where_ray_is_lost() -> None:
    placed = placed_on(Hosts(address="auto"))
    first, _ = placed.start([Config("one"), Config("two")])
    placed._process.kill()
    wait_until(lambda: placed.lost() is not None)
    assert first.poll() is None
    first.kill()
    placed.close()


def wait_until(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.01)


def report(folder: Path) -> dict[str, object]:
    """What the stand-in has written about itself."""
    wait_until((folder / "agent.json").exists)
    found: dict[str, object] = json.loads((folder / "agent.json").read_text())
    return found
