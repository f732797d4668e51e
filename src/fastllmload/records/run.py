"""Reads a run folder: rows, events by row, run.json, samples; also during the run and after a kill."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload._ext.measure import regroup
from fastllmload._ext.record.recorder import text_index
from fastllmload.documents.fields import known
from fastllmload.documents.read import convert, read_file
from fastllmload.documents.run import Phase, RunDocument
from fastllmload.documents.run_parts.backends import BackendNames
from fastllmload.documents.run_parts.counts import ErrorTextEntries
from fastllmload.documents.write import plain
from fastllmload.errors import RunFolderError
from fastllmload.records import layout
from fastllmload.records.error_texts import read_texts, with_backends
from fastllmload.records.event_totals import SUMMARY, TOTALS, EventsElsewhere, read_elsewhere
from fastllmload.records.hosts import HostEntries, positions, read_clocks, with_clocks
from fastllmload.records.integrity import EVENTS, ROWS, TEXT, abandoned, before_first_request, find_damage
from fastllmload.records.merge import Merged, merge_in_memory
from fastllmload.records.npy import read_array
from fastllmload.records.samples import SAMPLES, samples_of
from fastllmload.records.scratch import room
from fastllmload.records.worker_files import TEXT_HEAD, Bytes, Rows, as_bytes, open_remaining, open_text, within

SCHEMA_VERSION = 1
AT_ONCE = 1 << 20  # events
ENDED_EARLY = ("running", "killed")  # run.json "status" of a run that has not ended, or was killed
DONE = "done"  # run.json "status" of a run that ended as planned; anything else is incomplete


@dataclass(frozen=True)
class Run:
    """Rows by (phase, request); row r has the events `first_event[r]:first_event[r + 1]`, in time order.

    *incomplete*: the run was killed, was interrupted, or continues; rows may then have status in_flight. *damaged*: files
    that differ from what the run wrote, each with a sentence. A truncated requests.npy or tokens.npy has the records before
    the cut here, a changed one none: call `lost` before computing figures from them. *elsewhere*: what is known of events
    that stayed on their hosts; *events* is empty then. *stored*: the JSON of run.json, which has keys that *document* lacks
    if another version wrote it; None where *document* was changed.
    """

    directory: Path
    document: RunDocument
    rows: Rows
    events: Rows
    first_event: npt.NDArray[np.int64]
    samples: npt.NDArray[Any] | None = None
    incomplete: bool = False
    text: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))
    damaged: dict[str, str] = field(default_factory=dict)
    elsewhere: EventsElsewhere | None = None
    stored: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        """One line: folder, end, verdict, requests."""
        counts = self.document.counts
        state = "incomplete" if self.incomplete else "complete"
        ok, planned = known(counts.ok) or 0, known(counts.planned)
        of = len(self.rows) if planned is None else planned
        return f"<Run {self.directory} {state}, {self.verdict or 'not judged'}, {ok:,.0f} of {of:,.0f} requests ok>"

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        """run.json as plain values."""
        return plain(self.document) if self.stored is None else self.stored

    @property
    def metrics(self) -> dict[str, Any]:
        """run.json "metrics": by name, a distribution or a single value with its unit; empty when not measured."""
        found: dict[str, Any] = self.manifest.get("metrics") or {}
        return found

    def changed(self, **fields: Any) -> Run:
        """The run with other values of these *fields* of its document."""
        return self.with_document(msgspec.structs.replace(self.document, **fields))

    def with_document(self, document: RunDocument) -> Run:
        return replace(self, document=document, stored=None)

    @property
    def verdict(self) -> str | None:
        """valid, suspect or invalid; None when the run was not judged."""
        return None if self.document.certificate is None else self.document.certificate.verdict

    @property
    def event_t(self) -> npt.NDArray[np.int64]:
        """CLOCK_MONOTONIC ns of each event."""
        return self.events["t_ns"]

    @property
    def event_kind(self) -> npt.NDArray[np.uint8]:
        """Position in `layout.EVENT_NAMES`."""
        return self.events["kind"]

    @property
    def event_stamp(self) -> npt.NDArray[np.uint8]:
        """Stamp class in the low bits (`layout.STAMP_CLASS_MASK`), `layout.STAMP_SAME_READ`, `layout.STAMP_WITHOUT_TEXT`."""
        return self.events["stamp"]

    @property
    def event_tokens(self) -> npt.NDArray[np.uint16]:
        """Tokens of the event as the server reports them; 0 = it does not, `layout.TOKENS_NONE` = none."""
        return self.events["tokens"]

    @property
    def event_count(self) -> int:
        """Events of the run, also of those that stayed on their hosts."""
        if self.elsewhere is None:
            return len(self.events)
        return sum(int(known(host.events) or 0) for host in self.document.judged_hosts)

    @property
    def last_event_ns(self) -> int:
        """The time of the last event; 0 without one."""
        if self.elsewhere is None:
            return int(self.event_t.max()) if len(self.events) else 0
        return max((host.last_event_ns or 0 for host in self.document.judged_hosts), default=0)

    @property
    def damage(self) -> tuple[str, ...]:
        """What is wrong with the folder's files, one sentence each."""
        return tuple(self.damaged.values())

    def lost(self, *names: str) -> str | None:
        """Why these files cannot be read: one is damaged, or its records stayed on the hosts. None where they are intact."""
        found = self.damage_of(*names)
        return self.where_events_are if found is None and (EVENTS in names or TEXT in names) else found

    def damage_of(self, *names: str) -> str | None:
        """What is wrong with one of these files; None where they are intact. Events and text need the rows."""
        needed = (ROWS, *names) if EVENTS in names or TEXT in names else names
        return next((self.damaged[name] for name in needed if name in self.damaged), None)

    @property
    def where_events_are(self) -> str | None:
        """On which hosts events stayed, as a sentence; None where they are in the folder."""
        if self.elsewhere is None:
            return None
        places = ", ".join(f"{host.folder} of {host.name}" for host in self.document.judged_hosts if host.folder)
        return (
            f"the events of {self.directory} stayed on its hosts (--collect summary): {places or 'no folder is known'}"
        )

    def array(
        self, name: str, dtype: np.dtype[Any] | None = None, shape: tuple[int | None, ...] | None = None
    ) -> npt.NDArray[Any] | None:
        """One of the folder's other .npy files; None where it is missing or damaged. RunFolderError for another layout."""
        return None if name in self.damaged else read_array(self.directory / name, dtype, shape)

    @property
    def intact(self) -> Run:
        """The run without damaged rows and without events where they are damaged: a part would describe another run."""
        if not self.damage_of(EVENTS):
            return self
        rows = self.rows[:0] if self.lost(ROWS) else self.rows
        return replace(self, rows=rows, events=self.events[:0], first_event=np.zeros(len(rows) + 1, np.int64))

    @property
    def complete_rows(self) -> npt.NDArray[np.bool_]:
        """Per row: whether all of its events are here."""
        if self.elsewhere is not None:
            return np.zeros(len(self.rows), np.bool_)
        if EVENTS not in self.damaged:
            return np.ones(len(self.rows), np.bool_)
        found: npt.NDArray[np.bool_] = np.diff(self.first_event) >= self.rows["events"]
        return found

    def clock_errors_ns(self, rows: Rows) -> npt.NDArray[np.int64]:
        """How far times of each of *rows* may lie from the driver's clock: the bound of its host; 0 in a run of one."""
        hosts = self.document.hosts
        bounds = [0 if host.clock is None else host.clock.bound_ns or 0 for host in hosts]
        return np.array([*bounds, 0], np.int64)[positions(hosts, rows["worker"])]

    def selected(self, mask: npt.NDArray[np.bool_]) -> Run:
        """The run with the rows *mask* only, and their events and texts. Samples and run.json stay."""
        rows, number = np.flatnonzero(mask), np.cumsum(mask) - 1
        counts = np.diff(self.first_event)[rows]
        first = np.append(0, np.cumsum(counts))
        events = room(int(first[-1]), layout.EVENT, self.directory if self.directory.is_dir() else None)
        begin = 0
        while begin < len(rows):
            end = max(begin + 1, int(np.searchsorted(first, first[begin] + AT_ONCE, side="right")) - 1)
            moved = np.repeat(self.first_event[rows[begin:end]] - first[begin:end], counts[begin:end])
            into = events[first[begin] : first[end]]
            into[:] = self.events[np.arange(first[begin], first[end]) + moved]
            into["row"] = np.repeat(np.arange(begin, end), counts[begin:end])
            begin = end
        of_row, _, sizes = text_index(self.text)
        kept = self.text[np.repeat(mask[of_row], sizes.astype(np.int64) + TEXT_HEAD)]
        text = np.empty_like(kept)
        regroup.repoint_text(kept, number, text)
        elsewhere = None if self.elsewhere is None else self.elsewhere.of(mask, self.elsewhere.hosts)
        return replace(self, rows=self.rows[mask], events=events, first_event=first, text=text, elsewhere=elsewhere)

    def phase(self, name: str) -> Phase | None:
        """Times of a phase, None when run.json has none of that name."""
        return self.document.phase(name)


