"""Attributes lateness and uncertainty to the generator, to the host, or to the way in which reads are stamped.

Each late release and each late read is attributed separately. The worker records every stall of 0.5 ms or more (an interval
in which it polled neither its sockets nor the clock), for how much of it the thread was ready to run without a processor or
slept past its own timer, and for how much it ran. The host caused a stall if the thread was ready for at least half of it,
if the host itself stalled for at least half of it (`host.stalls`: a thread that only sleeps was late too), or if the
hypervisor took at least half of it. The generator caused all others: its code ran, was stopped (by a signal, whatever the
scheduler reported) or blocked.

The host caused a late release or read if such stalls cover at least half of its lateness. It caused a reason if it caused
all lateness, or if the reason would not apply without what it caused. For a reason about all releases together (rate, drift,
bursts) or about the error of a figure, it must have caused most of the total lateness of releases, or of reads. Timestamps
caused the error of a figure if most events with brackets wide enough to produce it were read on time.
"""

from __future__ import annotations

import numpy as np

from fastllmload.arrays import Floats
from fastllmload.certificate import criteria
from fastllmload.certificate.arrivals import late_intervals
from fastllmload.certificate.evidence import BRACKET_LEAST_NS, CertificateEvidence, Times, WorkerRecord, bracket_class
from fastllmload.certificate.figures import FigureBound
from fastllmload.certificate.usage import covered, widened

GENERATOR, HOST, TIMESTAMPS = "generator", "host", "timestamps"
NO_STALLS: Times = np.empty((0, 2), np.int64)
CATCH_UP = np.array([-200_000, 200_000])  # ns: for work due just before a wait, and work done first after it
# Codes of reasons about all releases together, and about reads.
OF_SENDS = frozenset(
    {"drift", "rate", "slots_empty", "class_slots_empty", "quantised_sends", "clumped_sends", "dispersion"}
)
OF_READS = frozenset({"user_stamps_late"})
LEAST_NS = 1_000_000  # a release that is less late than this exceeds no limit
READ_ON_TIME_NS = 500_000  # a read on time without a kernel stamp has a bracket of at most twice this width


def late(evidence: CertificateEvidence) -> Times:
    """Rows (begin, end) of releases and reads that were more than 1 ms late."""
    return np.concatenate([late_intervals(evidence.sends), evidence.stamps.late_user])


def worker_stalls(evidence: CertificateEvidence) -> Times:
    """Rows (begin, end) of the workers' stalls, whatever their cause."""
    return np.concatenate([NO_STALLS, *(one.stalls for one in evidence.workers if one.stalls is not None)])


def ready_stalls(record: WorkerRecord) -> Times:
    """Rows (begin, end) of the stalls in which the thread was ready to run for at least half of the time."""
    if record.stalls is None or record.stall_ready is None:
        return NO_STALLS
    found: Times = record.stalls[2 * record.stall_ready >= record.stalls[:, 1] - record.stalls[:, 0]]
    return found


def stalls_without_signal(record: WorkerRecord) -> Times:
    """Rows (begin, end) of the stalls that no signal ended: one that did has no time ready to run."""
    if record.stalls is None or record.stall_ready is None:
        return NO_STALLS if record.stalls is None else record.stalls
    found: Times = record.stalls[record.stall_ready != 0]
    return found


def host_intervals(evidence: CertificateEvidence) -> Times:
    """Rows (begin, end) of intervals in which the host gave no processor to any process, or to a worker."""
    if evidence.host.throttled:  # the client's own quota also stops the thread that measures hiccups
        return NO_STALLS
    stalls = widened(evidence.host.stalls)
    waits = np.concatenate([NO_STALLS, *map(ready_stalls, evidence.workers)])
    return np.concatenate([stalls, waits + CATCH_UP, stolen_stalls(evidence) + CATCH_UP])


