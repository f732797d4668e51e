"""Opens the files of a worker: rows, events and text, up to the last complete record, also after a kill.

`workers/merged` has what was merged before, and is to be merged once more with the files of workers that came later
(`fastllmload collect`): all workers' rows, in the clock of the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload._ext.measure import regroup
from fastllmload._ext.record import recorder
from fastllmload.errors import RunFolderError
from fastllmload.records import layout
from fastllmload.records.integrity import EVENTS, ROWS, TEXT
from fastllmload.records.npy import complete_records, read_array, read_head, same_but_for_spares
from fastllmload.records.scratch import room

# `client` had the place of `backend` too.
REQUEST = np.dtype(
    [(each[0], "<u4" if each[0] == "client" else each[1]) for each in layout.REQUEST.descr if each[0] != "backend"]
)
EVENT = np.dtype([("t_ns", "<i8"), ("row", "<u4"), ("kind", "u1"), ("stamp", "u1"), ("tokens", "<u2")])


def is_earlier(found: np.dtype[Any], expected: np.dtype[Any]) -> bool:
    if expected == layout.EVENT:
        return found == EVENT
    earlier = "t_first_floor" in (found.names or ()) or found == REQUEST or same_but_for_spares(found, REQUEST)
    return expected == layout.REQUEST and found.itemsize == expected.itemsize and earlier


def to_current_layout(records: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """*records* in the layout *dtype*: 0 for fields that were not recorded, and the brackets that can be computed."""
    if records.dtype == dtype:
        return records
    known = np.zeros(len(records), dtype)
    for name in set(records.dtype.names or ()) & set(dtype.names or ()):
        known[name] = records[name]
    if dtype == layout.EVENT:
        known["bracket_ns"] = brackets(known)
    return known


def brackets(events: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """Brackets of events. One that shared a read, or was stamped by the process, came after the previous read."""
    order = np.argsort(events["row"], kind="stable")
    t, row, stamp = events["t_ns"][order], events["row"][order], events["stamp"][order]
    number = np.arange(len(t))
    new_read = (stamp & layout.STAMP_SAME_READ) == 0
    begin = np.maximum.accumulate(np.where(new_read, number, 0)) if len(t) else number
    follows = (begin > 0) & (row[np.maximum(begin - 1, 0)] == row) if len(t) else np.zeros(0, np.bool_)
    span = np.where(follows, t - t[np.maximum(begin - 1, 0)] if len(t) else t, layout.BRACKET_OPEN)
    exact = (stamp & layout.STAMP_CLASS_MASK) == layout.STAMP_KERNEL
    found = np.zeros(len(t), np.uint32)
    found[order] = np.where(exact, 0, np.clip(span, 0, layout.BRACKET_OPEN))
    return found


Rows = npt.NDArray[np.void]
Bytes = npt.NDArray[np.uint8]
EARLIER_WINDOW = 1 << 20
MERGED = "merged"
TEXT_HEAD = 8  # bytes of a text record before its text
EVENTS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class WorkerFiles:
    """Mapped rows and events, and complete records of text. *damage*: by kind of file, a sentence if it was truncated.
    *merged*: of several workers, in the driver's clock.
    """

    rows: Rows
    events: Rows
    text: Bytes
    damage: dict[str, str] = field(default_factory=dict)
    merged: bool = False


def as_bytes(records: npt.NDArray[Any]) -> Bytes:
    return records.view(np.uint8).reshape(-1) if len(records) else np.empty(0, np.uint8)


def open_rows(path: Path, dtype: np.dtype[Any]) -> Rows:
    """Map a .npy file of *dtype*. RunFolderError when it is missing, cut short or of another layout."""
    mapped = path.exists() and path.stat().st_size > recorder.HEADER_BYTES
    rows = read_array(path, written_as(path, dtype), (None,), mapped)
    if rows is None:
        raise RunFolderError(
            "run-file-missing", f"{path} is missing: this is not a run folder, or a part of it was deleted"
        )
    return to_current_layout(np.asarray(rows), dtype)


def written_as(path: Path, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """*dtype*, or the layout that it had before, when that is what the file has."""
    head = read_head(path) if path.exists() else None
    return head.dtype if head is not None and is_earlier(head.dtype, dtype) else dtype


def open_remaining(path: Path, dtype: np.dtype[Any]) -> tuple[Rows, str | None]:
    """The records of a file that can be read, and a sentence if some cannot. RunFolderError for another layout."""
    try:
        return open_rows(path, dtype), None
    except RunFolderError as problem:
        if of_another_layout(path, dtype):
            raise
        remaining = complete_records(path, written_as(path, dtype)) if path.exists() else np.empty(0, dtype)
        return to_current_layout(remaining, dtype), problem.message


def of_another_layout(path: Path, dtype: np.dtype[Any]) -> bool:
    """Whether the file has a readable header of other records than *dtype*."""
    head = read_head(path) if path.exists() else None
    return head is not None and not (
        same_but_for_spares(head.dtype, dtype) or head.dtype == dtype or is_earlier(head.dtype, dtype)
    )


def within(events: Rows, rows: int) -> Rows:
    """*events*, which are ordered by row, without those of rows from *rows* on, which are lost."""
    return events[: int(np.searchsorted(events["row"], rows))] if len(events) else events


def open_text(path: Path) -> Bytes:
    """Map text.bin up to its last complete record; empty when there is none."""
    if not path.is_file() or path.stat().st_size == 0:
        return np.empty(0, np.uint8)
    content = np.asarray(np.memmap(path, np.uint8, "r"))
    _, starts, sizes = recorder.text_index(content)
    return content[: int(starts[-1]) + int(sizes[-1])] if len(starts) else content[:0]


def used_rows(rows: Rows) -> int:
    """Number of rows before zeros at the end, which files of earlier versions have; a used row has a status."""
    start = max(0, len(rows) - EARLIER_WINDOW // rows.dtype.itemsize)
    used = np.flatnonzero(rows["status"][start:])
    return start + int(used[-1]) + 1 if len(used) else start


def read_worker(directory: Path, copied: bool = False) -> WorkerFiles:
    """The files in workers/<w>, of truncated ones the complete records, and events only of rows that remain. *copied*: from
    another host, file by file, so that events may have come of rows that had not when the copying ended.
    """
    rows, lost_rows = open_remaining(directory / ROWS, layout.REQUEST)
    events, lost_events = open_remaining(directory / EVENTS, layout.EVENT)
    rows, events = rows[: used_rows(rows)], events[: regroup.used_events(as_bytes(events))]
    damage = {name: text for name, text in ((ROWS, lost_rows), (EVENTS, lost_events)) if text is not None}
    text = open_text(directory / TEXT)
    if copied and int(events["row"].max(initial=0)) >= max(1, len(rows)):
        events = events[events["row"] < len(rows)]
    of_row, _, sizes = recorder.text_index(text)
    if copied and int(of_row.max(initial=0)) >= max(1, len(rows)):
        text = text[np.repeat(of_row < len(rows), sizes.astype(np.int64) + TEXT_HEAD)]
    if lost_rows is not None:
        events, text = events[events["row"] < len(rows)], text[:0]
    elif int(recorder.text_index(text)[0].max(initial=0)) >= max(1, len(rows)):
        damage[TEXT] = f"{directory / TEXT} does not belong to {ROWS} in the same folder: it was changed"
        text = text[:0]
    return WorkerFiles(rows, events, text, damage)


def read_workers(directory: Path, copied: bool = False) -> list[WorkerFiles]:
    """All workers of a run folder, by number, then what was merged before of others. Empty without a folder `workers`.
    *copied*: from other hosts.
    """
    folder = directory / "workers"
    if not folder.is_dir():
        return []
    numbered = sorted((int(each.name), each) for each in folder.iterdir() if each.name.isdigit())
    found = [read_worker(each, copied) for _, each in numbered]
    if (folder / MERGED).is_dir():
        found.append(read_merged_before(folder / MERGED, [number for number, _ in numbered]))
    return found


def read_merged_before(directory: Path, again: Sequence[int]) -> WorkerFiles:
    """The merged rows in *directory* that were dispatched, without those of the workers *again*, whose files are there."""
    found = read_worker(directory)
    kept = (found.rows["t_dispatch"] > 0) & ~np.isin(found.rows["worker"], again)
    number = np.cumsum(kept) - 1
    parts = [found.events[at : at + EVENTS_AT_ONCE] for at in range(0, len(found.events), EVENTS_AT_ONCE)]
    counts = [int(np.count_nonzero(kept[part["row"]])) for part in parts]
    events = room(sum(counts), layout.EVENT, directory)
    for part, end, count in zip(parts, np.cumsum(counts).tolist(), counts, strict=True):
        into = events[end - count : end]
        into[:] = part[kept[part["row"]]]
        into["row"] = number[into["row"]]
    of_row, _, sizes = recorder.text_index(found.text)
    text = found.text[np.repeat(kept[of_row], sizes.astype(np.int64) + TEXT_HEAD)]
    moved = np.empty_like(text)
    regroup.repoint_text(text, number, moved)
    return WorkerFiles(found.rows[kept], events, moved, found.damage, merged=True)
