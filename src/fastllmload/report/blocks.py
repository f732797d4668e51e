"""What a report consists of, whatever it is rendered as. Texts are plain: the renderers escape them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fastllmload.documents.fields import WITHHELD, Number
from fastllmload.report.terminal.outlet import one_screen_line
from fastllmload.report.text.numbers import NOT_KNOWN, quantity

Cell = str | Number
NUMBER = re.compile(r"[-+]?[\d.,]+\*?(\s?(%|ms|s))?$")
NOT_NUMERIC = (NOT_KNOWN, WITHHELD.value, "not measured", "-", "")


@dataclass(frozen=True)
class Strong:
    """A part of a text that stands out."""

    text: str


@dataclass(frozen=True)
class Code:
    """A part of a text that is a command, a file or a path."""

    text: str


Text = str | Strong | tuple[str | Strong | Code, ...]


@dataclass(frozen=True)
class Heading:
    """*level* 1 is the title."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    text: Text


@dataclass(frozen=True)
class Callout:
    """A warning that belongs to every figure."""

    text: Text


@dataclass(frozen=True)
class Items:
    """A list."""

    texts: Sequence[Text]


@dataclass(frozen=True)
class Table:
    """A table; numbers are in the unit that the column names, None is n/a. Notes follow their table."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Folded:
    """Blocks that are shown on demand."""

    summary: str
    blocks: Sequence[Block]


Block = Heading | Paragraph | Callout | Items | Table | Folded


def cell_text(value: Cell) -> str:
    """A cell as text."""
    if isinstance(value, str):
        return one_screen_line(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else quantity(value)


def cells(table: Table) -> list[list[str]]:
    """Head and rows as text; every row gets the length of the head."""
    wide = len(table.columns)
    rows = [[cell_text(value) for value in row][:wide] for row in table.rows]
    return [list(table.columns), *([*row, *[NOT_KNOWN] * (wide - len(row))] for row in rows)]


def numeric_columns(rows: Sequence[Sequence[str]], columns: int) -> list[bool]:
    """Which columns hold numbers and are right-aligned; the first column names the row."""
    return [k > 0 and all(row[k] in NOT_NUMERIC or NUMBER.match(row[k]) for row in rows) for k in range(columns)]