def stolen_stalls(evidence: CertificateEvidence) -> Times:
    """Rows (begin, end) of the stalls during which the hypervisor took CPU time of at least half their length. Steal is
    known by the quarter of a second, in which far more stalls may lie: those that a signal stopped do not count.
    """
    times, ns = evidence.host.steal_t_ns, evidence.host.steal_ns
    own = np.concatenate([NO_STALLS, *map(stalls_without_signal, evidence.workers)])
    if len(times) < 2 or not len(own):
        return NO_STALLS
    # Steal is counted in ticks and sampled about every 250 ms: take the samples around a stall.
    first = np.clip(np.searchsorted(times, own[:, 0], side="right") - 1, 0, len(times) - 1)
    last = np.clip(np.searchsorted(times, own[:, 1]), 0, len(times) - 1)
    found: Times = own[2 * (ns[last] - ns[first]) >= own[:, 1] - own[:, 0]]
    return found


def host_caused_codes(evidence: CertificateEvidence) -> frozenset[str]:
    """Codes of the reasons that the host caused, if they apply."""
    stalls = host_intervals(evidence)
    by_host = covered(late(evidence), stalls)
    found = set()
    if len(by_host) and by_host.all():
        found = {one.code for one in criteria.CRITERIA if one.host_may_explain} - {"worker_stall"}
    own = worker_stalls(evidence)
    own = own[~covered(own, stalls)]
    if (own[:, 1] - own[:, 0]).max(initial=0) <= limit_us("worker_stall") * 1e3:
        found.add("worker_stall")
    for codes, sending in ((OF_SENDS, True), (OF_READS, False)):
        if cause_of_lateness(evidence, sending) == HOST:
            found |= codes
    rest = unexplained_lags_us(evidence, stalls)
    if rest is not None:
        p99, latest = np.percentile(rest, 99), rest.max()
        if p99 <= limit_us("schedule_lag"):
            found.add("schedule_lag")
        if latest <= limit_us("late_release"):
            found.add("late_release")
    return frozenset(found)


def cause_of_lateness(evidence: CertificateEvidence, sending: bool) -> str:
    """HOST or GENERATOR: which caused most of the total lateness of releases (*sending*) or of reads.

    Only the last read of each request shows how late it was, so the worker's stalls count as lateness of reads too.
    """
    stalls = worker_stalls(evidence)
    spans = late_intervals(evidence.sends) if sending else np.concatenate([evidence.stamps.late_user, stalls])
    if not len(spans):
        spans = stalls
    length = spans[:, 1] - spans[:, 0]
    by_host = covered(spans, host_intervals(evidence))
    return HOST if len(spans) and 2 * length[by_host].sum() >= length.sum() else GENERATOR


def cause_of_error(evidence: CertificateEvidence, figure: FigureBound) -> str:
    """TIMESTAMPS, GENERATOR or HOST: the cause of the error of a *figure* that reads make uncertain.

    The error is at most the brackets of two events, so one of them is at least half as wide as the error. TPOT, a mean over
    the tokens of an answer, needs wider ones.
    """
    least = figure.error * 1e6 / 2
    if figure.metric.startswith("tpot"):
        least = max(least, READ_ON_TIME_NS)
    on_time, stalled = evidence.stamps.brackets
    if least <= READ_ON_TIME_NS and (on_time.any() or stalled.any()):
        first, end = bracket_class([max(least, BRACKET_LEAST_NS), 2 * READ_ON_TIME_NS])
        if on_time[first:end].sum() >= stalled[first:].sum() + on_time[end:].sum():
            return TIMESTAMPS
    return cause_of_lateness(evidence, False)


def unexplained_lags_us(evidence: CertificateEvidence, stalls: Times) -> Floats | None:
    """Lags of the releases in us, 0 where the host's *stalls* explain the lag; None where they explain none."""
    sends = evidence.sends
    lag = sends.t_dispatch - sends.t_sched
    notable = np.flatnonzero(lag > LEAST_NS)
    spans = np.column_stack([sends.t_sched[notable], sends.t_dispatch[notable]])
    explained = notable[covered(spans, stalls)]
    return np.where(np.isin(np.arange(len(lag)), explained), 0, lag) / 1e3 if len(explained) else None


def limit_us(code: str) -> float:
    """The limit above which the reason is at least suspect."""
    (limit,) = (one.suspect for one in criteria.CRITERIA if one.code == code)
    assert limit is not None
    return limit
