"""Throughput-latency tradeoff (IETF 5.3): levels of an open loop from a tenth of the capacity to beyond it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fastllmload.documents.experiment import FindingMark, FindingPlot, FindingSeries
from fastllmload.documents.procedure import TradeoffFindings
from fastllmload.errors import InputError
from fastllmload.experiment.level.limits import limits_of, meets
from fastllmload.experiment.report.findings import Findings
from fastllmload.metrics.levels import operating_points as points
from fastllmload.procedure.procedure_test import Conditions, ProcedureTest, shorter
from fastllmload.search.load_sweep import LevelResult, LoadSweep, queue_text, state_of
from fastllmload.search.saturation import validate_capacity_source, validate_levels
from fastllmload.settings import RunSettings
from fastllmload.statistics.sequential_tests import Decision

SHARES = tuple(round(0.1 * k, 1) for k in range(1, 13))
FURTHER = (1.4, 1.6, 2.0)  # measured if no level saturated the system
LEAST_LEVELS, LEAST_S = 10, 60.0


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """*capacity* in requests/s; *levels* are shares of it."""

    duration_s: float = 300.0
    capacity: float | None = None
    capacity_source: str | None = None
    levels: tuple[float, ...] = SHARES
    slo_ttft_p99_ms: float | None = None
    slo_tpot_p99_ms: float | None = None

    def quick(self) -> Parameters:
        return msgspec.structs.replace(self, duration_s=shorter(self.duration_s, 60, 4.0))


def levels(given: Conditions[Parameters]) -> Iterator[LoadSweep]:
    load_sweep, found = given.sweep(), given.found
    highest = max(given.parameters.levels)
    for share in (*sorted(given.parameters.levels), *(one for one in FURTHER if one > highest)):
        if share > highest and (given.experiment.quick or saturated(load_sweep)):
            continue
        level_result = load_sweep.at(given.rate_at(share))
        yield load_sweep
        if level_result.level.cascading:
            found.warn(
                "levels-left-out", f"at {level_result.load:g} r/s most requests failed: higher levels were left out"
            )
            break
    if not saturated(load_sweep):
        found.deviate("no level saturated the system: the range does not reach saturation (IETF 5.3.2)")


def saturated(load_sweep: LoadSweep) -> bool:
    return any(level_result.verdict.saturated for level_result in load_sweep.level_results)


def analyze(load_sweep: LoadSweep, given: Conditions[Parameters]) -> None:
    """The draft's table, a second one with further columns, the operating points and the plots."""
    parameters, capacity, found = given.parameters, given.capacity, given.found
    level_results = sorted(load_sweep.level_results, key=lambda level_result: level_result.load)
    judged = [level_result for level_result in level_results if level_result.verdict.decision is not Decision.CLIENT]
    offered = [level_result.load for level_result in judged]
    achieved = [level_result.level.output_tok_s for level_result in judged]
    ttft_p99 = [value(level_result, "ttft") for level_result in judged]
    limits = limits_of(parameters)
    within = [bool(meets(level_result.level, limits)) for level_result in judged] if limits else None
    left_out = [level_result.load for level_result in level_results if level_result not in judged]
    knee = points.knee_point(offered, ttft_p99)
    saturation = points.saturation_point(offered, achieved)
    peak = points.peak_level(offered, achieved) if len(judged) > 1 else None
    optimum = points.optimal_point(offered, achieved, within)
    found.values = TradeoffFindings(
        capacity=capacity.entry(),
        levels=len(level_results),
        left_out=tuple(left_out),
        knee_point=knee,
        saturation_point=saturation,
        peak_level=peak,
        optimal_point=optimum,
        first_saturated=next(
            (level_result.load for level_result in level_results if level_result.verdict.saturated), None
        ),
        limits=limits,
    )
    tables(level_results, found)
    found.sentences = [
        f"Knee point: {rate_text(knee, 'none found')}",
        f"Saturation point: {rate_text(saturation, 'none found: throughput never fell')}",
        f"Peak: {rate_text(peak, 'none: a peak needs at least two levels')}",
    ]
    if left_out:
        found.say(
            f"these points exclude {len(left_out)} of {len(level_results)} levels, on which the client was the limit: "
            f"{', '.join(f'{load:g}' for load in left_out)} requests/s"
        )
    if limits:
        found.say(f"Optimal point: {rate_text(optimum, 'no level meets the objectives')}")
    found.say(f"Capacity: {capacity.req_s:.4g} requests/s ({capacity.source})")
    plots(level_results, knee, found)
    if len(level_results) < LEAST_LEVELS:
        found.deviations = [text for text in found.deviations if not text.startswith("only ")]
        found.deviate(
            f"only {len(level_results)} level{'s' * (len(level_results) != 1)}; IETF 5.3.2 asks for {LEAST_LEVELS} or more"
        )
    else:
        found.deviations = [text for text in found.deviations if not text.startswith("only ")]


