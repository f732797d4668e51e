"""Reads the evidence for a verdict from the folders of a run or procedure: what happened, not what was configured."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload.arrays import Mask, Numbers, Values
from fastllmload.compliance.outcome import RequirementOutcome
from fastllmload.declarations import simulated_declarations, strings
from fastllmload.documents.experiment import LevelEntry
from fastllmload.documents.fields import known
from fastllmload.documents.metric import Metric
from fastllmload.documents.plan import ArrivalFacts, PlanDescription, PlanDocument, WorkloadDescription
from fastllmload.documents.procedure import ProcedureDocument
from fastllmload.documents.read import DocumentError, convert
from fastllmload.documents.run import RunDocument
from fastllmload.errors import InputError, RunFolderError
from fastllmload.files import parse_json, read_regular
from fastllmload.records import layout
from fastllmload.records.folder_lock import runs_below
from fastllmload.records.integrity import EVENTS, ROWS
from fastllmload.records.npy import read_array
from fastllmload.records.run import DONE, Run, load
from fastllmload.report.documents.subject import read_procedure as stored_procedure

PROCEDURE = "procedure.json"
ATTEMPT = re.compile(r", (\d+ requests|try \d+|longer)$")  # a level that was measured again for longer
OF_SEVERAL_RUNS = ("search.json", "sweep.json", "overhead.json")
REPEATED = "runs.json"  # a test that was repeated: a procedure in each of its folders
PLAN, SCHEDULE = "plan/plan.json", "plan/schedule.npy"
PLANNED = ("t_sched_ns", "input_tokens", "output_tokens")  # fields that a plan's record must have
AUXILIARY = re.compile(r"(^|, )(capacity, |throughput, )")
T = TypeVar("T")


class DamagedFolder(Exception):
    """A file that a check needs is damaged; the message says which and how."""


class Rows:
    """Some rows of a run. Columns are copied on first use, complete rows never."""

    def __init__(self, rows: Values, at: npt.NDArray[np.intp]) -> None:
        self._rows, self._at = rows, at
        self._columns: dict[str, Values] = {}

    def __len__(self) -> int:
        return len(self._at)

    def __getitem__(self, name: str) -> Values:
        """One column, read-only."""
        if name not in self._columns:
            column = self._rows[name][self._at]
            column.setflags(write=False)
            self._columns[name] = column
        return self._columns[name]

    def where(self, chosen: Mask) -> Rows:
        return Rows(self._rows, self._at[chosen])


@dataclass(frozen=True)
class MeasuredRun:
    """One measured run: a plain run, or a level of a procedure with its *entry* there (None: a plain run)."""

    run: Run
    name: str = "run"
    entry: LevelEntry | None = None

    @property
    def document(self) -> RunDocument:
        return self.run.document

    @property
    def description(self) -> PlanDescription:
        return self.document.plan.description

    @property
    def arrivals(self) -> ArrivalFacts:
        """The arrival process; without a name in a closed loop."""
        return self.description.load.arrivals or ArrivalFacts()

    @property
    def workloads(self) -> tuple[WorkloadDescription, ...]:
        """The plan's description of the workload, one per request class."""
        classes = tuple(one.workload or WorkloadDescription() for one in self.description.classes)
        return classes or (self.description.workload,)

    def metric(self, name: str) -> Metric | None:
        return (self.document.metrics or {}).get(name)

    def samples(self, name: str) -> int:
        return int(known(self.document.metric(name).n) or 0)

    def need(self, *names: str) -> None:
        """DamagedFolder if one of these files of the run's folder is damaged."""
        damage = self.run.lost(*names)
        if damage is not None:
            raise DamagedFolder(damage)

    @cached_property
    def rows(self) -> Rows:
        """All rows, in the order of the folder."""
        self.need(ROWS)
        return Rows(self.run.rows, np.arange(len(self.run.rows)))

    @cached_property
    def measure(self) -> Rows:
        self.need(ROWS)
        return rows_of(self.run, layout.MEASURE)

    @cached_property
    def warmup(self) -> Rows:
        self.need(ROWS)
        return rows_of(self.run, layout.WARMUP)

    @cached_property
    def ok(self) -> Rows:
        """Successful rows of the measure phase."""
        return self.measure.where(self.measure["status"] == layout.OK)

    @cached_property
    def content(self) -> ContentEvents:
        self.need(EVENTS)
        return content_events(self.run)

    @cached_property
    def planned(self) -> Values | None:
        """plan/schedule.npy: instants (-1 in a closed loop) and lengths; None where it cannot be read."""
        self.need(SCHEDULE)
        try:
            found = read_array(self.run.directory / "plan" / "schedule.npy")
        except RunFolderError:
            return None
        return found if found is not None and set(PLANNED) <= set(found.dtype.names or ()) else None

    @cached_property
    def plan(self) -> PlanDocument:
        """plan/plan.json; empty where it cannot be read."""
        self.need(PLAN)
        try:
            found = parse_json(read_regular(self.run.directory / "plan" / "plan.json"))
            return convert(found, PlanDocument) if isinstance(found, Mapping) else PlanDocument()
        except (OSError, msgspec.DecodeError, DocumentError):
            return PlanDocument()

    @property
    def auxiliary(self) -> bool:
        """Whether the level only finds the capacity or the throughput that other levels refer to."""
        return self.entry is not None and AUXILIARY.search(self.name) is not None

    @property
    def closed(self) -> bool:
        """Whether the load is a closed loop, by the settings or the plan's description."""
        return self.document.config.load.concurrency is not None or self.description.load.loop == "closed"

    @property
    def seconds(self) -> float | None:
        """Duration of sending in the measure phase, ramp included; None where it is not known."""
        phase = self.run.phase("measure")
        if phase is None or phase.end_ns is None:
            return None
        return (phase.end_ns - phase.start_ns) / 1e9


