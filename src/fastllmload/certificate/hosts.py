"""Judges the hosts of a run over many: each by its own evidence, then how they compare, then all together.

A host is judged as a run of its own requests, workers and watch. What is about the schedule of all, such as its gaps, is
judged of the run alone. The verdict of the run is that of the worst host, or a worse one of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace as with_fields

import numpy as np
from msgspec.structs import replace

from fastllmload.arrays import Floats, Mask, Numbers, Rows
from fastllmload.certificate.criteria import SEVERITY
from fastllmload.certificate.evidence import AmongHosts, CertificateEvidence, MeasuredWindow, Sends
from fastllmload.documents.certificate import Certificate, HostDelays, NetworkUse, PortUsage, Reason
from fastllmload.documents.fields import Number, known
from fastllmload.documents.run_parts.hosts import HostEntry
from fastllmload.metrics.run.measure import headline_metrics
from fastllmload.metrics.run.window import Window, populations, unsent, window_of
from fastllmload.records import layout
from fastllmload.records.hosts import ALONE, LOST, positions
from fastllmload.records.run import Run

LATE = "late"  # status of a host
# Codes of reasons that are taken from the evidence of the complete run; all others from those of the hosts
OF_THE_RUN = frozenset(
    ("no_releases", "nothing_measured", "rate", "slots_empty", "class_slots_empty", "capped", "capped_prefill",
     "schedule_shape", "quantised_sends", "clumped_sends", "dispersion", "uncertain_figure",
     "disk_full", "host_excluded", "clock_in_gaps")
)  # fmt: skip
EXPLAINING = ("host_lost", "host_alone", "clock_unknown")
SURE = 5.0  # standard deviations: by chance less than once in a million comparisons
BLOCK = 16  # requests of each host that are compared at a time
COMPETITORS = 5


def run_of_host(run: Run, host: HostEntry) -> Run:
    """*run* as if *host* had sent alone: its requests, workers, samples and watch, and the headline figures of these."""
    return judged_alone(run_of_workers(run, np.isin(run.rows["worker"], host.workers), host.workers), host)


def judged_alone(run: Run, host: HostEntry) -> Run:
    """*run*, which has the requests of *host* only, with a document of this host, and the headline figures."""
    found = run.changed(hosts=(host,), excluded_hosts=(), watch=host.watch)
    return found.changed(metrics=headline_metrics(found))


def without_hosts(run: Run, excluded: Sequence[int]) -> Run:
    """*run* without the requests, workers and samples of the hosts with the numbers *excluded*, as run.json then says."""
    kept = [host for host in run.document.hosts if host.host not in excluded]
    workers = [number for host in kept for number in host.workers]
    gone = [number for host in run.document.hosts if host.host in excluded for number in host.workers]
    found = run_of_workers(run, ~np.isin(run.rows["worker"], gone), workers)
    return found.changed(excluded_hosts=tuple(excluded))


def run_of_workers(run: Run, mine: Mask, workers: Sequence[int]) -> Run:
    """*run* with the rows *mine*, and of run.json and the samples only the *workers*, and the simulated engine."""
    samples = run.samples
    if samples is not None:
        samples = samples[np.isin(samples["worker"], workers) | (samples["worker"] < 0)]
    entries = tuple(entry for entry in run.document.workers if entry.worker in workers)
    found = run.selected(mine)
    if found.elsewhere is not None:
        hosts = [host.host for host in run.document.hosts if set(host.workers) <= set(workers)]
        found = with_fields(found, elsewhere=found.elsewhere.of(slice(None), hosts))
    return with_fields(found, samples=samples).changed(workers=entries)


def evidence_of_host(evidence: CertificateEvidence, host: HostEntry, distances: AmongHosts) -> CertificateEvidence:
    """*evidence* of a host's own run, with how the host compares with the others."""
    bound = None if host.clock is None else known(host.clock.bound_ns)
    among = with_fields(
        distances,
        lost=int(host.status == LOST),
        alone=int(host.status == ALONE),
        late=int(host.status == LATE),
        clock_unknown=int(host.clock is None and len(evidence.sends.all_dispatch) > 0),
        clock_bound_us=None if bound is None else bound / 1e3,
    )
    stamps = with_fields(evidence.stamps, requested=host.timestamps or evidence.stamps.requested)
    return with_fields(evidence, among_hosts=among, stamps=stamps, disk_full=host.disk_full)


