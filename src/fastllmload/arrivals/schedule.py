"""Draw the schedule before time zero: int64 nanoseconds from the start of the phase, ascending."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt

from fastllmload.arrivals.process import Arrivals, Seconds

Schedule = npt.NDArray[np.int64]
NS = 1e9
LATEST_NS = 9.2e18  # 292 years; later instants are clamped, and lie beyond any bound of a run


def draw_schedule(
    process: Arrivals,
    rate: float,
    stream: random.Random,
    *,
    count: int | None = None,
    seconds: float | None = None,
) -> Schedule:
    """The first *count* instants, those in [0, *seconds*), or the shorter of the two when both are given.

    The only rounding is here, to the nearest nanosecond; the bound is applied to rounded instants. ValueError
    without a bound.
    """
    if count is None and seconds is None:
        raise ValueError("a schedule needs a count, a duration or both")
    end = None if seconds is None else np.int64(round(seconds * NS))
    chunks: list[Schedule] = []
    drawn = 0
    for instants in process.instants(stream, rate):
        chunk = to_ns(instants)
        chunks.append(chunk)
        drawn += len(chunk)
        if (count is not None and drawn >= count) or (end is not None and chunk[-1] >= end):
            break
    schedule = np.concatenate(chunks)[:count]
    return schedule if end is None else np.ascontiguousarray(schedule[: np.searchsorted(schedule, end)])


def to_ns(instants: Seconds) -> Schedule:
    """Nearest nanosecond."""
    return np.rint(np.minimum(instants * NS, LATEST_NS)).astype(np.int64)
