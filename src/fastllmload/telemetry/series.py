"""Reads the telemetry of a run as series of numpy arrays; also during the run and after a kill."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload.errors import RunFolderError
from fastllmload.files import read_regular
from fastllmload.telemetry.files import DESCR, HEADER_BYTES, INDEX, ROWS, VERSION, Index, SeriesEntry, SourceEntry

DTYPE = np.dtype(DESCR)
Times = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TelemetrySeries:
    """One figure over time. *value* is NaN where a read gave nothing; *t_before*, *t_after*: CLOCK_MONOTONIC
    ns around it.

    *name* is ours (`running`, `power_w`, `gpu0.temperature_c` ...), *source_name* the source's own; *origin*
    says whose it is.
    """

    name: str
    source_name: str
    origin: str
    source_kind: str  # role of a metrics page: server, router, gpu, node; or power, host
    unit: str
    kind: str  # gauge, or counter since its start
    labels: str
    t_before: Times
    t_after: Times
    value: Values
    pool: str | None = None  # label that the user gave to the page
    restarts_ns: Times = field(
        default_factory=lambda: np.empty(0, np.int64)
    )  # of parts of a sum, which does not go back

    @property
    def t_ns(self) -> Times:
        """Middle of the read, within half its duration of the true instant."""
        return self.t_before + (self.t_after - self.t_before) // 2


@dataclass(frozen=True)
class TelemetryRecord:
    """All series of a run, in the order in which they turned up; empty when the run had no telemetry."""

    series: tuple[TelemetrySeries, ...] = ()
    sources: tuple[SourceEntry, ...] = ()
    absent: dict[str, str] = field(default_factory=dict)
    interval_s: float = 1.0
    ended: bool = False

    def named(self, name: str) -> list[TelemetrySeries]:
        return [series for series in self.series if series.name == name]

    def first(self, name: str) -> TelemetrySeries | None:
        return next(iter(self.named(name)), None)


def load(directory: str | os.PathLike[str]) -> TelemetryRecord:
    """Read a run folder's telemetry. RunFolderError when it is of another version or no telemetry at all."""
    folder = Path(directory)
    if not (folder / INDEX).exists():
        return TelemetryRecord()
    index = read_index(folder / INDEX)
    rows = read_rows(folder / ROWS)
    rows = rows[(rows["series"] >= 0) & (rows["series"] < len(index.series))]
    order = np.argsort(rows["series"], kind="stable")
    cuts = np.searchsorted(rows["series"][order], np.arange(len(index.series) + 1))
    series = [
        one(entry, index.sources[entry.source], rows[order[cuts[number] : cuts[number + 1]]])
        for number, entry in enumerate(index.series)
    ]
    return TelemetryRecord(tuple(series), tuple(index.sources), dict(index.absent), index.interval_s, index.ended)


def one(entry: SeriesEntry, source: SourceEntry, rows: npt.NDArray[np.void]) -> TelemetrySeries:
    """In time order: threads may append a little out of it."""
    rows = rows[np.argsort(rows["t_before"], kind="stable")]
    return TelemetrySeries(
        name=entry.name,
        source_name=entry.source_name,
        origin=source.origin,
        source_kind=source.kind,
        unit=entry.unit,
        kind=entry.kind,
        labels=entry.labels,
        t_before=np.ascontiguousarray(rows["t_before"]),
        t_after=np.ascontiguousarray(rows["t_after"]),
        value=np.ascontiguousarray(rows["value"]),
        pool=source.label,
        restarts_ns=np.array(entry.restarts_ns, np.int64),
    )


def read_index(path: Path) -> Index:
    try:
        index = msgspec.json.decode(read_regular(path), type=Index)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise RunFolderError("run-file-damaged", f"{path} is not a telemetry index: {problem}") from None
    if index.version != VERSION:
        raise RunFolderError(
            "schema-version",
            f"{path} has version {index.version}, this version reads {VERSION}: read it with the one that wrote it",
        )
    if any(not 0 <= entry.source < len(index.sources) for entry in index.series):
        raise RunFolderError(
            "run-file-damaged", f"{path} names a series of a source that it does not have; it was changed"
        )
    return index


def read_rows(path: Path) -> npt.NDArray[np.void]:
    """All whole rows; of a process that was killed between a row and the header, one read more than the header says."""
    try:
        data = read_regular(path)
    except FileNotFoundError:
        raise RunFolderError("run-file-missing", f"{path} is missing although there is a telemetry index") from None
    except OSError as problem:
        raise RunFolderError("run-file-unreadable", f"{path} cannot be read: {problem.strerror}") from None
    if data[:6] != b"\x93NUMPY" or len(data) < HEADER_BYTES or repr(DESCR).encode() not in data[:HEADER_BYTES]:
        raise RunFolderError("run-file-damaged", f"{path} is not a telemetry file of this version, or it is truncated")
    whole = (len(data) - HEADER_BYTES) // DTYPE.itemsize
    return np.frombuffer(data, DTYPE, whole, HEADER_BYTES)
