"""Computes the figures of each worker in the window: CPU, memory, collections, stalls, spinning, waits for a CPU."""

from __future__ import annotations

from fastllmload._ext import histogram
from fastllmload.certificate.evidence import Times, WorkerRecord
from fastllmload.documents.certificate import Percentiles, WorkerUsage


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
    """CPU time over wall time between the first and the last sample of the window; None below two samples."""
    if len(record.t_ns) < 2 or record.t_ns[-1] <= record.t_ns[0]:
        return None
    return float((record.cpu_ns[-1] - record.cpu_ns[0]) / (record.t_ns[-1] - record.t_ns[0]))


def stall_max_us(record: WorkerRecord) -> float | None:
    """The longest time in which the worker polled neither its sockets nor the clock; 0: all below 0.1 ms."""
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
    if not parts:
        return None
    total: Times = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


def span(series: Times, unit: float) -> float | None:
    return float(series[-1] - series[0]) / unit if len(series) >= 2 else None


def share_of(ns: int | None, seconds: float | None) -> float | None:
    return None if ns is None or not seconds else ns / 1e9 / seconds
