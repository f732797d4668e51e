"""Whose lateness it was: ours, or that of a host that stood still as a whole.

A release or read is the host's when its stalls cover at least half of the time that it was late. A reason is the host's
when all that was more than 5 ms late is, or when the reason would not stand without what is. Each is asked for itself:
of ten late releases the host's stall of 20 ms made the latest, whoever made the other nine.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastllmload.certificate import criteria
from fastllmload.certificate.evidence import Evidence, Times
from fastllmload.certificate.host import covered
from fastllmload.certificate.lag import late_intervals

LEAST_NS = 1_000_000  # a release that was less late than this breaks no limit
SEEN = 0.5  # a worker's stop shows in releases and reads that fall into its first half


def late(evidence: Evidence) -> Times:
    """Rows (begin, end) of releases and reads that were more than 5 ms late."""
    return np.concatenate([late_intervals(evidence.sends), evidence.stamps.late_user])


def of_the_host(evidence: Evidence) -> frozenset[str]:
    """Codes of the reasons that, where they stand, the host's stalls account for."""
    stalls = evidence.host.stalls
    intervals = late(evidence)
    by_host = covered(intervals, stalls)
    found = set()
    if by_host.any():
        if by_host.all():
            found |= {one.code for one in criteria.CRITERIA if one.host_may_explain}
        limit_ns = SEEN * limit_us("worker_stall") * 1e3
        length = intervals[:, 1] - intervals[:, 0]
        if length[by_host].max() > limit_ns >= length[~by_host].max(initial=0):
            found.add("worker_stall")
    rest = unexplained_lags_us(evidence)
    if len(rest) < len(evidence.sends.t_sched):
        p99, latest = (np.percentile(rest, 99), rest.max()) if len(rest) else (0.0, 0.0)
        if p99 <= limit_us("schedule_lag"):
            found.add("schedule_lag")
        if latest <= limit_us("late_release"):
            found.add("late_release")
    return frozenset(found)


def unexplained_lags_us(evidence: Evidence) -> npt.NDArray[np.float64]:
    """Lags of the releases that the host's stalls do not account for."""
    sends = evidence.sends
    lag = sends.t_dispatch - sends.t_sched
    notable = np.flatnonzero(lag > LEAST_NS)
    spans = np.column_stack([sends.t_sched[notable], sends.t_dispatch[notable]])
    rest = np.delete(lag, notable[covered(spans, evidence.host.stalls)])
    return rest / 1e3


def limit_us(code: str) -> float:
    """The limit from which the reason stands."""
    (limit,) = (one.suspect for one in criteria.CRITERIA if one.code == code)
    assert limit is not None
    return limit
