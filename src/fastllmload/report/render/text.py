"""Renders blocks as plain text, for terminals and for programs that read lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import wrap

from fastllmload.report.blocks import (
    Block,
    Callout,
    Fact,
    Facts,
    Folded,
    Heading,
    Items,
    Paragraph,
    Table,
    Text,
    Verdict,
    cells,
    numeric_columns,
    parts_of,
    reason_line,
    simple,
)
from fastllmload.report.terminal.outlet import one_screen_line

APART = 2  # columns between a label and its text


def render(blocks: Iterable[Block]) -> str:
    return "".join(f"{line}\n" for line in lines(blocks))


def lines(blocks: Iterable[Block], width: int | None = None) -> Iterator[str]:
    """An empty line is before and after a table. *width*: longer texts are wrapped, except cells of tables."""
    previous: Block | None = None
    for block in simple(blocks):
        if previous is not None and (isinstance(block, Table) or isinstance(previous, Table)):
            yield ""
        yield from block_lines(block, width)
        previous = block


def block_lines(block: Block, width: int | None) -> Iterator[str]:
    match block:
        case Heading(text, 1):
            yield f"=== {plain(text)} ==="
        case Heading(text):
            yield f"{plain(text)}:"
        case Paragraph(text) | Callout(text):
            yield from wrapped("", text, width)
        case Items(texts):
            yield from (line for text in texts for line in wrapped("- ", text, width))
        case Fact(label, texts):
            yield from block_lines(Facts([(label, texts[0])]), width)
        case Facts(pairs):
            room = max((len(plain(label)) for label, _ in pairs), default=0) + APART
            yield from (line for label, text in pairs for line in wrapped(plain(label).ljust(room), text, width))
        case Folded(summary, inner):
            yield from lines([Heading(summary), *inner], width)
        case Verdict(word, meaning):
            yield from wrapped("", f"{word.upper()}: {meaning}", width)
            yield from block_lines(Items(list(map(reason_line, block.reasons))), width)
        case Table():
            yield from table_lines(block)


def wrapped(before: str, text: Text, width: int | None) -> list[str]:
    """The lines of a text; the first begins with *before*, the others are indented as far."""
    found = plain(text)
    if width is None or len(before) + len(found) <= width:
        return [f"{before}{found}".rstrip()]
    return wrap(
        found, width, initial_indent=before, subsequent_indent=" " * len(before), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def plain(text: Text) -> str:
    """*text* on one line, without characters that control a terminal."""
    return one_screen_line("".join(part if isinstance(part, str) else part.text for part in parts_of(text)))


def table_lines(table: Table) -> Iterator[str]:
    """Title, aligned columns with numbers to the right, notes."""
    if table.title:
        yield plain(table.title)
    found = cells(table)
    widths = [max(len(row[k]) for row in found) for k in range(len(table.columns))]
    right = numeric_columns(found[1:], len(widths))
    for row in found:
        aligned = [
            cell.rjust(width) if right[k] else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(aligned).rstrip()
    yield from map(plain, table.notes)
