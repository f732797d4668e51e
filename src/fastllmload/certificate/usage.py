"""Computes what the client used in the window (workers, ports, descriptors), and the host's stalls that explain lateness."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

import numpy as np

from fastllmload._ext.record import histogram
from fastllmload.arrays import Mask
from fastllmload.certificate.evidence import CertificateEvidence, HostRecord, MeasuredWindow, Times, WorkerRecord
from fastllmload.documents.certificate import HostDelays, NetworkUse, Percentiles, PortUsage, WorkerUsage
from fastllmload.documents.fields import known
from fastllmload.documents.run_parts.hosts import InterfaceUse
from fastllmload.records import layout
from fastllmload.records.run import Run

Address = tuple[str, int]  # numeric address, port
SLACK_NS = 2_000_000  # the meter wakes every millisecond or few, and a late process needs time to catch up


def worker(record: WorkerRecord) -> WorkerUsage:
    """One entry of `certificate.workers`. Shares are of one core, between the first and the last sample; None: not known."""
    seconds = span(record.t_ns, 1e9)
    return WorkerUsage(
        worker=record.number,
        died=record.died,
        cpu_s=span(record.cpu_ns, 1e9),
        cpu_share=cpu_share(record),
        spin_share=share_of(record.counts.get("spin_ns"), seconds),
        run_delay_share=share_of(record.run_delay_ns, seconds),
        involuntary_switches=record.involuntary_switches,
        rss_bytes=int(record.rss_bytes[-1]) if len(record.rss_bytes) else None,
        rss_growth_bytes=span(record.rss_bytes, 1),
        gc_runs=record.counts.get("gc_runs"),
        page_faults=record.counts.get("page_faults"),
        batch_max_us=None if record.batch_max_ns is None else record.batch_max_ns / 1e3,
        stall_max_us=stall_max_us(record),
        socket_to_user_us=percentiles_us(record.histograms.get("socket_to_user")),
        clock_steps=record.counts.get("clock_steps"),
        connections_max=record.connections_max,
        fd_limit=record.fd_limit,
    )


def cpu_share(record: WorkerRecord) -> float | None:
    if len(record.t_ns) < 2 or record.t_ns[-1] <= record.t_ns[0]:
        return None
    return float((record.cpu_ns[-1] - record.cpu_ns[0]) / (record.t_ns[-1] - record.t_ns[0]))


def stall_max_us(record: WorkerRecord) -> float | None:
    """The longest time without a poll; 0: all below 0.1 ms."""
    if record.stalls is None:
        return None
    return float((record.stalls[:, 1] - record.stalls[:, 0]).max(initial=0)) / 1e3


def percentiles_us(counted: Times | None) -> Percentiles:
    """Of an HDR histogram in ns; None where it is empty or None."""

    def at(q: float) -> float | None:
        value = None if counted is None else histogram.percentile(counted, q)
        return None if value is None else value / 1e3

    return Percentiles(p50=at(0.5), p99=at(0.99), p999=at(0.999), max=at(1.0))


def merged(records: tuple[WorkerRecord, ...], name: str) -> Times | None:
    """One histogram of all workers; None when no worker has it."""
    parts = [record.histograms[name] for record in records if name in record.histograms]
    total: Times | None = np.sum(parts, axis=0) if parts else None
    return total


def span(series: Times, unit: float) -> float | None:
    return float(series[-1] - series[0]) / unit if len(series) >= 2 else None


def share_of(ns: int | None, seconds: float | None) -> float | None:
    return None if ns is None or not seconds else ns / 1e9 / seconds


def host(record: HostRecord, window: MeasuredWindow, late: Times, stopped: Times) -> HostDelays:
    """Hiccups over the run, stalls in the window, and how many of the intervals *late* the host's own *stopped* explain."""
    begin, end = record.stalls[:, 0], record.stalls[:, 0] + record.stalls[:, 1]
    stalls = record.stalls[(end > window.start_ns) & (begin < window.end_ns)]
    hiccups = percentiles_us(record.hiccups)
    return HostDelays(
        hiccup_p50_us=hiccups.p50,
        hiccup_p99_us=hiccups.p99,
        hiccup_p999_us=hiccups.p999,
        hiccup_max_us=hiccups.max,
        stalls=len(stalls),
        stall_max_us=float(stalls[:, 1].max()) / 1e3 if len(stalls) else 0.0,
        steal_share=record.steal_share,
        late_intervals=len(late),
        late_explained=int(covered(late, stopped).sum()),
        competitors=record.competitors,
    )


LEAST_PACKETS = 10_000  # of fewer, a few that no program waits for would be a large share


def network(interfaces: Sequence[InterfaceUse]) -> NetworkUse:
    return NetworkUse(
        lost_share=max((share for one in interfaces if (share := lost_share(one)) is not None), default=None),
        peak_share=max((share for one in interfaces if (share := peak_share(one)) is not None), default=None),
    )


