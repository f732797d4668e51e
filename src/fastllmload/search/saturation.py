"""The capacity that load fractions refer to: declared, or measured in a closed loop until throughput rises no more.

Our definition (spec/procedures 5.3): the request rate of the best level is the capacity. A closed loop cannot overload the
system that it measures. The best level is the one with the most output tokens/s: if lengths differ much, requests/s of a
level depend on the lengths drawn for it, and the highest of several such figures is above the truth.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from fastllmload.documents.procedure import CapacityReference
from fastllmload.errors import InputError
from fastllmload.experiment.experiment import Experiment
from fastllmload.experiment.level.settings import changed
from fastllmload.experiment.level.tables import Column, figure, output_tok_s, req_s, tabulate
from fastllmload.experiment.report.findings import Findings
from fastllmload.search.driver import TRIES, LevelWalk
from fastllmload.search.load_sweep import LevelResult, LoadSweep, load_column, state_of
from fastllmload.settings import RunSettings

FIRST_SLOTS, MOST_SLOTS = 4, 4096
SHARE, LEAST_S = 0.2, 60.0  # of a level's length, and no less
QUICK_S = 5.0
COLUMNS: tuple[Column[LevelResult], ...] = (
    load_column("Slots"),
    req_s(),
    output_tok_s(),
    figure("ttft", "p99"),
    Column("Verdict", lambda result: state_of(result.verdict)),
)


class KnownCapacity(Protocol):
    """Parameters of a test that takes a capacity."""

    @property
    def capacity(self) -> float | None: ...

    @property
    def capacity_source(self) -> str | None: ...


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


@dataclass
class Saturation(LevelWalk[LevelResult]):
    """Doubles the slots of a closed loop until a level is saturated. Its steps are too coarse to narrow."""

    load_sweep: LoadSweep

    def judge(self, level: float, number: int) -> LevelResult:
        return self.load_sweep.at(level, number)

    def repeats(self, level: float, taken: int) -> bool:
        found = self.outcomes[level]
        return client_ended(found) and not found.level.cascading and taken < TRIES

    def goes_up(self, top: float) -> bool:
        found = self.outcomes[top]
        return not (found.verdict.saturated or client_ended(found) or found.level.cascading)


def client_ended(found: LevelResult) -> bool:
    """The client was the limit, so that it is not known whether the level is saturated."""
    return bool(found.verdict.generator_limited) and found.verdict.saturated is None


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
    Saturation(FIRST_SLOTS, MOST_SLOTS, lambda level: level, load_sweep).walk()
    results, why = load_sweep.results, ended_by(load_sweep.results[-1])
    title = f"{prefix}Capacity, measured in a closed loop".capitalize()
    tabulate(found, f"{prefix}capacity", title, COLUMNS, results, f"limited by: {why}")
    best = max((each.level for each in results), key=lambda level: level.output_tok_s)
    if best.req_s <= 0:
        found.warn(
            "nothing-measured",
            "no request of the capacity measurement succeeded, so load fractions have no capacity to refer to",
        )
        return None
    limited = client_ended(results[-1])
    if limited:
        found.warn(
            "client-limited", "the client was the limit while the capacity was measured: the true one may be higher"
        )
    source = f"measured: closed loop, {len(results)} levels of {length:g} s"
    return SaturationCapacity(best.req_s, source, limited, best.output_tok_s, why)


def ended_by(last: LevelResult) -> str:
    """What ended the measurement at its *last* level: criterion, value and limit, as text."""
    if last.level.cascading:
        return f"at {last.load:g} slots most of the last requests failed"
    if last.verdict.saturated or client_ended(last):
        return f"at {last.load:g} slots, {last.verdict.why()}"
    return f"{last.load:g} slots, the most that are tried, were not saturated: the true capacity may be higher"


# -- what a user may ask for ------------------------------------------------------------------------------------------


def validate_capacity_source(asked: KnownCapacity) -> None:
    """InputError if a capacity is declared without its source (spec/procedures 5.3, 5.8), or a source without a capacity."""
    if asked.capacity is not None and asked.capacity_source is None:
        raise InputError(
            "option-missing",
            f"--capacity {asked.capacity:g} needs --capacity-source TEXT: say where the figure is from, because "
            "another workload has another capacity; or leave --capacity out to have it measured (spec/procedures 5.3, 5.8)",
        )
    if asked.capacity is None and asked.capacity_source is not None:
        raise InputError(
            "option-missing",
            "--capacity-source says where the figure of --capacity is from; add that, or leave both out",
        )


def validate_levels(levels: tuple[float, ...], example: tuple[float, ...], most: float | None = None) -> None:
    """InputError if *levels* are empty or contain duplicates, or if one is above *most*."""
    if not levels:
        raise InputError(
            "option-value-missing", f"--levels names no level; write for example --levels {listed(example)}"
        )
    twice = [level for level, count in Counter(levels).items() if count > 1]
    if twice:
        raise InputError("value-repeated", f"--levels names {listed(tuple(twice))} twice; every level is measured once")
    above = tuple(level for level in levels if most is not None and level > most)
    if above:
        raise InputError(
            "value-out-of-range",
            f"--levels {listed(above)} lies above the capacity; this test measures at shares of it, at most {most:g}",
        )


def listed(levels: tuple[float, ...]) -> str:
    return ",".join(f"{level:g}" for level in levels)
