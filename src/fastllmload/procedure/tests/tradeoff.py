"""Throughput-latency tradeoff (IETF 5.3): levels of an open loop from a tenth of the capacity to beyond it."""

from __future__ import annotations

import msgspec

from fastllmload.errors import InputError
from fastllmload.metrics import levels as points
from fastllmload.plan.settings import RunSettings
from fastllmload.procedure.change import changed
from fastllmload.procedure.conduct import Test
from fastllmload.procedure.findings import Findings, Mark, Plot, Series
from fastllmload.procedure.lab import Lab
from fastllmload.procedure.ladder import Ladder, Rung, queue_words, state_of
from fastllmload.procedure.limits import limits_of, meets
from fastllmload.procedure.quicker import shorter
from fastllmload.procedure.saturating import Capacity, capacity_of
from fastllmload.procedure.shares import refuse_levels, refuse_source
from fastllmload.procedure.warmup import warm_up

SHARES = tuple(round(0.1 * k, 1) for k in range(1, 13))
FURTHER = (1.4, 1.6, 2.0)  # where nothing saturated so far
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


def run(lab: Lab, parameters: Parameters, found: Findings) -> None:
    settings = changed(lab.base, load={"duration": parameters.duration_s, "num_requests": None})
    warm_up(lab, settings, quick=lab.quick)
    capacity = capacity_of(lab, settings, parameters, found)
    if capacity is None:
        return
    ladder = Ladder(lab, settings)
    highest = max(parameters.levels)
    for share in (*sorted(parameters.levels), *(one for one in FURTHER if one > highest)):
        if share > highest and (lab.quick or saturated(ladder)):
            continue
        rung = ladder.at(float(f"{share * capacity.req_s:.6g}"))
        report(ladder, capacity, parameters, found)
        if rung.level.cascading:
            found.warn(f"at {rung.load:g} r/s most requests failed: higher levels were left out")
            break
    if not saturated(ladder):
        found.deviate("no level saturated the system: the range does not reach saturation (IETF 5.3.2)")


def saturated(ladder: Ladder) -> bool:
    return any(rung.verdict.saturated for rung in ladder.rungs)


def report(ladder: Ladder, capacity: Capacity, parameters: Parameters, found: Findings) -> None:
    """The draft's table, a second one with the rest, the operating points and the curve."""
    rungs = sorted((rung for rung in ladder.rungs), key=lambda rung: rung.load)
    judged = [rung for rung in rungs if not (rung.verdict.generator_limited and rung.verdict.holds is None)]
    offered = [rung.load for rung in judged]
    achieved = [rung.level.output_tok_s for rung in judged]
    ttft_p99 = [value(rung, "ttft") for rung in judged]
    limits = limits_of(parameters)
    within = [bool(meets(rung.level, limits)) for rung in judged] if limits else None
    found.values = {
        "capacity": capacity.entry(),
        "levels": len(rungs),
        "left_out": [rung.load for rung in rungs if rung not in judged],
        "knee_point": points.knee_point(offered, ttft_p99),
        "saturation_point": points.saturation_point(offered, achieved),
        "peak_level": points.peak_level(offered, achieved) if len(judged) > 1 else None,
        "optimal_point": points.optimal_point(offered, achieved, within),
        "first_saturated": next((rung.load for rung in rungs if rung.verdict.saturated), None),
        "limits": limits,
    }
    tables(rungs, found)
    lines(found)
    plots(rungs, found)
    if len(rungs) < LEAST_LEVELS:
        found.deviations = [text for text in found.deviations if not text.startswith("only ")]
        found.deviate(f"only {len(rungs)} level{'s' * (len(rungs) != 1)}; IETF 5.3.2 asks for {LEAST_LEVELS} or more")
    else:
        found.deviations = [text for text in found.deviations if not text.startswith("only ")]


def value(rung: Rung, metric: str, statistic: str = "p99") -> float:
    found = rung.level.figure(metric, statistic)
    return float("nan") if found is None else found


