"""Estimates the variance of the mean of an autocorrelated series by batch means with a correction.

The series is cut into BATCHES stretches in order of time. Their means are nearly independent if a stretch is much longer
than the dependence lasts; the remaining correlation is estimated from neighbouring batches and added (the same factor as
in Skart by Tafazzoli, Wilson and others).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

BATCHES = 20
MOST_CORRELATED = 0.8  # correlation of neighbouring batch means; above it noise would make the factor explode
CARRIED = 4.0  # see `long_run`


@dataclass(frozen=True)
class LongRun:
    """*variance* of the mean of a series; *skewness* of its *batches* means, *correlation* of neighbouring ones."""

    variance: float
    skewness: float
    correlation: float
    batches: int


def batch_edges(n: int, batches: int = BATCHES) -> Counts:
    """Positions 0 = edges[0] < ... < edges[batches] = n of nearly equal stretches of *n* >= batches units."""
    return np.round(np.linspace(0, n, batches + 1)).astype(np.int64)


def long_run(means: Floats, scatter: float | None = None) -> LongRun:
    """From the means of the batches of a series, in order of time.

    *scatter*: variance of the single values, None if unknown. Neighbouring batches correlate across their border only, so
    their correlation falls with the length of a batch: it is used up to CARRIED times the variance of the batch means
    over *scatter* (a quarter of that ratio if dependence decays exponentially). More in 20 batches is noise, which would
    only widen intervals.
    """
    b = len(means)
    deviations = means - means.mean()
    squares = float(np.dot(deviations, deviations))
    if squares <= 0:
        return LongRun(0.0, 0.0, 0.0, b)
    lagged = float(np.dot(deviations[1:], deviations[:-1])) / squares + 1 / b  # 1/b: its bias without correlation
    most = MOST_CORRELATED if not scatter else min(MOST_CORRELATED, CARRIED * squares / (b - 1) / scatter)
    correlation = min(max(lagged, 0.0), most)
    variance = squares / (b * (b - 1)) * (1 + correlation) / (1 - correlation)
    skewness = float((deviations**3).mean()) / (squares / b) ** 1.5
    return LongRun(variance, skewness, correlation, b)


def batch_means(values: npt.NDArray[Any], batches: int = BATCHES) -> Floats:
    """Mean of each batch of *values*, in order of time."""
    edges = batch_edges(len(values), batches)
    return np.add.reduceat(np.asarray(values, np.float64), edges[:-1]) / np.diff(edges)
