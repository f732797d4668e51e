"""The subject of a report: the folder of a run, or of a procedure with the runs of its levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from fastllmload.documents.experiment import LevelEntry
from fastllmload.documents.fields import known
from fastllmload.documents.procedure import ProcedureDocument, experiment_document
from fastllmload.documents.read import convert, read_file
from fastllmload.documents.redaction import withheld
from fastllmload.documents.run import RunDocument
from fastllmload.documents.write import plain
from fastllmload.errors import InputError, RunFolderError
from fastllmload.records.integrity import EVENTS
from fastllmload.records.run import DONE, Run, load, read_stored
from fastllmload.report.documents.maximum import finding, maximum


def document_of(folder: Path) -> tuple[Mapping[str, Any] | None, RunDocument]:
    """run.json as it is stored, and as a type; for a run that was stopped early, None, and with the figures of its rows."""
    stored, document = read_stored(folder)
    return (None, figures_of(load(folder))) if lacks_figures(document) else (stored, document)


def lacks_figures(document: RunDocument) -> bool:
    """Whether the run was stopped before its figures were written."""
    return document.status != DONE and document.metrics is None


def figures_of(run: Run) -> RunDocument:
    """The document of *run* with the figures of its rows and events, measured and judged now."""
    from fastllmload.certificate.judge import judged
    from fastllmload.metrics.run.measure import measure
    from fastllmload.telemetry.summary import added

    document = added(run.intact.with_document(measure(run)))
    if run.damage_of(EVENTS):  # the certificate needs all rows and events; without them no verdict is computed
        return document
    return judged(run.with_document(document))


def subject_without(folder: Path, names: Sequence[str], redacted: bool = False) -> Subject:
    """The run in *folder* without the hosts of these *names* or numbers, measured and judged again. InputError for a name
    of none.
    """
    excluded = host_numbers(load(folder).document, names)
    run = Subject(folder, RunDocument(), excluded=excluded).run
    document = replace(figures_of(run), compliance=None)  # the draft judges complete runs
    subject = Subject(folder, document, excluded=excluded)
    return published(subject, of_a_search(folder)) if redacted else subject


def published(subject: Subject, limit: bool = False) -> Subject:
    """*subject* without what should not be public."""
    stored = withheld(subject.json, limit)
    typed = experiment_document(stored, ProcedureDocument) if subject.is_procedure else convert(stored, RunDocument)
    return with_fields(subject, document=typed, stored=stored, redacted=True)


def host_numbers(document: RunDocument, names: Sequence[str]) -> tuple[int, ...]:
    """The numbers of the hosts with these *names*, or numbers as text."""
    known = {str(host.host): host.host for host in document.hosts}
    known |= {host.name: host.host for host in document.hosts if host.name is not None}
    for name in names:
        if name not in known:
            there = ", ".join(known) or "none, as the run had one host only"
            raise InputError("host-unknown", f"--exclude-host {name!r} is not a host of the run; its hosts: {there}")
    found = tuple(sorted({known[name] for name in names}))
    if len(found) == len(document.hosts):
        raise InputError("hosts-all-excluded", "--exclude-host names every host of the run: nothing would be left")
    return found


PROCEDURE = "procedure.json"
SEARCHES = ("search.json", "sweep.json", "overhead.json")
PROCEDURE_VERSION = 1
ANSWERS = ("sustainable_load", "max_concurrency", "optimal_point", "peak_level")  # findings that name a level's load


@dataclass(frozen=True)
class Subject:
    """*document*: run.json or procedure.json; *stored*: its JSON, where that has more than *document*, such as keys of
    another version, or withheld values for which the types have no place.

    *best*: folder of the representative level of a procedure, None where no level finished. *excluded*: numbers of hosts
    whose requests are left out.
    """

    folder: Path
    document: RunDocument | ProcedureDocument
    stored: Mapping[str, Any] | None = None
    redacted: bool = False
    best: Path | None = None
    excluded: tuple[int, ...] = ()

    @property
    def shown_folder(self) -> str:
        return "[path]" if self.redacted else str(self.folder)

    @property
    def json(self) -> Mapping[str, Any]:
        """The document as plain values."""
        return plain(self.document) if self.stored is None else self.stored

    @property
    def is_procedure(self) -> bool:
        return self.procedure is not None

    @property
    def procedure(self) -> ProcedureDocument | None:
        """procedure.json; None for a run."""
        return self.document if isinstance(self.document, ProcedureDocument) else None

    @property
    def run_document(self) -> RunDocument | None:
        """run.json of the run, or of the representative level of a procedure; None without one."""
        if isinstance(self.document, RunDocument):
            return self.document
        return None if self.level is None else self.level.run_document

    @cached_property
    def run(self) -> Run:
        """Rows and events; for a procedure, those of its representative level. RunFolderError without one."""
        level = self.level
        if level is None:
            raise RunFolderError("run-not-begun", f"{self.folder} has no finished level to report on")
        found = load(level.folder)
        if not self.excluded:
            return found
        from fastllmload.certificate.hosts import without_hosts

        return without_hosts(found, self.excluded)

    @cached_property
    def level(self) -> Subject | None:
        """The run itself, or the run of the representative level of a procedure."""
        if not self.is_procedure or self.best is None:
            return None if self.is_procedure else self
        stored, document = document_of(self.best)
        level = Subject(self.best, document, stored)
        return published(level, limit=True) if self.redacted else level

    def finding(self, name: str) -> Any:
        """`findings.NAME` of a procedure, None when it has no such figure."""
        return None if self.procedure is None else finding(self.procedure, name)


def subject_of(folder: Path, redacted: bool = False) -> Subject:
    """Read *folder*. RunFolderError when it holds neither a run nor a procedure that this version can read."""
    if (folder / PROCEDURE).exists():
        stored, procedure = read_procedure(folder)
        subject = Subject(folder, procedure, stored, best=best_level(folder, procedure))
    else:
        of_run, document = document_of(folder)
        subject = Subject(folder, document, of_run)
    return published(subject, of_a_search(folder)) if redacted else subject


def of_a_search(folder: Path) -> bool:
    """Whether *folder* is a level of a procedure, search or sweep, whose load is then part of a result."""
    parent = folder.absolute().parent
    return parent.name == "levels" and any((parent.parent / name).exists() for name in (PROCEDURE, *SEARCHES))


def best_level(folder: Path, document: ProcedureDocument) -> Path | None:
    """The level at the maximum (`report.documents.maximum`).

    For a test without a maximum: the level with the highest output throughput, at the load of the answer if there is one,
    among those that the client did not limit (among all, if it limited all).
    """
    top = maximum(document)
    if top is not None and is_run(folder, top):
        return folder / str(top.folder)
    levels = [one for one in document.levels if one.folder]
    usable = [one for one in levels if one.certificate != "invalid"] or levels
    answer = next((found for name in ANSWERS if (found := finding(document, name)) is not None), None)
    sustained = [one for one in usable if answer is not None and one.load == answer]
    ordered = sorted(sustained or usable, key=lambda one: -(known(one.output_tok_s) or 0.0))
    return next((folder / str(one.folder) for one in ordered if is_run(folder, one)), None)


def is_run(folder: Path, level: LevelEntry) -> bool:
    return bool(level.folder) and (folder / str(level.folder) / "run.json").exists()


def read_procedure(folder: Path) -> tuple[dict[str, Any], ProcedureDocument]:
    """procedure.json as it is stored, and as a type. RunFolderError."""
    path = folder / PROCEDURE
    try:
        return read_file(path, PROCEDURE_VERSION, lambda found: experiment_document(found, ProcedureDocument))
    except FileNotFoundError as problem:
        raise RunFolderError("run-file-unreadable", f"{path} cannot be read: {problem.strerror}") from None
