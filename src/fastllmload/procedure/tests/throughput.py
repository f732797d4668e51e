"""Output token throughput (IETF 5.2): the highest load that the system sustains, with or without objectives."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from fastllmload.documents.experiment import FindingPlot, FindingSeries
from fastllmload.documents.procedure import ThroughputFindings
from fastllmload.errors import InputError
from fastllmload.experiment.level.limits import judge_limits, limits_of, meets
from fastllmload.experiment.level.result import Measured
from fastllmload.experiment.level.tables import Column, figure, output_tok_s, req_s, tabulate, transpose
from fastllmload.experiment.report.findings import LOAD, Findings
from fastllmload.procedure.procedure_test import Conditions, ProcedureTest, shorter
from fastllmload.search.bisection import Bisection
from fastllmload.search.driver import Interval
from fastllmload.search.load_sweep import QUEUE_COLUMNS, LevelResult, LoadSweep, load_column, queue_text, state_of
from fastllmload.settings import RunSettings
from fastllmload.statistics.sequential_tests import Decision

DURATION_S, LEAST_S = 300.0, 60.0
LOG: tuple[Column[LevelResult], ...] = (
    load_column("Level"),
    Column("D (s)", lambda result: result.level.settings.load.duration),
    output_tok_s(),
    req_s(),
    figure("ttft", "p99"),
    figure("tpot", "p99"),
    *QUEUE_COLUMNS,
)
LATENCIES = {"TTFT": "ttft", "TPOT": "tpot", "End-to-End": "e2e"}


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """Levels from *minimum* to *maximum* in steps of *step*: requests/s, or slots of a closed loop."""

    loop: str = "open"
    duration_s: float = DURATION_S
    minimum: float = 1.0
    maximum: float = 1024.0
    step: float = 1.0
    slo_ttft_p99_ms: float | None = None
    slo_tpot_p99_ms: float | None = None

    def quick(self) -> Parameters:
        return msgspec.structs.replace(self, duration_s=shorter(self.duration_s, 40, 5.0))


def levels(given: Conditions[Parameters]) -> Iterator[tuple[LoadSweep, Interval]]:
    """Search (spec/procedures 0.10); the level log is updated after every level."""
    parameters, load_sweep = given.parameters, given.sweep(closed=given.parameters.loop == "closed")

    def measured(load: float, repetition: int) -> Decision:
        result = load_sweep.at(load, repetition)
        log(load_sweep, parameters, given.found)
        return judge(result, limits_of(parameters))

    yield load_sweep, Bisection(parameters.minimum, parameters.maximum, lambda load: parameters.step, measured).run()


def judge(result: LevelResult, limits: dict[str, float]) -> Decision:
    """Whether the level was sustained within *limits*."""
    decision, late = result.verdict.decision, bool(result.verdict.limits)
    return judge_limits(result.level, limits, late) if decision is Decision.PASS else decision


def best_of(load_sweep: LoadSweep, load: float | None, limits: dict[str, float]) -> LevelResult | None:
    """Of the results at *load* that hold within *limits*, the one with the median throughput (the lower of two)."""
    there = [one for one in load_sweep.results if one.load == load and judge(one, limits) is Decision.PASS]
    there.sort(key=lambda one: one.output_tok_s)
    return there[(len(there) - 1) // 2] if there else None


def analyze(measured: tuple[LoadSweep, Interval], given: Conditions[Parameters]) -> None:
    (load_sweep, answer), parameters, found = measured, given.parameters, given.found
    limits, unit = limits_of(parameters), "slots" if load_sweep.closed else "requests/s"
    best = best_of(load_sweep, answer.best, limits)
    why = None if answer.above is None else limited_by(load_sweep, answer.above, limits)
    found.values = ThroughputFindings(
        sustainable_load=answer.best,
        bracket=(answer.best, answer.above),
        ended_by=answer.ended_by,
        loop=parameters.loop,
        levels=len(load_sweep.results),
        max_output_tok_s=None if best is None else best.output_tok_s,
        max_req_s=None if best is None else best.level.req_s,
        limits=limits,
        limited_by=why,
    )
    log(load_sweep, parameters, found)
    curves(load_sweep, found, unit)
    for note in answer.notes:
        found.say(note)
    found.say(constraint(limits))
    if best is None:
        lowest = amount(parameters.minimum, unit)
        found.say(f"no level from {lowest} up holds: no throughput can be reported" + (f"; {why}" if why else ""))
        return
    summary(best, answer, found, unit, why)
    if (more := higher(load_sweep, best, limits)) is not None:
        found.say(more)
    percentiles = ("p50", "p95", "p99")
    columns = ("Metric", *(f"{name.upper()} (ms)" for name in percentiles))
    rows = [(title, *(best.figure(metric, name) for name in percentiles)) for title, metric in LATENCIES.items()]
    found.table("latency-at-maximum", "Latency at Maximum Throughput", columns, rows)
    length = best.level.settings.load.duration
    if length is not None and length < LEAST_S:
        found.deviate(f"levels of {parameters.duration_s:g} s are shorter than the {LEAST_S:g} s of IETF 5.2.2")


def limited_by(load_sweep: LoadSweep, load: float, limits: dict[str, float]) -> str | None:
    """Criterion, value and limit that ended the search at *load*, from the last run there that does not hold."""
    there = [one for one in load_sweep.results if one.load == load and judge(one, limits) is not Decision.PASS]
    if not there:
        return None
    last = there[-1]
    missed = [
        f"P99 {name.upper()} {value:,.4g} ms is above {limit:,.4g} ms"
        for name, limit in limits.items()
        if (value := last.figure(name, "p99")) is not None and value > limit
    ]
    return "; ".join(missed) if last.verdict.decision is Decision.PASS and missed else last.verdict.why()


def higher(load_sweep: LoadSweep, best: LevelResult, limits: dict[str, float]) -> str | None:
    """A sentence if a level that does not hold had more output tokens/s than the best one; else None."""
    most = max(load_sweep.results, key=lambda one: one.output_tok_s)
    if most.output_tok_s <= best.output_tok_s or judge(most, limits) is Decision.PASS:
        return None
    why = limited_by(load_sweep, most.load, limits)
    return f"{most.output_tok_s:,.4g} tok/s at {most.load:g} do not count as sustained: {why}"


def constraint(limits: dict[str, float]) -> str:
    texts = [f"P99 {name.upper()} at most {limit:g} ms" for name, limit in limits.items()]
    return "with constraint " + " and ".join(texts) if texts else "without latency constraint"


def summary(best: Measured, answer: Interval, found: Findings, unit: str, why: str | None) -> None:
    rows: tuple[Column[Measured], ...] = (
        output_tok_s("Max Output Throughput (tok/s)"),
        req_s("Max Request Throughput (req/s)"),
        figure("input_tok_s", heading="Max Input Throughput (tok/s)"),
        Column(f"Sustainable Load ({unit})", lambda of: answer.best),
        figure("tok_per_gpu_s", heading="Tokens per GPU-second"),
    )
    verb = "does" if answer.above == 1 else "do"
    top = "no level above was tried" if answer.above is None else f"{amount(answer.above, unit)} {verb} not hold"
    top += f": {why}" if why else ""
    if answer.ended_by == "client":
        top = f"at {amount(answer.above, unit)} the client was the limit: the true maximum may be higher"
    note = f"{top}; batch utilisation: not measured"
    transpose(found, "throughput-summary", "Throughput Summary", rows, {"Value": best}, note, reveals=LOAD)


def amount(load: float | None, unit: str) -> str:
    """`17 slots`, `1 slot`, `2.5 requests/s`, `1 request/s`."""
    one = unit.replace("slots", "slot").replace("requests", "request")
    return f"{load:g} {one if load == 1 else unit}"


def log(load_sweep: LoadSweep, parameters: Parameters, found: Findings) -> None:
    """All levels so far."""
    columns = (*LOG, Column("Verdict", lambda result: verdict_text(result, limits_of(parameters))))
    results = load_sweep.results
    tabulate(found, "levels", "Level Log", columns, results, queue_text(results))


def verdict_text(result: LevelResult, limits: dict[str, float]) -> str:
    """The verdict, the criteria that fired, and whether a level that passed them met its objectives."""
    words, decision = [state_of(result.verdict), *result.verdict.fired], judge(result, limits)
    if result.verdict.decision is Decision.PASS and decision is not Decision.PASS:
        state = "met" if meets(result.level, limits) else "missed"
        words.append(f"objective {state}" + (", client limited" if decision is Decision.CLIENT else ""))
    return ", ".join(words)


def curves(load_sweep: LoadSweep, found: Findings, unit: str) -> None:
    """Throughput and P99 TTFT over the load."""
    results = sorted(load_sweep.results, key=lambda one: one.load)
    x, load = tuple(one.load for one in results), ("load", unit, None)
    output = FindingSeries("output", tuple(one.output_tok_s for one in results), x)
    ttft = FindingSeries("TTFT P99", tuple(one.figure("ttft", "p99") for one in results), x)
    achieved = ("throughput", "tok/s", None)
    found.plot(FindingPlot("throughput", "Output throughput over load", "line", (output,), load, achieved))
    found.plot(FindingPlot("ttft", "P99 TTFT over load", "line", (ttft,), load, ("TTFT", "ms", True)))


def validate(parameters: Parameters, settings: RunSettings) -> None:
    if not 0 < parameters.minimum <= parameters.maximum:
        raise InputError(
            "range-empty", f"--min {parameters.minimum:g} and --max {parameters.maximum:g} leave no level between them"
        )
    if parameters.step <= 0 or (parameters.loop == "closed" and parameters.step != int(parameters.step)):
        raise InputError(
            "value-out-of-range", f"--step {parameters.step:g} must be above 0, and an integer for --loop closed"
        )


def expected_s(parameters: Parameters, settings: RunSettings) -> float | None:
    """Duration of a search that doubles for half of the range, bisects the rest and confirms."""
    doublings = math.log2(max(2.0, parameters.maximum / parameters.minimum))
    halvings = max(0.0, math.log2(max(1.0, parameters.maximum / 2 / parameters.step)))
    return parameters.duration_s * ((doublings + halvings) / 2 + 2)


TEST = ProcedureTest(
    "throughput", "5.2", "Output Token Throughput", Parameters, levels, analyze,
    load="searches the load itself: leave --rate and --concurrency out, give --min and --max",
    validate=validate, expected_s=expected_s,
)  # fmt: skip
