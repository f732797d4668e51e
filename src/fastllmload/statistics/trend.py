"""Tests whether a series is steady: Mann-Kendall, least-squares slope, drift (spec/procedures 0.9), and MSER-5."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastllmload.arrays import Floats, Values
from fastllmload.statistics.student import t_two_sided

BATCH = 5
LEAST_BATCHES = 10  # fewer are not enough
LATEST = 0.5  # a cut beyond this share means that no part of the run is known to be steady


@dataclass(frozen=True)
class Truncation:
    """Drop the first *cut* values; *share* of the series. *steady* False: the best cut lies beyond half of it."""

    cut: int
    share: float
    steady: bool


def mser5(series: Values) -> Truncation | None:
    """The cut that makes the standard error of the mean of the rest least, over means of 5 values; None for too few.

    *series* in order of time. The last 5 batches are never a candidate: their spread estimates nothing.
    """
    k = len(series) // BATCH
    if k < LEAST_BATCHES:
        return None
    means = np.asarray(series[: k * BATCH], np.float64).reshape(k, BATCH).mean(axis=1)
    means -= means.mean()  # keeps the sums of squares small compared with what is subtracted
    left = np.arange(k, 0, -1)
    sums, squares = np.cumsum(means[::-1])[::-1], np.cumsum(means[::-1] ** 2)[::-1]
    errors = np.maximum(squares - sums**2 / left, 0) / left**2
    best = int(np.argmin(errors[: k - BATCH]))
    return Truncation(best * BATCH, best / k, best <= LATEST * k)


DRIFTED = 0.005  # p below which a level has moved; small because several are judged in each run
CHOSEN = 5  # factor on p of the best of some eleven similar steps
MOST_SHARED = 0.8  # correlation of neighbouring stretches; above it noise would make the factor explode


def mann_kendall(series: Sequence[float]) -> float:
    """Two-sided p of Kendall's test of a monotone trend, in the normal limit.

    Var = n (n - 1)(2 n + 5) / 18, less the same sum over groups of ties.
    """
    x = np.asarray(series, np.float64)
    n = len(x)
    s = sum(int(np.sign(x[i + 1 :] - x[i]).sum()) for i in range(n - 1))
    _, ties = np.unique(x, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    if s == 0 or variance <= 0:
        return 1.0
    return math.erfc((abs(s) - 1) / math.sqrt(variance) / math.sqrt(2))


def slope(series: Sequence[float]) -> float:
    """Least-squares slope per step of an evenly spaced series; 0 for fewer than 2 values."""
    y = np.asarray(series, np.float64)
    if len(y) < 2:
        return 0.0
    t = np.arange(len(y)) - (len(y) - 1) / 2
    return float(np.dot(t, y - y.mean()) / np.dot(t, t))


@dataclass(frozen=True)
class Drift:
    """Change of level of a series: means of the *first* and *second* half and the smaller *p* of a straight line and of
    the halves; the most likely step, *at* this share of the series, from *before* to *after*; *p_step*: its p,
    corrected for the choice of the step.
    """

    first: float
    second: float
    p: float
    at: float
    before: float
    after: float
    p_step: float

    def moved(self, size: float) -> bool:
        """Whether the level moved by at least the share *size*, and not by chance."""
        differs = abs(self.second - self.first) >= size * abs(self.first) and self.p < DRIFTED
        return differs or (abs(self.after - self.before) >= size * abs(self.before) and self.p_step < DRIFTED)


def drift(means: Floats) -> Drift:
    """Drift of the *means* of 8 or more stretches of a run, in order of time. The correlation of neighbouring stretches
    about the line or step widens the error and reduces the degrees of freedom.
    """
    n = len(means)
    line: Floats = np.arange(n, dtype=np.float64) - (n - 1) / 2
    places = range(n // 4, n - n // 4 + 1)
    steps = {k: np.where(np.arange(n) < k, -1 / k, 1 / (n - k)) for k in places}
    p_of = {k: _p_along(means, step) for k, step in steps.items()}
    best, half = min(p_of, key=lambda k: p_of[k]), n // 2
    return Drift(
        float(means[:half].mean()),
        float(means[half:].mean()),
        min(_p_along(means, line), p_of[half]),
        best / n,
        float(means[:best].mean()),
        float(means[best:].mean()),
        min(1.0, CHOSEN * p_of[best]),
    )


def _p_along(y: Floats, direction: Floats) -> float:
    """Two-sided p of the part of *y* along *direction*, a vector of sum 0."""
    unit = direction / math.sqrt(float(np.dot(direction, direction)))
    part = float(np.dot(unit, y))
    rest = y - y.mean() - part * unit
    squares, n = float(np.dot(rest, rest)), len(y)
    if squares <= 1e-18 * float(np.dot(y, y)):
        return 1.0 if abs(part) <= 1e-9 * float(np.abs(y).max()) else 0.0
    shared = min(max(float(np.dot(rest[1:], rest[:-1])) / squares + 2 / n, 0.0), MOST_SHARED)
    wider = (1 + shared) / (1 - shared)
    return t_two_sided(part / math.sqrt(squares / (n - 2) * wider), max((n - 2) / wider, 2.0))