def rows_of(run: Run, phase: int) -> Rows:
    return Rows(run.rows, np.flatnonzero(run.rows["phase"] == phase))


@dataclass
class ContentEvents:
    """Per row: number, first and last time of the events that carry content; 0 where a row has none."""

    count: Numbers
    first: Numbers
    last: Numbers
    ascending: bool = True

    def add(self, row: Values, t: Values) -> None:
        """Add the next events, grouped by row as in the file."""
        low, before = int(row[0]), int(self.last[row[0]])
        known = int(self.first[low])
        counts = np.bincount(row - row[0])
        self.count[low : low + len(counts)] += counts
        self.first[row[::-1]] = t[::-1]  # the last write wins: the first event of each row
        self.last[row] = t
        same = row[1:] == row[:-1]
        self.ascending &= bool((np.diff(t)[same] >= 0).all()) and before <= int(t[0])
        if known:
            self.first[low] = known


PIECE = 1 << 18  # events
TIMED = np.isin(np.arange(len(layout.EVENT_NAMES)), (layout.EVENT_CONTENT, layout.EVENT_TOOL))
BLANK = np.arange(len(layout.EVENT_NAMES)) == layout.EVENT_WHITESPACE


def content_events(run: Run) -> ContentEvents:
    """Content and tool-call events; whitespace counts after the first content. In pieces, as runs have up to 10^8 events."""
    n = len(run.rows)
    found = ContentEvents(np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64))
    begun = np.ascontiguousarray(run.rows["t_first"])
    for start in range(0, len(run.events), PIECE):
        piece = run.events[start : start + PIECE]
        row, t = content_of(piece, begun)
        if len(row):
            found.add(row, t)
    return found


def content_of(events: Values, begun: Values) -> tuple[Values, Values]:
    """(row, ns) of the events that carry content; *begun*: first content of each row."""
    kind, row, t = events["kind"], events["row"], events["t_ns"]
    chosen = TIMED[kind]
    blank = np.flatnonzero(BLANK[kind])
    chosen[blank] = (begun[row[blank]] > 0) & (t[blank] > begun[row[blank]])
    return row[chosen], t[chosen]


