"""Whole runs against the simulated engine: what they leave, how they end, and that nobody is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fastllmload.engine.run import execute
from fastllmload.plan.settings import Client, Load, Output, RunSettings, Secret, Target, Workload
from fastllmload.records.run import load
from fastllmload.report.snapshot import Snapshot
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

FAST = (("ttft_ms", "5"), ("itl_ms", "2"))
KEY = "sk-integration-secret"


class Watching:
    """A view that keeps everything and calls *hook* at each snapshot."""

    def __init__(self, hook=lambda snapshot: None):
        self.lines, self.document, self.hook = [], None, hook

    def banner(self, lines):
        self.lines += lines

    def phase(self, name, planned, seconds):
        self.lines.append(name)

    def update(self, snapshot: Snapshot):
        self.hook(snapshot)

    def message(self, text):
        self.lines.append(text)

    def finish(self, document, folder=None):
        self.document = document

    def close(self):
        self.lines.append("closed")


def asked(folder, *, target=None, client=None, workload=None, **fields):
    fields.setdefault("warmup_requests", 3)
    return RunSettings(
        target=target or Target(simulate=FAST),
        load=Load(**fields),
        workload=workload or Workload(isl="16", osl="8"),
        client=client or Client(),
        output=Output(directory=str(folder), ui="none"),
    )


def children():
    own = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {int(pid) for pid in own}


def of_process(pid, name):
    """A file of /proc; empty when the process has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.fixture(autouse=True)
def nobody_is_left():
    before = children()
    yield
    assert children() <= before


def test_an_open_loop_leaves_a_whole_folder(tmp_path):
    ui = Watching()
    settings = asked(tmp_path / "run", rate=40.0, duration=1.0, client=Client(workers=2))
    assert execute(settings, None, ui) == 0
    run = load(tmp_path / "run")
    phase = run.phase("measure")
    assert not run.incomplete and phase.bound == "duration" and phase.end_ns - phase.start_ns == 10**9
    measured = run.rows[run.rows["phase"] == 1]
    planned = np.load(tmp_path / "run" / "plan" / "schedule.npy")["t_sched_ns"]
    assert (measured["t_sched"] - phase.start_ns == planned).all()
    assert (measured["status"] == 2).all() and set(measured["worker"]) == {0, 1}
    assert ui.document["completed"] > 0 and ui.document["failed"] == 0
    assert ui.document["certificate"]["schedule_lag_us"]["n"] > 0
    assert sorted(set(run.samples["worker"])) == [-1, 0, 1]
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert left == {
        "run.json", "requests.npy", "tokens.npy", "plan", "samples.npy", "hiccup.npy", "stalls.npy", "histograms.npy",
        "telemetry.json", "telemetry.npy",
    }  # fmt: skip
    assert ui.lines[0].startswith("SIMULATED ENGINE") and ui.lines[-1] == "closed"


def test_the_same_seed_plans_the_same_for_any_number_of_workers(tmp_path):
    documents = []
    for workers in (1, 3):
        ui = Watching()
        execute(asked(tmp_path / str(workers), rate=30.0, num_requests=12, client=Client(workers=workers)), None, ui)
        documents.append(ui.document)
    assert documents[0]["plan"]["schedule_hash"] == documents[1]["plan"]["schedule_hash"]
    assert documents[0]["plan"]["digest"] == documents[1]["plan"]["digest"]


def test_a_closed_loop_starts_its_plan_again_and_says_how_often(tmp_path):
    ui = Watching()
    assert execute(asked(tmp_path / "run", concurrency=4, duration=0.6), None, ui) == 0
    phase = ui.document["phases"][-1]
    assert phase["mode"] == "closed" and phase["bound"] == "duration" and phase["released"] > 8
    assert phase["rounds_of_plan"] == pytest.approx(phase["released"] / 2000)


def test_a_closed_loop_with_fewer_requests_than_workers_ends(tmp_path):
    ui = Watching()
    settings = asked(tmp_path / "run", concurrency=2, num_requests=2, warmup_requests=1, client=Client(workers=3))
    assert execute(settings, None, ui) == 0
    assert (ui.document["completed"], ui.document["phases"][-1]["bound"]) == (2, "count")


def test_without_warm_up_everything_at_once(tmp_path):
    ui = Watching()
    import math

    assert execute(asked(tmp_path / "run", rate=math.inf, num_requests=20, warmup_requests=0), None, ui) == 0
    assert [phase["name"] for phase in ui.document["phases"]] == ["measure"]
    assert ui.document["completed"] == 20


def test_the_key_is_nowhere_in_the_folder_and_not_in_any_command_line(tmp_path):
    seen = set()

    def look(snapshot):
        for pid in children():
            for name in ("cmdline", "environ"):
                seen.update({(name, KEY in text) for text in [of_process(pid, name)] if text})

    with SimulatorProcess(SimulatorOptions(ttft_ms=5, itl_ms=2, any_model=True)) as server:
        target = Target(urls=(server.url,), headers=(("X-Api-Key", KEY),))
        os.environ["OPENAI_API_KEY"] = KEY
        try:
            assert execute(asked(tmp_path / "run", rate=20.0, num_requests=5, target=target), Secret(KEY), Watching(look)) == 0
        finally:
            del os.environ["OPENAI_API_KEY"]
    assert seen == {("cmdline", False), ("environ", False)}
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes()


def interrupting(*signals):
    """Sends the signals, one per snapshot, once something has been sent."""
    left = list(signals)

    def hook(snapshot):
        if snapshot.phase == "measure" and snapshot.ok and left:
            os.kill(os.getpid(), left.pop(0))

    return hook


