"""Memory pressure (IETF 5.8): what happens when more requests are in flight than the memory carries."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from fastllmload.errors import InputError, TargetError
from fastllmload.plan.settings import RunSettings
from fastllmload.procedure.change import at_concurrency, changed, own_requests
from fastllmload.procedure.conduct import Test
from fastllmload.procedure.findings import Findings, Plot, Series
from fastllmload.procedure.lab import Lab
from fastllmload.procedure.level import Level
from fastllmload.procedure.quicker import shorter
from fastllmload.procedure.tests import capacity as concurrency
from fastllmload.procedure.warmup import warm_up

LEVELS = (1.0, 1.1, 1.25, 1.5)
LEAST_S = 120.0
DEFAULT = "long-context"
PREEMPTIONS = "preemptions"  # of the server figures in telemetry


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """*capacity*: concurrency that test 5.5 found with this workload; measured first when None."""

    capacity: float | None = None
    capacity_source: str | None = None
    levels: tuple[float, ...] = LEVELS
    duration_s: float = LEAST_S
    slo_ttft_p99_ms: float | None = None
    initial: int = 8
    isolated: bool = False

    def quick(self) -> Parameters:
        return msgspec.structs.replace(self, duration_s=shorter(self.duration_s, 15, 5.0))


def run(lab: Lab, parameters: Parameters, found: Findings) -> None:
    settings = lab.base
    settings = changed(settings, load={"duration": parameters.duration_s, "num_requests": None})
    warm_up(lab, at_concurrency(settings, parameters.initial), quick=lab.quick)
    slots = capacity_slots(lab, settings, parameters, found)
    if slots is None:
        found.warn("no concurrency meets the criteria: there is no capacity to go beyond")
        return
    done: list[tuple[float, Level, bool]] = []
    for share in sorted({1.0, *parameters.levels}):
        aborted = pressed(lab, settings, share, slots, done)
        report(done, slots, found)
        if aborted:
            recover(lab)


def capacity_slots(lab: Lab, settings: RunSettings, parameters: Parameters, found: Findings) -> int | None:
    if parameters.capacity is not None:
        return max(1, round(parameters.capacity))
    asked = concurrency.Parameters(
        initial=parameters.initial, output_tokens=None, slo_ttft_p99_ms=parameters.slo_ttft_p99_ms,
        duration_s=min(60.0, parameters.duration_s),
    )  # fmt: skip
    if lab.quick:
        asked = asked.quick()
    levels = concurrency.Levels(lab, settings, asked, found, prefix="capacity, ")
    answer = concurrency.sought(levels)
    return None if answer.level is None else int(answer.level)


def pressed(lab: Lab, settings: RunSettings, share: float, slots: int, done: list[tuple[float, Level, bool]]) -> bool:
    """One level; whether it was aborted because most requests failed or the server was gone."""
    asked = at_concurrency(settings, math.ceil(share * slots), warmup_requests=0, ramp_share=0.0)
    can_recover = "recover" in lab.commands
    asked = own_requests(asked, asked.load.concurrency or 0)
    level = lab.level(f"{share:.0%} of the capacity", asked, may_die=can_recover)
    aborted = level.cascading or (can_recover and not level.resumed and lab.gone())
    lab.record(level, share_of_capacity=share, aborted=aborted)
    done.append((share, level, aborted))
    return aborted


def recover(lab: Lab) -> None:
    """The server must answer again before the next level; a hook may help it."""
    if "recover" in lab.commands:
        lab.switch("recovery", "recover")
        lab.steps.renew("recovery")
    if lab.gone() and "recover" not in lab.commands:
        raise TargetError("the server does not answer after an overload and there is no --hook recover=COMMAND")


def report(done: list[tuple[float, Level, bool]], slots: int, found: Findings) -> None:
    rows = []
    for share, level, aborted in done:
        complete = level.success_rate
        preempted = preemptions(level)
        name = f"{share:.0%}" + (" (base)" if share == 1.0 else "") + (", aborted" if aborted else "")
        rows.append(
            (name, percent(complete), "not measured" if preempted is None else preempted,
             percent(None if complete is None else 1 - complete), level.figure("ttft", "p99"), longest_pause(level))
        )  # fmt: skip
    columns = ("Oversub Level", "Complete", "Preempt", "Fail Rate", "TTFT P99 (ms)", "Max pause P99 (ms)")
    found.table("memory-pressure", "Memory Pressure", columns, rows, "Complete and Fail Rate add up to 100 %",
                "Preempt: of the server's own counter, where it reports one")  # fmt: skip
    found.values = {
        "capacity_slots": slots,
        "levels": [
            {"share": share, "slots": level.load, "completion": level.success_rate, "preemptions": preemptions(level),
             "ttft_p99_ms": level.figure("ttft", "p99"), "aborted": aborted, "errors": level.document.get("errors")}
            for share, level, aborted in done
        ],
    }  # fmt: skip
    first = next((share for share, level, _ in done if (preemptions(level) or 0) > 0), None)
    found.values["first_preemption_at"] = first
    found.say(f"capacity: {slots} requests at once")
    found.sentences = [text for text in found.sentences if not text.startswith("preemption")]
    found.say(preemption_words([(share, preemptions(level)) for share, level, _ in done]))
    x = tuple(share for share, _, _ in done)
    y = tuple(level.figure("ttft", "p99") for _, level, _ in done)
    found.plot(Plot("ttft", "P99 TTFT over oversubscription", "line", (Series("TTFT P99", y, x),),
                    ("of the capacity", "share", None), ("TTFT", "ms", True)))  # fmt: skip


def preemption_words(counted: list[tuple[float, int | None]]) -> str:
    """*counted*: by share of the capacity, ascending. None seen is told only where somebody counted at every level."""
    first = next((share for share, count in counted if count), None)
    if first is not None:
        below = max((share for share, count in counted if share < first and count == 0), default=None)
        if below is not None:
            return f"preemption begins above {below:.0%} of the capacity, at {first:.0%} at the latest"
        return f"preemption begins at {first:.0%} of the capacity or below"
    if None in [count for _, count in counted]:
        return "preemption: not measured at every level, it needs the server's own counter (telemetry)"
    return "preemption: none seen"


def percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.2%}"


def preemptions(level: Level) -> int | None:
    """By how much the server's counter rose over the window; None where it reports none."""
    figures = (level.document.get("server") or {}).get(PREEMPTIONS)
    if not figures:
        return None
    value = figures.get("increase", figures.get("value"))
    return None if value is None else int(value)


