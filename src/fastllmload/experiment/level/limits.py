"""Objectives that a level must meet: limits of the P99 of TTFT and TPOT (IETF 5.2.2, 5.3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from fastllmload.documents.fields import known
from fastllmload.experiment.level.late_reads import may_be_in_time
from fastllmload.experiment.level.margins import BEST, WORST, late_of, ttft_ends, within
from fastllmload.experiment.level.result import Level
from fastllmload.metrics.run.window import populations, window_of


class LatencyLimits(Protocol):
    """Parameters of a test that has latency limits, in ms; None: no limit."""

    @property
    def slo_ttft_p99_ms(self) -> float | None: ...

    @property
    def slo_tpot_p99_ms(self) -> float | None: ...


def limits_of(asked: LatencyLimits) -> dict[str, float]:
    """Metric → limit of its P99 in ms, for the limits that are given."""
    both = {"ttft": asked.slo_ttft_p99_ms, "tpot": asked.slo_tpot_p99_ms}
    return {name: limit for name, limit in both.items() if limit is not None}


def meets(level: Level, limits: Mapping[str, float]) -> bool:
    """Whether the P99 of each metric is at most its limit; a metric without a value is not."""
    return all((value := level.figure(name, "p99")) is not None and value <= limit for name, limit in limits.items())


def met(level: Level, limits: Mapping[str, float], late: bool) -> bool | None:
    """`meets`, or None if the client's lateness may decide it. *late*: the client was late throughout, so each limit is
    compared with both bounds of its figure; otherwise only the effect of a stall on TTFT is considered.
    """
    return all_of(objective(level, name, limit, late) for name, limit in limits.items())


def objective(level: Level, name: str, limit: float, late: bool) -> bool | None:
    if late:
        return within(ends_of(level, name), limit)
    if meets(level, {name: limit}):
        return True
    return None if name == "ttft" and may_be_in_time(level.run, limit) else False


def ends_of(level: Level, name: str) -> dict[int, float | None]:
    """Both bounds of the P99 of *name* in ms. A late send moves the start of a request, not the gaps between its tokens."""
    value = level.figure(name, "p99")
    if name == "ttft" and value is not None and (window := window_of(level.run)) is not None:
        return ttft_ends(level.run, populations(level.run, window), late_of(level.run, window).sent_ns, 0.99)
    least, most = level.document.metric(name).bounds.get("p99") or (value, value)
    return {BEST: known(least), WORST: known(most)}


def all_of(answers: Iterable[bool | None]) -> bool | None:
    """False if one is False; else None if one is None; else True."""
    found = set(answers)
    return False if False in found else None if None in found else True
