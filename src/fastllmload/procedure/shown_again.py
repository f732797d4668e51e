"""Reports of searches, sweeps and repeated tests, shown again from their folders; also of killed ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fastllmload.errors import InputError
from fastllmload.files import read_regular
from fastllmload.procedure import journal, runs_report, search_report, sweep_report

FORMS = ("terminal", "markdown", "html", "json")


@dataclass(frozen=True)
class Kind:
    """*needed*: the entry of *file* that is there once anything was measured. *parts*: where the runs are."""

    file: str
    needed: str
    lines: Callable[[search_report.Document], Iterator[str]]
    markdown: Callable[[search_report.Document], str]
    page: Callable[[search_report.Document], str]
    parts: str = "levels/"


KINDS = (
    Kind(search_report.JSON, "answer", search_report.lines, search_report.markdown, search_report.page),
    Kind(sweep_report.JSON, "cells", sweep_report.lines, sweep_report.markdown, sweep_report.page),
    Kind(runs_report.JSON, "runs", runs_report.lines, runs_report.markdown, runs_report.page, "run-1/"),
)


def shown_again(folder: Path, form: str, redact: bool = False) -> str | None:
    """The report as one of FORMS; None when *folder* holds neither. InputError for other forms, or nothing measured."""
    kind = next((kind for kind in KINDS if (folder / kind.file).exists()), None)
    if kind is None:
        return None
    if redact:
        raise InputError(
            f"--redact leaves out capacities (IETF 7.1), and {kind.file} holds little else; redact what is in {kind.parts}"
        )
    if form not in FORMS:
        raise InputError(
            f"--as {form} is a form of runs; {folder} holds {kind.file}, which has {', '.join(FORMS)}; give one of "
            f"{kind.parts} for the others"
        )
    document = journal.read(folder, kind.file)
    if kind.needed not in document:
        raise InputError(f"{folder} holds a {kind.file} that was stopped before its first level")
    if form == "json":
        return read_regular(folder / kind.file).decode()
    try:
        return rendered(kind, document, form)
    except (KeyError, TypeError, AttributeError, IndexError) as problem:
        raise InputError(f"{folder / kind.file} was changed and cannot be shown: {problem!r}") from problem


def rendered(kind: Kind, document: search_report.Document, form: str) -> str:
    if form == "terminal":
        return "\n".join(kind.lines(document)) + "\n"
    return kind.markdown(document) if form == "markdown" else kind.page(document)
