"""Computes exact percentiles with a distribution-free 95% interval (spec/metrics 2)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

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


def binomial_quantile(n: int, p: float, share: float) -> int:
    """Smallest k with P(Binomial(n, p) <= k) >= *share*, from the masses within 12 standard deviations of the mean."""
    half = 12 * math.sqrt(n * p * (1 - p)) + 40
    low, high = max(0, math.floor(n * p - half)), min(n, math.ceil(n * p + half))
    k = np.arange(low, high, dtype=np.float64)
    steps = np.log((n - k) / (k + 1)) + math.log(p / (1 - p))
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    cumulated = np.cumsum(np.exp(logs - logs.max()))
    return low + int(np.searchsorted(cumulated, share * cumulated[-1]))


def interval_ranks(n: int, q: float) -> tuple[int | None, int | None]:
    """1-based ranks of the order statistics that enclose the q-quantile with 95%; None: open, or no sample.

    l = B^-1(0.025), u = B^-1(0.975) + 1 with B = Binomial(n, q), l at least 1.
    """
    if n == 0:
        return None, None
    upper = binomial_quantile(n, q, 0.975) + 1
    return max(1, binomial_quantile(n, q, 0.025)), upper if upper <= n else None


def interval(ordered: npt.NDArray[Any], q: float) -> list[float | None]:
    """The 95% interval [x_l, x_u] of the q-quantile of an ascending sample."""
    return [None if rank is None else float(ordered[rank - 1]) for rank in interval_ranks(len(ordered), q)]


def insufficient(n: int) -> tuple[str, ...]:
    """Names of the percentiles for which *n* samples are too few; their values are flagged."""
    return tuple(name for name, needed in NEEDED.items() if n < needed)


def ends(estimate: Estimate | None, scale: float = 1.0) -> tuple[float, float] | None:
    """(low, high) divided by *scale*; None without an interval."""
    return (estimate.low / scale, estimate.high / scale) if isinstance(estimate, ConfidenceInterval) else None