def read_document(directory: Path) -> RunDocument:
    """run.json. RunFolderError when it is missing, not readable, or of another schema version."""
    return read_stored(directory)[1]


def read_stored(directory: Path) -> tuple[dict[str, Any], RunDocument]:
    """run.json as it is stored, also with keys that this version does not know, and as a type. RunFolderError."""
    try:
        return read_file(directory / "run.json", SCHEMA_VERSION, lambda found: convert(found, RunDocument))
    except (FileNotFoundError, NotADirectoryError):
        refuse_unbegun(directory, RunDocument())
        found = "it has no run.json" if directory.is_dir() else "it is a file"
        why = found if directory.exists() else "it does not exist"
        levels = directory / "levels"  # of a procedure, search or sweep
        other = f"one of the runs in {levels}" if levels.is_dir() else "the folder that a run named at its end"
        raise RunFolderError("not-a-run-folder", f"{directory} is not a run folder: {why}; give {other}") from None


def refuse_unbegun(directory: Path, document: RunDocument) -> None:
    """RunFolderError for the folder of a run that was killed before the clock of its first phase was started."""
    if abandoned(directory) and not document.phases:
        raise RunFolderError("run-not-begun", before_first_request(directory))


def read_merged(directory: Path, known: Mapping[str, str] | None = None) -> Merged:
    """The merged files of a run; *known*: damage by name of file. RunFolderError for another layout."""
    damage = dict(known or {})
    rows = remaining_records(directory / ROWS, layout.REQUEST, damage)
    events = remaining_records(directory / EVENTS, layout.EVENT, damage)
    if ROWS in damage:
        events = within(events, len(rows))
    first_event = np.zeros(len(rows) + 1, np.int64)
    try:
        wrong = None if regroup.count_rows(as_bytes(events), first_event[1:]) else "is not grouped by row"
    except IndexError as problem:
        wrong = f"does not belong to {ROWS}: {problem}"
    if wrong is not None:
        damage[EVENTS] = f"{directory / EVENTS} {wrong}: it was changed, or never merged"
        events, first_event = events[:0], np.zeros(len(rows) + 1, np.int64)
    np.cumsum(first_event, out=first_event)
    text = open_text(directory / TEXT)
    if len(text) and not {ROWS, TEXT} & damage.keys() and not text_fits(text, len(rows)):
        damage[TEXT] = f"{directory / TEXT} does not belong to {ROWS}: it was changed"
    return Merged(rows, events, first_event, text[:0] if {ROWS, TEXT} & damage.keys() else text, damage)


