"""The report of a search, a sweep or a repeated test: written at its end, and rendered again from its folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from fastllmload.documents.experiment import ExperimentDocument
from fastllmload.errors import InputError
from fastllmload.experiment import journal
from fastllmload.experiment.console import Console
from fastllmload.experiment.journal import Journal
from fastllmload.experiment.report.parts import write_files
from fastllmload.files import read_regular
from fastllmload.report.blocks import Page
from fastllmload.report.html import page as html
from fastllmload.report.render import markdown

D = TypeVar("D", bound=ExperimentDocument)


@dataclass(frozen=True)
class SavedReport(Generic[D]):
    """*file*: that of the document. *measured*: whether anything was measured. *parts*: path of the runs."""

    file: str
    kind: type[D]
    measured: Callable[[D], bool]
    lines: Callable[[D], Iterator[str]]
    page: Callable[[D], Page]
    parts: str = "levels/"

    def rendered(self, folder: Path, form: str) -> str:
        """The document in *folder* as terminal, markdown, html or json. InputError without results."""
        document = journal.read(folder, self.kind, self.file)
        if not self.measured(document):
            raise InputError("run-not-begun", f"{folder} holds a {self.file} that was stopped before its first level")
        if form == "json":
            return read_regular(folder / self.file).decode()
        if form == "terminal":
            return "\n".join(self.lines(document)) + "\n"
        page = self.page(document)
        return markdown.render_page(page) if form == "markdown" else html.render(page)

    def conclude(self, book: Journal[D], console: Console, status: str, more: str = "") -> None:
        """Write the document with *status* and the reports, each complete or not at all, and print them. *more*: after
        the path of the runs.
        """
        book.put(status=status, ended_utc=journal.utc())
        folder, name = book.path.parent, self.file.removesuffix(".json")
        names = ", ".join(write_files(folder, name, self.page(book.document)))
        for line in self.lines(book.document):
            console.say(line)
        console.say(f"files      {folder}/{self.file}, {names}, {self.parts}{more}")
