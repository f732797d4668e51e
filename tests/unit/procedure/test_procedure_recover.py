"""Memory pressure on a system that dies of it: the hook brings it back and the test goes on; without a hook it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_runs import FakeRuns, installed, made

from fastllmload.errors import TargetError
from fastllmload.plan.settings import RunSettings
from fastllmload.procedure.findings import Findings
from fastllmload.procedure.lab import Lab
from fastllmload.procedure.tests import memory_pressure
from fastllmload.procedure.tests.memory_pressure import Parameters

ASKED = Parameters(capacity=4.0, capacity_source="known", levels=(1.5, 2.0), duration_s=1.0)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeRuns:
    """A server that dies under 6 slots, and lives again as soon as the hook has made *alive*."""
    alive = tmp_path / "alive"
    alive.touch()
    found = installed(monkeypatch)

    def answer(settings: RunSettings) -> dict[str, object]:
        if settings.load.concurrency == 6:
            alive.unlink()
        return {"failed": 5 if settings.load.concurrency == 6 else 0, "metrics": {}}

    found.answer = answer
    monkeypatch.setattr(Lab, "gone", lambda lab: not alive.exists())
    monkeypatch.setattr(Lab, "await_ready", lambda lab: 0.0)
    monkeypatch.setattr(memory_pressure, "preemptions", lambda level: None)
    monkeypatch.setattr(memory_pressure, "report", lambda done, slots, found: None)
    return found


def test_a_system_that_dies_is_brought_back_and_pressed_on(runs: FakeRuns, tmp_path: Path) -> None:
    """Three levels, the second aborted, the hook once."""
    hook = {"recover": f"touch {tmp_path}/alive"}
    with made(tmp_path / "p", commands=hook, warm=False) as lab:
        memory_pressure.run(lab, ASKED, Findings())
        entries = lab.journal.document["levels"]
        assert [entry["aborted"] for entry in entries] == [False, True, False]
        assert [step["name"] for step in lab.journal.document["steps"]] == ["recover"]
    assert [settings.load.concurrency for settings in runs.asked] == [4, 6, 8]


def test_without_the_hook_it_ends_there(runs: FakeRuns, tmp_path: Path) -> None:
    """What was measured of the level is kept beside."""
    with made(tmp_path / "p", warm=False) as lab, pytest.raises(TargetError, match=r"does not answer any more.*cut-1"):
        memory_pressure.run(lab, ASKED, Findings())
    assert [settings.load.concurrency for settings in runs.asked] == [4, 6]