def text_fits(text: Bytes, rows: int) -> bool:
    numbers = text_index(text)[0]
    return len(numbers) > 0 and int(numbers.max()) < rows


def remaining_records(path: Path, dtype: np.dtype[Any], damage: dict[str, str]) -> Rows:
    """Records of a file; of a truncated one those before the cut, of a changed one none. Adds to *damage*."""
    records, problem = open_remaining(path, dtype)
    if problem is not None:
        damage.setdefault(path.name, problem)
    elif path.name in damage:  # readable, but not what the run wrote
        return records[:0]
    return records


def load(directory: str | os.PathLike[str], contents: bool = True) -> Run:
    """Read a run folder; of a damaged one what can be read (`Run.damaged`). RunFolderError names what is missing or of
    another version. *contents*: compare checksums too, which reads every byte.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise RunFolderError("not-a-run-folder", f"{folder} does not exist or is not a folder")
    stored, document = read_stored(folder)
    refuse_unbegun(folder, document)
    unmerged = not (folder / ROWS).exists() and (folder / "workers").is_dir()
    known, hosts = find_damage(folder, document, contents), document.hosts
    missing = not unmerged and not (folder / ROWS).exists() and ROWS not in known
    merged = merge_in_memory(folder, hosts) if unmerged else read_merged(folder, known)
    if not len(merged.rows) and not document.phases and document.status in ENDED_EARLY:
        raise RunFolderError("run-not-begun", before_first_request(folder))
    if missing:
        raise RunFolderError("run-file-missing", f"{folder} has neither {ROWS} nor worker files: nothing was measured")
    damaged = {**known, **merged.damage}
    for problem in [text for name, text in damaged.items() if name == TOTALS or name.endswith(SUMMARY)][:1]:
        damaged.setdefault(EVENTS, problem)  # nothing is known of events without these files
    elsewhere = None
    if not unmerged and not {ROWS, EVENTS} & damaged.keys():
        elsewhere = read_elsewhere(folder, [host.host for host in hosts], len(merged.rows))
    run = Run(
        directory=folder,
        document=document,
        rows=merged.rows,
        events=merged.events,
        first_event=merged.first_event,
        samples=samples_left(folder, damaged, hosts if unmerged else ()),
        incomplete=document.status != DONE,
        text=merged.text,
        damaged=damaged,
        elsewhere=elsewhere,
        stored=stored,
    )
    if not unmerged:
        return run
    return run.changed(error_texts=texts_left(run), backend_names=names_left(run), hosts=with_clocks(folder, hosts))


def texts_left(run: Run) -> ErrorTextEntries:
    """Those of run.json, or of the files of the workers."""
    if run.document.error_texts != ErrorTextEntries():
        return run.document.error_texts
    try:
        return read_texts(run.directory)
    except RunFolderError as problem:
        run.damaged["errors.json"] = problem.message
        return ErrorTextEntries()


def names_left(run: Run) -> tuple[BackendNames, ...]:
    """Names of backends that run.json or the files of the workers have."""
    try:
        return with_backends(run.directory, run.document.backend_names)
    except RunFolderError as problem:
        run.damaged["errors.json"] = problem.message
        return run.document.backend_names


def samples_left(folder: Path, damaged: dict[str, str], hosts: HostEntries) -> npt.NDArray[Any] | None:
    """samples.npy, and of *hosts* what was not joined to it; None, with an entry in *damaged*, where one cannot be read: a
    run can be reported without.
    """
    try:
        if SAMPLES in damaged:
            return None
        return samples_of(folder, hosts, read_clocks(folder, hosts))
    except RunFolderError as problem:
        damaged[SAMPLES] = problem.message
        return None


class RowNames:
    """Names from run.json for numbers in rows: the run's id, the targets, the request classes."""

    def __init__(self, document: RunDocument) -> None:
        self.prefix = f"{document.run_id}-" if document.run_id is not None else ""
        self.urls = document.config.target.urls or document.target.urls
        self.classes = document.plan.classes
        self.hosts = document.hosts
        phases = {phase.name: phase.number for phase in document.phases}
        self.numbers = {code: phases[name] for code, name in enumerate(layout.PHASE_NAMES) if name in phases}

    def request_id(self, row: np.void) -> str:
        """The X-Fastllmload-Request that was sent, when the run has an id: run, phase, request."""
        return f"{self.prefix}{self.numbers.get(int(row['phase']), int(row['phase']))}-{row['request']}"

    def request_ids(self, rows: Rows) -> list[str]:
        """`request_id` of every row."""
        prefixes = [f"{self.prefix}{self.numbers.get(phase, phase)}-" for phase in range(256)]
        phases, numbers = rows["phase"].tolist(), rows["request"].tolist()
        return [f"{prefixes[phase]}{number}" for phase, number in zip(phases, numbers, strict=True)]

    def url_names(self, most: int) -> list[str | int]:
        """Names of the targets 0 to *most*; the number itself where run.json has none."""
        return [*map(str, self.urls), *range(len(self.urls), most + 1)]

    def class_names(self, most: int) -> list[str | int]:
        """Names of the classes 0 to *most*; the number itself where run.json has none."""
        return [*map(str, self.classes), *range(len(self.classes), most + 1)]

    def host_names(self) -> list[str | int]:
        """Names of the hosts; the number of one whose name is missing, or that of another host too."""
        names = [host.name for host in self.hosts]
        return [host.host if host.name is None or names.count(host.name) > 1 else host.name for host in self.hosts]
