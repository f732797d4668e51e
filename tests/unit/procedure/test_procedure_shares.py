"""What a test may be asked: levels that mean something, a capacity with its source, a range that is one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from refusals import raises_code, says
from typed_documents import typed

from fastllmload.errors import InputError
from fastllmload.experiment.report.findings import Findings
from fastllmload.procedure.procedure_test import Conditions
from fastllmload.procedure.tests import test_named as procedure_named
from fastllmload.procedure.tests import throughput, tradeoff
from fastllmload.procedure.tests.capacity import Parameters as CapacityParameters
from fastllmload.search.load_sweep import LevelResult, LoadSweep
from fastllmload.search.saturation import SaturationCapacity
from fastllmload.settings import RunSettings, Target, Workload
from fastllmload.statistics.sequential_tests import Decision

PASS, FAIL, CLIENT = Decision.PASS, Decision.FAIL, Decision.CLIENT
TAKES_LEVELS = ("tradeoff", "itl", "guardrail", "memory-pressure")
TAKES_CAPACITY = (*TAKES_LEVELS, "fairness")


def refuse(name: str, **given: Any) -> None:
    """With everything that the test needs besides."""
    test = procedure_named(name)
    known = {"capacity": 4.0, "capacity_source": "known"} if "capacity" in test.parameters.__struct_fields__ else {}
    needed = {"slo_ttft_p99_ms": 100.0} if "slo_ttft_p99_ms" in test.parameters.__struct_fields__ else {}
    test.refuse(test.parameters(**{**known, **needed, **given}), RunSettings())


def refusal(name: str, **given: Any) -> str:
    with pytest.raises(InputError) as refused:
        refuse(name, **given)
    said = str(refused.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize("name", TAKES_CAPACITY)
def test_what_the_defaults_ask_for_is_taken(name: str) -> None:
    refuse(name)


@pytest.mark.parametrize("name", TAKES_LEVELS)
def test_no_level_is_none_to_measure(name: str) -> None:
    assert says(refusal(name, levels=()), "option-value-missing", "--levels names no")


@pytest.mark.parametrize("name", TAKES_LEVELS)
def test_a_level_is_named_once(name: str) -> None:
    one = 1.25 if name == "memory-pressure" else 0.5
    assert f"--levels names {one:g} twice" in refusal(name, levels=(one, one))


@pytest.mark.parametrize("name", TAKES_CAPACITY)
def test_a_capacity_has_a_source(name: str) -> None:
    assert "--capacity 4 needs --capacity-source" in refusal(name, capacity_source=None)
    assert "--capacity-source says where" in refusal(name, capacity=None)


@pytest.mark.parametrize("name", ["itl", "guardrail"])
def test_a_share_of_the_capacity_is_at_most_all_of_it(name: str) -> None:
    """IETF 5.4.2 has percent of the maximum, 5.10.3 percent of the capacity; the tradeoff goes beyond it."""
    assert says(refusal(name, levels=(0.5, 2.0)), "value-out-of-range", "--levels 2 lies above")
    refuse(name, levels=(0.5, 1.0))
    refuse("tradeoff", levels=(0.5, 2.0))


@pytest.mark.parametrize("levels", [(0.5,), (0.5, 1.5), (1.0,)])
def test_memory_is_pressed_above_the_capacity(levels: tuple[float, ...]) -> None:
    """100 % is the base, which is measured first and does not oversubscribe memory by itself (IETF 5.8.2)."""
    said = refusal("memory-pressure", levels=levels)
    assert says(said, "value-out-of-range", f"--levels {levels[0]:g}: ", "above the capacity")
    refuse("memory-pressure", levels=(1.0, 1.1))
    refuse("memory-pressure", levels=(1.5,))


def test_a_length_is_named_once() -> None:
    assert says(refusal("long-context", lengths=()), "option-value-missing", "--lengths names no")
    assert "--lengths names 2048 twice" in refusal("long-context", lengths=(2048, 4096, 2048))


@pytest.mark.parametrize("option", ["isl", "osl"])
def test_fairness_draws_the_lengths_of_its_classes_by_itself(option: str) -> None:
    """They were dropped without a word (IETF 5.6.2)."""
    test = procedure_named("fairness")
    with raises_code("option-prescribed", f"--{option} 40: ", f"leave --{option} out"):
        test.refuse(test.parameters(), RunSettings(workload=Workload(**{option: "40"})))


def test_all_missing_options_of_memory_pressure_are_reported_at_once() -> None:
    test = procedure_named("memory-pressure")
    with pytest.raises(InputError) as refused:
        test.refuse(test.parameters(), RunSettings(target=Target(urls=("http://127.0.0.1:1",))))
    assert "--isolated" in str(refused.value) and "--slo-ttft-p99" in str(refused.value)


def test_a_search_begins_below_its_end() -> None:
    assert "--initial 9 and --max 4" in refusal("capacity", initial=9, maximum=4)
    refuse("capacity", initial=4, maximum=4)
    refuse("capacity", maximum=4)
    assert "--initial 600 and --max 512" in refusal("memory-pressure", capacity=None, capacity_source=None, initial=600)


@pytest.mark.parametrize(("given", "first"), [({}, 8), ({"maximum": 4}, 4), ({"maximum": 4, "initial": 2}, 2)])
def test_the_search_begins_at_eight_or_at_its_end_where_that_is_less(given: dict[str, int], first: int) -> None:
    asked = procedure_named("capacity").parameters(**given)
    assert isinstance(asked, CapacityParameters) and asked.initial == asked.quick().initial == first


@pytest.mark.parametrize(
    ("levels", "quick", "measured"),
    [
        ((0.3, 1.4), True, [3, 14]),
        ((0.3, 1.6, 2.0), True, [3, 16, 20]),
        ((0.3, 1.4), False, [3, 14, 16, 20]),
        ((0.3, 1.2), False, [3, 12, 14, 16, 20]),
    ],
)
def test_every_level_of_the_tradeoff_that_was_named_is_measured(
    monkeypatch: pytest.MonkeyPatch, levels: tuple[float, ...], quick: bool, measured: list[float]
) -> None:
    """Those of 1.4, 1.6 and 2 times the capacity too, otherwise added where nothing saturates (spec/procedures 5.3)."""
    loads: list[float] = []

    def at(load_sweep: LoadSweep, load: float) -> Any:
        loads.append(load)
        return SimpleNamespace(load=load, level=SimpleNamespace(cascading=False))

    monkeypatch.setattr(LoadSweep, "at", at)
    experiment: Any = SimpleNamespace(quick=quick)
    known = SaturationCapacity(10.0, "known")
    given = Conditions(experiment, RunSettings(), tradeoff.Parameters(levels=levels), Findings(), known)
    assert len(list(tradeoff.levels(given))) == len(measured)
    assert loads == measured


@pytest.mark.parametrize(
    ("late", "value", "bounds", "said"),
    [
        (False, 90.0, (80.0, 115.0), PASS),
        (False, 110.0, (95.0, 115.0), FAIL),
        (True, 90.0, (80.0, 95.0), PASS),
        (True, 90.0, (80.0, 115.0), CLIENT),
        (True, 110.0, (95.0, 115.0), CLIENT),
        (True, 110.0, (105.0, 115.0), FAIL),
    ],
)
def test_an_objective_is_missed_or_met_where_it_is_so_whatever_the_client_did_late(
    late: bool, value: float, bounds: tuple[float, float], said: Decision
) -> None:
    """And the report is of a run that met it."""
    level: Any = SimpleNamespace(
        load=8.0, figure=lambda *asked: value, output_tok_s=100.0,
        document=typed({"metrics": {"tpot": {"bounds": {"p99": bounds}}}}),
    )  # fmt: skip
    verdict: Any = SimpleNamespace(decision=PASS, limits=("P99 of the dispatch lag is 1.5 ms",) * late)
    result = LevelResult(level, verdict)
    assert throughput.judge(result, {"tpot": 100.0}) is said
    load_sweep: Any = SimpleNamespace(results=[result])
    assert throughput.best_of(load_sweep, 8.0, {"tpot": 100.0}) is (result if said is PASS else None)
    assert throughput.best_of(load_sweep, 8.0, {}) is result
