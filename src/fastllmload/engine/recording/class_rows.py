"""Counts the requests of each class of a mix while it runs, from rows that the row writer has written, for the live view.

Workers count all classes together: counters of each would be work on their path. The row writer writes what began half a
second after, and what ended as well; a row is read when it is new, and then until it has ended. Rows are counted on the
host that wrote them; agents report the counts with their histograms (`engine/hosts/link/beats.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fastllmload._ext.record import histogram, recorder
from fastllmload.arrays import Numbers, Rows
from fastllmload.metrics.request import durations
from fastllmload.metrics.run.per_class import failures
from fastllmload.records import layout
from fastllmload.report.terminal.snapshot import ClassSnapshot

FIELDS = ("phase", "request_class", "status", "error", "t_dispatch", "t_submit", "t_first", "t_last", "t_end")
READ = np.dtype([(name, layout.REQUEST[name]) for name in FIELDS])  # a sixth of a row, as it is copied several times


@dataclass
class WorkerRows:
    """The rows of one worker: *taken* have been read, *open* are the numbers of those that had not ended."""

    path: Path
    taken: int = 0
    open: Numbers = field(default_factory=lambda: np.empty(0, np.int64))

    def read(self) -> tuple[Rows, Rows]:
        """(rows that ended since, rows that have not ended); both empty before there are any."""
        size = self.path.stat().st_size if self.path.exists() else 0
        there = max(0, size - recorder.HEADER_BYTES) // layout.REQUEST.itemsize
        if there == 0:
            return np.empty(0, READ), np.empty(0, READ)
        rows = np.memmap(self.path, layout.REQUEST, "r", recorder.HEADER_BYTES, (there,))
        numbers = np.concatenate([self.open, np.arange(self.taken, there)])
        read = np.empty(len(numbers), READ)
        for name in FIELDS:
            read[name] = rows[name][numbers]
        ended = read["t_end"] > 0
        self.taken, self.open = there, numbers[~ended]
        return read[ended], read[~ended]


@dataclass
class ClassCounts:
    """Of one class: *latencies* are those of the requests that succeeded, as in the histograms of the workers."""

    in_flight: int = 0
    ok: int = 0
    failed: int = 0
    first: Numbers = field(default_factory=histogram.empty)  # TTFT
    latencies: Numbers = field(default_factory=histogram.empty)  # E2E

    def add(self, ended: Rows) -> None:
        ok = ended[ended["status"] == layout.OK]
        self.ok, self.failed = self.ok + len(ok), self.failed + failures(ended)
        streamed = ok[ok["t_first"] > 0]
        histogram.record_many(self.first, np.maximum(durations.ttft(streamed), 0))
        histogram.record_many(self.latencies, np.maximum(durations.e2e(ok), 0))

    def snapshot(self, name: str) -> ClassSnapshot:
        first = histogram.total(self.first) > 0
        words = self.first if first else self.latencies
        p50, p99 = (histogram.percentile(words, q) for q in (0.5, 0.99))
        return ClassSnapshot(
            name=name, in_flight=self.in_flight, ok=self.ok, failed=self.failed, latency="ttft" if first else "e2e",
            p50_ms=None if p50 is None else p50 / 1e6, p99_ms=None if p99 is None else p99 / 1e6,
        )  # fmt: skip


class ClassRows:
    """The *classes* of the measured phase, in files of the workers *numbers* of a run *folder* on this host."""

    def __init__(self, folder: Path, numbers: Sequence[int], classes: int) -> None:
        self._files = [WorkerRows(folder / "workers" / str(number) / "requests.npy") for number in numbers]
        self._counts = [ClassCounts() for _ in range(classes)]

    def counts(self) -> Sequence[ClassCounts]:
        """What the files have now, by class; the same objects at each call."""
        still_open = np.zeros(len(self._counts), np.int64)
        for file in self._files:
            ended, not_ended = (rows[rows["phase"] == layout.MEASURE] for rows in file.read())
            for number, counts in enumerate(self._counts):
                mine = ended[ended["request_class"] == number]
                if len(mine):
                    counts.add(mine)
            sent = not_ended[not_ended["t_dispatch"] > 0]["request_class"]
            still_open += np.bincount(sent, minlength=len(still_open))[: len(still_open)]
        for counts, in_flight in zip(self._counts, still_open.tolist(), strict=True):
            counts.in_flight = in_flight
        return self._counts


@dataclass(frozen=True)
class ClassLines:
    """The classes of a mix by name, and where their counts are from: rows on this host, or the agents of others."""

    names: Sequence[str]
    counts: Callable[[], Sequence[ClassCounts]]

    def snapshots(self) -> tuple[ClassSnapshot, ...]:
        return tuple(one.snapshot(name) for name, one in zip(self.names, self.counts(), strict=True))
