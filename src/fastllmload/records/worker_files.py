"""What one worker wrote: its rows, its events and its text, cut to what is there, also after a kill."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload._ext import recorder, regroup
from fastllmload.errors import RunFolderError
from fastllmload.records import layout
from fastllmload.records.npy import read_array

Rows = npt.NDArray[np.void]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class WorkerFiles:
    """Rows and events are mapped, not read; *text* is the bytes of text.bin up to its last complete record."""

    rows: Rows
    events: Rows
    text: Bytes


def as_bytes(records: npt.NDArray[Any]) -> Bytes:
    """The bytes of a contiguous array of records."""
    return records.view(np.uint8).reshape(-1) if len(records) else np.empty(0, np.uint8)


def open_rows(path: Path, dtype: np.dtype[Any]) -> Rows:
    """Map a .npy file of *dtype*. RunFolderError when it is missing, cut short or of another layout."""
    mapped = path.exists() and path.stat().st_size > recorder.HEADER_BYTES
    rows = read_array(path, dtype, (None,), mapped)
    if rows is None:
        raise RunFolderError(f"{path} is missing: this is no run folder, or a part of it was deleted")
    return np.asarray(rows)


def open_text(path: Path) -> Bytes:
    """Map text.bin up to its last complete record; empty when there is none."""
    if not path.exists() or path.stat().st_size == 0:
        return np.empty(0, np.uint8)
    content = np.asarray(np.memmap(path, np.uint8, "r"))
    _, starts, sizes = recorder.text_index(content)
    return content[: int(starts[-1]) + int(sizes[-1])] if len(starts) else content[:0]


def used_rows(rows: Rows) -> int:
    """Number of rows before the zeros at the end of an unfinished file: a row that was opened has a status.

    Files grow by windows, so only the last window can hold zeros.
    """
    start = max(0, len(rows) - recorder.WINDOW_BYTES // rows.dtype.itemsize)
    used = np.flatnonzero(rows["status"][start:])
    return start + int(used[-1]) + 1 if len(used) else start


def read_worker(directory: Path) -> WorkerFiles:
    """The files in workers/<w>. Events of rows that never reached the disk are an error, not left out."""
    rows = open_rows(directory / "requests.npy", layout.REQUEST)
    events = open_rows(directory / "tokens.npy", layout.EVENT)
    return WorkerFiles(
        rows[: used_rows(rows)],
        events[: regroup.used_events(as_bytes(events))],
        open_text(directory / "text.bin"),
    )


def read_workers(directory: Path) -> list[WorkerFiles]:
    """All workers of a run folder, by number. Empty when it has no folder `workers`."""
    folder = directory / "workers"
    if not folder.is_dir():
        return []
    numbered = sorted((int(each.name), each) for each in folder.iterdir() if each.name.isdigit())
    return [read_worker(each) for _, each in numbered]
