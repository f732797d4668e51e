"""Renders blocks as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from fastllmload.report.blocks import (
    Block,
    Callout,
    Code,
    Fact,
    Facts,
    Folded,
    Heading,
    Items,
    Page,
    Paragraph,
    Strong,
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

EDGE = re.compile(r"(?<!\w)_|_(?!\w)")  # an underscore inside a word is literal


def render(blocks: Iterable[Block]) -> str:
    """The blocks with a blank line between them."""
    return "\n".join(line for block in simple(blocks) for line in block_lines(block)).removeprefix("\n") + "\n"


def render_page(page: Page) -> str:
    """The sections of a page without its charts; its banner is below the title."""
    title, *others = simple(page.sections)
    banner = [] if page.banner is None else [Callout((Strong(page.banner[0]), f": {page.banner[1]}"))]
    return render([title, *banner, *others])


def block_lines(block: Block) -> Iterator[str]:
    """The lines of a block, a blank line first."""
    match block:
        case Heading(text, level):
            yield from ("", f"{'#' * level} {escaped(text)}")
        case Paragraph(text):
            yield from ("", inline(text))
        case Callout(text):
            yield from ("", f"> {inline(text)}")
        case Items(texts):
            yield from ("", *(f"* {inline(text)}" for text in texts))
        case Fact(label, texts):
            yield from block_lines(Facts([(label, texts[0])]))
        case Facts(pairs):
            yield from ("", *(f"* {inline(label)}: {inline(text)}" for label, text in pairs))
        case Folded(summary, inner):
            yield from ("", "<details>", f"<summary>{escaped(summary)}</summary>")
            yield from (line for each in simple(inner) for line in block_lines(each))
            yield from ("", "</details>")
        case Verdict(word, meaning):
            yield from ("", inline((Strong(word), f": {meaning}")))
            if block.reasons:
                yield from block_lines(Items(list(map(reason_line, block.reasons))))
        case Table():
            yield from table_lines(block)


def table_lines(table: Table) -> Iterator[str]:
    """Title, table, notes; a blank line before each. An empty title is left out."""
    if table.title:
        yield from ("", f"### {escaped(table.title)}")
    yield ""
    head, *rows = cells(table)
    yield "| " + " | ".join(map(escaped, head)) + " |"
    yield "|" + "|".join(" ---: " if right else " --- " for right in numeric_columns(rows, len(head))) + "|"
    for row in rows:
        yield "| " + " | ".join(map(escaped, row)) + " |"
    for note in table.notes:
        yield from ("", escaped(note))


def inline(text: Text) -> str:
    """A text with its parts marked up."""
    return "".join(span(part) for part in parts_of(text))


def span(part: str | Strong | Code) -> str:
    if isinstance(part, Strong):
        return f"**{escaped(part.text)}**"
    if isinstance(part, Code):
        return code_span(part.text)
    before, after = " " * part[:1].isspace(), " " * part[-1:].isspace()
    return f"{before}{escaped(part)}{after}" if part.strip() else before


def escaped(text: object) -> str:
    """*text* on one line: nothing in it becomes HTML, a link or another cell."""
    found = one_screen_line(" ".join(str(text).split()))
    for mark in "\\`*[]|~":
        found = found.replace(mark, f"\\{mark}")
    found = EDGE.sub(r"\\_", found)
    return found.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def code_span(text: str) -> str:
    """*text* as a code span: no character is escaped, so it can be copied from the file as from the page."""
    longest, run = 0, 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    fence, room = "`" * (longest + 1), " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{room}{one_screen_line(' '.join(text.splitlines()))}{room}{fence}"