def evidence_of_run(evidence: CertificateEvidence, run: Run) -> CertificateEvidence:
    """*evidence* of the complete run, with what only all hosts together show."""
    among = AmongHosts(
        excluded=len(run.document.excluded_hosts),
        clock_in_gaps=clock_in_gaps(run.document.judged_hosts, evidence.sends, evidence.window),
    )
    return with_fields(evidence, among_hosts=among)


def clock_in_gaps(hosts: Sequence[HostEntry], sends: Sends, window: MeasuredWindow) -> float | None:
    """The largest error of the clocks over the mean gap between arrivals; None with one host, and outside an open loop."""
    bounds = [bound for host in hosts if host.clock is not None and (bound := known(host.clock.bound_ns)) is not None]
    arrived = int(window.contains(sends.all_dispatch).sum())
    if len(hosts) < 2 or not bounds or not arrived or window.seconds <= 0 or not sends.arrivals.open_loop:
        return None
    return max(bounds) / 1e9 * arrived / window.seconds


def distances(run: Run) -> dict[int, AmongHosts]:
    """By host, how far its service and the use of its slots are from those of the middle host."""
    hosts, rows = run.document.judged_hosts, run.rows[populations(run, window_of(run)).latency]
    answered = rows[rows["t_first"] > 0]
    streamed = answered[answered["content_events"] > 1]
    ttft = median_distances(hosts, answered, answered["t_first"] - answered["t_submit"])
    gaps = (streamed["t_last"] - streamed["t_first"]) / (streamed["content_events"] - 1.0)
    tpot, slots = median_distances(hosts, streamed, gaps), slot_distances(run)
    return {
        host.host: AmongHosts(
            ttft_distance=ttft.get(host.host), tpot_distance=tpot.get(host.host), slots_distance=slots.get(host.host)
        )
        for host in hosts
    }


def median_distances(hosts: Sequence[HostEntry], rows: Rows, values: Numbers | Floats) -> dict[int, float]:
    """By host: how far the median of its *values* is from that of the middle host, as a share; 0 where it may be chance.
    Empty where that median is 0.

    Requests of one target and class that were sent at about the same time are compared, so that what differs between these
    does not count; those of one conversation count together, because they resemble each other.
    """
    if len(hosts) < 2 or not len(rows):
        return {}
    own = values.astype(np.float64)
    relative = own / np.maximum(medians_nearby(rows, own, BLOCK * len(hosts)), 1.0)
    at = positions(hosts, rows["worker"])
    each = {host.host: np.flatnonzero(at == position) for position, host in enumerate(hosts)}
    medians = {number: float(np.median(relative[mine])) for number, mine in each.items() if len(mine)}
    middle = middle_of(medians)
    if medians[middle] == 0:  # most values are 0, and a share of that is none
        return {}
    found = {}
    for number, median in medians.items():
        mine = each[number]
        # The middle itself is only known as well as a median of its requests.
        chance = float(np.sqrt(1 + len(mine) / len(each[middle])))
        sure = deviation(relative[mine] - medians[middle], rows["session"][mine]) > SURE * chance
        found[number] = abs(median / medians[middle] - 1) if sure else 0.0
    return found


