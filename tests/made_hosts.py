"""Writes what the driver has of a run over several hosts before the rows are merged: each host's files in its own clock.

The driver's clock is the truth here. Request i belongs to worker i mod the number of workers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace
from synthetic_run import KIND, ORIGIN_NS, Request, duration_phase, write_workers

from fastllmload._ext.record import histogram
from fastllmload._ext.record.histogram import WORDS
from fastllmload.certificate import monitor
from fastllmload.certificate.judge import judged
from fastllmload.documents.write import encoded
from fastllmload.metrics.run.measure import measure
from fastllmload.records import layout
from fastllmload.records.hosts import read_clocks, with_clocks
from fastllmload.records.merge import PlannedPhase, merge_workers
from fastllmload.records.run import Run, load, read_document
from fastllmload.records.samples import SAMPLE

MS = 1_000_000
Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MadeHost:
    """*ahead_ns*: driver's clock minus the host's at ORIGIN_NS; *drift*: how much faster the driver's runs, as a share.

    *delay_ns*: the shortest time of a datagram; others take up to twice as long.
    """

    workers: tuple[int, ...]
    ahead_ns: int = 0
    drift: float = 0.0
    delay_ns: int = 10_000
    status: str = "ended"
    watch: dict[str, Any] = field(default_factory=dict)

    def at(self, t_driver: Any) -> Times:
        """The host's time of an instant of the driver."""
        t = np.asarray(t_driver, np.int64)
        return t - self.ahead_ns - np.rint(self.drift * (t - ORIGIN_NS)).astype(np.int64)


def exchanges(host: MadeHost, begin_ns: int, end_ns: int, seed: int = 5) -> Times:
    """Eight per second from *begin_ns* to *end_ns*."""
    rng = np.random.default_rng(seed)
    sent = np.arange(begin_ns, end_ns, 125 * MS)
    there, back = (host.delay_ns + rng.exponential(host.delay_ns, len(sent)).astype(np.int64) for _ in range(2))
    answered = sent + there + 5_000
    return np.column_stack([host.at(sent), sent + there, answered, host.at(answered + back)])


def write_hosts(
    folder: Path, requests: list[Request], hosts: Sequence[MadeHost], text: bool = False, **manifest: Any
) -> None:
    """The worker files of *requests*, `hosts/<h>/` of each host, and run.json with *manifest*."""
    write_workers(folder, requests, sum(len(host.workers) for host in hosts), text=text)
    for number, host in enumerate(hosts):
        for worker in host.workers:
            move(folder / "workers" / str(worker), host)
        place = folder / "hosts" / str(number)
        place.mkdir(parents=True)
        times = [t for request in requests for t in (request.fields["t_dispatch"], request.fields["t_end"])]
        np.save(place / "clock.npy", exchanges(host, min(times) - 1_000 * MS, max(times) + 1_000 * MS))
    entries = [
        {
            "host": number, "name": f"node-{number}", "address": f"10.0.0.{number}", "workers": list(host.workers),
            "status": host.status, "watch": host.watch,
        }
        for number, host in enumerate(hosts)
    ]  # fmt: skip
    workers = [{"worker": worker, "died": False} for host in hosts for worker in host.workers]
    document = {"schema_version": 1, "status": "done", "phases": [], "workers": workers, "hosts": entries, **manifest}
    (folder / "run.json").write_text(json.dumps(document))


def move(place: Path, host: MadeHost) -> None:
    """Turn the times of a worker's files into those of its host."""
    rows, events = np.load(place / "requests.npy"), np.load(place / "tokens.npy")
    for name in layout.REQUEST.names or ():
        if name.startswith("t_"):
            rows[name] = np.where(rows[name] > 0, host.at(rows[name]), 0)
    events["t_ns"] = host.at(events["t_ns"])
    np.save(place / "requests.npy", rows)
    np.save(place / "tokens.npy", events)


def write_watch(
    folder: Path, number: int, host: MadeHost, stalls: Sequence[tuple[int, int]] = (), hiccup_ns: int = 40_000
) -> None:
    """The files of a host's watch: its *stalls* (driver's time, lateness), 1,000 hiccups of *hiccup_ns*, one stall of each
    worker.
    """
    place = folder / "hosts" / str(number)
    hiccups = histogram.empty()
    histogram.record_many(hiccups, np.full(1_000, hiccup_ns))
    np.save(place / monitor.HICCUP, hiccups)
    found = np.array(stalls, np.int64).reshape(-1, 2)
    np.save(place / monitor.STALLS, np.column_stack([host.at(found[:, 0]), found[:, 1]]))
    watched = np.zeros((len(host.workers), len(monitor.WATCHED), WORDS), np.int64)
    for position, worker in enumerate(host.workers):
        histogram.record_many(watched[position, 0], np.full(10 + worker, 20_000))
    np.save(place / monitor.HISTOGRAMS, watched)
    own = [[worker, int(host.at(ORIGIN_NS + 10 * MS)), 600_000, 0, -1] for worker in host.workers]
    np.save(place / monitor.WORKER_STALLS, np.array(own, np.int64).reshape(-1, 5))
    parts = np.zeros(1, monitor.HICCUP_INTERVAL)
    parts["begin_ns"], parts["end_ns"] = host.at(ORIGIN_NS), host.at(ORIGIN_NS + 1_000 * MS)
    parts["index"], parts["count"] = int(np.flatnonzero(hiccups[: histogram.COUNTS])[0]), 1_000
    np.save(place / monitor.HICCUP_INTERVALS, parts)


