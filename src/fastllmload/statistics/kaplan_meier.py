"""Percentiles with unfinished requests, whose time is at least the observed one (Kaplan and Meier 1958)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastllmload.arrays import Floats, Mask, Values


@dataclass(frozen=True)
class Survival:
    """Share still waiting after each of *times* (ascending, distinct, only ends)."""

    times: Values
    share: Floats

    def percentile(self, q: float) -> float | None:
        """Shortest time by which a share *q* has ended; None: more than 1 - q had not ended when last observed."""
        reached = np.flatnonzero(self.share <= 1 - q + 1e-12)
        return float(self.times[reached[0]]) if len(reached) else None


def survival(times: Values, ended: Mask) -> Survival:
    """Product-limit estimate from the time of each request and whether it *ended* then (or was last observed then).

    Correct only if the censoring is independent of how long the request would have taken. The end of a run is not: under
    a growing queue the late requests wait longest and are observed shortest, so the estimate is too low.
    """
    if len(times) == 0:
        return Survival(np.empty(0), np.empty(0))
    distinct, place = np.unique(times, return_inverse=True)
    seen = np.bincount(place, minlength=len(distinct))
    ends = np.bincount(place, weights=ended, minlength=len(distinct))
    at_risk = len(times) - np.concatenate([[0], np.cumsum(seen)[:-1]])
    share = np.cumprod(1 - ends / at_risk)
    kept = ends > 0
    return Survival(distinct[kept], share[kept])


def bounds(times: Values, ended: Mask, q: float) -> tuple[float, float | None] | None:
    """Bounds of a percentile (nearest rank): the unfinished ended when last observed, or never (None).

    None without requests.
    """
    if len(times) == 0:
        return None
    rank = max(0, int(np.ceil(q * len(times) - 1e-9)) - 1)
    least = float(np.sort(times)[rank])
    known = np.sort(times[ended])
    return least, float(known[rank]) if rank < len(known) else None
