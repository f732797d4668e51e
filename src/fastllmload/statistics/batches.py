"""How uncertain is the mean of a series whose neighbours depend on each other? Batch means with a correction.

The series is cut into BATCHES stretches in order of time. Their means are nearly independent once a stretch is much
longer than the dependence lasts; what is left of it is estimated from neighbouring batches and added (Tafazzoli, Wilson
and others' Skart uses the same factor).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

BATCHES = 20
MOST_CORRELATED = 0.8  # of neighbouring batch means; beyond it the factor would explode on noise
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

    *scatter*: variance of the single values, None where nobody knows it. What neighbouring batches share reaches across
    their border, so their correlation falls with the length of a batch: it is believed up to CARRIED times the variance
    of the batch means over *scatter* (a quarter of that ratio where dependence fades exponentially). Beyond it what 20
    batches show is noise, which would only widen intervals.
    """
    b = len(means)
    apart = means - means.mean()
    squares = float(np.dot(apart, apart))
    if squares <= 0:
        return LongRun(0.0, 0.0, 0.0, b)
    lagged = float(np.dot(apart[1:], apart[:-1])) / squares + 1 / b  # 1/b: its bias where nothing is correlated
    most = MOST_CORRELATED if not scatter else min(MOST_CORRELATED, CARRIED * squares / (b - 1) / scatter)
    correlation = min(max(lagged, 0.0), most)
    variance = squares / (b * (b - 1)) * (1 + correlation) / (1 - correlation)
    skewness = float((apart**3).mean()) / (squares / b) ** 1.5
    return LongRun(variance, skewness, correlation, b)


def batch_means(values: npt.NDArray[Any], batches: int = BATCHES) -> Floats:
    """Mean of each batch of *values*, in order of time."""
    edges = batch_edges(len(values), batches)
    return np.add.reduceat(np.asarray(values, np.float64), edges[:-1]) / np.diff(edges)