def lost_share(one: InterfaceUse) -> float | None:
    """Packets that an interface dropped or could not read, as a share of all, which count as at least LEAST_PACKETS."""
    lost = [known(count) for count in (one.rx_dropped, one.rx_errors, one.tx_dropped, one.tx_errors)]
    good = [known(count) for count in (one.rx_packets, one.tx_packets)]
    gone, passed = (None if None in each else sum(filter(None, each)) for each in (lost, good))
    return None if gone is None or passed is None else gone / max(LEAST_PACKETS, gone + passed)


def peak_share(one: InterfaceUse) -> float | None:
    """The busiest second and direction, as a share of the speed of the link."""
    speed = known(one.speed_bits_per_s)
    peaks = [peak for each in (one.peak_rx_bytes_per_s, one.peak_tx_bytes_per_s) if (peak := known(each)) is not None]
    return None if not speed or not peaks else 8 * max(peaks) / speed


def widened(stalls: Times) -> Times:
    """Rows (begin, end) of the intervals that the host's stalls (instant, lateness) may have made late."""
    return np.column_stack([stalls[:, 0] - SLACK_NS, stalls[:, 0] + stalls[:, 1] + SLACK_NS])


def covered(late: Times, spans: Times) -> Mask:
    """Which of the intervals *late* (begin, end) the intervals *spans* explain: those of which they cover at least half,
    because a short hiccup does not explain a long stop.
    """
    if not len(late) or not len(spans):
        return np.zeros(len(late), np.bool_)
    begin, end = _merged(spans[:, 0], spans[:, 1])
    cumulative = np.concatenate([[0], np.cumsum(end - begin)])

    def covered_before(t: Times) -> Times:
        i = np.searchsorted(begin, t, side="right")
        inside = np.where(i > 0, np.minimum(t, end[i - 1]) - begin[i - 1], 0)
        total: Times = np.where(i > 0, cumulative[i - 1] + inside, 0)
        return total

    share = covered_before(late[:, 1]) - covered_before(late[:, 0])
    found: Mask = 2 * share >= late[:, 1] - late[:, 0]
    return found


def overlapping(intervals: Times, spans: Times) -> Mask:
    """Which of the *intervals* (begin, end) overlap one of the *spans*."""
    if not len(intervals) or not len(spans):
        return np.zeros(len(intervals), np.bool_)
    begin, end = _merged(spans[:, 0], spans[:, 1])
    before = np.searchsorted(begin, intervals[:, 1]) - 1  # the last span that begins earlier than the interval ends
    found: Mask = (before >= 0) & (end[before] > intervals[:, 0])
    return found


def _merged(begin: Times, end: Times) -> tuple[Times, Times]:
    """The union of the intervals, ascending and without overlaps."""
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    new = np.concatenate([[True], begin[1:] > end[:-1]])
    last = np.concatenate([new[1:], [True]])
    return begin[new], end[last]


def largest_target_share(run: Run) -> float | None:
    """The largest share of the connections to one target address, by the total duration of its requests (Little's law); 1
    where it is not known. None where all targets are Unix sockets, which use no ports.
    """
    target = run.document.target
    addresses = [address_of(url, str(at)) for url, at in zip(target.urls, target.addresses, strict=False)]
    if not addresses:
        return 1.0
    if not any(addresses):
        return None
    rows = run.rows[(run.rows["phase"] == layout.MEASURE) & (run.rows["t_dispatch"] > 0) & (run.rows["t_end"] > 0)]
    selected = rows[rows["url"] < len(addresses)]
    durations = np.bincount(
        selected["url"], (selected["t_end"] - selected["t_dispatch"]).astype(np.float64), len(addresses)
    )
    totals: dict[Address, float] = {}
    for address, seconds in zip(addresses, durations.tolist(), strict=True):
        if address is not None:
            totals[address] = totals.get(address, 0.0) + seconds
    return max(totals.values()) / float(durations.sum()) if max(totals.values()) > 0 else 1.0


def address_of(url: str, address: str) -> Address | None:
    """Numeric address and port of *url*; None for a Unix socket, whose address is a path."""
    if "/" in address:
        return None
    parts = urlsplit(url)
    return address, parts.port or (443 if parts.scheme == "https" else 80)


def ports(evidence: CertificateEvidence) -> PortUsage:
    """Of all workers; the headroom of descriptors (limit over used) is that of the worker with the least."""
    available = evidence.host.ports
    open_at_once = [worker.connections_max for worker in evidence.workers if worker.connections_max is not None]
    used = sum(open_at_once)
    headrooms = [
        worker.fd_limit / worker.connections_max
        for worker in evidence.workers
        if worker.fd_limit is not None and worker.connections_max
    ]
    return PortUsage(
        connections_max=used if open_at_once else None,
        fd_headroom=min(headrooms) if headrooms else None,
        ports=available,
        port_headroom=available / used if available is not None and used else None,
        no_fd=evidence.no_fd,
        no_port=evidence.no_port,
        no_memory=evidence.no_memory,
    )
