"""Renders blocks as a summary that fits one screen, through rich: colours where the terminal has them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import IO, NamedTuple, cast

from fastllmload.report.blocks import (
    BELOW,
    NEEDED,
    SPARE,
    TONES,
    Block,
    Callout,
    Fact,
    Items,
    Paragraph,
    Table,
    Verdict,
    VerdictReason,
    cells,
    reason_line,
    simple,
)
from fastllmload.report.render.text import block_lines as text_lines
from fastllmload.report.render.text import plain
from fastllmload.report.terminal.outlet import Outlet, Writable

WIDTH, HEIGHT, NARROWEST = 80, 24, 40
SCREEN = HEIGHT - 1  # lines: the shell's next prompt needs the last
LABEL, CELL = 11, 9  # columns
STYLES = {
    "valid": "bold green",
    "suspect": "bold yellow",
    "invalid": "bold red",
    "loud": "bold reverse",
    "bad": "red",
}


class ScreenLine(NamedTuple):
    """*style*: its name in STYLES, or empty; *room* as in `Fact`."""

    text: str
    style: str = ""
    room: int = NEEDED


def can_move_cursor(stream: Writable) -> bool:
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def width_of(stream: Writable) -> int:
    """Columns of the terminal; 80 for any other stream, so that output files do not depend on the terminal."""
    if not stream.isatty():
        return WIDTH
    return max(NARROWEST, shutil.get_terminal_size((WIDTH, HEIGHT)).columns)


def lines_of(stream: Writable) -> int:
    """Lines available to a summary: those of the terminal less one for the prompt, at least SCREEN."""
    if not stream.isatty():
        return SCREEN
    return max(SCREEN, shutil.get_terminal_size((WIDTH, HEIGHT)).lines - 1)


def print_screen(outlet: Outlet, blocks: Iterable[Block]) -> None:
    """Print the summary, in colour where the stream supports it and NO_COLOR is unset or empty (https://no-color.org)."""
    from rich.console import Console
    from rich.text import Text

    colour = can_move_cursor(outlet) and os.environ.get("NO_COLOR", "") == ""
    console = Console(
        file=cast(IO[str], outlet), force_terminal=colour, color_system="standard" if colour else None,
        highlight=False, markup=False, emoji=False,
    )  # fmt: skip
    for line in screen_lines(blocks, width_of(outlet), lines_of(outlet)):
        console.print(Text(line.text, STYLES.get(line.style, "")), soft_wrap=True)
    outlet.flush()


def screen_lines(blocks: Iterable[Block], width: int = WIDTH, height: int = SCREEN) -> list[ScreenLine]:
    """At most *height* lines of at most *width* columns, and further lines for blocks BELOW. The verdict gets the lines that
    the others leave, at least those of its most severe reason: optional lines make room for these.
    """
    given = list(simple(blocks))
    found = [[] if isinstance(block, Verdict) else list(_lines(block, width)) for block in given]
    reasons = next((block.reasons for block in given if isinstance(block, Verdict)), ())
    least = SPARE + 1
    for rank in sorted({line.room for lines in found for line in lines if SPARE < line.room < NEEDED}):
        if _room(found, least, height) >= _severe_lines(reasons, width):
            break
        least = rank + 1
    room = _room(found, least, height)
    spare = room - sum(len(_reason(reason, width)) for reason in reasons)
    kept = [[line for line in lines if line.room >= least or (line.room == SPARE and spare > 0)] for lines in found]
    room -= sum(line.room == SPARE for lines in kept for line in lines)
    return [
        line
        for block, lines in zip(given, kept, strict=True)
        for line in (_verdict(block, room, width) if isinstance(block, Verdict) else lines)
    ]


def _room(found: Sequence[Sequence[ScreenLine]], least: int, height: int) -> int:
    """Lines for reasons below the verdict, with all lines from *least* on."""
    return height - 1 - sum(least <= line.room < BELOW for lines in found for line in lines)


def _lines(block: Block, width: int) -> Iterator[ScreenLine]:
    match block:
        case Callout(text):
            yield ScreenLine(cut(plain(text), width), "loud")
        case Items(texts):
            lines = (line for text in texts for line in wrap(plain(text), width, subsequent_indent="  "))
            yield from (ScreenLine(line, "bad", BELOW) for line in lines)
        case Paragraph(text):
            yield from (ScreenLine(line, "", BELOW) for line in wrap(plain(text), width))
        case Fact():
            yield from _fact(block, width)
        case Table():
            yield from _table(block, width)
        case _:
            yield from (ScreenLine(line, "", BELOW) for line in text_lines(block, width))


def _fact(fact: Fact, width: int) -> Iterator[ScreenLine]:
    texts = [plain(text) for text in fact.texts]
    text = next((text for text in texts if LABEL + len(text) <= width), texts[-1])
    lines = wrap(text, width - LABEL) if fact.overflow == "wrap" else [text]
    for place, line in enumerate(lines):
        shown = f"{'' if place else plain(fact.label)[: LABEL - 1]:<{LABEL}}{line}"
        yield ScreenLine(shown if fact.overflow == "whole" else cut(shown, width), fact.tone, fact.room)


def _table(table: Table, width: int) -> Iterator[ScreenLine]:
    """The first column is as wide as labels are; columns that do not fit are left out."""
    kept = list(table.columns)
    for column in table.optional_columns:
        if LABEL + CELL * (len(kept) - 1) > width:
            kept.remove(column)
    places = [table.columns.index(column) for column in kept]
    head, *rows = cells(table, short=True)
    for row in (list(map(str.lower, head)), *rows):
        first, *others = (row[place] for place in places)
        text = f"{first:<{LABEL}}" + "".join(f"{cell:>{CELL}}" for cell in others)
        yield ScreenLine(text, "", table.optional_rows.get(first, NEEDED))
    yield from (ScreenLine(cut(plain(note), width)) for note in table.notes)


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3].rstrip() + "..."


def _verdict(found: Verdict, room: int, width: int) -> list[ScreenLine]:
    word = cut(f"{'verdict':<{LABEL}}{plain(found.word)}", width)
    reasons = _fitting([_reason(reason, width) for reason in found.reasons], room, width)
    return [ScreenLine(word, found.tone), *(ScreenLine(" " * LABEL + line) for line in reasons)]


def _reason(reason: VerdictReason, width: int) -> list[str]:
    return wrap(plain(reason_line(reason)), width - LABEL, initial_indent="- ", subsequent_indent="  ")


def _fitting(reasons: Sequence[list[str]], room: int, width: int) -> list[str]:
    """As many complete reasons as fit *room* lines, and the number of the others; the first is cut if needed."""
    if sum(map(len, reasons)) <= room:
        return [line for lines in reasons for line in lines]
    shown = reasons[0][: max(0, room - 1)]
    if shown and len(shown) < len(reasons[0]):
        shown[-1] = shown[-1][: width - LABEL - 4] + " ..."
    n = 1
    while n < len(reasons) and len(shown) + len(reasons[n]) < room:
        shown += reasons[n]
        n += 1
    left = len(reasons) - n
    more = (
        f"({left} more {'reason' if left == 1 else 'reasons'} in run.json)" if left else "(complete text in run.json)"
    )
    return [*shown, more][:room]


def _severe_lines(reasons: Sequence[VerdictReason], width: int) -> int:
    """Lines of the most severe reason and of the note on others; 0 where there are only notes."""
    severe = [reason for reason in reasons if reason.severity in TONES[1:]]
    return len(_reason(severe[0], width)) + (len(reasons) > 1) if severe else 0