def value(level_result: LevelResult, metric: str, statistic: str = "p99") -> float:
    found = level_result.level.figure(metric, statistic)
    return float("nan") if found is None else found


def tables(level_results: list[LevelResult], found: Findings) -> None:
    columns = (
        "Offered (r/s)",
        "Achieved (tok/s)",
        "TTFT P50 (ms)",
        "TTFT P99 (ms)",
        "TPOT P50 (ms)",
        "TPOT P99 (ms)",
        "Success",
    )
    rows = []
    more = []
    for level_result in level_results:
        level, rate = level_result.level, level_result.level.success_rate
        success = "n/a" if rate is None else f"{rate:.1%}"
        rows.append(
            (f"{level_result.load:g}", level.output_tok_s, level.figure("ttft", "p50"), level.figure("ttft", "p99"),
             level.figure("tpot", "p50"), level.figure("tpot", "p99"), success)
        )  # fmt: skip
        more.append(
            (f"{level_result.load:g}", level.figure("ttft", "p95"), level.figure("tpot", "p95"), level.figure("e2e", "p50"),
             level.figure("e2e", "p99"), level_result.verdict.figures.get("in_flight_mean"),
             level_result.verdict.figures.get("completion_rate"),
             ", ".join((state_of(level_result.verdict), *level_result.verdict.fired)))
        )  # fmt: skip
    found.table("tradeoff", "Throughput-Latency Tradeoff", columns, rows)
    found.table(
        "tradeoff-more", "Further percentiles, queue and verdict",
        ("Offered (r/s)", "TTFT P95 (ms)", "TPOT P95 (ms)", "E2E P50 (ms)", "E2E P99 (ms)", "In flight", "Completion",
         "Verdict"),
        more, queue_text(level_results),
    )  # fmt: skip


def rate_text(rate: float | None, none: str) -> str:
    return f"{rate:g} requests/s" if rate is not None else none


def plots(level_results: list[LevelResult], knee: float | None, found: Findings) -> None:
    output = tuple(level_result.level.output_tok_s for level_result in level_results)
    names = (("P50", "p50"), ("P99", "p99"))
    series = tuple(
        FindingSeries(
            f"TTFT {name}", tuple(level_result.level.figure("ttft", key) for level_result in level_results), output
        )
        for name, key in names
    )
    found.plot(
        FindingPlot(
            "curve",
            "TTFT over achieved throughput",
            "line",
            series,
            ("throughput", "tok/s", None),
            ("TTFT", "ms", True),
        )
    )
    marks = () if knee is None else (FindingMark("x", knee, "knee"),)
    load = tuple(level_result.load for level_result in level_results)
    series = (FindingSeries("output", output, load),)
    offered, achieved = ("offered", "requests/s", None), ("achieved", "tok/s", None)
    found.plot(
        FindingPlot("achieved", "Achieved throughput over offered load", "line", series, offered, achieved, marks=marks)
    )


def validate(parameters: Parameters, settings: RunSettings) -> None:
    if settings.load.concurrency is not None:
        raise InputError(
            "option-prescribed", "the test tradeoff is open loop by definition (IETF 5.3): leave --concurrency out"
        )
    if settings.load.rate is not None:
        raise InputError(
            "option-prescribed",
            "the test tradeoff sets the load itself: leave --rate out; give a known capacity with --capacity RATE and "
            "--capacity-source TEXT",
        )
    validate_capacity_source(parameters)
    validate_levels(parameters.levels, SHARES)


def expected_s(parameters: Parameters, settings: RunSettings) -> float | None:
    return parameters.duration_s * len(parameters.levels)


TEST = ProcedureTest(
    "tradeoff", "5.3", "Throughput-Latency Tradeoff", Parameters, levels, analyze,
    at_shares=True, validate=validate, expected_s=expected_s,
)  # fmt: skip
