"""Checks our own counts by Little's law: mean number in flight = arrival rate x mean time in flight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Instants = npt.NDArray[np.int64]
TOLERANCE = 0.01  # a larger residual: requests were lost or counted twice
LEAST_IN_FLIGHT = 100.0  # summed over the samples; below it one request more or less exceeds the tolerance


@dataclass(frozen=True)
class LittlesLaw:
    """*in_flight*: mean counted during the run. *rate_per_s*, *time_s*: of requests that began in the window.

    rate x time differs from it by requests that cross the window's borders and by changes between the counts. *residual*
    has neither: the relative difference between the counts and the number in flight by the requests' own times at the
    same instants; None if too few were in flight.
    """

    in_flight: float
    rate_per_s: float
    time_s: float
    residual: float | None


def littles_law(
    t_ns: Instants, counted: npt.NDArray[np.float64], begun: Instants, ended: Instants, w0_ns: int, w1_ns: int
) -> LittlesLaw | None:
    """*counted* in flight at instants *t_ns*; *begun* and *ended* in ns of every request, *ended* 0 = not yet.

    None without a count or a request in the window.
    """
    seen = (t_ns >= w0_ns) & (t_ns < w1_ns)
    inside = (begun >= w0_ns) & (begun < w1_ns) & (ended > 0)
    if not seen.any() or not inside.any():
        return None
    at, there = t_ns[seen], counted[seen]
    entered = np.searchsorted(np.sort(begun[begun > 0]), at, "right")
    left = np.searchsorted(np.sort(ended[ended > 0]), at, "right")
    total = float((entered - left).sum())
    residual = abs(float(there.sum()) - total) / total if total >= LEAST_IN_FLIGHT else None
    rate = float(np.count_nonzero(inside)) / ((w1_ns - w0_ns) / 1e9)
    return LittlesLaw(float(there.mean()), rate, float((ended - begun)[inside].mean()) / 1e9, residual)
