"""Monitors the host and the workers during the measure phase: stalls, steal, and the workers' histograms of that phase."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload._ext.record import counters, histogram
from fastllmload._ext.record.hiccup import HiccupMeter
from fastllmload._ext.record.histogram import COUNTS, WORDS
from fastllmload.arrays import Numbers
from fastllmload.certificate.ceiling import stored_ceiling
from fastllmload.documents.run_parts.hosts import CeilingFacts, HostEntry, InterfaceUse, WatchFacts
from fastllmload.errors import RunFolderError
from fastllmload.host.cpu import TICKS_NS, CpuUse, competitors, throttled_ns, used_cpu
from fastllmload.host.interfaces import Traffic, link_speed
from fastllmload.host.limits import file_limit, port_range, reserved_ports
from fastllmload.records.hosts import Clocks, HostEntries, read_of_host
from fastllmload.records.run import Run
from fastllmload.records.samples import SAMPLES, samples_of
from fastllmload.records.shared_memory import SharedWords

HICCUP, STALLS, HISTOGRAMS = "hiccup.npy", "stalls.npy", "histograms.npy"
# int64[n, 5]: worker, begin, length, time ready to run without a processor, time running; -1: not known
WORKER_STALLS = "worker_stalls.npy"
HICCUP_INTERVALS = "hiccup_intervals.npy"
# One record per HDR count that is not 0: *count* values in bucket *index* of the histogram of [begin_ns, end_ns)
HICCUP_INTERVAL = np.dtype([("begin_ns", "<i8"), ("end_ns", "<i8"), ("index", "<u4"), ("count", "<u4")])
INTERVAL_NS = 1_000_000_000
INT64 = np.dtype(np.int64)
# Order in histograms.npy: int64[workers, len(WATCHED), HDR slots]
WATCHED = {"lag": counters.H_LAG, "socket_to_user": counters.H_SOCKET_TO_USER, "beat": counters.H_BEAT}
STAT = Path("/proc/stat")


class CpuTicks(msgspec.Struct, frozen=True):
    """CPU time of the whole host since boot, in ticks."""

    total: int
    steal: int


def cpu_ticks(stat: Path = STAT) -> CpuTicks:
    """Guest time is not added: it is already part of user and nice."""
    fields = [int(word) for word in stat.read_text().partition("\n")[0].split()[1:]]
    return CpuTicks(total=sum(fields[:8]), steal=fields[7] if len(fields) > 7 else 0)


def steal_share(before: CpuTicks, after: CpuTicks) -> float | None:
    """Share of the host's CPU time that the hypervisor gave to others; None when no tick passed."""
    ticks = after.total - before.total
    return (after.steal - before.steal) / ticks if ticks > 0 else None


class Intervals:
    """Histograms of the host's stalls second by second: differences between readings of the meter's HDR slots."""

    def __init__(self, slots: Numbers, begin_ns: int) -> None:
        self._slots, self._begin_ns = slots, begin_ns
        self._before = slots[:COUNTS].copy()
        self._taken: list[npt.NDArray[np.void]] = []

    def take(self, now_ns: int) -> None:
        """End the current interval at *now_ns* and begin the next."""
        now = self._slots[:COUNTS].copy()
        indices = np.flatnonzero(now - self._before)
        records = np.zeros(len(indices), HICCUP_INTERVAL)
        records["begin_ns"], records["end_ns"], records["index"] = self._begin_ns, now_ns, indices
        records["count"] = (now - self._before)[indices]
        self._taken.append(records)
        self._before, self._begin_ns = now, now_ns

    def due(self, now_ns: int) -> bool:
        return now_ns - self._begin_ns >= INTERVAL_NS

    def records(self) -> npt.NDArray[np.void]:
        """HICCUP_INTERVAL records of all intervals so far, in order of time."""
        return np.concatenate([np.empty(0, HICCUP_INTERVAL), *self._taken])


def read_worker_stalls(run: Run) -> Numbers | None:
    """worker_stalls.npy of a run; None where it has none. The earlier layout without causes gets -1 for them."""
    try:
        return run.array(WORKER_STALLS, INT64, (None, 5))
    except RunFolderError:
        earlier = run.array(WORKER_STALLS, INT64, (None, 3))
        assert earlier is not None  # the file exists, in one of the two layouts
        return np.column_stack([earlier, np.full((len(earlier), 2), -1)])