def longest_pause(level: Level) -> float | None:
    return level.figure("max_pause", "p99")


def refuse(parameters: Parameters, settings: RunSettings) -> None:
    simulated = not settings.target.urls and settings.target.unix_socket is None
    if not parameters.isolated and not simulated:
        raise InputError(
            "the test memory-pressure overloads the system and may bring it down: confirm with --isolated that nobody "
            "else uses it and that it can be recovered (IETF 7.4)"
        )
    if parameters.capacity is None and parameters.slo_ttft_p99_ms is None:
        raise InputError(
            "the test memory-pressure needs the capacity (--capacity SLOTS with --capacity-source, measured with this "
            "workload) or the objective to measure it by (--slo-ttft-p99 MS)"
        )
    if parameters.capacity is not None and parameters.capacity_source is None:
        raise InputError(
            "--capacity needs --capacity-source: a capacity from another workload is none of this one (procedures 5.8)"
        )
    if settings.load.rate is not None or settings.load.concurrency is not None:
        raise InputError("the test memory-pressure sets the load by itself: leave --rate and --concurrency out")


def expected_s(parameters: Parameters, settings: RunSettings) -> float | None:
    return parameters.duration_s * len({1.0, *parameters.levels})


def hooks(parameters: Any) -> tuple[str, ...]:
    return ()


TEST = Test(
    "memory-pressure", "5.8", "Memory Pressure", Parameters, run, hooks, refuse, expected_s, DEFAULT,
    may=("recover", concurrency.SERVER_LOG),
)  # fmt: skip
