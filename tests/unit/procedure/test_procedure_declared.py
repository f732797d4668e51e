"""What the tests have in common: shared settings, a refused load, a capacity, an analysis after each level."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_runs import FakeRuns, installed, made
from refusals import raises_code

from fastllmload.experiment.experiment import Experiment
from fastllmload.experiment.level.settings import at_rate
from fastllmload.experiment.report.findings import Findings
from fastllmload.procedure import procedure_test
from fastllmload.procedure.procedure_test import Conditions, ProcedureTest
from fastllmload.procedure.tests import NAMES
from fastllmload.procedure.tests import test_named as procedure_named
from fastllmload.settings import Load, RunSettings

PRESCRIBED = [name for name in NAMES if name not in ("ttft", "prefix-cache")]  # tests that set the load themselves


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    capacity: float | None = 40.0
    capacity_source: str | None = "known"
    duration_s: float = 7.0


def two_levels(given: Conditions[Parameters]) -> Iterator[list[float]]:
    loads: list[float] = []
    for share in (0.25, 0.333333333):
        rate = given.rate_at(share)
        given.experiment.level(f"{rate:g}", at_rate(given.settings, rate))
        loads.append(rate)
        yield loads


def analyze(loads: list[float], given: Conditions[Parameters]) -> None:
    given.found.say(f"levels {loads}")


TOY = ProcedureTest("toy", "5.11", "Toy", Parameters, two_levels, analyze, at_shares=True)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> FakeRuns:
    return installed(monkeypatch)


def test_an_analysis_follows_each_level_of_the_shared_settings(runs: FakeRuns, tmp_path: Path) -> None:
    """Rates are shares of the capacity, to six digits."""
    found = Findings()
    with made(tmp_path / "p", warm=False) as experiment:
        TOY.run(experiment, Parameters(), found)
    assert found.sentences == ["levels [10.0]", "levels [10.0, 13.3333]"]
    assert [(asked.load.rate, asked.load.duration) for asked in runs.asked] == [(10.0, 7.0), (13.3333, 7.0)]


def test_without_a_capacity_no_level_is_measured(
    runs: FakeRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procedure_test, "capacity_of", lambda *arguments: None)
    with made(tmp_path / "p", warm=False) as experiment:
        TOY.run(experiment, Parameters(), found := Findings())
    assert found.sentences == [] and runs.asked == []


@pytest.mark.parametrize(("warms_up", "slots"), [(True, [3]), (False, [])])
def test_a_test_warms_up_once_with_its_own_settings_unless_it_prepares_the_system_itself(
    runs: FakeRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warms_up: bool, slots: list[int]
) -> None:
    seen: list[Any] = []

    def warm_up(experiment: Experiment, settings: RunSettings, quick: bool) -> None:
        seen.append(settings.load.concurrency)

    monkeypatch.setattr(procedure_test, "warm_up", warm_up)
    own = replace(
        TOY,
        warms_up=warms_up,
        warm_up_settings=lambda settings, parameters: RunSettings(load=Load(concurrency=3)),
    )
    with made(tmp_path / "p") as experiment:
        own.run(experiment, Parameters(), Findings())
    assert seen == slots


@pytest.mark.parametrize("name", PRESCRIBED)
@pytest.mark.parametrize("load", [Load(rate=5.0), Load(concurrency=4)])
def test_a_load_that_the_test_sets_itself_is_refused(name: str, load: Load) -> None:
    test = procedure_named(name)
    known = {"capacity": 4.0, "capacity_source": "known"} if "capacity" in test.parameters.__struct_fields__ else {}
    with raises_code("option-prescribed", name, "--concurrency" if load.concurrency else "--rate"):
        test.refuse(test.parameters(**known), RunSettings(load=load))
