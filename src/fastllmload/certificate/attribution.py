"""What made something late or uncertain: our own code, the host that gave our thread no processor, or how reads are stamped.

Each late release and each late read is judged by itself. The worker writes down every stall of 0.5 ms or more (a time in
which it looked at none of its sockets and not at the clock), how long of it the thread was ready to run without a
processor, and how long it ran. A stall is the host's when the thread was ready for at least half of it, when the host
itself stood still for at least half of it (`host.stalls`: a thread that only sleeps was late too), or when the hypervisor
took the processor in that second. What is left is the generator's: its code ran, or was stopped (by a signal, whatever the
scheduler said then) or blocked.

A release or a read is the host's when such times cover at least half of its lateness. A reason is the host's when all
that was late is, or when the reason would not stand without what is; one that speaks of all releases together (their rate,
drift, bursts), or of the error of a figure, when most of the time is that releases, or reads, were late. The error of a
figure comes from the timestamps where most of the events that are uncertain enough to make it were read on time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastllmload.certificate import criteria
from fastllmload.certificate.evidence import BRACKET_LEAST_NS, CertificateEvidence, Times, WorkerRecord, bracket_class
from fastllmload.certificate.figures import FigureBound
from fastllmload.certificate.host import around, covered
from fastllmload.certificate.lag import late_intervals

GENERATOR, HOST, TIMESTAMPS = "generator", "host", "timestamps"
NO_STALLS: Times = np.empty((0, 2), np.int64)
CATCH_UP = np.array([-200_000, 200_000])  # ns: what was due before a wait, and what is done first after it
# What speaks of all releases together, or of reads.
OF_SENDS = frozenset({"drift", "rate", "quantised_sends", "clumped_sends", "dispersion"})
OF_READS = frozenset({"user_stamps_late"})
LEAST_NS = 1_000_000  # a release that was less late than this breaks no limit
READ_AT_ONCE_NS = 500_000  # without a stamp of the kernel a read at once has at most twice as wide a bracket


def late(evidence: CertificateEvidence) -> Times:
    """Rows (begin, end) of releases and reads that were more than 1 ms late."""
    return np.concatenate([late_intervals(evidence.sends), evidence.stamps.late_user])


def worker_stalls(evidence: CertificateEvidence) -> Times:
    """Rows (begin, end) of times in which a worker looked at nothing, whoever stopped it."""
    return np.concatenate([NO_STALLS, *(one.stalls for one in evidence.workers if one.stalls is not None)])


def waits_of(record: WorkerRecord) -> Times:
    """Rows (begin, end) of the stalls in which the thread was ready to run for at least half of the time."""
    if record.stalls is None or record.stall_ready is None:
        return NO_STALLS
    waited: Times = record.stalls[2 * record.stall_ready >= record.stalls[:, 1] - record.stalls[:, 0]]
    return waited


def host_times(evidence: CertificateEvidence) -> Times:
    """Rows (begin, end) of times in which the host withheld a processor, from itself as a whole or from a worker."""
    if evidence.host.throttled:  # by the quota of the client itself, from the thread that looks for stalls too
        return NO_STALLS
    stalls = around(evidence.host.stalls)
    waits = np.concatenate([NO_STALLS, *map(waits_of, evidence.workers)])
    return np.concatenate([stalls, waits + CATCH_UP, stolen(evidence) + CATCH_UP])


def stolen(evidence: CertificateEvidence) -> Times:
    """Rows (begin, end) of the stalls in whose time the hypervisor took at least half as much of the host's CPUs."""
    times, ns = evidence.host.steal_t_ns, evidence.host.steal_ns
    own = worker_stalls(evidence)
    if len(times) < 2 or not len(own):
        return NO_STALLS
    # Steal is counted in ticks, at samples some 250 ms apart: of the samples around a stall.
    first = np.clip(np.searchsorted(times, own[:, 0], side="right") - 1, 0, len(times) - 1)
    last = np.clip(np.searchsorted(times, own[:, 1]), 0, len(times) - 1)
    found: Times = own[2 * (ns[last] - ns[first]) >= own[:, 1] - own[:, 0]]
    return found


def of_the_host(evidence: CertificateEvidence) -> frozenset[str]:
    """Codes of the reasons that, where they stand, the host accounts for."""
    stalls = host_times(evidence)
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
    """Who made most of the time late that releases (*sending*), or reads, were: HOST or GENERATOR. Of reads only the last
    of each request tells how late it was; so the times in which the worker looked at nothing count with them.
    """
    stalls = worker_stalls(evidence)
    spans = late_intervals(evidence.sends) if sending else np.concatenate([evidence.stamps.late_user, stalls])
    if not len(spans):
        spans = stalls
    length = spans[:, 1] - spans[:, 0]
    by_host = covered(spans, host_times(evidence))
    return HOST if len(spans) and 2 * length[by_host].sum() >= length.sum() else GENERATOR


def cause_of_error(evidence: CertificateEvidence, figure: FigureBound) -> str:
    """What made a *figure* uncertain by its reads: TIMESTAMPS, GENERATOR or HOST. A figure is off by two events' brackets at
    most, so one of them is at least half as wide; what is a mean over the tokens of an answer is off by less.
    """
    least = figure.error * 1e6 / 2
    if figure.metric.startswith("tpot"):
        least = max(least, READ_AT_ONCE_NS)
    free, touched = evidence.stamps.brackets
    if least <= READ_AT_ONCE_NS and (free.any() or touched.any()):
        first, end = bracket_class([max(least, BRACKET_LEAST_NS), 2 * READ_AT_ONCE_NS])
        if free[first:end].sum() >= touched[first:].sum() + free[end:].sum():
            return TIMESTAMPS
    return cause_of_lateness(evidence, False)


def unexplained_lags_us(evidence: CertificateEvidence, stalls: Times) -> npt.NDArray[np.float64] | None:
    """Lags of the releases, 0 of those that the host's *stalls* account for; None where these account for none."""
    sends = evidence.sends
    lag = sends.t_dispatch - sends.t_sched
    notable = np.flatnonzero(lag > LEAST_NS)
    spans = np.column_stack([sends.t_sched[notable], sends.t_dispatch[notable]])
    explained = notable[covered(spans, stalls)]
    return np.where(np.isin(np.arange(len(lag)), explained), 0, lag) / 1e3 if len(explained) else None


def limit_us(code: str) -> float:
    """The limit from which the reason stands."""
    (limit,) = (one.suspect for one in criteria.CRITERIA if one.code == code)
    assert limit is not None
    return limit
