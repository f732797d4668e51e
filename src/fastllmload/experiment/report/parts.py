"""Parts shared by the reports of procedures, repeated tests, searches and sweeps: state, head, tables, remarks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fastllmload.documents.experiment import Cell, ExperimentDocument, FindingTable
from fastllmload.experiment.report.findings import format_cell
from fastllmload.files import replace_with
from fastllmload.report.documents.identity import command_line
from fastllmload.report.render.markdown import code_span

NOT_DONE = {
    "running": "INCOMPLETE (killed)",
    "interrupted": "INCOMPLETE (interrupted)",
    "failed": "INCOMPLETE (cut short)",
}
SIMULATED = "**SIMULATED ENGINE: the target was fastllmload's own simulator, not a server.**"


def remarks(document: ExperimentDocument) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Title and sentences of each kind of remarks of which there are any."""
    kinds = (("Warnings", document.warnings), ("Deviations from the methodology", document.deviations))
    yield from ((title, texts) for title, texts in kinds if texts)


def notice(document: ExperimentDocument) -> str | None:
    """One line on what is withheld and why; None where nothing is."""
    return None if document.withheld is None else f"withheld (IETF 7.1): {document.withheld}"


def with_state(title: str, document: ExperimentDocument) -> str:
    """*title* with the document's state: cold start, incomplete, quick."""
    cold = "COLD START" if document.cold_start is not None else ""
    quick = "QUICK (does not conform)" if document.quick else ""
    state = ", ".join(text for text in (cold, NOT_DONE.get(document.status, ""), quick) if text)
    return f"{title}: {state}" if state else title


def facts(document: ExperimentDocument) -> dict[str, str]:
    """Start time, command and target, for the head of a report."""
    return {
        "Started": document.started_utc,
        "Command": command_line(document.command) or "not recorded",
        "Target": ", ".join(document.manifest.urls) or "the simulated engine",
    }


def write_files(folder: Path, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Write each of *texts* (name → text) into *folder*, completely or not at all, replacing older files. Their names."""
    for name, text in texts.items():
        replace_with(folder / name, text)
    return tuple(texts)


# -- the terminal -----------------------------------------------------------------------------------------------------


def aligned(table: FindingTable) -> Iterator[str]:
    """Lines of aligned columns: the first to the left, the others to the right."""
    columns = table.columns
    cells = [[str(column) for column in columns]]
    cells += [[format_cell(cell, column) for cell, column in zip(row, columns, strict=True)] for row in table.rows]
    widths = [max(len(row[k]) for row in cells) for k in range(len(columns))]
    for row in cells:
        first, *others = [
            cell.ljust(w) if k == 0 else cell.rjust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join([first, *others]).rstrip()


def terminal_tables(tables: Sequence[FindingTable]) -> Iterator[str]:
    """Each under its title, with its notes."""
    for table in tables:
        yield ""
        yield table.title
        yield from aligned(table)
        yield from (f"  {note}" for note in table.notes)


def terminal_remarks(document: ExperimentDocument) -> Iterator[str]:
    yield from (f"warning    {text}" for text in document.warnings)
    yield from (f"deviation  {text}" for text in document.deviations)


# -- Markdown ---------------------------------------------------------------------------------------------------------


def markdown_head(headline: str, document: ExperimentDocument) -> Iterator[str]:
    """The title, the note on a simulated target, and the facts."""
    yield f"# {escaped(headline)}"
    yield ""
    if document.manifest.simulated:
        yield SIMULATED
        yield ""
    for name, text in facts(document).items():
        yield f"* {name}: {code_span(text) if name == 'Command' else escaped(text)}"
    yield ""


def markdown_tables(tables: Sequence[FindingTable]) -> Iterator[str]:
    """One section per table, with its notes."""
    for table in tables:
        yield from ("", f"## {escaped(table.title)}", "", *pipes(table))
        for note in table.notes:
            yield from ("", escaped(note))


def markdown_remarks(document: ExperimentDocument) -> Iterator[str]:
    """Warnings and deviations, one section each if there are any."""
    for title, texts in remarks(document):
        yield from ("", f"## {title}", "", *(f"* {escaped(text)}" for text in texts))


def pipes(table: FindingTable) -> Iterator[str]:
    """A Markdown table: numbers to the right, text to the left."""
    columns, rows = table.columns, table.rows
    marks = ["---" if k == 0 or wordy([row[k] for row in rows]) else "--:" for k in range(len(columns))]
    yield "| " + " | ".join(escaped(str(column)) for column in columns) + " |"
    yield f"|{'|'.join(marks)}|"
    for row in rows:
        yield (
            "| "
            + " | ".join(escaped(format_cell(cell, column)) for cell, column in zip(row, columns, strict=True))
            + " |"
        )


def wordy(cells: Sequence[Cell]) -> bool:
    """Whether the cells are text: there are strings, and none of them begins as a number does."""
    texts = [cell for cell in cells if isinstance(cell, str) and cell not in ("n/a", "-", "not measured")]
    return bool(texts) and not any(text[:1].isdigit() or text[:1] in "+-" for text in texts)


def escaped(text: str) -> str:
    """*text* with the characters escaped that Markdown interprets."""
    for mark in ("\\", "|", "<", "*", "_", "`"):
        text = text.replace(mark, f"\\{mark}" if mark != "<" else "&lt;")
    return text.replace("\n", " ")
