"""Renders the reports of searches, sweeps and repeated tests again from their folders, also if they were killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fastllmload.errors import InputError
from fastllmload.experiment import journal
from fastllmload.files import read_regular
from fastllmload.procedure import runs_report
from fastllmload.search import report
from fastllmload.sweep import report as sweep_report

FORMS = ("terminal", "markdown", "html", "json")


@dataclass(frozen=True)
class ReportKind:
    """*needed*: the entry of *file* that exists once anything was measured. *parts*: path of the runs."""

    file: str
    needed: str
    lines: Callable[[report.Document], Iterator[str]]
    markdown: Callable[[report.Document], str]
    page: Callable[[report.Document], str]
    parts: str = "levels/"


KINDS = (
    ReportKind(report.JSON, "answer", report.lines, report.markdown, report.page),
    ReportKind(sweep_report.JSON, "cells", sweep_report.lines, sweep_report.markdown, sweep_report.page),
    ReportKind(runs_report.JSON, "runs", runs_report.lines, runs_report.markdown, runs_report.page, "run-1/"),
)


def saved_report(folder: Path, form: str, redact: bool = False) -> str | None:
    """The report as one of FORMS; None if *folder* holds none of KINDS. InputError for other forms, or without results."""
    kind = next((kind for kind in KINDS if (folder / kind.file).exists()), None)
    if kind is None:
        return None
    if redact:
        raise InputError(
            "redaction-unsupported",
            f"--redact removes capacities (IETF 7.1), and {kind.file} holds little else; redact the runs in {kind.parts}",
        )
    if form not in FORMS:
        raise InputError(
            "report-form-unsupported",
            f"--as {form} is a form of single runs; {folder} holds {kind.file}, which has {', '.join(FORMS)}; for other "
            f"forms name a run in {kind.parts}",
        )
    document = journal.read(folder, kind.file)
    if kind.needed not in document:
        raise InputError("run-not-begun", f"{folder} holds a {kind.file} that was stopped before its first level")
    if form == "json":
        return read_regular(folder / kind.file).decode()
    try:
        return rendered(kind, document, form)
    except (KeyError, TypeError, AttributeError, IndexError) as problem:
        raise InputError(
            "run-file-damaged", f"{folder / kind.file} was changed and cannot be shown: {problem!r}"
        ) from problem


def rendered(kind: ReportKind, document: report.Document, form: str) -> str:
    if form == "terminal":
        return "\n".join(kind.lines(document)) + "\n"
    return kind.markdown(document) if form == "markdown" else kind.page(document)
