"""Finds where a run becomes steady: MSER-5 (White, Cobb and Spratt 2000), next to the draft's cut of the first 10 %."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

BATCH = 5
LEAST_BATCHES = 10  # fewer are not enough
LATEST = 0.5  # a cut beyond this share means that no part of the run is known to be steady


@dataclass(frozen=True)
class Truncation:
    """Drop the first *cut* values; *share* of the series. *steady* False: the best cut lies beyond half of it."""

    cut: int
    share: float
    steady: bool


def mser5(series: npt.NDArray[Any]) -> Truncation | None:
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
