"""Whole runs over three hosts of a Ray cluster, against one server: one plan, one record, and no key in what Ray keeps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integration.bad_days import KEY, of_process
from integration.ray_hosts import BRIDGE, NETWORK, RayHosts, places_of
from refusals import codes

import fastllmload
from fastllmload.records import layout
from fastllmload.simulator.truth import load as load_truth

pytestmark = pytest.mark.slow

URL = f"http://{NETWORK}.{BRIDGE}:8000"
LOAD = {"rate": "60", "isl": "16", "osl": "8", "warmup": "6"}
LONGEST_S = 120.0


@pytest.fixture
def server(cluster: RayHosts, tmp_path: Path) -> Iterator[Path]:
    """The simulated engine at the address of the bridge, which takes no other key; yields the path of its truth log."""
    words = ["simulate", "--host", f"{NETWORK}.{BRIDGE}", "--port", "8000", "--ttft-ms", "20", "--itl-ms", "10"]
    truth = tmp_path / "truth.bin"
    command = [sys.executable, "-m", "fastllmload", *words, "--truth", str(truth), "--api-key", KEY]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(cluster.command(-1, command), text=True, env=cluster.environment, **pipes) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready"), line + process.stdout.read()
        yield truth
        process.send_signal(signal.SIGINT)
        process.wait(LONGEST_S)


def begin(cluster: RayHosts, folder: Path, *options: str) -> subprocess.Popen[str]:
    """A run that is started on host 0. Its key is in a file, so no process has it in its environment."""
    key = folder.with_suffix(".key")
    key.write_text(KEY)
    words = [word for name, value in LOAD.items() for word in (f"--{name}", value)]
    words += ["--url", URL, "--api-key-file", str(key), "--ui", "plain", "--no-telemetry"]
    return cluster.python(0, "-m", "fastllmload", *words, "-o", str(folder), *options)


def until(happened: Callable[[], object], seconds: float = LONGEST_S) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ours(cluster: RayHosts) -> list[int]:
    """Processes of fastllmload on the hosts: driver, agents, workers; not Ray's actors, nor the server in the bridge."""
    on_hosts = [pid for host in range(len(cluster.names)) for pid in cluster.processes(host)]
    return [pid for pid in on_hosts if "fastllmload" in of_process(pid, "cmdline")]


def document(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return found


def has_rows(folder: Path, host: int) -> bool:
    rows = folder / "workers" / str(host) / "requests.npy"
    return rows.exists() and rows.stat().st_size > 20 * layout.REQUEST.itemsize


def test_three_hosts_send_one_plan_once_and_ray_keeps_no_key(cluster: RayHosts, server: Path, tmp_path: Path) -> None:
    driver = begin(cluster, tmp_path / "run", "--num-requests", "240", "--ray", cluster.address)
    found: list[str] = []
    while driver.poll() is None:
        found += places_of(KEY, cluster.processes(), [cluster.folder])
        time.sleep(0.5)
    said, errors = driver.communicate()
    assert driver.returncode == 0 and KEY not in said + errors, said + errors
    assert found == places_of(KEY, cluster.processes(), [cluster.folder]) == []
    until(lambda: not ours(cluster))
    run = fastllmload.load(tmp_path / "run")
    assert run.manifest["status"] == "done" and run.manifest["completed"] == 240
    assert sorted(host["address"] for host in run.manifest["hosts"]) == cluster.addresses
    measured = run.rows[run.rows["phase"] == layout.MEASURE]
    assert sorted(measured["request"]) == list(range(240)) and len(set(measured["worker"])) >= 3
    phase = next(each["number"] for each in run.manifest["phases"] if each["name"] == "measure")
    sent = load_truth(server).requests
    assert sorted(sent["key"][sent["phase"] == phase]) == list(range(240))
    alone = begin(cluster, tmp_path / "alone", "--num-requests", "240")
    said, errors = alone.communicate(timeout=LONGEST_S)
    assert alone.returncode == 0, said + errors
    assert run.manifest["plan"]["digest"] == document(tmp_path / "alone")["plan"]["digest"]


def test_agents_keep_their_rows_when_the_driver_is_killed_and_are_collected(
    cluster: RayHosts, server: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    driver = begin(cluster, folder, "--duration", "60", "--ray", cluster.address)
    until(lambda: all(has_rows(folder, host) for host in range(3)) or driver.poll() is not None)
    agents = [host["folder"] for host in document(folder)["hosts"]]
    driver.kill()
    driver.communicate()
    until(lambda: not ours(cluster), 30.0)
    assert all(has_rows(Path(kept), host) for host, kept in enumerate(agents))
    assert places_of(KEY, cluster.processes(), [cluster.folder]) == []
    collecting = cluster.python(0, "-m", "fastllmload", "collect", str(folder))
    said, errors = collecting.communicate(timeout=LONGEST_S)
    assert collecting.returncode == 0, said + errors
    found = document(folder)
    assert [host["status"] for host in found["hosts"]] == ["alone"] * 3 and found["status"] == "partial"
    assert found["certificate"]["verdict"] == "invalid" and not any(Path(kept).exists() for kept in agents)
    rows = fastllmload.load(folder).rows
    measured = rows[rows["phase"] == layout.MEASURE]
    phase = next(each["number"] for each in found["phases"] if each["name"] == "measure")
    received = load_truth(server).requests
    keys = received["key"][received["phase"] == phase]
    assert sorted(keys.tolist()) == measured["request"][measured["t_submit"] > 0].tolist()
    until(lambda: not ours(cluster), 30.0)


def test_a_host_whose_ray_dies_is_lost_and_the_others_continue(cluster: RayHosts, server: Path, tmp_path: Path) -> None:
    """The last test of this cluster, which has lost a host then."""
    folder = tmp_path / "run"
    driver = begin(cluster, folder, "--duration", "20", "--ray", cluster.address)
    until(lambda: all(has_rows(folder, host) for host in range(3)) or driver.poll() is not None)
    (raylet,) = [pid for pid in cluster.processes(2) if "/raylet/raylet" in of_process(pid, "cmdline")]
    os.kill(raylet, signal.SIGKILL)
    said, errors = driver.communicate(timeout=LONGEST_S)
    assert driver.returncode == 2, said + errors
    found = document(folder)
    lost = {host["address"]: host["status"] for host in found["hosts"]}
    assert lost == dict(zip(cluster.addresses, ("ended", "ended", "lost"), strict=True))
    assert "host-lost" in codes(found["incidents"]) and found["certificate"]["verdict"] == "invalid"
    rows = fastllmload.load(folder).rows
    assert (np.bincount(rows["worker"][rows["status"] == layout.OK], minlength=3) > 10).all()
    until(lambda: not ours(cluster))
