"""Computes the schedule lag, t_dispatch - t_sched of every release: the only figure that shows lateness of any kind.

A Poisson process with independent jitter is again a Poisson process, so tests of the arrivals cannot replace the lag. In a
closed loop t_sched is the instant at which the slot became free, and the lag is the turn-around time (spec/procedures 0.5).
"""

from __future__ import annotations

import numpy as np

from fastllmload.certificate.evidence import Sends, Times, Window
from fastllmload.documents.certificate import ScheduleLag

EARLY_NS = 1_000  # earlier than this counts as early
LATE_NS = 1_000_000  # later than this is attributed to a cause
SECTIONS = 50


def schedule_lag(sends: Sends, window: Window) -> ScheduleLag:
    """Of all releases; the drift is a Theil-Sen slope over the medians of sections."""
    lag = sends.t_dispatch - sends.t_sched
    if not len(lag):
        return ScheduleLag(n=0)
    p50, p99, p999 = np.percentile(lag, [50, 99, 99.9])
    slope = drift(sends.t_sched, lag)
    return ScheduleLag(
        n=len(lag),
        min=float(lag.min()) / 1e3,
        p50=float(p50) / 1e3,
        p99=float(p99) / 1e3,
        p999=float(p999) / 1e3,
        max=float(lag.max()) / 1e3,
        early_share=float(np.mean(lag < -EARLY_NS)),
        drift_us_per_s=slope,
        drift_us=None if slope is None else slope * window.seconds,
    )


def drift(t_sched: Times, lag: Times) -> float | None:
    """Slope of the lag in us per second: the median of all slopes between the medians of up to 50 sections in time.

    Medians, so that a stall is not taken for a drift. None below 100 releases, or where all are due at one instant.
    """
    if len(lag) < 100 or t_sched[-1] == t_sched[0]:
        return None
    parts = np.array_split(np.arange(len(lag)), SECTIONS)
    at = np.array([np.median(t_sched[part]) for part in parts]) / 1e9
    height = np.array([np.median(lag[part]) for part in parts]) / 1e3
    i, j = np.triu_indices(len(at), 1)
    distinct = at[j] > at[i]
    if not distinct.any():
        return None
    return float(np.median((height[j] - height[i])[distinct] / (at[j] - at[i])[distinct]))


def late_intervals(sends: Sends) -> Times:
    """Rows (t_sched, t_dispatch) of releases more than 1 ms late."""
    late = sends.t_dispatch - sends.t_sched > LATE_NS
    return np.column_stack([sends.t_sched[late], sends.t_dispatch[late]])


def first_fill_us(sends: Sends) -> float | None:
    """Time from the first to the last dispatch of releases due at one instant: the C requests that fill a closed loop
    (IETF 5.5.3), or all at rate inf. None where the load has no such burst.
    """
    burst = sends.t_dispatch if sends.arrivals.process == "inf" else sends.first_fill
    return float(burst.max() - burst.min()) / 1e3 if len(burst) else None
