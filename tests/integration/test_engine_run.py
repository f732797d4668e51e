"""Whole runs against the simulated engine: what they leave, how they end, and that no process is left."""

import os
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from fastllmload._ext.record import counters as k
from fastllmload.documents.write import plain
from fastllmload.engine.run import execute
from fastllmload.engine.workers.fleet import LocalFleet
from fastllmload.host import probe
from fastllmload.records.run import load
from fastllmload.report.terminal.snapshot import Snapshot
from fastllmload.settings import Client, Load, Output, RunSettings, Secret, Target, Workload
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

    def due(self, t):
        return True

    def update(self, snapshot: Snapshot):
        self.hook(snapshot)

    def message(self, text):
        self.lines.append(text)

    def finish(self, document, folder=None):
        self.document = plain(document)

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


def test_workers_leave_by_themselves_when_there_is_no_next_phase(tmp_path, monkeypatch):
    """The engine dies in the warm-up: the run does not wait for a measurement."""
    left, join, stop = [], LocalFleet.join, LocalFleet.stop

    def stopping(fleet, patience_s=10.0):
        left.append([member.process.poll() for member in fleet.members])
        stop(fleet, patience_s)

    monkeypatch.setattr(LocalFleet, "join", lambda fleet: join(fleet, 30.0))
    monkeypatch.setattr(LocalFleet, "stop", stopping)
    with SimulatorProcess(SimulatorOptions(ttft_ms=5.0, itl_ms=2.0)) as engine:
        alive = [engine.pid]

        def kill(snapshot):
            if snapshot.phase == "warmup" and snapshot.ok and alive:
                os.kill(alive.pop(), 9)

        ui = Watching(kill)
        asked_for = asked(tmp_path / "run", rate=40.0, duration=1.0, warmup_requests=400, client=Client(workers=2))
        assert execute(asked_for, None, ui, engine) == 2
    assert left == [[0, 0]]
    assert "measure" not in ui.lines and ui.document["status"] == "partial"


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


@pytest.mark.parametrize(("option", "name"), [("A", "itl"), ("B", "tbc")])
def test_the_live_view_names_the_gaps_that_it_shows(tmp_path, option, name):
    """Between chunks; --itl-option B would spread them over their tokens, which are counted after the run."""
    seen = set()
    settings = asked(tmp_path / "run", rate=20.0, duration=0.5)
    settings = replace(settings, output=replace(settings.output, itl_option=option))
    assert execute(settings, None, Watching(lambda snapshot: seen.add(snapshot.gaps))) == 0
    assert seen == {name}


def test_workers_shift_their_schedule_as_they_are_asked_to(tmp_path, monkeypatch):
    """By 40 ms, from some instant of each phase on: each request is sent once, and the next phase begins without."""
    fleets, at_start, start_clock = [], [], LocalFleet.start_clock

    def starting(fleet, at_ns):
        fleets.append(fleet)
        at_start.extend(int(member.words[k.W_CLOCK_SHIFT]) for member in fleet.members)
        start_clock(fleet, at_ns)

    def shift(snapshot):
        for member in fleets[-1].members:
            member.words[k.W_CLOCK_SHIFT] = 40_000_000

    monkeypatch.setattr(LocalFleet, "start_clock", starting)
    settings = asked(tmp_path / "run", rate=60.0, duration=2.0, warmup_requests=60, client=Client(workers=2))
    assert execute(settings, None, Watching(shift)) == 0
    run = load(tmp_path / "run")
    measured = run.rows[run.rows["phase"] == 1]
    planned = np.load(tmp_path / "run" / "plan" / "schedule.npy")["t_sched_ns"]
    assert at_start == [0] * 4 and sorted(measured["request"]) == list(range(len(planned)))
    shifted = measured["t_sched"] - run.phase("measure").start_ns - planned[measured["request"]]
    assert set(shifted) <= {0, 40_000_000} and shifted[-1] == 40_000_000
    for worker in (0, 1):
        assert (np.diff(shifted[measured["worker"] == worker]) >= 0).all()


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
    assert len(ui.document["target"]["connect_ms"]) == len(ui.document["target"]["connect_after_ms"]) == 20
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert left >= {"run.json", "requests.npy", "tokens.npy", "plan", "samples.npy", "hiccup.npy", "stalls.npy"}
    assert not left & {"workers", ".work"} and not [name for name in left if name.endswith(".part")]
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
            settings = asked(tmp_path / "run", rate=20.0, num_requests=5, target=target)
            assert execute(settings, Secret(KEY), Watching(look)) == 0
        finally:
            del os.environ["OPENAI_API_KEY"]
    assert seen == {("cmdline", False), ("environ", False)}
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes()


@pytest.mark.parametrize("hours", [1, -1])
def test_a_set_wall_clock_is_reported_and_changes_no_interval(tmp_path, monkeypatch, hours):
    """This host's clock is not set for a test: the one place that reads it for the supervisor is moved."""
    step_ns, read = [0], probe.offset_ns

    def moved():
        at, offset = read()
        return at, offset + step_ns[0]

    def move(snapshot):
        if snapshot.phase == "measure" and snapshot.ok:
            step_ns[0] = hours * 3600 * 10**9

    monkeypatch.setattr(probe, "offset_ns", moved)
    ui = Watching(move)
    assert execute(asked(tmp_path / "run", rate=30.0, duration=1.0, warmup_requests=0), None, ui) == 0
    incidents = [sentence for sentence in ui.document["incidents"] if "the wall clock was set" in sentence]
    assert len(incidents) == 1 and ("3,600.000 s forward" if hours > 0 else "3,600.000 s back") in incidents[0]
    phase = ui.document["phases"][-1]
    assert phase["end_ns"] - phase["start_ns"] == 10**9 and ui.document["status"] == "done"


@pytest.mark.parametrize("turns", [None, "2"])
def test_slots_that_workers_cannot_share_evenly_are_all_busy_to_the_end(tmp_path, turns):
    """Three slots of two workers: each has a third of the requests, not each worker a half."""
    workload = Workload(isl="16", osl="8", turns=turns)
    settings = asked(
        tmp_path / "run", client=Client(workers=2), workload=workload, rate=None, concurrency=3, num_requests=31,
        warmup_requests=0,
    )  # fmt: skip
    assert execute(settings, None, Watching()) == 0
    rows = load(tmp_path / "run").rows
    begun = rows[rows["turn"] == 0]
    place = begun["session"].astype(int) % 3
    assert sorted(begun["session"]) == list(range(31)) and (begun["worker"] == place % 2).all()
    assert np.bincount(begun["worker"]).tolist() == [21, 10]
