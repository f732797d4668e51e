"""Fake workers, a view that records its calls, and phases with frequent updates."""

import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fastllmload.documents.write import plain
from fastllmload.engine import phases
from fastllmload.engine.interrupts import NOTHING
from fastllmload.engine.recording.live import Live
from fastllmload.engine.workers import fleet as fleets
from fastllmload.engine.workers.fleet import LocalFleet
from fastllmload.engine.workers.spec import PhaseSpec, WorkerSpec
from fastllmload.records.samples import SampleLog


class RecordingUi:
    """Records every call; *hook* receives each snapshot."""

    def __init__(self, hook=lambda snapshot: None):
        self.lines, self.phases, self.snapshots, self.document, self.closed = [], [], [], None, 0
        self.hook = hook

    def banner(self, lines):
        self.lines += lines

    def phase(self, name, planned, seconds):
        self.phases.append((name, planned, seconds))

    def due(self, t):
        return True

    def update(self, snapshot):
        self.snapshots.append(snapshot)
        self.hook(snapshot)

    def message(self, text):
        self.lines.append(text)

    def finish(self, document, folder=None):
        self.document = plain(document)

    def close(self):
        self.closed += 1


class NoSignals:
    """Interrupts whose level the test sets."""

    def __init__(self):
        self.level = NOTHING

    def wait(self, seconds):
        time.sleep(max(0.0, min(seconds, 0.005)))


@pytest.fixture
def ui():
    return RecordingUi()


@pytest.fixture
def signals():
    return NoSignals()


@pytest.fixture
def specs(tmp_path):
    def make(workers=1, numbers=(0,)):
        (tmp_path / ".work").mkdir(exist_ok=True)
        return [
            WorkerSpec(
                worker=worker, workers=workers, supervisor_pid=1, run_id="00000000", targets=(), timeout_ns=1,
                rows_dir=str(tmp_path / "workers" / str(worker)),
                phases=tuple(
                    PhaseSpec(number=n, name="measure", phase_code=1, plan_dir="", mode="open") for n in numbers
                ),
            )
            for worker in range(workers)
        ]  # fmt: skip

    return make


@pytest.fixture
def fleet(monkeypatch, specs):
    """`fleet(how, workers, numbers)` starts fake workers; all are gone at the end of the test."""
    monkeypatch.setattr(
        fleets, "WORKER", (sys.executable, str(Path(__file__).parents[2] / "support" / "fake_worker.py"))
    )
    started = []

    def start(how="", workers=1, numbers=(0,)):
        monkeypatch.setenv("FAKE_WORKER", how)
        started.append(LocalFleet.start(specs(workers, numbers)))
        return started[-1]

    yield start
    for one in started:
        one.stop(0.0)
        one.rows.finish()
        assert all(member.process.poll() is not None for member in one.members)


@pytest.fixture
def phase(tmp_path, ui, signals, monkeypatch):
    """`phase(fleet, ...)` makes a PhaseRun that updates every 5 ms."""
    monkeypatch.setattr(phases, "UPDATE_S", 0.005)
    monkeypatch.setattr(phases, "LEAD_NS", 1_000_000)
    logs = []

    def make(workers, number=0, plan=None, **fields):
        logs.append(SampleLog(tmp_path / "samples.npy"))
        nothing = SimpleNamespace(
            requests=10, cycles=False, duration_s=None, t_sched=None, concurrency=None, closed_classes={},
            closed_cycles=False,
        )  # fmt: skip
        given = {
            "fleet": workers, "spec": workers.members[0].spec.phases[number], "plan": plan or nothing,
            "live": Live(workers, logs[-1], None), "ui": ui, "interrupts": signals, "asked_rate": 5.0,
            "own_grace": False, "died": lambda member: None, "ready": lambda: None, "check": lambda: False,
            "started": lambda start: None,
        }  # fmt: skip
        return phases.PhaseRun(**{**given, **fields})

    yield make
    for log in logs:
        log.close()
