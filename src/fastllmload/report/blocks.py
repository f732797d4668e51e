"""What a report consists of, whatever it is rendered as. Texts are plain: the renderers escape them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from fastllmload.documents.fields import WITHHELD, Number
from fastllmload.report.charts import Chart
from fastllmload.report.terminal.outlet import one_screen_line
from fastllmload.report.text.numbers import NOT_KNOWN, quantity

NUMBER = re.compile(
    r"(>=|[-+<>≥]|x )?[\d.,]+\*?(\s?(%|pt|ms|s))?((-|\.\.)[-+]?[\d.,]+| \([^)]*\)| \+/- [\d.,]+( %)?)?$"
)
LONGEST_NUMBER = 60  # characters; texts from outside can be long
TONES = ("valid", "suspect", "invalid")
NOT_NUMERIC = (NOT_KNOWN, WITHHELD.value, "not measured", "-", "")


@dataclass(frozen=True)
class Stacked:
    """A cell of a table with a smaller text *below* it, on pages. *short*: its text where columns are narrow; in the first
    column, the name of the row in run.json. *tone*: its colour, one of TONES.
    """

    text: str
    below: str = ""
    short: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Bar:
    """A cell with a drawing next to its text, on pages: a share from *low* to *high*, or an interval around a mark *at*, on
    an axis around 0 that fits its column. Nothing is drawn for None. *tone*: its colour, one of TONES.
    """

    text: str
    low: float | None
    high: float | None
    at: float | None = None
    tone: str = ""


Cell = str | Number | Stacked | Bar


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
class Facts:
    """Labelled texts."""

    pairs: Sequence[tuple[Text, Text]]


SPARE, NEEDED, BELOW = 0, 99, 100


@dataclass(frozen=True)
class Fact:
    """A labelled line of a summary. *texts*: from the longest to the shortest; the first that fits is used.

    *room*: where a screen has no room, lines of the smallest value are left out first; SPARE: only if there is room left,
    NEEDED: never, BELOW: after the screen. *overflow*: what happens to a text that does not fit.
    """

    label: str
    texts: Sequence[str]
    room: int = NEEDED
    tone: str = ""
    overflow: Literal["cut", "wrap", "whole"] = "cut"


@dataclass(frozen=True)
class Table:
    """A table; numbers are in the unit that the column names, None is n/a. Notes follow their table.

    Where a screen has no room for them, *optional_columns* are left out, the first one first, and *optional_rows* (by first
    cell) as `Fact.room` says.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    optional_columns: Sequence[str] = ()
    optional_rows: Mapping[str, int] = field(default_factory=dict)


class VerdictReason(NamedTuple):
    """*severity*: invalid, suspect, or another word for a note. *todo*: a remedy, on pages."""

    severity: str
    text: str
    todo: str = ""


@dataclass(frozen=True)
class Verdict:
    """A word with its meaning, and the reasons in their order. *tone*: its colour, if the word is not one of TONES.
    *of*: what it is a verdict on. *warnings* precede the reasons, *more* follows them.
    """

    word: str
    meaning: str
    reasons: Sequence[VerdictReason] = ()
    tone: str = ""
    of: str = ""
    warnings: Sequence[Block] = ()
    more: Sequence[Block] = ()


@dataclass(frozen=True)
class Folded:
    """Blocks that are shown on demand, or from the start if *unfolded*; *printed*: on paper in any case."""

    summary: str
    blocks: Sequence[Block]
    unfolded: bool = False
    printed: bool = False


class Tile(NamedTuple):
    """A key figure with its unit, and a smaller text below it. *tone*: its colour."""

    name: str
    value: str
    unit: str
    below: str
    tone: str = ""


@dataclass(frozen=True)
class Tiles:
    tiles: Sequence[Tile]


@dataclass(frozen=True)
class Card:
    """Blocks in a frame, with a heading of level 3."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Columns:
    """Blocks side by side where there is room."""

    blocks: Sequence[Block]


@dataclass(frozen=True)
class Section:
    """Blocks under a heading of level 2. On a page *key* is its anchor, *link* its name in the bar (the title if empty)."""

    title: str
    blocks: Sequence[Block]
    key: str = ""
    link: str = ""


@dataclass(frozen=True)
class Page:
    """Sections with the frame of an HTML page. *title*: of the window. *tag*: a word next to the product name, in the colour
    of *tone*; *marks*: warnings that follow it. *banner*: a warning and its sentence, at the top and bottom. *foot*: the
    last line.
    """

    title: str
    sections: Sequence[Section]
    tag: str = ""
    tone: str = ""
    marks: Sequence[str] = ()
    banner: tuple[str, str] | None = None
    foot: str = ""


Simple = Heading | Paragraph | Callout | Items | Fact | Facts | Table | Verdict | Folded
Block = Simple | Chart | Tiles | Card | Columns | Section


def simple(blocks: Iterable[Block]) -> Iterator[Simple]:
    """*blocks* for a format without layout: charts are left out with their headings, tiles are facts."""
    for block in blocks:
        match block:
            case Section(title, inner):
                found = list(simple(inner))
                yield from [Heading(title)] if title and found else []
                yield from found
            case Card(title, inner):
                yield from (Heading(title, 3), *simple(inner))
            case Columns(inner):
                yield from simple(inner)
            case Tiles(tiles):
                yield Facts([(each.name, f"{each.value} {each.unit} ({each.below})") for each in tiles])
            case Verdict():
                yield from (replace(block, warnings=(), more=()), *simple((*block.warnings, *block.more)))
            case Chart():
                pass
            case _:
                yield block


def tone_of(word: str) -> str:
    return word if word in TONES else "note"


def reason_line(reason: VerdictReason) -> str:
    """The reason without its remedy, which only pages have room for; notes are marked."""
    return f"note: {reason.text}" if reason.severity == "note" else reason.text


def ranked(parts: Sequence[tuple[int, str]]) -> list[str]:
    """*parts* joined, then without those of the highest rank, one after the other: the texts of a `Fact`."""
    kept, found = list(parts), []
    while kept:
        found.append(", ".join(text for _, text in kept))
        kept.remove(max(kept, key=lambda each: each[0]))
    return found


def parts_of(text: Text) -> tuple[str | Strong | Code, ...]:
    return text if isinstance(text, tuple) else (text,)


def cell_text(value: Cell, short: bool = False) -> str:
    """A cell as text; *short*: for narrow columns."""
    if isinstance(value, Stacked):
        value = (short and value.short) or value.text
    if isinstance(value, Bar):
        value = value.text
    if isinstance(value, str):
        return one_screen_line(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else quantity(value)


def cells(table: Table, short: bool = False) -> list[list[str]]:
    """Head and rows as text; every row gets the length of the head."""
    wide = len(table.columns)
    rows = [[cell_text(value, short) for value in row][:wide] for row in table.rows]
    return [list(map(one_screen_line, table.columns)), *([*row, *[NOT_KNOWN] * (wide - len(row))] for row in rows)]


def numeric_columns(rows: Sequence[Sequence[str]], columns: int) -> list[bool]:
    """Which columns hold numbers and are right-aligned; the first column names the row."""
    return [k > 0 and all(is_numeric(row[k]) for row in rows) for k in range(columns)]


def is_numeric(cell: str) -> bool:
    return cell in NOT_NUMERIC or (len(cell) <= LONGEST_NUMBER and NUMBER.match(cell) is not None)
