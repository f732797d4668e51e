"""Computes exact percentiles (spec/metrics 2)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from fastllmload.statistics.interval import ConfidenceInterval, Estimate
from fastllmload.statistics.order_statistics import Ordered

NAMED = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
NEEDED = {"p99": 1000, "p999": 10000}  # samples below which the value is flagged (IETF 5.1.2.1, 5.1.4.3)


def ranks_of(n: int, levels: Iterable[float]) -> list[int]:
    """The ranks, from 0, between which the percentiles *levels* of *n* values lie."""
    below = [math.floor(q * (n - 1)) for q in levels]
    return [*below, *(rank + 1 for rank in below if rank + 1 < n)]


def percentile(ordered: Ordered, q: float) -> float | None:
    """Type 7 (linear interpolation at q (n - 1)) of an ascending sample; None for an empty one."""
    if len(ordered) == 0:
        return None
    position = q * (len(ordered) - 1)
    below = min(math.floor(position), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    step = float(ordered[above]) - float(ordered[below])
    return float(ordered[below]) + (position - below) * step


def insufficient(n: int) -> tuple[str, ...]:
    """Names of the percentiles for which *n* samples are too few; their values are flagged."""
    return tuple(name for name, needed in NEEDED.items() if n < needed)


def ends(estimate: Estimate | None, scale: float = 1.0) -> tuple[float, float] | None:
    """(low, high) divided by *scale*; None without an interval."""
    return (estimate.low / scale, estimate.high / scale) if isinstance(estimate, ConfidenceInterval) else None