class Watch:
    """`start()` when all workers are READY for the measure phase, `poll()` several times a second, `stop()` at its end.

    *first*: number of the first of *workers*, which have consecutive ones. *interfaces*: those that carry the load.
    """

    def __init__(
        self,
        workers: Sequence[SharedWords],
        first: int = 0,
        interval_ns: int = 1_000_000,
        interfaces: Sequence[str] = (),
    ) -> None:
        self._workers = workers
        self._first = first
        self._meter = HiccupMeter(interval_ns)
        self._ticks: CpuTicks | None = None
        self._steal: list[tuple[int, int]] = []
        self._throttled: int | None = None
        self._used: dict[int, CpuUse] = {}
        self._traffic = Traffic(tuple(interfaces))
        self._before = self._read_histograms()
        self._intervals = Intervals(self._meter.words, 0)

    def _read_histograms(self) -> Numbers:
        return np.array([[worker.histogram(number) for number in WATCHED.values()] for worker in self._workers])

    def _worker_stalls(self) -> Numbers:
        found = [
            np.insert(worker.stalls(), 0, number, axis=1) for number, worker in enumerate(self._workers, self._first)
        ]
        return np.concatenate([np.empty((0, 5), np.int64), *found])

    def start(self) -> None:
        self._before = self._read_histograms()
        self._ticks = cpu_ticks()
        self._throttled = throttled_ns()
        self._used = used_cpu()
        self._intervals = Intervals(self._meter.words, time.monotonic_ns())
        self._traffic.start(time.monotonic_ns())
        self._meter.start()

    def poll(self) -> None:
        """Call several times a second; records the host's stalls and traffic of each second separately."""
        now_ns = time.monotonic_ns()
        if self._intervals.due(now_ns):
            self._intervals.take(now_ns)
            self._take_steal(now_ns)
            self._traffic.take(now_ns)

    def _take_steal(self, now_ns: int) -> None:
        self._steal.append((now_ns, cpu_ticks().steal * TICKS_NS))

    def stop(self, folder: Path) -> WatchFacts | None:
        """Write the histograms, the stalls and their intervals; returns `watch` of run.json.

        A watch that was not started (workers died before the phase began) writes nothing and returns None.
        """
        if self._ticks is None:
            return None
        self._meter.stop()
        interfaces = interface_use(self._traffic)
        np.save(folder / HICCUP, self._meter.words)
        self._intervals.take(time.monotonic_ns())
        self._take_steal(time.monotonic_ns())
        np.save(folder / HICCUP_INTERVALS, self._intervals.records())
        np.save(folder / STALLS, self._meter.stalls)
        np.save(folder / HISTOGRAMS, self._read_histograms() - self._before)
        np.save(folder / WORKER_STALLS, self._worker_stalls())
        low, high = port_range()
        before, after = self._throttled, throttled_ns()
        ceiling = stored_ceiling()
        return WatchFacts(
            steal_share=steal_share(self._ticks, cpu_ticks()),
            steal_samples=tuple(self._steal),
            throttled_ns=None if before is None or after is None else after - before,
            competitors=tuple(competitors(self._used, used_cpu())),
            ports=high - low + 1 - reserved_ports(),
            fd_limit=file_limit().soft,
            ceiling=None
            if ceiling is None
            else CeilingFacts(events_per_s=ceiling.events_per_s, requests_per_s=ceiling.requests_per_s),
            interfaces=interfaces,
        )


def interface_use(traffic: Traffic) -> tuple[InterfaceUse, ...]:
    """What the interfaces of *traffic* have carried until now."""
    grown = traffic.stop(time.monotonic_ns())
    peaks = {name: traffic.peaks.get(name, {}) for name in grown}
    return tuple(
        InterfaceUse(
            name=name,
            speed_bits_per_s=link_speed(name),
            peak_rx_bytes_per_s=peaks[name].get("rx_bytes"),
            peak_tx_bytes_per_s=peaks[name].get("tx_bytes"),
            **counters,
        )
        for name, counters in grown.items()
    )


def stalls_of_host(folder: Path, host: HostEntry, clocks: Clocks) -> Numbers:
    """stalls.npy of *host* in the driver's clock; empty without one."""
    found = read_of_host(folder, host, STALLS, INT64, (None, 2))
    if found is None or host.host not in clocks:
        return np.empty((0, 2), np.int64)
    return np.column_stack([clocks[host.host].to_driver(found[:, 0]), found[:, 1]])


def join_watches(folder: Path, hosts: HostEntries, clocks: Clocks) -> None:
    """Write the files of `Watch.stop`, and samples.npy, of all *hosts* together into *folder*, in the driver's clock.

    Histograms are sums. Those of the workers are in the order of their numbers; a host's file has only its own.
    """
    hiccups, histograms = histogram.empty(), np.zeros((workers_of(hosts), len(WATCHED), WORDS), np.int64)
    stalls, own, intervals = [np.empty((0, 2), np.int64)], [np.empty((0, 5), np.int64)], [np.empty(0, HICCUP_INTERVAL)]
    for host in hosts:
        workers = np.array(host.workers, np.int64)
        found = read_of_host(folder, host, HICCUP, INT64, (WORDS,))
        if found is None:  # it was lost before its watch ended
            continue
        histogram.add(hiccups, found)
        watched = read_of_host(folder, host, HISTOGRAMS, INT64, (len(workers), len(WATCHED), WORDS))
        if watched is not None:
            histograms[workers] = watched
        if host.host not in clocks:
            continue
        clock = clocks[host.host]
        stalls.append(stalls_of_host(folder, host, clocks))
        stalled = read_of_host(folder, host, WORKER_STALLS, INT64, (None, 5))
        if stalled is not None:
            stalled[:, 1] = clock.to_driver(stalled[:, 1])
            own.append(stalled)
        parts = read_of_host(folder, host, HICCUP_INTERVALS, HICCUP_INTERVAL, (None,))
        if parts is not None:
            parts["begin_ns"], parts["end_ns"] = map(clock.to_driver, (parts["begin_ns"], parts["end_ns"]))
            intervals.append(parts)
    np.save(folder / HICCUP, hiccups)
    np.save(folder / STALLS, in_time(np.concatenate(stalls), 0))
    np.save(folder / HISTOGRAMS, histograms)
    np.save(folder / WORKER_STALLS, in_time(np.concatenate(own), 1))
    joined = np.concatenate(intervals)
    np.save(folder / HICCUP_INTERVALS, joined[np.argsort(joined["begin_ns"], kind="stable")])
    samples = samples_of(folder, hosts, clocks)
    if samples is not None:
        np.save(folder / SAMPLES, samples)


def workers_of(hosts: HostEntries) -> int:
    return sum(len(host.workers) for host in hosts)


def in_time(rows: Numbers, column: int) -> Numbers:
    """*rows* in the order of their times in *column*."""
    return rows[np.argsort(rows[:, column], kind="stable")]
