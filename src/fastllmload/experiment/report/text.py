"""The report of a procedure as terminal text and as Markdown, from procedure.json."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fastllmload.documents.fields import known
from fastllmload.documents.procedure import ProcedureDocument
from fastllmload.documents.run import Compliance
from fastllmload.experiment.console import Console
from fastllmload.experiment.incomplete import level_table, with_final_remarks, with_levels
from fastllmload.experiment.report.parts import (
    escaped,
    markdown_head,
    markdown_remarks,
    markdown_tables,
    notice,
    pipes,
    terminal_remarks,
    terminal_tables,
    with_state,
)

MARKDOWN, PAGE = "procedure.md", "procedure.html"
LISTED = 6  # ids in a line; all of them are in procedure.json and in `fastllmload compliance`


def show(document: ProcedureDocument, folder: Path, console: Console) -> None:
    """Print the tables and sentences."""
    for line in lines(document):
        console.say(line)
    console.say(f"files      {folder}/procedure.json, {MARKDOWN}, {PAGE}, levels/")


def lines(document: ProcedureDocument) -> Iterator[str]:
    """Terminal lines. For an unfinished procedure also its finished levels, and how to continue."""
    document = with_levels(with_final_remarks(document))
    yield ""
    yield headline(document)
    yield from terminal_tables(document.tables)
    yield ""
    yield from document.sentences
    yield from terminal_remarks(document)
    redacted = notice(document)
    if redacted is not None:
        yield redacted
    yield from verdict_lines(document.compliance)


def headline(document: ProcedureDocument) -> str:
    return with_state(f"IETF {document.section} {document.title}", document)


def verdict_lines(compliance: Compliance | None) -> Iterator[str]:
    if compliance is None:
        yield "compliance not evaluated; to evaluate what was measured: fastllmload compliance FOLDER"
        return
    yield f"compliance {compliance.verdict}"
    for tally, kind in ((compliance.must, "MUST, REQUIRED"), (compliance.should, "SHOULD, RECOMMENDED")):
        open_ = [*tally.false, *tally.undeclared, *tally.unchecked]
        more = f" and {len(open_) - LISTED} more" if len(open_) > LISTED else ""
        listed = f"; not: {', '.join(open_[:LISTED])}{more}" if open_ else ""
        yield f"           {known(tally.hold) or 0:g} of {known(tally.of) or 0:g} {kind} hold{listed}"
    yield "           what to do about each: fastllmload compliance FOLDER"


def markdown(document: ProcedureDocument) -> str:
    """The report as Markdown."""
    return "\n".join(_markdown(with_final_remarks(document))) + "\n"


def _markdown(document: ProcedureDocument) -> Iterator[str]:
    yield from markdown_head(headline(document), document)
    yield from (f"* {escaped(sentence)}" for sentence in document.sentences)
    yield from markdown_tables(document.tables)
    yield from markdown_remarks(document)
    yield ""
    yield "## Compliance"
    yield ""
    yield from (f"* {escaped(line.strip())}" for line in verdict_lines(document.compliance))
    yield ""
    yield "## Levels"
    yield ""
    yield from pipes(level_table(document))
    yield ""
    yield "## Declarations"
    yield ""
    yield from (f"* {escaped(key)}: {escaped(str(value))}" for key, value in document.manifest.declarations.items())
