"""What a report is about: a run's folder, or a procedure's with the runs of its levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from fastllmload.errors import RunFolderError
from fastllmload.files import parse_json, read_regular
from fastllmload.records.run import Run, load
from fastllmload.report.documents.maximum import maximum
from fastllmload.report.documents.source import document_of
from fastllmload.report.redaction.document import withheld

PROCEDURE = "procedure.json"
SEARCHES = ("search.json", "sweep.json")
PROCEDURE_VERSION = 1
ANSWERS = ("sustainable_load", "max_concurrency", "optimal_point", "peak_level")  # findings that name a level's load
Document = Mapping[str, Any]


@dataclass(frozen=True)
class Subject:
    """*document*: run.json or procedure.json; *redacted*: it holds nothing that should not be public.

    *best*: folder of the level whose latencies stand for all, of a procedure that has finished one.
    """

    folder: Path
    document: Document
    redacted: bool = False
    best: Path | None = None

    @property
    def is_procedure(self) -> bool:
        return "procedure" in self.document

    @cached_property
    def run(self) -> Run:
        """Rows and events, of a procedure those of its best level. RunFolderError when there are none."""
        level = self.level
        if level is None:
            raise RunFolderError(f"{self.folder} has no finished level to report on")
        return load(level.folder)

    @cached_property
    def level(self) -> Subject | None:
        """The run itself, or the run of a procedure's best level."""
        if not self.is_procedure or self.best is None:
            return None if self.is_procedure else self
        document = document_of(self.best)
        return Subject(self.best, withheld(document, limit=True) if self.redacted else document, self.redacted)

    def finding(self, name: str) -> Any:
        """`findings.NAME` of a procedure, None when it has no such figure."""
        return (self.document.get("findings") or {}).get(name)


def subject_of(folder: Path, redacted: bool = False) -> Subject:
    """Read *folder*. RunFolderError when it holds neither a run nor a procedure that this version can read."""
    procedure = (folder / PROCEDURE).exists()
    document = procedure_document(folder) if procedure else document_of(folder)
    best = best_level(folder, document) if procedure else None
    return Subject(folder, withheld(document, of_a_search(folder)) if redacted else document, redacted, best)


def of_a_search(folder: Path) -> bool:
    """Whether *folder* is a level of a procedure, a search or a sweep: then its load is part of an answer."""
    place = folder.absolute().parent
    return place.name == "levels" and any((place.parent / name).exists() for name in (PROCEDURE, *SEARCHES))


def listed(document: Document) -> list[Mapping[str, Any]]:
    """Levels of a procedure that say where they are."""
    return [each for each in document.get("levels") or () if isinstance(each, Mapping) and each.get("folder")]


def best_level(folder: Path, document: Document) -> Path | None:
    """The level at the maximum (`report.documents.maximum`).

    Of a test that has none: of the levels on which the client was no limit (of all, where it always was) the one with the
    highest output throughput; where there is an answer, one at that load.
    """
    top = maximum(document)
    if top is not None and top.get("folder") and (folder / str(top["folder"]) / "run.json").exists():
        return folder / str(top["folder"])
    levels = listed(document)
    sound = [each for each in levels if not client_limited(each)] or levels
    findings = document.get("findings") or {}
    answer = next((findings[name] for name in ANSWERS if findings.get(name) is not None), None)
    sustained = [each for each in sound if answer is not None and each.get("load") == answer]
    ordered = sorted(sustained or sound, key=lambda each: -(each.get("output_tok_s") or 0.0))
    found = (folder / str(each["folder"]) for each in ordered)
    return next((path for path in found if (path / "run.json").exists()), None)


def client_limited(level: Mapping[str, Any]) -> bool:
    """Whether an entry of "levels" says nothing about the system's limit."""
    return level.get("certificate") == "invalid"


def procedure_document(folder: Path) -> dict[str, Any]:
    path = folder / PROCEDURE
    try:
        found = parse_json(read_regular(path))
    except msgspec.DecodeError as problem:
        raise RunFolderError(f"{path} is not JSON, it may be truncated: {problem}") from None
    except OSError as problem:
        raise RunFolderError(f"{path} cannot be read: {problem.strerror}") from None
    if not isinstance(found, dict) or found.get("schema_version") != PROCEDURE_VERSION:
        version = found.get("schema_version") if isinstance(found, dict) else None
        raise RunFolderError(
            f"{path} has schema_version {version!r}, this version reads {PROCEDURE_VERSION}: read the folder with the "
            "version that wrote it"
        )
    return found
