"""Out-of-memory lines of the server's log: only those that a level brought, also when that level is found finished."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_runs import FakeRuns, installed, made
from refusals import says

from fastllmload.experiment.report.findings import Findings
from fastllmload.procedure.procedure_test import Conditions
from fastllmload.procedure.tests.capacity import Levels, Parameters, analyze, find_capacity
from fastllmload.search.bisection import PermanentFailure
from fastllmload.search.driver import Interval
from fastllmload.settings import RunSettings
from fastllmload.statistics.sequential_tests import Decision

OOM = "CUDA OOM: tried to allocate 2 GiB\n"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> FakeRuns:
    return installed(monkeypatch)


def judged(folder: Path, slots: int, log: Path) -> tuple[Decision | PermanentFailure, int]:
    """The decision on the level, and the out-of-memory lines in its entry."""
    parameters = Parameters(slo_ttft_p99_ms=100.0, per_slot=0, duration_s=1.0)
    with made(folder, commands={"server-log": f"cat {log}"}) as experiment:
        answer = Levels(experiment, experiment.base, parameters, Findings()).judge(slots, 0)
    entry = json.loads((folder / "procedure.json").read_text())["levels"][-1]
    return answer, entry["oom"]


def passing(settings: RunSettings) -> dict[str, object]:
    return {"counts": {"ok": 10, "submitted": 10}, "metrics": {"ttft": {"p99": 5.0}, "success_rate": {"value": 1.0}}}


def writing(log: Path, text: str) -> Callable[[RunSettings], dict[str, object]]:
    """A level during which the server's log becomes *text*."""

    def answer(settings: RunSettings) -> dict[str, object]:
        log.write_text(text)
        return passing(settings)

    return answer