def tables(rungs: list[Rung], found: Findings) -> None:
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
    for rung in rungs:
        level, rate = rung.level, rung.level.success_rate
        success = "n/a" if rate is None else f"{rate:.1%}"
        rows.append(
            (f"{rung.load:g}", level.output_tok_s, level.figure("ttft", "p50"), level.figure("ttft", "p99"),
             level.figure("tpot", "p50"), level.figure("tpot", "p99"), success)
        )  # fmt: skip
        more.append(
            (f"{rung.load:g}", level.figure("ttft", "p95"), level.figure("tpot", "p95"), level.figure("e2e", "p50"),
             level.figure("e2e", "p99"), rung.verdict.figures.get("in_flight_mean"),
             rung.verdict.figures.get("completion_rate"), ", ".join((state_of(rung.verdict), *rung.verdict.fired)))
        )  # fmt: skip
    found.table("tradeoff", "Throughput-Latency Tradeoff", columns, rows)
    found.table(
        "tradeoff-more", "Further percentiles, queue and verdict",
        ("Offered (r/s)", "TTFT P95 (ms)", "TPOT P95 (ms)", "E2E P50 (ms)", "E2E P99 (ms)", "In flight", "Completion",
         "Verdict"),
        more, queue_words(rungs),
    )  # fmt: skip


def lines(found: Findings) -> None:
    """The three lines of the draft, and the optimum where there is an objective."""
    values, unit = found.values, "requests/s"

    def text(name: str, none: str) -> str:
        return f"{values[name]:g} {unit}" if values[name] is not None else none

    found.sentences = [
        f"Knee point: {text('knee_point', 'none found')}",
        f"Saturation point: {text('saturation_point', 'none found: throughput never fell')}",
        f"Peak: {text('peak_level', 'none: a peak needs two levels to stand out from')}",
    ]
    if values["left_out"]:
        found.say(
            f"these points leave out {len(values['left_out'])} of {values['levels']} levels, on which the client was the "
            f"limit: {', '.join(f'{load:g}' for load in values['left_out'])} {unit}"
        )
    if values["limits"]:
        found.say(f"Optimal point: {text('optimal_point', 'no level meets the objectives')}")
    found.say(f"Capacity: {values['capacity']['req_s']:.4g} {unit} ({values['capacity']['source']})")


def plots(rungs: list[Rung], found: Findings) -> None:
    output = tuple(rung.level.output_tok_s for rung in rungs)
    names = (("P50", "p50"), ("P99", "p99"))
    series = tuple(
        Series(f"TTFT {name}", tuple(rung.level.figure("ttft", key) for rung in rungs), output) for name, key in names
    )
    found.plot(
        Plot(
            "curve",
            "TTFT over achieved throughput",
            "line",
            series,
            ("throughput", "tok/s", None),
            ("TTFT", "ms", True),
        )
    )
    knee = found.values["knee_point"]
    marks = () if knee is None else (Mark("x", knee, "knee"),)
    load = tuple(rung.load for rung in rungs)
    found.plot(Plot("achieved", "Achieved throughput over offered load", "line", (Series("output", output, load),),
                    ("offered", "requests/s", None), ("achieved", "tok/s", None), marks=marks))  # fmt: skip


def refuse(parameters: Parameters, settings: RunSettings) -> None:
    if settings.load.concurrency is not None:
        raise InputError("the test tradeoff is open loop by definition (IETF 5.3): leave --concurrency out")
    if settings.load.rate is not None:
        raise InputError(
            "the test tradeoff sets the load by itself: leave --rate out; a capacity that is known is given with "
            "--capacity RATE and --capacity-source TEXT"
        )
    refuse_source(parameters)
    refuse_levels(parameters.levels, SHARES)


def expected_s(parameters: Parameters, settings: RunSettings) -> float | None:
    return parameters.duration_s * len(parameters.levels)


TEST = Test("tradeoff", "5.3", "Throughput-Latency Tradeoff", Parameters, run, refuse=refuse, expected_s=expected_s)
