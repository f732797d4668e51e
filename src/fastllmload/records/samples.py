"""Writes samples.npy, the counters of each worker four times a second; it can be read at any time during the run."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastllmload._ext.record import counters as k
from fastllmload._ext.record.recorder import npy_header
from fastllmload.host.cpu import ProcessFigures
from fastllmload.records.hosts import Clocks, HostEntries, read_of_host
from fastllmload.records.npy import read_array

COUNTERS = {  # column: word of the worker's shared memory
    name: getattr(k, f"W_{name.upper()}")
    for name in (
        "released", "ended", "ok", "failed", "in_flight", "connections", "idle", "events", "content_events", "reads",
        "coalesced", "kernel_stamps", "user_stamps", "bytes_in", "bytes_out", "spin_ns", "batches", "batch_max_ns",
        "connects", "connect_failures", "idle_dropped", "late_connects", "early", "clock_steps", "clamped",
        "backlog_max", "gc_runs", "page_faults", "handshakes", "handshakes_resumed", "handshake_ns", "handshake_cpu_ns",
        "window_waits", "upgrades", "upgrade_ns",
    )
}  # fmt: skip
PROCESS = ("cpu_ns", "rss_bytes", "voluntary_switches", "involuntary_switches", "run_delay_ns")
SAMPLE = np.dtype(
    [("t_ns", "<i8"), ("worker", "<i4"), ("phase", "<i4"), *((name, "<i8") for name in (*COUNTERS, *PROCESS))]
)
SLOTS = np.array(list(COUNTERS.values()))
SIMULATOR = -1  # *worker* of the embedded engine's own rows: only PROCESS columns are used
SAMPLES = "samples.npy"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def sample(
    t_ns: int, worker: int, phase: int, words: npt.NDArray[np.int64] | None, figures: ProcessFigures | None
) -> npt.NDArray[np.void]:
    """One row. A worker's own CPU time (fine-grained) replaces /proc's when it is newer."""
    counted = (0,) * len(COUNTERS) if words is None else tuple(words[SLOTS].tolist())
    used = (0,) * len(PROCESS) if figures is None else tuple(getattr(figures, name) for name in PROCESS)
    row = np.array([(t_ns, worker, phase, *counted, *used)], SAMPLE)
    if words is not None:
        row["cpu_ns"] = max(int(row["cpu_ns"][0]), int(words[k.W_CPU_NS]))
    return row


class SampleLog:
    """Appends rows to samples.npy and updates its header. A full disk sets *full* and ends only the recording of samples."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "w+b", buffering=0)  # noqa: SIM115 - lives as long as the run
        empty = npy_header(SAMPLE, 0)
        self._file.write(empty)
        self._header = len(empty)
        self._described = empty.rpartition(b"(0,)}")[0]
        self.rows = 0
        self.full = False

    def append(self, rows: npt.NDArray[np.void]) -> None:
        data = rows.tobytes()
        try:
            place = self._header + self.rows * SAMPLE.itemsize
            written = 0 if self.full else os.pwrite(self._file.fileno(), data, place)
        except OSError as problem:
            if problem.errno not in DISK_FULL:
                raise
            written = 0
        if written < len(data):
            self.full = True
            return
        self.rows += len(rows)
        header = self._described + b"(%d,)}" % self.rows  # to build it again would take longer than all the rest here
        os.pwrite(self._file.fileno(), header.ljust(self._header - 1) + b"\n", 0)

    def close(self) -> None:
        self._file.close()


def samples_of(folder: Path, hosts: HostEntries, clocks: Clocks) -> npt.NDArray[np.void] | None:
    """The samples of a run in order of time: of each host its own in the driver's clock, if they were copied; of all other
    processes those in *folder*. None without any.
    """
    found = []
    for host in hosts:
        own = read_of_host(folder, host, SAMPLES, shape=(None,))
        if own is not None and host.host in clocks:
            own["t_ns"] = clocks[host.host].to_driver(own["t_ns"])
            found.append(own)
    here = read_array(folder / SAMPLES, shape=(None,))
    if not found:
        return here
    if here is not None:
        there = np.concatenate([np.empty(0, np.int64), *(own["worker"] for own in found)])
        found.append(here[~np.isin(here["worker"], there)])
    joined = np.concatenate(found)
    return joined[np.argsort(joined["t_ns"], kind="stable")]
