"""Formats tables as Markdown and as aligned text. None is `n/a`; notes follow their table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastllmload.documents.fields import WITHHELD, Number
from fastllmload.report.terminal.outlet import one_screen_line
from fastllmload.report.text.numbers import NOT_KNOWN, quantity

Cell = str | Number
NUMBER = re.compile(r"[-+]?[\d.,]+\*?(\s?(%|ms|s))?$")
NOT_NUMERIC = (NOT_KNOWN, WITHHELD.value, "not measured", "-", "")
EDGE = re.compile(r"(?<!\w)_|_(?!\w)")  # an underscore inside a word is literal


@dataclass(frozen=True)
class Table:
    """A table; numbers are in the unit that the column names, None is n/a."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()


def cell_text(value: Cell) -> str:
    """A cell as text."""
    if isinstance(value, str):
        return one_screen_line(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return quantity(value)


def cells(table: Table) -> list[list[str]]:
    """Head and rows as text; every row gets the length of the head."""
    wide = len(table.columns)
    rows = [[cell_text(value) for value in row][:wide] for row in table.rows]
    return [list(table.columns), *([*row, *[NOT_KNOWN] * (wide - len(row))] for row in rows)]


def markdown(table: Table, level: int = 3) -> Iterator[str]:
    """Title, table, notes; a blank line before each. An empty title is left out."""
    if table.title:
        yield from ("", f"{'#' * level} {escaped(table.title)}")
    yield ""
    head, *rows = cells(table)
    yield "| " + " | ".join(map(escaped, head)) + " |"
    yield "|" + "|".join(" ---: " if right else " --- " for right in numeric_columns(rows, len(head))) + "|"
    for row in rows:
        yield "| " + " | ".join(map(escaped, row)) + " |"
    for note in table.notes:
        yield from ("", escaped(note))


def numeric_columns(rows: Sequence[Sequence[str]], columns: int) -> list[bool]:
    """Which columns hold numbers and are right-aligned; the first column names the row."""
    return [k > 0 and all(row[k] in NOT_NUMERIC or NUMBER.match(row[k]) for row in rows) for k in range(columns)]


def text(table: Table, indent: str = "") -> Iterator[str]:
    """Aligned columns, numbers to the right."""
    if table.title:
        yield f"{indent}{table.title}"
    found = cells(table)
    widths = [max(len(row[k]) for row in found) for k in range(len(table.columns))]
    right = numeric_columns(found[1:], len(widths))
    for row in found:
        aligned = [
            cell.rjust(width) if right[k] else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield (indent + "  ".join(aligned)).rstrip()
    yield from (f"{indent}{note}" for note in table.notes)


def escaped(text: object) -> str:
    """*text* on one line, escaped for Markdown: nothing in it becomes HTML, a link or another cell."""
    found = one_screen_line(" ".join(str(text).split()))
    for mark in "\\`*[]|~":
        found = found.replace(mark, f"\\{mark}")
    found = EDGE.sub(r"\\_", found)
    return found.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
