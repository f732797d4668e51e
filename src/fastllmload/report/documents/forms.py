"""The forms of `fastllmload report`, and the files that some of them are written to in a run folder."""

from __future__ import annotations

import errno
import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from fastllmload.documents.run import RunDocument
from fastllmload.errors import InputError, RunFolderError, coded
from fastllmload.records.run import Run
from fastllmload.report.documents.subject import Subject
from fastllmload.report.render.terminal import screen_lines
from fastllmload.report.terminal.summary import summary

DOCUMENTS = ("markdown", "minimum", "full", "blog", "asiai")  # modules of this package
TERMINAL, JSON, HTML = "terminal", "json", "html"
FORMS = (TERMINAL, *DOCUMENTS, HTML, JSON)
# Module of `report` -> file name; each module has `write(run, document) -> None`, which writes into run.directory.
WRITERS: dict[str, str] = {
    "run_page.page": "report.html",
    "documents.markdown": "report.md",
    "documents.hlog": "latency.hlog",
}


def text_of(subject: Subject, form: str) -> str:
    """*subject* in *form*, one of FORMS; TERMINAL for a run only. InputError where the subject does not have the form."""
    if form == TERMINAL:
        lines = screen_lines(summary(subject.run_document or RunDocument(), subject.shown_folder))
        return "".join(f"{line.text}\n" for line in lines)
    if form == JSON:
        return msgspec.json.format(msgspec.json.encode(subject.raw), indent=2).decode() + "\n"
    if form == HTML:
        return html(subject)
    found: str = importlib.import_module(f"{__package__}.{form}").render(subject)
    return found


def html(subject: Subject) -> str:
    """The HTML page of a run; procedures have their own."""
    if subject.redacted:
        raise InputError(
            "redaction-unsupported",
            "--redact is not available with --as html, whose plots show the load; use --as full, markdown or minimum",
        )
    from fastllmload.report.run_page.page import render

    return render(subject.run, subject.raw)


def write_reports(run: Run, document: Mapping[str, Any], writers: Mapping[str, str] = WRITERS) -> list[str]:
    """Write all report files of a measured run, or those of *writers*; *document* is its run.json.

    Returns a sentence for each file that could not be written; run.json already holds the measurement.
    """
    problems = []
    for module, what in writers.items():
        try:
            importlib.import_module(f"fastllmload.report.{module}").write(run, document)
        except OSError as problem:
            way = "move it away" if problem.errno == errno.EINVAL else "make room"
            unwritten = f"{what} could not be written: {problem.strerror}; {way} and run `fastllmload report`"
            problems.append(coded("report-not-written", unwritten))
        except RunFolderError as problem:
            problems.append(f"{what} could not be written: {problem}")
    return problems


def write_again(load: Callable[[], Run], document: Mapping[str, Any]) -> list[str]:
    """Write them again for an existing folder, whose rows *load* reads: rows may be damaged, the folder may be read-only."""
    try:
        run = load()
    except RunFolderError as problem:
        return [f"{' and '.join(WRITERS.values())} could not be written: {problem}"]
    if not os.access(run.directory, os.W_OK):
        unwritten = f"{' and '.join(WRITERS.values())} were not written: {run.directory} is not writable"
        return [coded("report-not-written", unwritten)]
    if run.damaged:
        return write_missing(run, document)
    return write_reports(run, document)


def write_missing(run: Run, document: Mapping[str, Any]) -> list[str]:
    """Write only the missing reports of a damaged folder: existing ones were written before the damage and are kept."""
    missing = {module: what for module, what in WRITERS.items() if not (run.directory / what).is_file()}
    kept = [what for what in WRITERS.values() if what not in missing.values()]
    unchanged = [coded("report-kept", f"{' and '.join(kept)} were kept as written before")] if kept else []
    damage = [coded("run-file-damaged", f"{problem}; the report shows the rest of the run") for problem in run.damage]
    return [*damage, *unchanged, *write_reports(run, document, missing)]
