"""Renders the reports of searches, sweeps and repeated tests again from their folders, also if they were killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from fastllmload.documents.experiment import ExperimentDocument
from fastllmload.documents.procedure import RunsDocument
from fastllmload.documents.search import SearchDocument
from fastllmload.documents.sweep import SweepDocument
from fastllmload.errors import InputError
from fastllmload.experiment import journal
from fastllmload.files import read_regular
from fastllmload.procedure import runs_report
from fastllmload.report.blocks import Page
from fastllmload.report.html import page as html
from fastllmload.report.render import markdown
from fastllmload.search import report
from fastllmload.sweep import report as sweep_report

FORMS = ("terminal", "markdown", "html", "json")


D = TypeVar("D", bound=ExperimentDocument)


@dataclass(frozen=True)
class ReportKind(Generic[D]):
    """*measured*: whether anything was measured. *parts*: path of the runs."""

    file: str
    kind: type[D]
    measured: Callable[[D], bool]
    lines: Callable[[D], Iterator[str]]
    page: Callable[[D], Page]
    parts: str = "levels/"

    def rendered(self, folder: Path, form: str) -> str:
        document = journal.read(folder, self.kind, self.file)
        if not self.measured(document):
            raise InputError("run-not-begun", f"{folder} holds a {self.file} that was stopped before its first level")
        if form == "json":
            return read_regular(folder / self.file).decode()
        if form == "terminal":
            return "\n".join(self.lines(document)) + "\n"
        page = self.page(document)
        return markdown.render_page(page) if form == "markdown" else html.render(page)


SEARCH = ReportKind(report.JSON, SearchDocument, lambda found: found.answer is not None, report.lines, report.page)
SWEEP = ReportKind(
    sweep_report.JSON, SweepDocument, lambda found: bool(found.cells), sweep_report.lines, sweep_report.page
)
RUNS = ReportKind(
    runs_report.JSON, RunsDocument, lambda found: found.runs is not None, runs_report.lines, runs_report.page, "run-1/"
)
KINDS: tuple[ReportKind[Any], ...] = (SEARCH, SWEEP, RUNS)


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
    return kind.rendered(folder, form)
