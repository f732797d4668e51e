"""Throughput-latency tradeoff (IETF 5.3): levels of an open loop from a tenth of the capacity to beyond it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from fastllmload.documents.experiment import FindingMark, FindingPlot, FindingSeries
from fastllmload.documents.procedure import TradeoffFindings
from fastllmload.errors import InputError
from fastllmload.experiment.level.limits import limits_of, meets
from fastllmload.experiment.level.tables import Column, figure, output_tok_s, success, tabulate
from fastllmload.experiment.report.findings import Findings
from fastllmload.metrics.levels import operating_points as points
from fastllmload.procedure.procedure_test import Conditions, ProcedureTest, shorter
from fastllmload.search.load_sweep import QUEUE_COLUMNS, LevelResult, LoadSweep, load_column, queue_text, state_of
from fastllmload.search.saturation import validate_capacity_source, validate_levels
from fastllmload.settings import RunSettings
from fastllmload.statistics.sequential_tests import Decision

SHARES = tuple(round(0.1 * k, 1) for k in range(1, 13))
FURTHER = (1.4, 1.6, 2.0)  # measured if no level saturated the system
LEAST_LEVELS = 10
TRADEOFF: tuple[Column[LevelResult], ...] = (
    load_column("Offered (r/s)"),
    output_tok_s("Achieved (tok/s)"),
    figure("ttft", "p50"),
    figure("ttft", "p99"),
    figure("tpot", "p50"),
    figure("tpot", "p99"),
    success("Success", 1),
)
FURTHER_COLUMNS: tuple[Column[LevelResult], ...] = (
    load_column("Offered (r/s)"),
    figure("ttft", "p95"),
    figure("tpot", "p95"),
    figure("e2e", "p50"),
    figure("e2e", "p99"),
    *QUEUE_COLUMNS,
    Column("Verdict", lambda result: ", ".join((state_of(result.verdict), *result.verdict.fired))),
)


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
        result = load_sweep.at(given.rate_at(share))
        yield load_sweep
        if result.level.cascading:
            found.warn("levels-left-out", f"at {result.load:g} r/s most requests failed: higher levels were left out")
            break
    if not saturated(load_sweep):
        found.deviate("no level saturated the system: the range does not reach saturation (IETF 5.3.2)")


def saturated(load_sweep: LoadSweep) -> bool:
    return any(result.verdict.saturated for result in load_sweep.results)


def analyze(load_sweep: LoadSweep, given: Conditions[Parameters]) -> None:
    """The draft's table, a second one with further columns, the operating points and the plots."""
    capacity, limits, found = given.capacity, limits_of(given.parameters), given.found
    results = sorted(load_sweep.results, key=lambda result: result.load)
    judged = [result for result in results if result.verdict.decision is not Decision.CLIENT]
    offered, achieved = [result.load for result in judged], [result.output_tok_s for result in judged]
    ttft = [math.nan if (value := result.figure("ttft", "p99")) is None else value for result in judged]
    within = [bool(meets(result.level, limits)) for result in judged] if limits else None
    left_out = [result.load for result in results if result not in judged]
    knee = points.knee_point(offered, ttft)
    saturation = points.saturation_point(offered, achieved)
    peak = points.peak_level(offered, achieved) if len(judged) > 1 else None
    optimum = points.optimal_point(offered, achieved, within)
    found.values = TradeoffFindings(
        capacity=capacity.entry(),
        levels=len(results),
        left_out=tuple(left_out),
        knee_point=knee,
        saturation_point=saturation,
        peak_level=peak,
        optimal_point=optimum,
        first_saturated=next((result.load for result in results if result.verdict.saturated), None),
        limits=limits,
    )
    tabulate(found, "tradeoff", "Throughput-Latency Tradeoff", TRADEOFF, results)
    further = "Further percentiles, queue and verdict"
    tabulate(found, "tradeoff-more", further, FURTHER_COLUMNS, results, queue_text(results))
    found.sentences = [
        f"Knee point: {rate_text(knee, 'none found')}",
        f"Saturation point: {rate_text(saturation, 'none found: throughput never fell')}",
        f"Peak: {rate_text(peak, 'none: a peak needs at least two levels')}",
    ]
    if left_out:
        found.say(
            f"these points exclude {len(left_out)} of {len(results)} levels, on which the client was the limit: "
            f"{', '.join(f'{load:g}' for load in left_out)} requests/s"
        )
    if limits:
        found.say(f"Optimal point: {rate_text(optimum, 'no level meets the objectives')}")
    found.say(f"Capacity: {capacity.req_s:.4g} requests/s ({capacity.source})")
    plots(results, knee, found)
    found.deviations = [text for text in found.deviations if not text.startswith("only ")]
    if (many := len(results)) < LEAST_LEVELS:
        found.deviate(f"only {many} level{'s' * (many != 1)}; IETF 5.3.2 asks for {LEAST_LEVELS} or more")


def rate_text(rate: float | None, none: str) -> str:
    return f"{rate:g} requests/s" if rate is not None else none


def plots(results: list[LevelResult], knee: float | None, found: Findings) -> None:
    output = tuple(result.output_tok_s for result in results)
    ttft = tuple(
        FindingSeries(f"TTFT {key.upper()}", tuple(result.figure("ttft", key) for result in results), output)
        for key in ("p50", "p99")
    )
    curve = ("throughput", "tok/s", None), ("TTFT", "ms", True)
    found.plot(FindingPlot("curve", "TTFT over achieved throughput", "line", ttft, *curve))
    marks = () if knee is None else (FindingMark("x", knee, "knee"),)
    series = (FindingSeries("output", output, tuple(result.load for result in results)),)
    axes = ("offered", "requests/s", None), ("achieved", "tok/s", None)
    found.plot(FindingPlot("achieved", "Achieved throughput over offered load", "line", series, *axes, marks=marks))


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
