"""What a procedure leaves to read: tables on the terminal, procedure.md and procedure.html, from procedure.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fastllmload.procedure.console import Console
from fastllmload.procedure.findings import shown

MARKDOWN, PAGE = "procedure.md", "procedure.html"
LISTED = 6  # ids in a line; all of them are in procedure.json and in `fastllmload compliance`
NOT_DONE = {
    "running": "INCOMPLETE (killed)",
    "interrupted": "INCOMPLETE (interrupted)",
    "failed": "INCOMPLETE (cut short)",
}


def show(document: Mapping[str, Any], folder: Path, console: Console) -> None:
    """The tables and sentences for a terminal."""
    for line in lines(document):
        console.say(line)
    console.say(f"files      {folder}/procedure.json, {MARKDOWN}, {PAGE}, levels/")


def lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Terminal lines."""
    yield ""
    yield headline(document)
    for table in document["tables"]:
        yield ""
        yield table["title"]
        yield from aligned(table)
        yield from (f"  {note}" for note in table["notes"])
    yield ""
    yield from document.get("sentences", ())
    yield from (f"warning    {text}" for text in document["warnings"])
    yield from (f"deviation  {text}" for text in document["deviations"])
    yield from verdict_lines(document.get("compliance"))


def headline(document: Mapping[str, Any]) -> str:
    state = NOT_DONE.get(document["status"], "")
    quick = "QUICK (does not conform)" if document["quick"] else ""
    words = [text for text in (state, quick) if text]
    return f"IETF {document['section']} {document['title']}" + (f": {', '.join(words)}" if words else "")


def aligned(table: Mapping[str, Any]) -> Iterator[str]:
    """Columns of equal width: the first to the left, numbers to the right."""
    columns = table["columns"]
    cells = [[str(column) for column in columns]]
    cells += [[shown(cell, column) for cell, column in zip(row, columns, strict=True)] for row in table["rows"]]
    widths = [max(len(row[k]) for row in cells) for k in range(len(columns))]
    for row in cells:
        first, *others = [
            cell.ljust(w) if k == 0 else cell.rjust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join([first, *others]).rstrip()


def verdict_lines(compliance: Mapping[str, Any] | None) -> Iterator[str]:
    if not compliance:
        yield "compliance not evaluated"
        return
    yield f"compliance {compliance['verdict']}"
    for key, words in (("must", "MUST, REQUIRED"), ("should", "SHOULD, RECOMMENDED")):
        tally = compliance.get(key) or {}
        open_ = [name for state in ("false", "undeclared", "unchecked") for name in tally.get(state) or ()]
        more = f" and {len(open_) - LISTED} more" if len(open_) > LISTED else ""
        listed = f"; not: {', '.join(open_[:LISTED])}{more}" if open_ else ""
        yield f"           {tally.get('hold', 0)} of {tally.get('of', 0)} {words} hold{listed}"
    yield "           what to do about each: fastllmload compliance FOLDER"


def markdown(document: Mapping[str, Any]) -> str:
    """The report as Markdown."""
    return "\n".join(_markdown(document)) + "\n"


def _markdown(document: Mapping[str, Any]) -> Iterator[str]:
    yield f"# {headline(document)}"
    yield ""
    if document["manifest"].get("simulated"):
        yield "**SIMULATED ENGINE: the target was fastllmload's own simulator, not a server.**"
        yield ""
    for sentence in document.get("sentences", ()):
        yield f"* {escaped(sentence)}"
    for table in document["tables"]:
        yield ""
        yield f"## {escaped(table['title'])}"
        yield ""
        yield from pipes(table)
        for note in table["notes"]:
            yield ""
            yield escaped(note)
    for name, title in (("warnings", "Warnings"), ("deviations", "Deviations from the methodology")):
        if document[name]:
            yield ""
            yield f"## {title}"
            yield ""
            yield from (f"* {escaped(text)}" for text in document[name])
    yield ""
    yield "## Compliance"
    yield ""
    yield from verdict_lines(document.get("compliance"))
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


def level_table(document: Mapping[str, Any]) -> dict[str, Any]:
    """All levels that were measured, in order."""
    columns = ["Level", "Name", "Load", "Output (tok/s)", "Requests (r/s)", "TTFT P99 (ms)", "Client", "Folder"]
    names = ("number", "name", "load", "output_tok_s", "req_s", "ttft_p99_ms", "certificate", "folder")
    rows = [[level.get(name) for name in names] for level in document["levels"]]
    return {"columns": columns, "rows": rows, "notes": []}


def pipes(table: Mapping[str, Any]) -> Iterator[str]:
    columns = table["columns"]
    yield "| " + " | ".join(escaped(str(column)) for column in columns) + " |"
    yield "|" + "|".join(["---"] + ["--:"] * (len(columns) - 1)) + "|"
    for row in table["rows"]:
        yield "| " + " | ".join(escaped(shown(cell, column)) for cell, column in zip(row, columns, strict=True)) + " |"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    for mark in ("\\", "|", "<", "*", "_", "`"):
        text = text.replace(mark, f"\\{mark}" if mark != "<" else "&lt;")
    return text.replace("\n", " ")
