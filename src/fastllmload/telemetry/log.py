"""Writes telemetry.npy and telemetry.json during the run; both can be read at any time, also after SIGKILL."""

from __future__ import annotations

import errno
import math
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fastllmload.telemetry.files import HEADER_BYTES, INDEX, ROW, ROWS, Index, SeriesEntry, SourceEntry, header
from fastllmload.telemetry.sensors.sensor import Key, Reading

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MOST_SERIES = 4096
MOST_PROBLEMS = 8  # different sentences that are kept for a source
MISSING = math.nan


class TelemetryLog:
    """Thread-safe. A full disk ends the writing, not the run."""

    def __init__(self, folder: Path, index: Index) -> None:
        self.index = index
        self._folder = folder
        self._lock = threading.Lock()
        self._numbers: dict[tuple[int, Key], int] = {}
        self._file = open(folder / ROWS, "w+b", buffering=0)  # noqa: SIM115 - lives as long as the run
        self._file.write(header(0))
        self._rows = 0
        self._save()

    def add(self, source: int, before_ns: int, after_ns: int, readings: Sequence[Reading]) -> None:
        """What one read gave. A series of the source that the read left out has no row."""
        with self._lock:
            self._count(source, before_ns, after_ns)
            self._write(source, before_ns, after_ns, readings)

    def fail(self, source: int, before_ns: int, after_ns: int, sentence: str, readings: Sequence[Reading] = ()) -> None:
        """A read that went wrong: every series of the source that it did not give has a gap here."""
        with self._lock:
            entry = self._count(source, before_ns, after_ns)
            entry.n_failed += 1
            if sentence in entry.problems or len(entry.problems) < MOST_PROBLEMS:
                entry.problems[sentence] = entry.problems.get(sentence, 0) + 1
            given = {reading.key for reading in readings}
            gaps = [Reading(key, MISSING) for owner, key in self._numbers if owner == source and key not in given]
            self._write(source, before_ns, after_ns, [*readings, *gaps])
            if entry.n_failed == 1:
                self._save()

    def skip(self, source: int, ticks: int) -> None:
        with self._lock:
            self.index.sources[source].n_skipped += ticks

    def close(self, whole: bool) -> None:
        """*whole*: every source was asked to the end."""
        with self._lock:
            self.index.ended = whole
            self._save()
            self._file.close()

    def _count(self, source: int, before_ns: int, after_ns: int) -> SourceEntry:
        entry = self.index.sources[source]
        entry.n += 1
        entry.slowest_s = max(entry.slowest_s, (after_ns - before_ns) / 1e9)
        return entry

    def _write(self, source: int, before_ns: int, after_ns: int, readings: Sequence[Reading]) -> None:
        rows, known, restarted = [], len(self.index.series), False
        for reading in readings:
            number = self._number(source, reading.key)
            if number is not None:
                first, last = (
                    (before_ns, after_ns) if reading.t_ns is None else (reading.t_ns, reading.until_ns or reading.t_ns)
                )
                rows.append(ROW.pack(first, last, reading.value, number, source))
                if reading.restarted:
                    self.index.series[number].restarts_ns.append(first + (last - first) // 2)
                    restarted = True
        if len(self.index.series) > known or restarted:
            self._save()  # before the rows that refer to it
        if rows and not self.index.disk_full:
            self._append(b"".join(rows))

    def _number(self, source: int, key: Key) -> int | None:
        number = self._numbers.get((source, key))
        if number is None:
            number = len(self.index.series)
            if number >= MOST_SERIES:
                self.index.series_refused += 1
                return None
            self._numbers[source, key] = number
            self.index.series.append(SeriesEntry(key.name, key.source, source, key.unit, key.kind, key.labels))
        return number

    def _append(self, data: bytes) -> None:
        descriptor = self._file.fileno()
        try:
            written = os.pwrite(descriptor, data, HEADER_BYTES + self._rows * ROW.size)
        except OSError as problem:
            if problem.errno not in DISK_FULL:
                raise
            written = 0
        if written < len(data):
            self.index.disk_full = True
            return
        self._rows += len(data) // ROW.size
        os.pwrite(descriptor, header(self._rows), 0)

    def _save(self) -> None:
        """telemetry.json whole or not at all."""
        part = self._folder / (INDEX + ".part")
        try:
            part.write_bytes(msgspec.json.format(msgspec.json.encode(self.index), indent=1) + b"\n")
            part.replace(self._folder / INDEX)
        except OSError as problem:
            if problem.errno not in DISK_FULL:
                raise
            self.index.disk_full = True
            part.unlink(missing_ok=True)