def write_samples(
    folder: Path, number: int, host: MadeHost, seconds: float, rate: float, cpu_share: float = 0.1
) -> None:
    """Samples of each worker of a host, four times a second, from half a second before ORIGIN_NS."""
    n = int(seconds * 4) + 8
    found = []
    for worker in host.workers:
        samples = np.zeros(n, SAMPLE)
        samples["t_ns"] = host.at(ORIGIN_NS - 500 * MS + np.arange(n) * 250 * MS)
        samples["worker"] = worker
        samples["cpu_ns"] = np.arange(n) * round(cpu_share * 250 * MS)
        samples["released"] = np.arange(n) * round(rate / 4)
        samples["events"] = samples["released"] * 4
        samples["rss_bytes"] = 50 << 20
        found.append(samples)
    np.save(folder / "hosts" / str(number) / "samples.npy", np.concatenate(found))


@dataclass
class MadeRun:
    """*rate* Poisson requests per second for *seconds*, sent *lag_ns* late, answered in three gaps of 10 ms after a first
    token in *ttft_ns*. Change *requests*, *hosts* or a host's files before `conclude`.
    """

    folder: Path
    hosts: Sequence[MadeHost]
    seconds: float = 4.0
    rate: float = 200.0
    lag_ns: int = 30_000
    ttft_ns: int = 5 * MS
    seed: int = 3
    requests: list[Request] = field(default_factory=list)
    planned: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        gaps = rng.exponential(1e9 / self.rate, round(self.rate * self.seconds * 2))
        due = ORIGIN_NS + np.cumsum(gaps).astype(np.int64)
        self.planned = due[due < ORIGIN_NS + round(self.seconds * 1e9)].tolist()
        spread = rng.exponential(0.2, len(self.planned)) + 0.9
        self.requests = [
            answered(number, t, self.lag_ns, round(self.ttft_ns * spread[number]))
            for number, t in enumerate(self.planned)
        ]

    @property
    def workers(self) -> int:
        return sum(len(host.workers) for host in self.hosts)

    def of(self, worker: int) -> list[Request]:
        return [request for request in self.requests if request.fields["request"] % self.workers == worker]

    def write(self, cpu_share: float = 0.1, **manifest: Any) -> None:
        phase = {**duration_phase(ORIGIN_NS, self.seconds), "number": 0, "mode": "open"}
        config = {"load": {"rate": self.rate, "arrival": "poisson"}}
        write_hosts(self.folder, self.requests, self.hosts, phases=[phase], **{"config": config, **manifest})
        for number, host in enumerate(self.hosts):
            write_watch(self.folder, number, host)
            write_samples(self.folder, number, host, self.seconds, self.rate / self.workers, cpu_share)

    def conclude(self) -> Run:
        """What the supervisor does after the clock; the folder then has a complete run.json."""
        document = read_document(self.folder)
        hosts = with_clocks(self.folder, document.hosts)
        monitor.join_watches(self.folder, hosts, read_clocks(self.folder, hosts))
        n = len(self.planned)
        planned = PlannedPhase(layout.MEASURE, np.array(self.planned), np.full(n, 8), np.full(n, 4), np.zeros(n))
        merge_workers(self.folder, [planned], hosts=hosts)
        run = load(self.folder).with_document(replace(document, hosts=hosts))
        run = run.with_document(measure(run))
        (self.folder / "run.json").write_bytes(encoded(judged(run)))
        return load(self.folder)


def answered(number: int, t_sched: int, lag_ns: int, ttft_ns: int) -> Request:
    dispatched = t_sched + lag_ns
    submitted = dispatched + 10_000
    first = submitted + ttft_ns
    times = [first + k * 10 * MS for k in range(4)]
    fields = {
        "request": number, "session": number, "phase": layout.MEASURE, "t_sched": t_sched, "t_dispatch": dispatched,
        "t_submit_start": submitted - 8_000, "t_submit": submitted, "t_headers": first, "t_any": first, "t_first": first,
        "t_last": times[-1], "t_end": times[-1], "t_end_user": times[-1] + 20_000, "status": layout.OK,
        "stamps": layout.STAMP_KERNEL, "flags": layout.FLAG_STREAM, "events": 4, "content_events": 4,
        "prompt_tokens": 8, "completion_tokens": 4, "reasoning_tokens": -1, "cached_tokens": -1, "retry_after_ms": -1,
        "http_status": 200,
    }  # fmt: skip
    return Request(fields, [(t, KIND["content"], layout.STAMP_KERNEL, 1) for t in times])


def slower(request: Request, factor: float) -> None:
    """Multiply the gaps between the events of *request*."""
    first = request.fields["t_first"]
    request.events = [(first + round((t - first) * factor), *rest) for t, *rest in request.events]  # type: ignore[misc]
    grown = request.events[-1][0] - request.fields["t_last"]
    for name in ("t_last", "t_end", "t_end_user"):
        request.fields[name] += grown


def later(request: Request, ns: int, after: str = "t_submit") -> None:
    """Move all times of *request* from *after* on, and its events, by *ns*."""
    names = [
        "t_dispatch",
        "t_submit_start",
        "t_submit",
        "t_headers",
        "t_any",
        "t_first",
        "t_last",
        "t_end",
        "t_end_user",
    ]
    for name in names[names.index(after) :]:
        request.fields[name] += ns
    request.events = [(t + ns, *rest) for t, *rest in request.events]  # type: ignore[misc]
