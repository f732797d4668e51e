"""The report of a procedure as terminal text and as Markdown, from procedure.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fastllmload.experiment.console import Console
from fastllmload.experiment.incomplete import level_table, with_final_remarks, with_levels
from fastllmload.experiment.report.parts import (
    escaped,
    markdown_head,
    markdown_remarks,
    markdown_tables,
    pipes,
    terminal_remarks,
    terminal_tables,
    with_state,
)
from fastllmload.report.redaction.document import notice

MARKDOWN, PAGE = "procedure.md", "procedure.html"
LISTED = 6  # ids in a line; all of them are in procedure.json and in `fastllmload compliance`


def show(document: Mapping[str, Any], folder: Path, console: Console) -> None:
    """Print the tables and sentences."""
    for line in lines(document):
        console.say(line)
    console.say(f"files      {folder}/procedure.json, {MARKDOWN}, {PAGE}, levels/")


def lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Terminal lines. For an unfinished procedure also its finished levels, and how to continue."""
    document = with_levels(with_final_remarks(document))
    yield ""
    yield headline(document)
    yield from terminal_tables(document["tables"])
    yield ""
    yield from document.get("sentences", ())
    yield from terminal_remarks(document)
    redacted = notice(document)
    if redacted is not None:
        yield redacted
    yield from verdict_lines(document.get("compliance"))


def headline(document: Mapping[str, Any]) -> str:
    return with_state(f"IETF {document['section']} {document['title']}", document)


def verdict_lines(compliance: Mapping[str, Any] | None) -> Iterator[str]:
    if not compliance:
        yield "compliance not evaluated; to evaluate what was measured: fastllmload compliance FOLDER"
        return
    yield f"compliance {compliance['verdict']}"
    for key, kind in (("must", "MUST, REQUIRED"), ("should", "SHOULD, RECOMMENDED")):
        tally = compliance.get(key) or {}
        open_ = [name for state in ("false", "undeclared", "unchecked") for name in tally.get(state) or ()]
        more = f" and {len(open_) - LISTED} more" if len(open_) > LISTED else ""
        listed = f"; not: {', '.join(open_[:LISTED])}{more}" if open_ else ""
        yield f"           {tally.get('hold', 0)} of {tally.get('of', 0)} {kind} hold{listed}"
    yield "           what to do about each: fastllmload compliance FOLDER"


def markdown(document: Mapping[str, Any]) -> str:
    """The report as Markdown."""
    return "\n".join(_markdown(with_final_remarks(document))) + "\n"


def _markdown(document: Mapping[str, Any]) -> Iterator[str]:
    yield from markdown_head(headline(document), document)
    yield from (f"* {escaped(sentence)}" for sentence in document.get("sentences", ()))
    yield from markdown_tables(document["tables"])
    yield from markdown_remarks(document)
    yield ""
    yield "## Compliance"
    yield ""
    yield from (f"* {escaped(line.strip())}" for line in verdict_lines(document.get("compliance")))
    yield ""
    yield "## Levels"
    yield ""
    yield from pipes(level_table(document))
    yield ""
    yield "## Declarations"
    yield ""
    yield from (
        f"* {escaped(key)}: {escaped(str(value))}" for key, value in document["manifest"]["declarations"].items()
    )