@dataclass(frozen=True)
class ComplianceEvidence:
    """*runs*: measured runs in order; *procedure*: procedure.json, None for a plain run; *warmups*: its preparation
    runs; *others*: what it is compared with; *absent*: folders of levels that are missing or damaged; *why*: why each
    cannot be read; *strays*: sentences about levels that were measured and are not listed.
    """

    folder: Path
    runs: tuple[MeasuredRun, ...]
    procedure: ProcedureDocument | None = None
    warmups: tuple[Run, ...] = ()
    others: tuple[ComplianceEvidence, ...] = ()
    absent: tuple[str, ...] = ()
    why: Mapping[str, str] = field(default_factory=dict)
    strays: tuple[str, ...] = ()
    outcomes: dict[Callable[..., RequirementOutcome], RequirementOutcome] = field(
        default_factory=dict, compare=False, repr=False
    )  # by check

    @cached_property
    def levels(self) -> tuple[MeasuredRun, ...]:
        """Runs that the test reports on: without those that only find a capacity, and without those that were too short
        and measured again for longer.
        """
        last = {ATTEMPT.sub("", run.name): run for run in self.runs if not run.auxiliary}
        return tuple(last.values())

    @property
    def test(self) -> str:
        """Name of the procedure; "" for a plain run."""
        return "" if self.procedure is None else self.procedure.procedure

    def first(self, of: Callable[[RunDocument], T | None]) -> T | None:
        """What *of* gives for the run.json of the first run for which it is not None."""
        return next((value for run in self.runs if (value := of(run.document)) is not None), None)

    def distinct(self, of: Callable[[RunDocument], T]) -> list[T]:
        """The different values that *of* gives for the run.json of all runs."""
        found: list[T] = []
        for run in self.runs:
            value = of(run.document)
            if value not in found:
                found.append(value)
        return found

    @cached_property
    def simulated(self) -> bool:
        return bool(self.first(lambda document: document.target.simulated))

    @cached_property
    def declared(self) -> dict[str, str]:
        """Declarations of the simulated engine, overridden by those of the runs, overridden by the procedure's."""
        found = simulated_declarations() if self.simulated else {}
        gpus = self.first(lambda document: document.config.output.gpus)
        if gpus is not None:
            found["sut.hardware.count"] = str(gpus)
        for run in self.runs:
            found |= strings(run.document.declarations)
        return found if self.procedure is None else found | strings(self.procedure.manifest.declarations)


def of_run(run: Run) -> ComplianceEvidence:
    return ComplianceEvidence(run.directory, (MeasuredRun(run),))


def read(folder: Path) -> ComplianceEvidence:
    """Evidence of the run or procedure in *folder*. InputError when it is neither."""
    if not folder.is_dir():
        raise InputError(
            "not-a-run-folder",
            f"{folder} does not exist or is not a folder; give the folder of a run or of a procedure",
        )
    if (folder / PROCEDURE).is_file():
        return read_procedure(folder)
    if (folder / REPEATED).is_file():
        raise InputError(
            "several-runs", f"{folder} contains several runs of one test; judge each, beginning with {folder / 'run-1'}"
        )
    for name in OF_SEVERAL_RUNS:
        if (folder / name).is_file():
            raise InputError(
                "several-runs",
                f"{folder} contains {name}, which no test of the draft writes; judge one of the runs in "
                f"{folder / 'levels'}",
            )
    return of_run(load(folder))


def read_procedure(folder: Path) -> ComplianceEvidence:
    """Evidence from procedure.json and the runs that it names; a missing level is listed in `absent`, not an error."""
    _, procedure = stored_procedure(folder)
    runs, why = [], {}
    for entry in procedure.levels:
        place = entry.folder or ""
        run = readable(folder / place)
        if isinstance(run, Run):
            runs.append(MeasuredRun(run, place if entry.name is None else entry.name, entry))
        else:
            why[place] = run
    prepared = [readable(place) for place in sorted((folder / "preparation").glob("*warm-up*"))]
    warmups = tuple(run for run in prepared if isinstance(run, Run))
    strays = unlisted(folder, procedure)
    return ComplianceEvidence(folder, tuple(runs), procedure, warmups, absent=tuple(why), why=why, strays=strays)


def unlisted(folder: Path, procedure: ProcedureDocument) -> tuple[str, ...]:
    """Sentences on unlisted levels of a finished procedure: folders without an entry, and missing numbers. While a
    procedure runs, a folder may exist before its entry.
    """
    if procedure.status != DONE:
        return ()
    listed = {entry.folder for entry in procedure.levels}
    present = [f"levels/{place.name}" for place in runs_below(folder / "levels")]
    numbers = {entry.number for entry in procedure.levels if entry.number is not None}
    return (
        *(f"{place} exists, and {PROCEDURE} does not name it" for place in present if place not in listed),
        *(
            f"{PROCEDURE} names a later level, but not level {number}"
            for number in range(max(numbers, default=0))
            if number not in numbers
        ),
    )


def readable(folder: Path) -> Run | str:
    """The run in *folder*, or a message why it cannot be read."""
    try:
        run = load(folder)
    except RunFolderError as problem:
        return problem.message
    return run.lost(ROWS, EVENTS) or run
