"""Tests whether two samples of independent figures differ. One figure per run: latencies of a run are not independent.

Every test gives a `Difference` of means (b - a), so that an effect is never reported without its interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastllmload.arrays import Floats
from fastllmload.statistics.student import CONFIDENCE, t_quantile, t_two_sided

EXACT_UP_TO = 400  # n x m up to which Mann-Whitney's distribution is exact


@dataclass(frozen=True)
class Difference:
    """mean(b) - mean(a), its interval, the two-sided p, and the test that gave them."""

    test: str
    value: float
    low: float
    high: float
    p: float


def _by_t(test: str, value: float, error: float, df: float) -> Difference:
    """Difference by Student's t. Without any spread p is 1 for no difference and 0 for any."""
    if error == 0:
        return Difference(test, value, value, value, 1.0 if value == 0 else 0.0)
    half = t_quantile((1 + CONFIDENCE) / 2, df) * error
    return Difference(test, value, value - half, value + half, t_two_sided(value / error, df))


def welch(a: Sequence[float], b: Sequence[float]) -> Difference:
    """Welch's t: unequal variances allowed. ValueError with fewer than 2 figures on a side."""
    x, y = _samples(a, b, 2)
    of_x, of_y = float(x.var(ddof=1)) / len(x), float(y.var(ddof=1)) / len(y)
    error = math.sqrt(of_x + of_y)
    spread = of_x**2 / (len(x) - 1) + of_y**2 / (len(y) - 1)
    df = (of_x + of_y) ** 2 / spread if spread > 0 else float(len(x) + len(y) - 2)
    return _by_t("welch", float(y.mean() - x.mean()), error, df)


def paired_t(a: Sequence[float], b: Sequence[float]) -> Difference:
    """Student's t of the differences of pairs, a[i] with b[i]. ValueError unless there are 2 pairs or more."""
    x, y = _samples(a, b, 2)
    if len(x) != len(y):
        raise ValueError(f"pairs need as many figures on both sides, not {len(x)} and {len(y)}")
    gaps = y - x
    error = float(gaps.std(ddof=1)) / math.sqrt(len(gaps))
    return _by_t("paired t", float(gaps.mean()), error, len(gaps) - 1)


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided p; exact for small samples without ties, else normal with tie and continuity correction."""
    x, y = _samples(a, b, 1)
    n, m = len(x), len(y)
    u = float((y[:, None] > x[None, :]).sum() + 0.5 * (y[:, None] == x[None, :]).sum())
    distinct = len(np.unique(np.concatenate([x, y]))) == n + m
    return _exact_p(u, n, m) if distinct and n * m <= EXACT_UP_TO else _normal_p(u, x, y)


def _exact_p(u: float, n: int, m: int) -> float:
    """From the number of arrangements with each u: the coefficients of the Gaussian binomial."""
    ways = np.zeros(n * m + 1)
    ways[0] = 1
    for k in range(1, n + 1):  # times (1 - q^(m + k)), then over (1 - q^k); all sums stay integers
        ways[m + k :] -= ways[: len(ways) - m - k].copy()
        for i in range(k, len(ways)):
            ways[i] += ways[i - k]
    tail = min(u, n * m - u)
    return min(1.0, 2 * float(ways[: int(tail) + 1].sum() / ways.sum()))


def _normal_p(u: float, x: Floats, y: Floats) -> float:
    n, m = len(x), len(y)
    _, ties = np.unique(np.concatenate([x, y]), return_counts=True)
    total = n + m
    shrink = float((ties.astype(np.float64) ** 3 - ties).sum()) / (total * (total - 1))
    variance = n * m / 12 * (total + 1 - shrink)
    if variance <= 0:
        return 1.0
    z = max(0.0, abs(u - n * m / 2) - 0.5) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))


def hedges_g(a: Sequence[float], b: Sequence[float]) -> float | None:
    """(mean(b) - mean(a)) in pooled standard deviations, corrected for small samples; None without any spread."""
    x, y = _samples(a, b, 2)
    df = len(x) + len(y) - 2
    pooled = math.sqrt(((len(x) - 1) * x.var(ddof=1) + (len(y) - 1) * y.var(ddof=1)) / df)
    if pooled == 0:
        return None
    return float(y.mean() - x.mean()) / pooled * (1 - 3 / (4 * df - 1))


def holm(p: Sequence[float]) -> list[float]:
    """Adjusted p of each test, so that p <= 0.05 limits the probability of any false alarm among all tests to 5 %."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    adjusted, reached = [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        reached = max(reached, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = reached
    return adjusted


def _samples(a: Sequence[float], b: Sequence[float], least: int) -> tuple[Floats, Floats]:
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if min(len(x), len(y)) < least:
        raise ValueError(f"a comparison needs at least {least} figures on each side, not {len(x)} and {len(y)}")
    return x, y
