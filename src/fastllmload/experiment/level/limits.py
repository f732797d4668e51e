"""Objectives that a level must meet: limits of the P99 of TTFT and TPOT (IETF 5.2.2, 5.3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from fastllmload.documents.fields import known
from fastllmload.experiment.level.margins import BEST, WORST, late_of, may_be_in_time, ttft_ends, within
from fastllmload.experiment.level.result import Level
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.statistics.sequential_tests import Decision


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


def judge_limits(level: Level, limits: Mapping[str, float], late: bool) -> Decision:
    """Decide all *limits* together. *late*: the client was late throughout, so each limit is compared with both bounds of
    its figure; otherwise only the effect of a stall on TTFT is considered.
    """
    return combined(judge_limit(level, name, limit, late) for name, limit in limits.items())


def judge_limit(level: Level, name: str, limit: float, late: bool) -> Decision:
    if late:
        return decision_of(within(ends_of(level, name), limit))
    if meets(level, {name: limit}):
        return Decision.PASS
    return Decision.CLIENT if name == "ttft" and may_be_in_time(level.run, limit) else Decision.FAIL


def ends_of(level: Level, name: str) -> dict[int, float | None]:
    """Both bounds of the P99 of *name* in ms. A late send moves the start of a request, not the gaps between its tokens."""
    value = level.figure(name, "p99")
    if name == "ttft" and value is not None and (window := window_of(level.run)) is not None:
        return ttft_ends(level.run, populations(level.run, window), late_of(level.run, window).sent_ns, 0.99)
    least, most = level.document.metric(name).bounds.get("p99") or (value, value)
    return {BEST: known(least), WORST: known(most)}


def decision_of(holds: bool | None) -> Decision:
    """*holds*: None if the client's lateness may decide it."""
    return Decision.CLIENT if holds is None else Decision.PASS if holds else Decision.FAIL


def combined(decisions: Iterable[Decision]) -> Decision:
    """Of several criteria: FAIL if one fails; else that of one that does not pass; else PASS."""
    found = set(decisions)
    order = (Decision.FAIL, Decision.CLIENT, Decision.UNDECIDED)
    return next((one for one in order if one in found), Decision.PASS)
