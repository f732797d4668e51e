"""Merges the workers' files into requests.npy and tokens.npy (and text.bin): rows by (phase, request), events by row, time.

Memory: arrays of 8 bytes per request; rows and events are mapped and copied once. The worker files are kept until the
merged ones are complete, so a full disk or a kill in between loses nothing. Rows of several hosts are moved into the
driver's clock (`records.hosts`), after the segments of each host's packet ring were joined in its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload._ext.measure import regroup
from fastllmload._ext.record import recorder
from fastllmload.errors import HostLimitError, RunFolderError
from fastllmload.records import layout
from fastllmload.records.event_totals import PART, TOTAL, TOTALS, map_records, summary_path
from fastllmload.records.hosts import LOST, HostEntries, mark_lost, of_lost, positions, read_clocks, to_driver_clock
from fastllmload.records.integrity import EVENTS, ROWS
from fastllmload.records.scratch import room
from fastllmload.records.tap_times import Taps, join_tap, remove_segments
from fastllmload.records.worker_files import Bytes, Rows, WorkerFiles, as_bytes, open_rows, read_workers

Numbers = npt.NDArray[np.int64]
Allocate = Callable[[str, int], Bytes]  # file name, bytes of records → zeroed memory for them


@dataclass(frozen=True)
class PlannedPhase:
    """Request i is item i. *t_sched*: CLOCK_MONOTONIC ns, < 0 for a turn that follows a reply. *session*: conversations."""

    phase: int
    t_sched: Numbers
    input_tokens: npt.NDArray[Any]
    output_tokens: npt.NDArray[Any]
    request_class: npt.NDArray[Any]
    session: npt.NDArray[Any] | None = None


@dataclass(frozen=True)
class Merged:
    """Rows; events by row: `first_event[r]:first_event[r + 1]`; text with merged row numbers.

    *damage*: by name of a file that was cut or changed after the run, a sentence. *taps*: the results of joining segments.
    """

    rows: Rows
    events: Rows
    first_event: Numbers
    text: Bytes
    damage: dict[str, str] = field(default_factory=dict)
    taps: Taps = field(default_factory=dict)


def not_sent_rows(
    planned: PlannedPhase,
    parts: Sequence[WorkerFiles],
    hosts: HostEntries = (),
    workers: Sequence[int] | None = None,
) -> Rows:
    """A row with status `not_sent` for each planned request that no worker dispatched; `host_lost` where its worker was on
    a host that was lost, so that this is not known. *workers*: only of their requests.
    """
    sent = np.zeros(len(planned.t_sched), np.bool_)
    for part in parts:
        numbers = part.rows["request"][part.rows["phase"] == planned.phase]
        sent[numbers[numbers < len(sent)]] = True
    missing = np.flatnonzero(~sent & (planned.t_sched >= 0))
    rows = np.zeros(len(missing), layout.REQUEST)
    rows["request"] = missing
    rows["session"] = missing if planned.session is None else planned.session[missing]
    rows["phase"] = planned.phase
    rows["status"] = layout.NOT_SENT
    rows["t_sched"] = planned.t_sched[missing]
    rows["input_target"] = planned.input_tokens[missing]
    rows["output_target"] = planned.output_tokens[missing]
    rows["request_class"] = planned.request_class[missing]
    rows["worker"] = missing % max(1, len(parts))
    rows["retry_after_ms"] = -1
    for name in ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens"):
        rows[name] = -1
    if hosts:
        rows["worker"] = rows["session"] % sum(len(host.workers) for host in hosts)
        rows["status"][of_lost(hosts, rows["worker"])] = layout.HOST_LOST
    return rows if workers is None else rows[np.isin(rows["worker"], workers)]


def keep_schedule(rows: Rows, planned: PlannedPhase) -> None:
    """Set `t_sched` of the requests that were due at planned instants: a host knew them by its own clock only."""
    mine = np.flatnonzero((rows["phase"] == planned.phase) & (rows["request"] < len(planned.t_sched)))
    due = planned.t_sched[rows["request"][mine]]
    rows["t_sched"][mine[due >= 0]] = due[due >= 0]


def merged_positions(parts: Sequence[Rows]) -> list[Numbers]:
    """For each part, the position of each of its rows in the order by (phase, request, part)."""
    keys = np.concatenate([(part["phase"].astype(np.int64) << 32) | part["request"] for part in parts])
    order = np.argsort(keys, kind="stable")
    positions = np.empty(len(keys), np.int64)
    positions[order] = np.arange(len(keys))
    return np.split(positions, np.cumsum([len(part) for part in parts])[:-1])


def merge_parts(
    folder: Path,
    planned: Sequence[PlannedPhase],
    allocate: Allocate,
    hosts: HostEntries = (),
    workers: Sequence[int] | None = None,
) -> Merged:
    """Merge worker files, with the packet ring's times, into memory from *allocate*. RunFolderError for unknown rows."""
    parts = read_workers(folder, copied=bool(hosts))
    row_parts = [part.rows for part in parts] + [not_sent_rows(each, parts, hosts, workers) for each in planned]
    if not row_parts:
        row_parts = [np.empty(0, layout.REQUEST)]
    places = merged_positions(row_parts)
    rows = allocate("requests.npy", sum(map(len, row_parts)) * layout.REQUEST.itemsize).view(layout.REQUEST)
    for part, place in zip(row_parts, places, strict=True):
        rows[place] = part
    events, first_event = merge_events(parts, places, len(rows), allocate)
    taps = join_tap(folder / "workers", rows, events, first_event, hosts)
    if hosts:
        moved = np.zeros(len(rows), np.bool_)
        for files, place in zip(parts, places, strict=False):
            moved[place] = files.merged
        to_driver_clock(rows, events, hosts, read_clocks(folder, hosts), moved)
        mark_lost(rows, hosts, np.diff(first_event))
        for each in planned:
            keep_schedule(rows, each)
    regroup.describe_stamps(as_bytes(rows), as_bytes(events), first_event)
    damage = {name: problem for part in parts for name, problem in part.damage.items()}
    return Merged(rows, events, first_event, merge_text(parts, places, allocate), damage, taps)


