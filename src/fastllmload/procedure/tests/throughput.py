"""Output token throughput (IETF 5.2): the highest load that the system sustains, with or without objectives."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from fastllmload.documents.experiment import Cell, FindingPlot, FindingSeries
from fastllmload.documents.procedure import ThroughputFindings
from fastllmload.errors import InputError
from fastllmload.experiment.level.limits import judge_limits, limits_of, meets
from fastllmload.experiment.level.result import Level
from fastllmload.experiment.report.findings import Findings
from fastllmload.procedure.procedure_test import Conditions, ProcedureTest, shorter
from fastllmload.search.bisection import Bisection
from fastllmload.search.driver import Interval
from fastllmload.search.load_sweep import LevelResult, LoadSweep, queue_text, state_of
from fastllmload.settings import RunSettings
from fastllmload.statistics.sequential_tests import Decision

DURATION_S, LEAST_S = 300.0, 60.0
PERCENTILES = (("P50", "p50"), ("P95", "p95"), ("P99", "p99"))
LATENCIES = (("TTFT", "ttft"), ("TPOT", "tpot"), ("End-to-End", "e2e"))


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
    load_sweep = given.sweep(closed=given.parameters.loop == "closed")
    yield load_sweep, find_sustainable_load(load_sweep, given.parameters, given.found)


def find_sustainable_load(load_sweep: LoadSweep, parameters: Parameters, found: Findings) -> Interval:
    """Search (spec/procedures 0.10); the level log in *found* is updated after every level."""

    def measured(load: float, repetition: int) -> Decision:
        level_result = load_sweep.at(load, repetition)
        log(load_sweep, parameters, found)
        return judge(level_result, limits_of(parameters))

    return Bisection(parameters.minimum, parameters.maximum, lambda load: parameters.step, measured).run()


def judge(level_result: LevelResult, limits: dict[str, float]) -> Decision:
    """Whether the level was sustained within *limits*."""
    decision, late = level_result.verdict.decision, bool(level_result.verdict.limits)
    return judge_limits(level_result.level, limits, late) if decision is Decision.PASS else decision


def best_of(load_sweep: LoadSweep, load: float | None, limits: dict[str, float]) -> LevelResult | None:
    """Of the results at *load* that hold within *limits*, the one with the median throughput (the lower of two)."""
    there = [
        level_result
        for level_result in load_sweep.level_results
        if load is not None and level_result.load == load and judge(level_result, limits) is Decision.PASS
    ]
    there.sort(key=lambda level_result: level_result.level.output_tok_s)
    return there[(len(there) - 1) // 2] if there else None


def analyze(measured: tuple[LoadSweep, Interval], given: Conditions[Parameters]) -> None:
    (load_sweep, result), parameters, found = measured, given.parameters, given.found
    best = best_of(load_sweep, result.best, limits_of(parameters))
    unit = "slots" if load_sweep.closed else "requests/s"
    why = None if result.above is None else limited_by(load_sweep, result.above, limits_of(parameters))
    found.values = ThroughputFindings(
        sustainable_load=result.best,
        bracket=(result.best, result.above),
        ended_by=result.ended_by,
        loop=parameters.loop,
        levels=len(load_sweep.level_results),
        max_output_tok_s=None if best is None else best.level.output_tok_s,
        max_req_s=None if best is None else best.level.req_s,
        limits=limits_of(parameters),
        limited_by=why,
    )
    log(load_sweep, parameters, found)
    curve(load_sweep, found, unit)
    for note in result.notes:
        found.say(note)
    found.say(constraint(parameters))
    if best is None:
        found.say(
            f"no level from {amount(parameters.minimum, unit)} up holds: no throughput can be reported"
            + (f"; {why}" if why else "")
        )
        return
    summary(best.level, result, found, unit, why)
    if (more := higher(load_sweep, best, limits_of(parameters))) is not None:
        found.say(more)
    latency(best.level, found)
    if best.level.settings.load.duration is not None and best.level.settings.load.duration < LEAST_S:
        found.deviate(f"levels of {parameters.duration_s:g} s are shorter than the {LEAST_S:g} s of IETF 5.2.2")


def limited_by(load_sweep: LoadSweep, load: float, limits: dict[str, float]) -> str | None:
    """Criterion, value and limit that ended the search at *load*, from the last run there that does not hold."""
    there = [
        level_result
        for level_result in load_sweep.level_results
        if level_result.load == load and judge(level_result, limits) is not Decision.PASS
    ]
    if not there:
        return None
    level_result = there[-1]
    missed = [
        f"P99 {name.upper()} {value:,.4g} ms is above {limit:,.4g} ms"
        for name, limit in limits.items()
        if (value := level_result.level.figure(name, "p99")) is not None and value > limit
    ]
    return (
        "; ".join(missed) if level_result.verdict.decision is Decision.PASS and missed else level_result.verdict.why()
    )


def higher(load_sweep: LoadSweep, best: LevelResult, limits: dict[str, float]) -> str | None:
    """A sentence if a level that does not hold had more output tokens/s than the best one; else None."""
    most = max(load_sweep.level_results, key=lambda level_result: level_result.level.output_tok_s)
    if most.level.output_tok_s <= best.level.output_tok_s or judge(most, limits) is Decision.PASS:
        return None
    why = limited_by(load_sweep, most.load, limits)
    return f"{most.level.output_tok_s:,.4g} tok/s at {most.load:g} do not count as sustained: {why}"


def constraint(parameters: Parameters) -> str:
    texts = [f"P99 {name.upper()} at most {limit:g} ms" for name, limit in limits_of(parameters).items()]
    return "with constraint " + " and ".join(texts) if texts else "without latency constraint"


def summary(level: Level, result: Interval, found: Findings, unit: str, why: str | None) -> None:
    rows = [
        ("Max Output Throughput (tok/s)", level.output_tok_s),
        ("Max Request Throughput (req/s)", level.req_s),
        ("Max Input Throughput (tok/s)", level.figure("input_tok_s")),
        (f"Sustainable Load ({unit})", result.best),
        ("Tokens per GPU-second", level.figure("tok_per_gpu_s")),
    ]
    verb = "does" if result.above == 1 else "do"
    top = "no level above was tried" if result.above is None else f"{amount(result.above, unit)} {verb} not hold"
    top += f": {why}" if why else ""
    if result.ended_by == "client":
        top = f"at {amount(result.above, unit)} the client was the limit: the true maximum may be higher"
    found.table(
        "throughput-summary", "Throughput Summary", ("Metric", "Value"), rows, f"{top}; batch utilisation: not measured"
    )


def amount(load: float | None, unit: str) -> str:
    """`17 slots`, `1 slot`, `2.5 requests/s`, `1 request/s`."""
    one = unit.replace("slots", "slot").replace("requests", "request")
    return f"{load:g} {one if load == 1 else unit}"


def latency(level: Level, found: Findings) -> None:
    columns = ("Metric", *(f"{name} (ms)" for name, _ in PERCENTILES))
    rows = [(title, *(level.figure(metric, key) for _, key in PERCENTILES)) for title, metric in LATENCIES]
    found.table("latency-at-maximum", "Latency at Maximum Throughput", columns, rows)


def log(load_sweep: LoadSweep, parameters: Parameters, found: Findings) -> None:
    """All levels so far."""
    columns = ("Level", "D (s)", "Output (tok/s)", "Requests (r/s)", "TTFT P99 (ms)", "TPOT P99 (ms)", "In flight",
               "Completion", "Verdict")  # fmt: skip
    rows = [row_of(level_result, parameters) for level_result in load_sweep.level_results]
    found.table("levels", "Level Log", columns, rows, queue_text(load_sweep.level_results))


def row_of(level_result: LevelResult, parameters: Parameters) -> tuple[Cell, ...]:
    level, verdict = level_result.level, level_result.verdict
    words = [state_of(verdict), *verdict.fired]
    decision = judge(level_result, limits_of(parameters))
    if verdict.decision is Decision.PASS and decision is not Decision.PASS:
        state = "met" if meets(level, limits_of(parameters)) else "missed"
        words.append(f"objective {state}" + (", client limited" if decision is Decision.CLIENT else ""))
    return (
        f"{level_result.load:g}",
        level.settings.load.duration,
        level.output_tok_s,
        level.req_s,
        level.figure("ttft", "p99"),
        level.figure("tpot", "p99"),
        verdict.figures.get("in_flight_mean"),
        verdict.figures.get("completion_rate"),
        ", ".join(words),
    )


def curve(load_sweep: LoadSweep, found: Findings, unit: str) -> None:
    """Throughput and P99 TTFT over the load."""
    level_results = sorted(load_sweep.level_results, key=lambda level_result: level_result.load)
    x = tuple(level_result.load for level_result in level_results)
    output = tuple(level_result.level.output_tok_s for level_result in level_results)
    ttft = tuple(level_result.level.figure("ttft", "p99") for level_result in level_results)
    found.plot(FindingPlot("throughput", "Output throughput over load", "line", (FindingSeries("output", output, x),),
                    ("load", unit, None), ("throughput", "tok/s", None)))  # fmt: skip
    found.plot(FindingPlot("ttft", "P99 TTFT over load", "line", (FindingSeries("TTFT P99", ttft, x),), ("load", unit, None),
                    ("TTFT", "ms", True)))  # fmt: skip


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
