"""Whose lateness it was: ours, or that of a host that stood still as a whole.

A release, a read or a worker's stall is the host's when its stalls cover at least half of that time. A reason is the host's
when all releases and reads that were more than 5 ms late are, or when the reason would not stand without what is. Each is
asked for itself: of ten late releases the host's stall of 20 ms made the latest, whoever made the other nine. That a worker
stalled is asked of its stalls alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastllmload.certificate import criteria
from fastllmload.certificate.evidence import Evidence, Times
from fastllmload.certificate.host import covered
from fastllmload.certificate.lag import late_intervals

NO_STALLS: Times = np.empty((0, 2), np.int64)
LEAST_NS = 1_000_000  # a release that was less late than this breaks no limit


def late(evidence: Evidence) -> Times:
    """Rows (begin, end) of releases and reads that were more than 5 ms late."""
    return np.concatenate([late_intervals(evidence.sends), evidence.stamps.late_user])


def worker_stalls(evidence: Evidence) -> Times:
    """Rows (begin, end) of times in which a worker looked at nothing, whoever stopped it."""
    return np.concatenate([NO_STALLS, *(one.stalls for one in evidence.workers if one.stalls is not None)])


def of_the_host(evidence: Evidence) -> frozenset[str]:
    """Codes of the reasons that, where they stand, the host's stalls account for."""
    stalls = evidence.host.stalls
    by_host = covered(late(evidence), stalls)
    found = set()
    if len(by_host) and by_host.all():
        found = {one.code for one in criteria.CRITERIA if one.host_may_explain} - {"worker_stall"}
    own = worker_stalls(evidence)
    own = own[~covered(own, stalls)]
    if (own[:, 1] - own[:, 0]).max(initial=0) <= limit_us("worker_stall") * 1e3:
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
