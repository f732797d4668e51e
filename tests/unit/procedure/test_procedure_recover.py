"""Memory pressure on a system that dies under it: the hook restores it, and the test continues, also after the last level.
Without a hook the test ends.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_runs import FakeRuns, installed, made
from refusals import raises_code

from fastllmload.documents.procedure import MemoryPressureFindings
from fastllmload.experiment.experiment import Experiment
from fastllmload.experiment.report.findings import Findings
from fastllmload.procedure.tests import memory_pressure
from fastllmload.procedure.tests.memory_pressure import Parameters
from fastllmload.settings import RunSettings

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
    monkeypatch.setattr(Experiment, "is_unreachable", lambda experiment: not alive.exists())
    monkeypatch.setattr(Experiment, "await_ready", lambda experiment: 0.0)
    return found


def test_a_system_that_dies_is_recovered_and_the_test_continues(runs: FakeRuns, tmp_path: Path) -> None:
    """Three levels, the second aborted, the hook once."""
    hook = {"recover": f"touch {tmp_path}/alive"}
    with made(tmp_path / "p", commands=hook, warm=False) as experiment:
        memory_pressure.TEST.run(experiment, ASKED, Findings())
        entries = experiment.journal.document.levels
        assert [entry.aborted for entry in entries] == [False, True, False]
        assert [step.name for step in experiment.journal.document.steps] == ["recover"]
    assert [settings.load.concurrency for settings in runs.asked] == [4, 6, 8]


LAST = Parameters(capacity=4.0, capacity_source="known", levels=(1.5,), duration_s=1.0)


def test_it_is_also_recovered_after_the_last_level(runs: FakeRuns, tmp_path: Path) -> None:
    """The report says that it died, and that it was brought back. Started again nothing is done, and it says the same."""
    hook = {"recover": f"echo once >> {tmp_path}/said; touch {tmp_path}/alive"}
    for start in range(2):
        found = Findings()
        with made(tmp_path / "p", commands=hook, warm=False) as experiment:
            memory_pressure.TEST.run(experiment, LAST, found)
            entry = experiment.journal.document.levels[1]
            assert entry.died and entry.aborted and entry.recovered_s is not None
            assert experiment.levels[1].resumed is (start == 1)
        (sentence,) = (text for text in found.sentences if text.startswith("after"))
        assert "150% of" in sentence and "recover" in sentence
        assert isinstance(found.values, MemoryPressureFindings) and found.values.levels[1].died
    assert (tmp_path / "said").read_text() == "once\n"


def test_a_hook_that_fails_after_the_last_level_keeps_its_figures(runs: FakeRuns, tmp_path: Path) -> None:
    """The report says that the system was not brought back. The next start finds the level and tries the hook again."""
    found = Findings()
    with made(tmp_path / "p", commands={"recover": "exit 3"}, warm=False) as experiment:
        with raises_code("hook-failed", "--hook recover='exit 3'", "status 3"):
            memory_pressure.TEST.run(experiment, LAST, found)
        assert experiment.journal.document.levels[1].died
    assert found.sentences[-1].endswith("not brought back")
    with made(tmp_path / "p", commands={"recover": f"touch {tmp_path}/alive"}, warm=False) as experiment:
        memory_pressure.TEST.run(experiment, LAST, found)
    assert len(runs.asked) == 2 and "brought it back" in found.sentences[-1]


def test_without_the_hook_it_ends_there(runs: FakeRuns, tmp_path: Path) -> None:
    """The measured part of the level is kept under another name."""
    with (
        made(tmp_path / "p", warm=False) as experiment,
        raises_code("target-lost", "cut-1"),
    ):
        memory_pressure.TEST.run(experiment, ASKED, Findings())
    assert [settings.load.concurrency for settings in runs.asked] == [4, 6]
