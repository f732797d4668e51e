"""Every maximum names what ended it: criterion, value, limit and level."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from refusals import raises_code

from fastllmload.documents.experiment import CriteriaFigures
from fastllmload.experiment.level.verdict import COMPLETION, IN_FLIGHT, LATENCY, NO_GAIN, QUEUE, LevelVerdict
from fastllmload.experiment.report.findings import Findings
from fastllmload.procedure.tests import capacity, itl, throughput
from fastllmload.search.driver import Interval
from fastllmload.search.load_sweep import LevelResult
from fastllmload.settings import RunSettings, Workload
from fastllmload.statistics.sequential_tests import Decision

FIGURES = CriteriaFigures(
    ttft_p99_ms=812.0,
    lowest_ttft_p50_ms=40.0,
    completion_rate=0.71,
    queue_mean=30.0,
    queue_last=90.0,
    output_tok_s=639.0,
)


def verdict(*fired: str, holds: bool = False, limited: bool = False) -> LevelVerdict:
    return LevelVerdict(
        loop="open", saturated=None if limited else bool(fired), fired=fired, inapplicable=(), steady=holds or bool(fired),
        generator_limited=limited, limits=("P99 of the dispatch lag is 3 ms",) if limited else (), offered_in_full=True,
        cascading=False, warnings=(), figures=FIGURES, queue=IN_FLIGHT,
    )  # fmt: skip


def result(load: float, tok_s: float, said: LevelVerdict, ttft: float = 800.0) -> Any:
    level: Any = SimpleNamespace(load=load, output_tok_s=tok_s, figure=lambda name, statistic: ttft, run=None)
    return LevelResult(level, said)


@pytest.mark.parametrize(
    ("said", "values"),
    [
        (verdict(LATENCY), ["latency", "P99 TTFT 812 ms", "above 400 ms, 10 x"]),
        (verdict(COMPLETION), ["completion", "71.0% of", "below 90%"]),
        (verdict(QUEUE), ["queue growing", "30 on average", "90 at the end"]),
        (verdict(NO_GAIN), ["no gain", "639 output tok/s", "less than 5%"]),
        (verdict(), ["throughput drifts"]),
        (verdict(LATENCY, limited=True), ["the client", "dispatch lag is 3 ms"]),
    ],
)
def test_a_level_that_does_not_hold_names_criterion_value_and_limit(said: LevelVerdict, values: list[str]) -> None:
    why = said.why()
    assert why.startswith(values[0]) and [value for value in values if value not in why] == []


def test_the_maximum_throughput_names_what_ended_it_and_why_more_tokens_do_not_count() -> None:
    """384 tok/s is the maximum although 80/s gave 639: the latency criterion fired there, at 50/s as well."""
    best = result(40, 383.7, verdict(holds=True))
    load_sweep: Any = SimpleNamespace(
        results=[best, result(50, 500, verdict(LATENCY)), result(80, 639, verdict(LATENCY, QUEUE))]
    )
    assert throughput.limited_by(load_sweep, 50, {}) == verdict(LATENCY).why()
    more = throughput.higher(load_sweep, best, {})
    assert more is not None and ("639 tok/s" in more and "80 do" in more and "P99 TTFT 812 ms" in more)
    assert (
        throughput.higher(load_sweep, load_sweep.results[2], {}) is None
        and throughput.limited_by(load_sweep, 40, {}) is None
    )
    load_sweep.results.append(result(45, 400, verdict(holds=True)))
    assert throughput.limited_by(load_sweep, 45, {"tpot": 50.0}) == "P99 TPOT 800 ms is above 50 ms"


@pytest.mark.parametrize(
    ("above", "unit", "said"),
    [
        (17.0, "slots", "17 slots do"),
        (1.0, "slots", "1 slot does"),
        (2.5, "requests/s", "2.5 requests/s do"),
        (1.0, "requests/s", "1 request/s does"),
    ],
)
def test_what_does_not_hold_is_said_in_its_number(above: float, unit: str, said: str) -> None:
    level: Any = SimpleNamespace(output_tok_s=1.0, req_s=1.0, figure=lambda *asked: 1.0)
    found = Findings()
    throughput.summary(level, Interval(0.5, above, "bracket"), found, unit, "why")
    assert found.tables[0].notes[0].startswith(f"{said} not hold: why; batch")


def test_the_maximum_concurrency_names_what_ended_it() -> None:
    """Completion, latency and memory, with value and limit, of the level that does not pass."""
    level: Any = SimpleNamespace(
        load=64.0, success_rate=0.93, generator_limited=False, figure=lambda name, statistic: 812.0
    )
    done = [capacity.CapacityLevel(level, Decision.FAIL, 2, 0)]
    levels: Any = SimpleNamespace(done=done, parameters=SimpleNamespace(slo_ttft_p99_ms=500.0))
    assert capacity.limited_by(levels, 64.0) == (
        "2 out-of-memory errors; completion 93.0%, below 99%; P99 TTFT 812 ms is above 500 ms"
    )
    assert capacity.limited_by(levels, 32.0) is None and capacity.limited_by(levels, None) is None


@pytest.mark.parametrize("osl", ["16", "uniform:8,50"])
def test_itl_refuses_answers_that_have_too_few_gaps(osl: str) -> None:
    """They were raised to 51 tokens without a word."""
    settings = RunSettings(workload=Workload(osl=osl))
    with raises_code("output-too-short", f"--osl {osl}", "51 tokens"):
        itl.TEST.refuse(itl.Parameters(), settings)


@pytest.mark.parametrize("osl", [None, "51", "uniform:8,200", "normal:40,10"])
def test_itl_takes_answers_that_may_have_enough(osl: str | None) -> None:
    itl.TEST.refuse(itl.Parameters(), RunSettings(workload=Workload(osl=osl)))
