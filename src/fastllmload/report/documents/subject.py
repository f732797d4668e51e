"""The subject of a report: the folder of a run, or of a procedure with the runs of its levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from fastllmload.documents.experiment import LevelEntry
from fastllmload.documents.fields import known
from fastllmload.documents.procedure import ProcedureDocument, experiment_document
from fastllmload.documents.read import DocumentError, convert
from fastllmload.documents.redaction import withheld
from fastllmload.documents.run import RunDocument
from fastllmload.errors import InputError, RunFolderError
from fastllmload.files import parse_json, read_regular
from fastllmload.records.integrity import EVENTS
from fastllmload.records.run import DONE, Run, load, read_manifest
from fastllmload.report.documents.maximum import finding, maximum


def document_of(folder: Path) -> dict[str, Any]:
    """run.json; for a run that was stopped early, with the figures of its rows."""
    document = read_manifest(folder)
    if document.get("status") == DONE or document.get("metrics") is not None:
        return document
    return {**document, **figures_of(load(folder))}


def figures_of(run: Run) -> dict[str, Any]:
    """What run.json has of the rows and events of *run*, measured and judged now."""
    from fastllmload.certificate.judge import judged
    from fastllmload.metrics.run.measure import measure
    from fastllmload.telemetry.summary import added

    measured = measure(run)
    found = {**measured, **added(run.intact, measured)}
    if run.damage_of(EVENTS):  # the certificate needs all rows and events; without them no verdict is computed
        return found
    if run.document.excluded_hosts:  # what run.json has is of all hosts
        run = replace(run, manifest={**run.manifest, **found})
    return {**found, **judged(run)}


def subject_without(folder: Path, names: Sequence[str], redacted: bool = False) -> Subject:
    """The run in *folder* without the hosts of these *names* or numbers, measured and judged again. InputError for a name
    of none.
    """
    excluded = host_numbers(load(folder).document, names)
    subject = Subject(folder, {}, excluded=excluded)
    run = subject.run
    document = {**run.manifest, **figures_of(run), "compliance": None}  # the draft judges complete runs
    return replace(subject, raw=withheld(document, of_a_search(folder)) if redacted else document, redacted=redacted)


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
SEARCHES = ("search.json", "sweep.json")
PROCEDURE_VERSION = 1
ANSWERS = ("sustainable_load", "max_concurrency", "optimal_point", "peak_level")  # findings that name a level's load


@dataclass(frozen=True)
class Subject:
    """*raw*: the JSON of run.json or procedure.json; *redacted*: without what should not be public.

    *best*: folder of the representative level of a procedure, None where no level finished. *excluded*: numbers of hosts
    whose requests are left out.
    """

    folder: Path
    raw: Mapping[str, Any]
    redacted: bool = False
    best: Path | None = None
    excluded: tuple[int, ...] = ()

    @property
    def shown_folder(self) -> str:
        return "[path]" if self.redacted else str(self.folder)

    @property
    def is_procedure(self) -> bool:
        return "procedure" in self.raw

    @cached_property
    def procedure(self) -> ProcedureDocument | None:
        """procedure.json; None for a run."""
        return experiment_document(self.raw, ProcedureDocument) if self.is_procedure else None

    @cached_property
    def run_document(self) -> RunDocument | None:
        """run.json of the run, or of the representative level of a procedure; None without one."""
        if self.is_procedure:
            return None if self.level is None else self.level.run_document
        return convert(self.raw, RunDocument)

    @property
    def document(self) -> RunDocument | ProcedureDocument:
        """What *raw* holds."""
        return self.procedure or self.run_document or RunDocument()

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
        document = document_of(self.best)
        return Subject(self.best, withheld(document, limit=True) if self.redacted else document, self.redacted)

    def finding(self, name: str) -> Any:
        """`findings.NAME` of a procedure, None when it has no such figure."""
        return None if self.procedure is None else finding(self.procedure, name)

    def table(self, *keys: str) -> dict[str, Any]:
        """The table of *raw* at the path *keys*, whose own keys are not known in advance."""
        found: Any = self.raw
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return dict(found) if isinstance(found, Mapping) else {}


def subject_of(folder: Path, redacted: bool = False) -> Subject:
    """Read *folder*. RunFolderError when it holds neither a run nor a procedure that this version can read."""
    procedure = (folder / PROCEDURE).exists()
    document = procedure_document(folder) if procedure else document_of(folder)
    best = best_level(folder, experiment_document(document, ProcedureDocument)) if procedure else None
    return Subject(folder, withheld(document, of_a_search(folder)) if redacted else document, redacted, best)


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


def procedure_document(folder: Path) -> dict[str, Any]:
    path = folder / PROCEDURE
    try:
        found = parse_json(read_regular(path))
    except msgspec.DecodeError as problem:
        raise RunFolderError("run-file-damaged", f"{path} is not JSON, it may be truncated: {problem}") from None
    except OSError as problem:
        raise RunFolderError("run-file-unreadable", f"{path} cannot be read: {problem.strerror}") from None
    if not isinstance(found, dict) or found.get("schema_version") != PROCEDURE_VERSION:
        version = found.get("schema_version") if isinstance(found, dict) else None
        raise RunFolderError(
            "schema-version",
            f"{path} has schema_version {version!r}, this version reads {PROCEDURE_VERSION}: read the folder with the "
            "version that wrote it",
        )
    try:
        experiment_document(found, ProcedureDocument)
    except DocumentError as wrong:
        raise RunFolderError(
            "run-file-damaged", f"{path} is damaged: {wrong}; it was changed since fastllmload wrote it"
        ) from None
    return found
