"""Reads the workers' counters during a phase: a Snapshot for the view, rows for samples.npy."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from fastllmload._ext.record import counters as k
from fastllmload._ext.record import histogram
from fastllmload.arrays import Floats, Numbers
from fastllmload.engine.recording.class_rows import ClassLines
from fastllmload.engine.workers.fleet import Fleet
from fastllmload.host.cpu import process_figures
from fastllmload.records.layout import ERROR_NAMES
from fastllmload.records.samples import SIMULATOR, SampleLog, sample
from fastllmload.report.terminal.snapshot import HostSnapshot, Snapshot

OF_HOSTS = (k.W_EVENTS, k.W_RELEASED, k.W_OK, k.W_FAILED, k.W_IN_FLIGHT)


class Live:
    """Reads the workers' shared memory and never writes to it. *gaps*: name of the gaps between chunks. *classes*: those of
    a mix.
    """

    def __init__(
        self,
        fleet: Fleet,
        log: SampleLog,
        simulator_pid: int | None,
        urls: Sequence[str] = (),
        gaps: str = "itl",
        classes: ClassLines | None = None,
    ) -> None:
        self.fleet = fleet
        self.log = log
        self.urls = urls  # by target number
        self.gaps = gaps
        self.classes = classes
        self._simulator = simulator_pid
        self._base = np.zeros(k.WORDS, np.int64)
        self._base_of_hosts: Numbers = np.zeros((1, len(OF_HOSTS)), np.int64)
        self._lags: dict[int, tuple[int, float | None]] = {}  # by host: number of lags, their P99
        self._cpu: dict[int, tuple[int, int]] = {}  # by worker: time, CPU time
        self._events: tuple[int, Numbers] = (0, self._base_of_hosts[:, 0])  # when they were counted; by host

    def begin(self) -> None:
        """Save the counters, which continue through all phases; snapshots report the difference, this phase's own."""
        self._base = self.fleet.words_by_host().sum(axis=0)
        self._base_of_hosts = self.fleet.words_by_host(OF_HOSTS)
        self._events = (time.monotonic_ns(), self._base_of_hosts[:, 0])

    def record(self, phase: int) -> float | None:
        """Append a sample of every process; returns the CPU share of the busiest worker since the last one."""
        now = time.monotonic_ns()
        rows = self.fleet.samples(now, phase)
        used = dict(zip(rows["worker"].tolist(), rows["cpu_ns"].tolist(), strict=True))
        before, self._cpu = self._cpu, {worker: (now, cpu) for worker, cpu in used.items()}
        shares = [
            (cpu - before[worker][1]) / (now - before[worker][0])
            for worker, cpu in used.items()
            if worker in before and now > before[worker][0]
        ]
        if self._simulator is not None:
            figures = process_figures(self._simulator)
            if figures is not None:
                rows = np.concatenate([rows, sample(now, SIMULATOR, phase, None, figures)])
        if len(rows):
            self.log.append(rows)
        return max(shares, default=None)

    def snapshot(
        self,
        name: str,
        start_ns: int,
        sent_ns: int,
        cpu: float | None,
        rate: float | None,
        concurrency: int | None,
        end_s: float | None,
        waits: bool = False,
    ) -> Snapshot:
        """*sent_ns*: when sending ended, 0 while it continues; the achieved rate is computed up to then. *waits*: say how
        many requests wait for their first token.
        """
        now = time.monotonic_ns()
        t = (now - start_ns) / 1e9
        sending = ((sent_ns or now) - start_ns) / 1e9
        words = self.fleet.words_by_host(OF_HOSTS)
        since, events = self._events[0], words[:, 0]
        per_s = (events - self._events[1]) / max(1e-9, (now - since) / 1e9)
        self._events = (now, events)
        released = self.since(k.W_RELEASED)
        ttft, itl, e2e, lag = (self.fleet.histogram(n) for n in (k.H_TTFT, k.H_ITL, k.H_E2E, k.H_LAG))
        first = self.fleet.histogram(k.H_TTFT_ANY) if self.since(k.W_REASONED) else None
        return Snapshot(
            t=t, phase=name, asked_rate=rate, concurrency=concurrency,
            achieved_rate=released / sending if sending > 0 else None,
            released=released, ended=self.since(k.W_ENDED), ok=self.since(k.W_OK), failed=self.since(k.W_FAILED),
            in_flight=self.fleet.total(k.W_IN_FLIGHT), connections=self.fleet.total(k.W_CONNECTIONS),
            waiting=self.fleet.total(k.W_WAITING) if waits else None,
            ttft_p50_ms=scaled(ttft, 0.5, 1e6), ttft_p99_ms=scaled(ttft, 0.99, 1e6),
            ttft_any_p50_ms=None if first is None else scaled(first, 0.5, 1e6),
            ttft_any_p99_ms=None if first is None else scaled(first, 0.99, 1e6),
            gaps=self.gaps, itl_p50_ms=scaled(itl, 0.5, 1e6), itl_p99_ms=scaled(itl, 0.99, 1e6),
            e2e_p50_ms=scaled(e2e, 0.5, 1e6),
            lag_p50_us=scaled(lag, 0.5, 1e3), lag_p99_us=scaled(lag, 0.99, 1e3),
            client_cpu=cpu, events_per_s=float(per_s.sum()), errors=self.errors(), failed_at=self.failed_at(),
            gc_runs=self.fleet.total(k.W_GC_RUNS),
            eta=None if end_s is None else max(0.0, end_s - t),
            hosts=self._hosts(words, per_s),
            classes=() if self.classes is None else self.classes.snapshots(),
        )  # fmt: skip

    def _hosts(self, words: Numbers, events_per_s: Floats) -> tuple[HostSnapshot, ...]:
        """The hosts of a run over many, with the counters *words*, those of OF_HOSTS of each."""
        hosts = self.fleet.hosts()
        if not hosts:
            return ()
        in_flight, since = words[:, -1].tolist(), (words - self._base_of_hosts).tolist()
        rows = zip(hosts, since, in_flight, events_per_s.tolist(), self.fleet.lags_by_host(), strict=True)
        return tuple(
            HostSnapshot(
                number=host.number, name=host.name, status=host.status, silent_s=host.silent_s,
                sent=sent, ok=ok, failed=failed, in_flight=now, events_per_s=per_s,
                lag_p99_us=self._lag_p99_us(host.number, lag),
            )
            for host, (_, sent, ok, failed, _), now, per_s, lag in rows
        )  # fmt: skip

    def _lag_p99_us(self, host: int, lag: Numbers) -> float | None:
        """Computed again only when lags were added: agents report them once a second."""
        known, total = self._lags.get(host), int(lag[histogram.TOTAL])
        if known is None or known[0] != total:
            known = self._lags[host] = total, scaled(lag, 0.99, 1e3)
        return known[1]

    def errors(self) -> dict[str, int]:
        return {name: count for n, name in enumerate(ERROR_NAMES) if n and (count := self.since(k.W_ERROR0 + n))}

    def failed_at(self) -> dict[str, int] | None:
        """The same by URL; None with one URL. The last counter is shared by all further URLs."""
        if len(set(self.urls)) < 2:
            return None
        counted: dict[str, int] = {}
        for number, url in enumerate(self.urls[: k.LAST_URL]):
            counted[url] = counted.get(url, 0) + self.since(k.W_FAILED_AT0 + number)
        counted["the other URLs"] = self.since(k.W_FAILED_AT0 + k.LAST_URL)
        return {url: count for url, count in counted.items() if count}

    def since(self, word: int) -> int:
        return self.fleet.total(word) - int(self._base[word])


def scaled(words: np.ndarray, q: float, unit: float) -> float | None:
    """Percentile of a live histogram in *unit* ns; None while it is empty."""
    value = histogram.percentile(words, q)
    return None if value is None else value / unit
