"""What one worker wrote: its rows, its events and its text, cut to what is there, also after a kill."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload._ext import recorder, regroup
from fastllmload.errors import RunFolderError
from fastllmload.records import layout
from fastllmload.records.earlier_layout import as_of_today, is_earlier
from fastllmload.records.integrity import EVENTS, ROWS, TEXT
from fastllmload.records.npy import read_array, read_head, same_but_for_spares, whole_records

Rows = npt.NDArray[np.void]
Bytes = npt.NDArray[np.uint8]
EARLIER_WINDOW = 1 << 20


@dataclass(frozen=True)
class WorkerFiles:
    """Rows and events are mapped, not read; *text* is the bytes of text.bin up to its last complete record. *damage*:
    by kind of file (ROWS, EVENTS), a sentence where it was cut after the run.
    """

    rows: Rows
    events: Rows
    text: Bytes
    damage: dict[str, str] = field(default_factory=dict)


def as_bytes(records: npt.NDArray[Any]) -> Bytes:
    """The bytes of a contiguous array of records."""
    return records.view(np.uint8).reshape(-1) if len(records) else np.empty(0, np.uint8)


def open_rows(path: Path, dtype: np.dtype[Any]) -> Rows:
    """Map a .npy file of *dtype*. RunFolderError when it is missing, cut short or of another layout."""
    mapped = path.exists() and path.stat().st_size > recorder.HEADER_BYTES
    rows = read_array(path, written_as(path, dtype), (None,), mapped)
    if rows is None:
        raise RunFolderError(f"{path} is missing: this is no run folder, or a part of it was deleted")
    return as_of_today(np.asarray(rows), dtype)


def written_as(path: Path, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """*dtype*, or the layout that it had before, when that is what the file has."""
    head = read_head(path) if path.exists() else None
    return head.dtype if head is not None and is_earlier(head.dtype, dtype) else dtype


def open_what_is_left(path: Path, dtype: np.dtype[Any]) -> tuple[Rows, str | None]:
    """The same, of a file that was cut, broken or lost its whole records, with a sentence. RunFolderError for another
    layout.
    """
    try:
        return open_rows(path, dtype), None
    except RunFolderError as problem:
        if of_another_layout(path, dtype):
            raise
        left = whole_records(path, written_as(path, dtype)) if path.exists() else np.empty(0, dtype)
        return as_of_today(left, dtype), str(problem)


def of_another_layout(path: Path, dtype: np.dtype[Any]) -> bool:
    """A whole head that promises other records than *dtype*."""
    head = read_head(path) if path.exists() else None
    return head is not None and not (
        same_but_for_spares(head.dtype, dtype) or head.dtype == dtype or is_earlier(head.dtype, dtype)
    )


def within(events: Rows, rows: int) -> Rows:
    """*events*, which stand by row, without those of rows from *rows* on: these are lost."""
    return events[: int(np.searchsorted(events["row"], rows))] if len(events) else events


def open_text(path: Path) -> Bytes:
    """Map text.bin up to its last complete record; empty when there is none."""
    if not path.is_file() or path.stat().st_size == 0:
        return np.empty(0, np.uint8)
    content = np.asarray(np.memmap(path, np.uint8, "r"))
    _, starts, sizes = recorder.text_index(content)
    return content[: int(starts[-1]) + int(sizes[-1])] if len(starts) else content[:0]


def used_rows(rows: Rows) -> int:
    """Number of rows before the zeros at the end of an unfinished file: a row that was opened has a status.

    Earlier versions let files grow by windows of EARLIER_WINDOW bytes, of which the last one could hold zeros.
    """
    start = max(0, len(rows) - EARLIER_WINDOW // rows.dtype.itemsize)
    used = np.flatnonzero(rows["status"][start:])
    return start + int(used[-1]) + 1 if len(used) else start


def read_worker(directory: Path) -> WorkerFiles:
    """The files in workers/<w>, of cut ones what is left. Events of rows that never reached the disk are an error, unless
    it was the rows that were cut.
    """
    rows, lost_rows = open_what_is_left(directory / ROWS, layout.REQUEST)
    events, lost_events = open_what_is_left(directory / EVENTS, layout.EVENT)
    rows, events = rows[: used_rows(rows)], events[: regroup.used_events(as_bytes(events))]
    damage = {name: told for name, told in ((ROWS, lost_rows), (EVENTS, lost_events)) if told is not None}
    text = open_text(directory / TEXT)
    if lost_rows is not None:
        events, text = events[events["row"] < len(rows)], text[:0]
    elif int(recorder.text_index(text)[0].max(initial=0)) >= max(1, len(rows)):
        damage[TEXT] = f"{directory / TEXT} does not belong to {ROWS} beside it: it was changed"
        text = text[:0]
    return WorkerFiles(rows, events, text, damage)


def read_workers(directory: Path) -> list[WorkerFiles]:
    """All workers of a run folder, by number. Empty when it has no folder `workers`."""
    folder = directory / "workers"
    if not folder.is_dir():
        return []
    numbered = sorted((int(each.name), each) for each in folder.iterdir() if each.name.isdigit())
    return [read_worker(each) for _, each in numbered]