def merge_events(
    parts: Sequence[WorkerFiles], places: Sequence[Numbers], rows: int, allocate: Allocate
) -> tuple[Rows, Numbers]:
    """Events of all parts grouped by merged row, and the CSR offsets."""
    first_event = np.zeros(rows + 1, np.int64)
    pairs = [(as_bytes(part.events), place) for part, place in zip(parts, places, strict=False)]
    try:
        for events, place in pairs:
            regroup.count_events(events, place, first_event[1:])
    except IndexError as problem:
        raise RunFolderError(
            "run-file-damaged", f"the worker files of this run contradict each other: {problem}"
        ) from problem
    np.cumsum(first_event, out=first_event)
    into = allocate("tokens.npy", int(first_event[-1]) * layout.EVENT.itemsize)
    next_place = first_event[:-1].copy()
    for events, place in pairs:
        regroup.place_events(events, place, next_place, into)
    regroup.order_rows(into, first_event)
    return into.view(layout.EVENT), first_event


def merge_text(parts: Sequence[WorkerFiles], places: Sequence[Numbers], allocate: Allocate) -> Bytes:
    """Text records of all parts, one part after the other: those of one row keep their order."""
    into = allocate("text.bin", sum(len(part.text) for part in parts))
    start = 0
    for part, place in zip(parts, places, strict=False):
        regroup.repoint_text(part.text, place, into[start : start + len(part.text)])
        start += len(part.text)
    return into


def unfinished(directory: Path, name: str) -> Path:
    return directory / f"{name}.part"


