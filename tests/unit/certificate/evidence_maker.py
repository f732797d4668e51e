"""Constructs evidence: a clean run, and runs with one fault each. All random values come from a seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fastllmload._ext.record import histogram
from fastllmload.certificate.ceiling import Ceiling
from fastllmload.certificate.evidence import (
    ArrivalEvidence,
    CertificateEvidence,
    HostRecord,
    MeasuredWindow,
    Sends,
    Stamps,
    Times,
    WorkerRecord,
)

START_NS = 7_000_000_000_000
MS = 1_000_000
BEAT_NS = 5 * MS  # the longest time between two polls of a worker


def hdr_histogram(values_ns: Times) -> Times:
    counted = histogram.empty()
    histogram.record_many(counted, np.ascontiguousarray(values_ns, np.int64))
    return counted


def schedule(
    rng: np.random.Generator, rate: float, seconds: float, process: str = "poisson", shape: float = 1.0
) -> Times:
    n = int(rate * seconds * 1.5) + 50
    if process == "constant":
        gaps = np.ones(n)
        gaps[0] = 0
    elif process == "uniform":
        gaps = 2 * rng.random(n)
    else:
        gaps = rng.gamma(shape, 1 / shape, n)
    instants = START_NS + np.rint(np.cumsum(gaps) / rate * 1e9).astype(np.int64)
    inside: Times = instants[instants < START_NS + int(seconds * 1e9)]
    return inside


def worker_record(rng: np.random.Generator, sends: Times, seconds: float) -> WorkerRecord:
    t = START_NS + np.arange(0, int(seconds * 1e9) + 1, 250 * MS)
    released = np.searchsorted(sends, t)
    return WorkerRecord(
        0,
        t_ns=t,
        cpu_ns=((t - START_NS) * 0.3).astype(np.int64),
        rss_bytes=np.full(len(t), 60 << 20),
        events=released * 16,
        released=released,
        connections_max=200,
        batch_max_ns=800_000,
        counts={"spin_ns": 10 * MS, "clock_steps": 0, "gc_runs": 0},
        histograms={
            "lag": hdr_histogram(np.abs(rng.normal(20_000, 10_000, 100)).astype(np.int64)),
            "socket_to_user": hdr_histogram(rng.exponential(30_000, 5000).astype(np.int64)),
            "beat": hdr_histogram(rng.exponential(100_000, 500).astype(np.int64)),
        },
        stalls=np.array([[START_NS + 700 * MS, START_NS + 701 * MS]]),
        involuntary_switches=40,
        run_delay_ns=20 * MS,
        fd_limit=100_000,
    )


def clean(
    seed: int = 1, rate: float = 500.0, seconds: float = 20.0, process: str = "poisson", shape: float = 1.0
) -> CertificateEvidence:
    """A generator as precise as this one: the lag of a timer followed by a spin, 20 us at p50 and 150 at p99."""
    rng = np.random.default_rng(seed)
    t_sched = schedule(rng, rate, seconds, process, shape)
    t_dispatch = t_sched + rng.gamma(0.8, 30_000, len(t_sched)).astype(np.int64)
    n = len(t_sched)
    arrivals = ArrivalEvidence(process, rate, shape if process in ("gamma", "bursty") else None, zero_ns=START_NS)
    return CertificateEvidence(
        window=MeasuredWindow(START_NS, START_NS + int(seconds * 1e9)),
        sends=Sends(arrivals, t_sched, t_dispatch, t_dispatch),
        stamps=Stamps(
            kernel=n * 16,
            requests=n,
            ttft_error_ns=np.full(n, 5_000),
            itl_error_ns=np.full(n * 15, 5_000),
        ),
        workers=(worker_record(rng, t_sched, seconds),),
        host=HostRecord(
            hiccups=hdr_histogram(rng.exponential(40_000, 20_000).astype(np.int64)), steal_share=0.0, ports=28_232
        ),
        ceiling=Ceiling(events_per_s=200_000, requests_per_s=10_000),
    )


def with_dispatch(evidence: CertificateEvidence, t_dispatch: Times) -> CertificateEvidence:
    return replace(evidence, sends=replace(evidence.sends, t_dispatch=t_dispatch, all_dispatch=t_dispatch))


def with_worker(evidence: CertificateEvidence, **changes: object) -> CertificateEvidence:
    return replace(evidence, workers=(replace(evidence.workers[0], **changes),))  # type: ignore[arg-type]


def stopped(evidence: CertificateEvidence, at_s: float, ms: float) -> CertificateEvidence:
    """SIGSTOP: nothing is sent or polled for *ms*, and all requests that were due are sent at once afterwards."""
    begin = START_NS + int(at_s * 1e9)
    end = begin + int(ms * MS)
    dispatch = evidence.sends.t_dispatch.copy()
    hit = (evidence.sends.t_sched < end) & (dispatch >= begin)
    dispatch[hit] = np.maximum(dispatch[hit], end + np.arange(int(hit.sum())) * 8_000)
    beat = begin - begin % BEAT_NS + BEAT_NS  # when its next poll was due
    if end > beat:
        evidence = with_worker(evidence, stalls=np.concatenate([evidence.workers[0].stalls, [[beat, end]]]))
    return with_dispatch(evidence, dispatch)


def millisecond_timer(evidence: CertificateEvidence) -> CertificateEvidence:
    """A loop with timers of one-millisecond resolution."""
    sends = evidence.sends
    return with_dispatch(evidence, (sends.t_sched // MS + 1) * MS + 20_000)