def middle_of(figures: Mapping[int, float]) -> int:
    """The host with the middle figure; of two the lower one."""
    return sorted(figures, key=lambda number: figures[number])[(len(figures) - 1) // 2]


def slot_distances(run: Run) -> dict[int, float]:
    """By host of closed loops that are bounded by duration: how far the use of its slots is from that of the middle host, as
    a share; 0 where it may be chance.
    """
    window, phase, slots = window_of(run), run.phase("measure"), slots_by_host(run)
    if len(slots) < 2 or window is None or phase is None or phase.bound != "duration":
        return {}
    requests, used_ns = use_by_host(run, window)
    shares = {number: used_ns[number] / many for number, many in slots.items()}
    middle = middle_of(shares)
    found = {}
    for number, share in shares.items():
        distance = abs(share / shares[middle] - 1) if shares[middle] else 0.0
        chance = float(np.sqrt(sum(1 / max(1.0, requests[one]) for one in (number, middle))))
        found[number] = distance if distance > SURE * chance else 0.0
    return found


def use_by_host(run: Run, window: Window) -> tuple[dict[int, float], dict[int, float]]:
    """By host: requests of its slots that were in flight in *window*, and the sum of the times for which they were, ns."""
    rows, hosts = run.rows[(run.rows["phase"] == layout.MEASURE) & (run.rows["t_dispatch"] > 0)], run.document.hosts
    described = run.document.plan.description
    if described.load.loop == "open":  # the closed loops of a mix
        rows = rows[np.isin(rows["request_class"], list(described.closed_classes))]
    end = np.where(rows["t_end"] > 0, np.minimum(rows["t_end"], window.w1_ns), window.w1_ns)
    in_flight = np.maximum(0, end - np.maximum(rows["t_dispatch"], window.w0_ns)).astype(np.float64)
    at = positions(hosts, rows["worker"])
    sums = (
        np.bincount(at, weights, minlength=len(hosts)) for weights in ((in_flight > 0).astype(np.float64), in_flight)
    )
    requests, used = ({host.host: float(each) for host, each in zip(hosts, one, strict=True)} for one in sums)
    return requests, used


def slots_by_host(run: Run) -> dict[int, int]:
    """The slots of each host that has some, of those that are judged and not lost; empty in an open loop."""
    described = run.document.plan.description
    concurrency = known(described.load.concurrency) or known(run.document.config.load.concurrency)
    concurrency = concurrency or sum(described.closed_classes.values()) or None
    if concurrency is None:
        return {}
    workers = sum(len(host.workers) for host in run.document.hosts)
    at = positions(run.document.hosts, np.arange(int(concurrency)) % workers)  # slots are dealt to workers in turn
    slots = np.bincount(at, minlength=len(run.document.hosts)).tolist()
    judged = {host.host for host in run.document.judged_hosts if host.status != LOST}
    return {
        host.host: many for host, many in zip(run.document.hosts, slots, strict=True) if many and host.host in judged
    }


def medians_nearby(rows: Rows, values: Floats, block: int) -> Floats:
    """For each row the median of the *values* of the *block* rows of its target and class that were submitted at about its
    time; at the end of a class, of the last *block* rows.
    """
    order = np.lexsort((rows["t_submit"], rows["request_class"], rows["url"]))
    kind = rows["url"][order].astype(np.int64) << 16 | rows["request_class"][order]
    begins = np.flatnonzero(np.append(True, kind[1:] != kind[:-1]))
    found = np.empty(len(rows))
    for group in np.split(order, begins[1:]):
        full, rest = np.split(group, [len(group) // block * block])
        if len(full):
            found[full] = np.repeat(np.median(values[full].reshape(-1, block), axis=1), block)
        if len(rest):
            found[rest] = np.median(values[group[-block:]])
    return found


def deviation(differences: Floats, session: Numbers) -> float:
    """How many standard deviations the number of values above 0 is from that of those below, by *session*."""
    _, number = np.unique(session, return_inverse=True)
    score = np.bincount(number, np.sign(differences))
    spread = float(np.sqrt(score @ score))
    return abs(float(score.sum())) / spread if spread else 0.0


def results(
    run: Run, certificates: Mapping[int, Certificate], ttft_p50_ms: Mapping[int, Number]
) -> tuple[HostEntry, ...]:
    """`hosts` of run.json with what was measured and judged of each; those that are excluded stay as they are."""
    measured = run.rows[run.rows["phase"] == layout.MEASURE]
    at = positions(run.document.hosts, measured["worker"][~unsent(measured)])
    sent = np.bincount(at[at >= 0], minlength=len(run.document.hosts)).tolist()
    return tuple(
        replace(
            host,
            dispatched=dispatched,
            share=dispatched / sum(sent) if sum(sent) else None,
            ttft_p50_ms=ttft_p50_ms[host.host],
            certificate=replace(certificates[host.host], workers=()),
        )
        if host.host in certificates
        else host
        for host, dispatched in zip(run.document.hosts, sent, strict=True)
    )


def together(of_run: Certificate, certificates: Mapping[int, Certificate]) -> Certificate:
    """The certificate of the run without its verdict: *of_run* with the reasons of its hosts, their largest delays and their
    least headroom.
    """
    each, of_hosts = list(certificates.values()), reasons_of_hosts(certificates)
    named = {subject(reason) for reason in of_hosts}
    own = [reason for reason in of_run.reasons if reason.code in OF_THE_RUN and subject(reason) not in named]
    reasons = sorted([*of_hosts, *own], key=rank)
    return replace(
        of_run,
        reasons=tuple(reasons),
        generator_limited=any(reason.limits_generator for reason in reasons),
        host=largest_delays([one.host for one in each]),
        ports=PortUsage(
            connections_max=total(one.ports.connections_max for one in each),
            fd_headroom=least(one.ports.fd_headroom for one in each),
            ports=total(one.ports.ports for one in each),
            port_headroom=least(one.ports.port_headroom for one in each),
            no_fd=of_run.ports.no_fd,
            no_port=of_run.ports.no_port,
        ),
        network=NetworkUse(
            lost_share=largest(one.network.lost_share for one in each),
            peak_share=largest(one.network.peak_share for one in each),
        ),
        headroom=least(one.headroom for one in each),
    )


def reasons_of_hosts(certificates: Mapping[int, Certificate]) -> list[Reason]:
    """One reason for each code and figure: that of the host where it is worst, with the numbers of all that have it."""
    found: dict[tuple[str, str | None], list[tuple[int, Reason]]] = {}
    for number, certificate in certificates.items():
        for reason in certificate.reasons:
            found.setdefault((reason.code, reason.figure), []).append((number, reason))
    ranked = [sorted(same, key=lambda one: badness(one[1]), reverse=True) for same in found.values()]
    return [replace(same[0][1], hosts=tuple(number for number, _ in same)) for same in ranked]


def subject(reason: Reason) -> tuple[str, str, str]:
    """What makes two reasons the same for a reader: of an uncertain figure, its metric."""
    metric = (reason.figure or "").rpartition("_")[0] if reason.code == "uncertain_figure" else ""
    return reason.code, metric, reason.severity


def rank(reason: Reason) -> tuple[int, bool]:
    """The most severe first; among equals those that explain others."""
    return -SEVERITY.index(reason.severity), reason.code not in EXPLAINING


def badness(reason: Reason) -> tuple[int, float]:
    return SEVERITY.index(reason.severity), abs((known(reason.value) or 0.0) - (known(reason.limit) or 0.0))


def largest_delays(each: Sequence[HostDelays]) -> HostDelays:
    """The largest of each figure over all hosts, and the first competitors."""
    names = [name for name in HostDelays.__struct_fields__ if name != "competitors"]
    most = {name: largest(getattr(one, name) for one in each) for name in names}
    others = dict.fromkeys(text for one in each for text in one.competitors)
    return replace(HostDelays(), **most, competitors=tuple(others)[:COMPETITORS])


def largest(numbers: Iterable[Number]) -> float | None:
    return max((found for each in numbers if (found := known(each)) is not None), default=None)


def least(numbers: Iterable[Number]) -> float | None:
    return min((found for each in numbers if (found := known(each)) is not None), default=None)


def total(numbers: Iterable[Number]) -> float | None:
    given = [found for each in numbers if (found := known(each)) is not None]
    return sum(given) if given else None