def mapped_file(directory: Path, name: str, size: int) -> Bytes:
    """The record bytes of a new file `NAME.part`. HostLimitError when the disk is too small for it."""
    dtype = {ROWS: layout.REQUEST, EVENTS: layout.EVENT, TOTALS: TOTAL}.get(name)
    header = b"" if dtype is None else recorder.npy_header(dtype, size // dtype.itemsize)
    path = unfinished(directory, name)
    with path.open("wb") as file:
        file.write(header)
        try:
            # Blocks first: writing to a mapped hole on a full disk would kill the process.
            os.posix_fallocate(file.fileno(), 0, len(header) + size or 1)
            os.ftruncate(file.fileno(), len(header) + size)
        except OSError as problem:
            raise HostLimitError(
                "disk-full",
                f"{directory} has no room for {size} bytes of {name} ({problem.strerror}); the workers' files are "
                "still there: make room, then read the folder again",
            ) from problem
    if size == 0:
        return np.empty(0, np.uint8)
    return np.asarray(np.memmap(path, np.uint8, "r+", offset=len(header), shape=(size,)))


def merge_workers(
    directory: str | os.PathLike[str],
    planned: Sequence[PlannedPhase] = (),
    taps: Taps | None = None,
    hosts: HostEntries = (),
) -> tuple[int, int]:
    """Merge the worker files of a run folder into it and remove them; returns the numbers of rows and events.

    *planned* phases get a `not_sent` row for each request that was never dispatched; *taps* receives the results of joining
    segments; *hosts*: of a run over many. RunFolderError for files that cannot be read, HostLimitError for a full disk.
    """
    folder = Path(directory)
    merged = merge_parts(folder, planned, lambda name, size: mapped_file(folder, name, size), hosts)
    counts = len(merged.rows), len(merged.events)
    with_text = len(merged.text) > 0
    if taps is not None:
        taps.update(merged.taps)
    del merged
    if with_text:
        unfinished(folder, "text.bin").replace(folder / "text.bin")
    else:
        unfinished(folder, "text.bin").unlink()
    # requests.npy comes last: a folder that has it is a merged one.
    for part in (folder / TOTALS, *folder.glob(f"hosts/*/{PART}")):  # of events that have been collected
        shutil.rmtree(part) if part.is_dir() else part.unlink(missing_ok=True)
    for name in ("tokens.npy", "requests.npy"):
        unfinished(folder, name).replace(folder / name)
    shutil.rmtree(folder / "workers")
    remove_segments(folder, hosts)
    return counts


def merge_in_memory(
    directory: Path,
    hosts: HostEntries = (),
    planned: Sequence[PlannedPhase] = (),
    workers: Sequence[int] | None = None,
) -> Merged:
    """Rows and events of a folder whose worker files were not merged (the run continues or was killed, or they stay on a
    host, of whose *workers* it has the files); creates no file.
    """
    return merge_parts(directory, planned, lambda name, size: room(size, np.uint8, directory), hosts, workers)


def merge_copied(directory: Path, planned: Sequence[PlannedPhase], hosts: HostEntries) -> None:
    """Write requests.npy of a run whose events stay on its *hosts*, and remove the worker files: of each host the rows that
    it has merged, in `hosts/<h>/summary`. Without these only rows of its workers are known, and no event of them: they get
    the status `host_lost`. tokens.npy has no event, event_totals.npy no total yet. HostLimitError for a full disk.
    """
    every = merge_in_memory(directory, hosts, planned).rows
    at = positions(hosts, every["worker"])
    parts = []
    for position, host in enumerate(hosts):
        rows = map_records(summary_path(directory, host.host, ROWS), layout.REQUEST)
        if rows is None or host.status == LOST:
            rows = every[at == position]
            rows["status"] = layout.HOST_LOST
        parts.append(rows)
    n = sum(map(len, parts))
    merged = mapped_file(directory, ROWS, n * layout.REQUEST.itemsize).view(layout.REQUEST)
    for part, place in zip(parts, merged_positions(parts), strict=True):
        merged[place] = part
    mapped_file(directory, EVENTS, 0)
    mapped_file(directory, TOTALS, n * TOTAL.itemsize)
    for name in (EVENTS, TOTALS, ROWS):  # rows last: a folder that has them is a merged one
        unfinished(directory, name).replace(directory / name)
    shutil.rmtree(directory / "workers")


def join_totals(directory: Path, hosts: HostEntries) -> None:
    """Write event_totals.npy from those of each of *hosts*; the requests of a lost host get the status `host_lost`."""
    rows = open_rows(directory / ROWS, layout.REQUEST)
    at = positions(hosts, rows["worker"])
    totals = mapped_file(directory, TOTALS, len(rows) * TOTAL.itemsize).view(TOTAL)
    for position, host in enumerate(hosts):
        mine = np.flatnonzero(at == position)
        if host.status == LOST:
            if len(mine):
                np.load(directory / ROWS, mmap_mode="r+")["status"][mine] = layout.HOST_LOST
            continue
        found = map_records(summary_path(directory, host.host, TOTALS), TOTAL)
        if found is None or len(found) != len(mine):
            raise RunFolderError(
                "run-file-missing", f"{TOTALS} of host {host.host} does not have its {len(mine)} requests"
            )
        totals[mine] = found
    unfinished(directory, TOTALS).replace(directory / TOTALS)
    for host in hosts:
        for name in (ROWS, TOTALS):
            summary_path(directory, host.host, name).unlink(missing_ok=True)
