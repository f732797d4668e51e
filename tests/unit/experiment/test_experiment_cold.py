"""A cold start: who may ask for one, what it is made of, and that its report says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_runs import FakeRuns, installed, made
from refusals import raises_code

from fastllmload.documents.experiment import ColdStart, ExperimentDocument, HookEntry
from fastllmload.experiment.level.settings import at_rate
from fastllmload.experiment.preparation import cold_start
from fastllmload.experiment.preparation.warmup import warm_up
from fastllmload.experiment.report.parts import with_state

COLD = {"cold_start": "yes"}
STEPS = [
    HookEntry(name="cache-on", seconds=9.0, ready_after_s=9.0),
    HookEntry(name="restart", seconds=0.5, ready_after_s=2.0),
]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> FakeRuns:
    return installed(monkeypatch)


def test_only_the_test_of_ttft_starts_cold() -> None:
    """Others need a warm system, whatever can restart it."""
    with raises_code("option-not-applicable", "test ttft", "test throughput needs"):
        cold_start.refuse("throughput", COLD, True)
    cold_start.refuse("throughput", {}, False)
    cold_start.refuse("ttft", COLD, True)


def test_the_load_time_of_the_model_must_be_known() -> None:
    """A hook, an operator, our own engine, or the tester's word."""
    with raises_code("hook-missing", "--hook restart=COMMAND", "sut.load_time_s=SECONDS"):
        cold_start.refuse("ttft", COLD, False)
    cold_start.refuse("ttft", {**COLD, "sut.load_time_s": "93"}, False)


@pytest.mark.parametrize("text", ["abc", "", "-1", "nan", "inf", "1e999"])
def test_a_load_time_is_a_number_of_seconds(text: str) -> None:
    """It is an error before anything is measured."""
    with raises_code("declaration-invalid", "sut.load_time_s=", "number of seconds"):
        cold_start.refuse("ttft", {**COLD, "sut.load_time_s": text}, False)
    cold_start.refuse("ttft", {**COLD, "sut.load_time_s": "93 s"}, False)
    assert cold_start.entry({"sut.load_time_s": "93 s"}, (), ()).model_load_time_s == 93.0


def test_load_time_is_the_hook_and_the_wait_after_it(runs: FakeRuns, tmp_path: Path) -> None:
    """And the latency is that of the first level, which is the first request."""
    runs.answer = lambda settings: {"metrics": {"cold_start_latency": {"value": 345.0, "unit": "ms"}}}
    with made(tmp_path / "p") as experiment:
        experiment.level("ttft", at_rate(experiment.base, 1.0))
    found = cold_start.entry(COLD, STEPS, experiment.levels)
    assert found == ColdStart(model_load_time_s=2.5, cold_start_latency_ms=345.0)
    assert cold_start.sentence(found).count("2.5 s") == cold_start.sentence(found).count("345 ms") == 1


def test_by_hand_the_load_time_is_what_was_declared() -> None:
    """Nothing else is invented."""
    assert cold_start.entry({"sut.load_time_s": "93"}, [], []) == ColdStart(model_load_time_s=93.0)
    assert "not known" in cold_start.sentence(cold_start.entry({}, [], []))


def test_the_title_says_it() -> None:
    document = ExperimentDocument(status="done", cold_start=cold_start.entry({}, STEPS, []))
    assert with_state("IETF 5.1 Time to First Token", document) == "IETF 5.1 Time to First Token: COLD START"


@pytest.mark.parametrize("is_cold", [False, True])
def test_a_cold_start_without_warm_up_does_not_deviate(runs: FakeRuns, tmp_path: Path, is_cold: bool) -> None:
    """Left out without that reason, it is one."""
    with made(tmp_path / "p", warm=False, cold=is_cold) as experiment:
        warm_up(experiment, experiment.base)
        experiment.level("ttft", at_rate(experiment.base, 1.0))
        assert len(experiment.journal.document.deviations) == (0 if is_cold else 1)
    assert runs.folders == ["000-ttft"]