def test_one_interrupt_drains_and_marks(tmp_path):
    ui = Watching(interrupting(signal.SIGINT))
    assert execute(asked(tmp_path / "run", rate=30.0, duration=60.0), None, ui) == 4
    run = load(tmp_path / "run")
    assert run.incomplete and run.manifest["status"] == "interrupted"
    measured = run.rows[run.rows["phase"] == 1]
    sent = measured[measured["t_dispatch"] > 0]
    assert len(sent) and (sent["status"] == 2).all()
    assert len(measured) == run.manifest["plan"]["requests"]
    assert run.phase("measure").end_ns < run.phase("measure").start_ns + 60 * 10**9


def test_two_interrupts_cancel_what_is_in_flight(tmp_path):
    ui = Watching(interrupting(signal.SIGINT, signal.SIGINT))
    slow = Workload(isl="16", osl="uniform:1,30000")
    settings = asked(tmp_path / "run", rate=30.0, duration=60.0, workload=slow, warmup_requests=0)
    assert execute(settings, None, ui) == 4
    rows = load(tmp_path / "run").rows
    assert (rows["status"] == 11).any() and not (rows["status"] == 1).any()


def test_a_killed_worker_is_reported_and_the_rest_is_kept(tmp_path):
    killed = []

    def kill_one(snapshot):
        if snapshot.phase == "measure" and snapshot.ok and not killed:
            for pid in children():
                if "engine.worker" in of_process(pid, "cmdline"):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                    return

    ui = Watching(kill_one)
    assert execute(asked(tmp_path / "run", rate=30.0, duration=1.5, client=Client(workers=2)), None, ui) == 2
    assert ui.document["status"] == "partial" and ui.document["completed"] > 0
    assert ui.document["certificate"]["verdict"] == "invalid"
    assert [line for line in ui.lines if "was killed by signal 9" in line]
    assert sum(worker["died"] for worker in ui.document["workers"]) == 1


def test_a_server_that_goes_away_leaves_failures_not_a_mess(tmp_path):
    with SimulatorProcess(SimulatorOptions(ttft_ms=5, itl_ms=2)) as server:

        def stop_server(snapshot):
            if snapshot.phase == "measure" and snapshot.ok:
                server.stop()

        target = Target(urls=(server.url,))
        ui = Watching(stop_server)
        assert execute(asked(tmp_path / "run", rate=40.0, duration=1.5, target=target), None, ui) == 0
    assert ui.document["status"] == "done" and ui.document["failed"] > 0
    counted = load(tmp_path / "run").rows
    assert {9} <= set(counted["status"]) <= {2, 7, 9}


def test_a_server_that_refuses_everything_is_exit_3(tmp_path):
    with SimulatorProcess(SimulatorOptions(ttft_ms=5, itl_ms=2)) as server:

        def stop_server(snapshot):
            if snapshot.phase == "warmup":
                server.stop()

        ui = Watching(stop_server)
        settings = asked(tmp_path / "run", rate=40.0, num_requests=8, target=Target(urls=(server.url,)))
        assert execute(settings, None, ui) == 3
    assert (ui.document["completed"], ui.document["failed"]) == (0, 8)


def test_a_killed_supervisor_leaves_a_readable_folder_and_no_process(tmp_path):
    command = [sys.executable, "-m", "fastllmload", "--rate", "30", "--duration", "60", "--warmup", "0", "--osl", "8",
               "--isl", "16", "--ui", "none", "-o", str(tmp_path / "run"), "--simulate", "ttft_ms=5", "itl_ms=2"]  # fmt: skip
    supervisor = subprocess.Popen(command)
    try:
        rows = tmp_path / "run" / "workers" / "0" / "tokens.npy"
        until = time.monotonic() + 30
        while not (rows.exists() and len(np.load(rows)) > 20 and np.load(rows)["t_ns"][20]):
            assert time.monotonic() < until and supervisor.poll() is None
            time.sleep(0.05)
        family = {int(pid) for pid in Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text().split()}
    finally:
        supervisor.kill()
        supervisor.wait()
    assert len(family) == 3  # a worker, the simulated engine, telemetry
    until = time.monotonic() + 10
    while any(alive(pid) for pid in family):
        assert time.monotonic() < until
        time.sleep(0.02)
    run = load(tmp_path / "run")
    assert run.incomplete and json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "running"
    assert (run.rows["status"] == 2).any() and len(run.samples) > 0


def test_a_full_disk_stops_sending_and_keeps_what_was_written(tmp_path):
    """A limit of 5 MiB per file stands for the disk: the workers' event files reach it within seconds."""
    run = [sys.executable, "-m", "fastllmload", "--concurrency", "32", "--duration", "60", "--warmup", "0", "--isl", "8",
           "--osl", "400", "--ui", "plain", "-o", str(tmp_path / "run"), "--simulate", "null=true"]  # fmt: skip
    limited = "import resource, os, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (5 << 20, 5 << 20)); os.execv(sys.argv[1], sys.argv[1:])"
    ended = subprocess.run([sys.executable, "-c", limited, *run], capture_output=True, text=True, timeout=90)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert "the disk was full: sending stopped early" in ended.stdout and "Traceback" not in ended.stderr
    found = load(tmp_path / "run")
    assert found.incomplete and found.manifest["status"] == "partial" and found.manifest["disk_full"]
    assert found.manifest["certificate"]["verdict"] == "invalid" and found.manifest["completed"] > 0
    assert len(found.events) > 200_000


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
