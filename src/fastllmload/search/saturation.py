"""Measures the capacity of the system in a closed loop: concurrency is doubled until throughput rises no more.

Our definition (spec/procedures 5.3): the request rate of the best level is the capacity that load fractions refer to. A
closed loop cannot overload the system that it measures. The best level is the one with the most output tokens/s: if
lengths differ much, requests/s of a level depend on the lengths drawn for it, and the highest of several such figures is
above the truth.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastllmload.documents.procedure import CapacityReference
from fastllmload.experiment.experiment import Experiment
from fastllmload.experiment.level.settings import changed
from fastllmload.experiment.report.findings import Findings
from fastllmload.search.bisection import TRIES
from fastllmload.search.load_fractions import KnownCapacity
from fastllmload.search.load_sweep import LevelResult, LoadSweep, state_of
from fastllmload.settings import RunSettings

FIRST_SLOTS, MOST_SLOTS = 4, 4096
SHARE, LEAST_S = 0.2, 60.0  # of a level's length, and no less
QUICK_S = 5.0


@dataclass(frozen=True)
class SaturationCapacity:
    """Requests/s and the source of the figure. *limited*: the client ended the measurement, not the system.
    *output_tok_s*: output tokens/s if measured. *limited_by*: what ended the measurement, as text.
    """

    req_s: float
    source: str
    limited: bool = False
    output_tok_s: float | None = None
    limited_by: str | None = None

    def entry(self) -> CapacityReference:
        return CapacityReference(
            req_s=self.req_s, source=self.source, client_limited=self.limited, limited_by=self.limited_by
        )


def capacity_of(
    experiment: Experiment, settings: RunSettings, asked: KnownCapacity, found: Findings, prefix: str = ""
) -> SaturationCapacity | None:
    """The declared capacity, or the one measured with the workload of *settings*; None if no request succeeded."""
    if asked.capacity is not None:
        assert asked.capacity_source is not None  # a test refuses a capacity without it
        return SaturationCapacity(asked.capacity, asked.capacity_source)
    return measured(experiment, settings, found, prefix)


def measured(
    experiment: Experiment, settings: RunSettings, found: Findings, prefix: str = ""
) -> SaturationCapacity | None:
    """Measure 4, 8, 16 ... slots until a level is saturated. A level at which the client was the limit is run again."""
    length = max(LEAST_S, SHARE * (settings.load.duration or 0.0)) if not experiment.quick else QUICK_S
    load_sweep = LoadSweep(
        experiment, changed(settings, load={"duration": length, "num_requests": None}), True, f"{prefix}capacity, "
    )
    slots, limited = FIRST_SLOTS, False
    while slots <= MOST_SLOTS:
        for repetition in range(TRIES):
            level_result = load_sweep.at(slots, repetition)
            limited = level_result.verdict.generator_limited and level_result.verdict.saturated is None
            if not limited or level_result.level.cascading:
                break
        if level_result.verdict.saturated or limited or level_result.level.cascading:
            break
        slots *= 2
    rows = [(f"{r.load:g}", r.level.req_s, r.level.output_tok_s, r.level.figure("ttft", "p99"), state_of(r.verdict))
            for r in load_sweep.level_results]  # fmt: skip
    columns = ("Slots", "Requests (r/s)", "Output (tok/s)", "TTFT P99 (ms)", "Verdict")
    why = ended_by(load_sweep.level_results[-1])
    title = f"{prefix}Capacity, measured in a closed loop".capitalize()
    found.table(f"{prefix}capacity", title, columns, rows, f"limited by: {why}")
    best = max(
        (level_result.level for level_result in load_sweep.level_results),
        key=lambda level: level.output_tok_s,
        default=None,
    )
    if best is None or best.req_s <= 0:
        found.warn(
            "nothing-measured",
            "no request of the capacity measurement succeeded, so load fractions have no capacity to refer to",
        )
        return None
    if limited:
        found.warn(
            "client-limited", "the client was the limit while the capacity was measured: the true one may be higher"
        )
    source = f"measured: closed loop, {len(load_sweep.level_results)} levels of {length:g} s"
    return SaturationCapacity(best.req_s, source, limited, best.output_tok_s, why)


def ended_by(last: LevelResult) -> str:
    """What ended the measurement at its *last* level: criterion, value and limit, as text."""
    if last.level.cascading:
        return f"at {last.load:g} slots most of the last requests failed"
    if last.verdict.saturated or (last.verdict.generator_limited and last.verdict.saturated is None):
        return f"at {last.load:g} slots, {last.verdict.why()}"
    return f"{last.load:g} slots, the most that are tried, were not saturated: the true capacity may be higher"