def test_lines_from_before_the_test_are_not_its_own(runs: FakeRuns, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(OOM * 3)
    runs.answer = passing
    assert judged(tmp_path / "p", 4, log)[1] == 0


def test_a_level_that_is_found_finished_keeps_its_lines(runs: FakeRuns, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("")
    runs.answer = writing(log, OOM)
    assert judged(tmp_path / "p", 4, log) == (PermanentFailure("an out-of-memory error"), 1)
    log.write_text(OOM * 5)
    assert judged(tmp_path / "p", 4, log) == (PermanentFailure("an out-of-memory error"), 1)


def test_a_rotated_log_counts_from_its_start(runs: FakeRuns, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(OOM * 3)
    runs.answer = writing(log, OOM * 2)
    assert judged(tmp_path / "p", 4, log)[1] == 2


def test_a_start_interrupted_before_the_second_reading_takes_it_later(
    runs: FakeRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The level is finished, but the log was not read after it: no request was sent since, so it is read now."""
    log = tmp_path / "log"
    log.write_text("")
    runs.answer = writing(log, OOM)
    with monkeypatch.context() as cut:
        cut.setattr(Levels, "oom_lines", lambda self, key: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            judged(tmp_path / "p", 4, log)
    assert judged(tmp_path / "p", 4, log) == (PermanentFailure("an out-of-memory error"), 1)


def test_lines_of_an_attempt_whose_files_are_damaged_are_not_those_of_the_next(runs: FakeRuns, tmp_path: Path) -> None:
    """The level is measured again on a server that has the memory by then."""
    log = tmp_path / "log"
    log.write_text("")
    runs.answer = writing(log, OOM)
    assert judged(tmp_path / "p", 4, log) == (PermanentFailure("an out-of-memory error"), 1)
    (next((tmp_path / "p" / "levels").iterdir()) / "run.json").write_text("{")
    runs.answer = passing
    assert judged(tmp_path / "p", 4, log) == (Decision.PASS, 0)


def test_lines_that_a_start_died_of_stay_with_the_level(runs: FakeRuns, tmp_path: Path) -> None:
    """The server was killed by this level's load: that the level is measured again does not undo it."""
    log = tmp_path / "log"
    log.write_text("")

    def dies(settings: RunSettings) -> dict[str, object]:
        log.write_text(OOM)
        raise KeyboardInterrupt

    runs.answer = dies
    with pytest.raises(KeyboardInterrupt):
        judged(tmp_path / "p", 4, log)
    runs.answer = passing
    assert judged(tmp_path / "p", 4, log) == (PermanentFailure("an out-of-memory error"), 1)


def searched(folder: Path, log: Path, **more: int) -> tuple[Interval, Findings]:
    parameters = Parameters(slo_ttft_p99_ms=100.0, per_slot=0, duration_s=1.0, maximum=16, **more)
    found = Findings()
    with made(folder, commands={"server-log": f"cat {log}"}) as experiment:
        levels = Levels(experiment, experiment.base, parameters, found)
        answer = find_capacity(levels)
        analyze((levels, answer), Conditions(experiment, experiment.base, parameters, found))
    return answer, found


def test_memory_that_ran_out_once_is_not_outvoted_by_better_runs(runs: FakeRuns, tmp_path: Path) -> None:
    """One line while 8 slots are measured for the first time; every other run of any level passes."""
    log = tmp_path / "log"
    log.write_text("")

    def once(settings: RunSettings) -> dict[str, object]:
        if settings.load.concurrency == 8 and not log.read_text():
            log.write_text(OOM)
        return passing(settings)

    runs.answer = once
    answer, found = searched(tmp_path / "p", log)
    assert (answer.best, answer.above) == (7, 8)
    assert any(text.endswith(": 7") for text in found.sentences)
    assert any(says(text, "level-fails-permanently", "level 8 ") for text in found.sentences)
    assert searched(tmp_path / "p", log) == (answer, found)


def test_an_error_text_of_a_level_that_was_too_short_is_kept(runs: FakeRuns, tmp_path: Path) -> None:
    """The level would be run for longer, for its count: what its first try said of memory is not forgotten."""
    texts = {"texts": [{"text": "CUDA OOM", "requests": 2}]}
    runs.answer = lambda settings: passing(settings) | ({"error_texts": texts} if len(runs.asked) == 1 else {})
    parameters = Parameters(slo_ttft_p99_ms=100.0, duration_s=1.0)
    with made(tmp_path / "p") as experiment:
        answer = Levels(experiment, experiment.base, parameters, Findings()).judge(4, 0)
    assert answer == PermanentFailure("2 out-of-memory errors")


def test_a_level_on_which_most_requests_failed_is_not_outvoted(runs: FakeRuns, tmp_path: Path) -> None:
    """A system that went away and came back is not one that held; where the client was the limit nothing is said."""
    times = {"name": "measure", "number": 1, "start_ns": 0, "end_ns": 1, "bound": "duration", "ramp_share": 0.1}
    broken = {"phases": [{**times, "cascading_failure": True}]}
    runs.answer = lambda settings: passing(settings) | broken
    parameters = Parameters(slo_ttft_p99_ms=100.0, per_slot=0, duration_s=1.0)
    with made(tmp_path / "p") as experiment:
        assert Levels(experiment, experiment.base, parameters, Findings()).judge(4, 0) == PermanentFailure(
            "most requests failed"
        )
    limited = {"certificate": {"verdict": "invalid", "generator_limited": True}, "metrics": {}}
    runs.answer = lambda settings: passing(settings) | broken | limited
    with made(tmp_path / "q") as experiment:
        assert Levels(experiment, experiment.base, parameters, Findings()).judge(4, 0) is Decision.CLIENT


def test_lines_between_two_levels_give_a_warning(runs: FakeRuns, tmp_path: Path) -> None:
    """A log that is written late: no level counts the lines, but a warning reports them."""
    log = tmp_path / "log"
    log.write_text("")
    runs.answer = passing
    found = Findings()
    parameters = Parameters(slo_ttft_p99_ms=100.0, per_slot=0, duration_s=1.0)
    with made(tmp_path / "p", commands={"server-log": f"cat {log}"}) as experiment:
        levels = Levels(experiment, experiment.base, parameters, found)
        levels.judge(4, 0)
        assert found.warnings == []
        log.write_text(OOM)
        assert levels.judge(8, 0) is Decision.PASS
    assert len(found.warnings) == 1 and "1 out-of-memory line appeared" in found.warnings[0]
    assert "before 8 slots, run 1" in found.warnings[0]
