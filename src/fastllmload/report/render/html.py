"""Renders blocks as HTML. Text is escaped unless it is Markup, so external text cannot become markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from fastllmload.report.blocks import (
    Block,
    Callout,
    Fact,
    Facts,
    Folded,
    Heading,
    Items,
    Paragraph,
    Stacked,
    Strong,
    Table,
    Text,
    Verdict,
    VerdictReason,
    cells,
    numeric_columns,
    parts_of,
    tone_of,
)

VOID = frozenset({"meta", "br", "hr"})
LONGEST = 2000  # characters of a text
NARROW, SHORT = 3, 60  # columns and characters of a table that does not take the full width
ICONS = {
    "valid": "M5 12.5l4.5 4.5L19 7.5",
    "suspect": "M12 6v7.5M12 17.4v.1",
    "invalid": "M7 7l10 10M17 7L7 17",
    "note": "M12 10.5v7M12 6.6v.1",
}
TAGS = {"failures": "invalid", "incident": "suspect", "unsteady": "suspect"}


class Markup(str):
    """Text that is already markup."""


def element(name: str, /, *children: str | Markup | None, **attributes: str | float | None) -> Markup:
    """`<name attributes>children</name>`; None is left out. In attribute names a trailing underscore is removed,
    the others become dashes.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{safe(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{joined(*children)}</{name}>")


def joined(*children: str | Markup | None) -> Markup:
    """*children* as one text; plain text is escaped."""
    return Markup(
        "".join(child if isinstance(child, Markup) else safe(child) for child in children if child is not None)
    )


def safe(text: str) -> str:
    """Escaped, and without characters that control terminals or the direction of text."""
    return escape(printable(text))


def printable(text: str) -> str:
    """*text* with control and direction characters replaced."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)


def visible(text: object, most: int = 400) -> str:
    """External text as one printable line of at most *most* characters."""
    return shortened(printable(" ".join(str(text).split())), most)


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def render(blocks: Iterable[Block]) -> Markup:
    return joined(*map(render_block, blocks))


def render_block(block: Block) -> Markup:
    match block:
        case Heading(text, level):
            return element(f"h{level}", visible(text, 200))
        case Paragraph(text):
            return element("p", inline(text), class_="intro")
        case Callout(text):
            return element("p", inline(text), class_="incomplete")
        case Items(texts):
            return element("ul", *(element("li", inline(text)) for text in texts))
        case Fact(label, texts):
            return facts([(label, texts[0])])
        case Facts(pairs):
            return facts((label, inline(text)) for label, text in pairs)
        case Folded(summary, inner):
            return folded(summary, render(inner))
        case Verdict():
            return verdict_card(block)
        case Table():
            return render_table(block)


def inline(text: Text) -> Markup:
    return joined(
        *(
            shortened(part, LONGEST)
            if isinstance(part, str)
            else element("strong" if isinstance(part, Strong) else "code", visible(part.text, LONGEST))
            for part in parts_of(text)
        )
    )


def facts(pairs: Iterable[tuple[str | Markup, str | Markup]], class_: str | None = None) -> Markup:
    """A list of names with their texts."""
    return element(
        "dl",
        *(joined(element("dt", name), element("dd", text)) for name, text in pairs),
        class_=class_,
    )


def folded(summary: str, content: Markup, count: int | None = None, open_: bool = False, class_: str = "") -> Markup:
    """Content that is shown on demand; *count*: the number of entries in it."""
    quiet = None if count is None else element("span", f"{count}", class_="quiet")
    head = element("summary", element("h3", visible(summary, 200)), quiet)
    return element("details", head, content, class_=f"{class_} more".strip(), open="" if open_ else None)


def verdict_card(
    found: Verdict,
    *,
    over: str = "Verdict",
    heading: str = "p",
    extra: Markup | None = None,
    below: Markup | None = None,
) -> Markup:
    """*over* is above the word, which is a *heading* element; *extra* follows the meaning, *below* the reasons."""
    tone = found.tone or tone_of(found.word)
    mark = element(
        "svg",
        element("circle", cx=12, cy=12, r=11),
        element("path", d=ICONS[tone]),
        class_="mark",
        viewBox="0 0 24 24",
        aria_hidden="true",
    )
    word = element(heading, visible(found.word, 60).upper(), class_="big")
    named = element("div", element("p", over, class_="over"), word)
    listed = element("ul", *map(_reason, found.reasons), class_="reasons") if found.reasons else None
    sentence = element("p", visible(found.meaning, 600), class_="meaning") if found.meaning != "" else None
    return element(
        "div", element("div", mark, named, class_="word"), sentence, extra, listed, below, class_=f"card verdict {tone}"
    )


def _reason(reason: VerdictReason) -> Markup:
    tone = TAGS.get(reason.severity) or tone_of(reason.severity)
    label = element("b", visible(reason.severity, 20), class_=f"tag {tone}")
    todo = element("span", visible(reason.todo, 600), class_="todo") if reason.todo != "" else None
    return element("li", label, element("span", visible(reason.text, 900), " " if todo else None, todo))


def table(head: Sequence[str | Markup], rows: Sequence[Sequence[str | Markup]], class_: str = "") -> Markup:
    """The first column names its row."""
    return element(
        "div",
        element(
            "table",
            element("thead", element("tr", *(element("th", cell, scope="col") for cell in head))),
            element("tbody", *(
                element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:]))
                for row in rows
            )),
            class_=class_ or None,
        ),
        class_="scroll",
    )  # fmt: skip


def render_table(given: Table, class_: str = "") -> Markup:
    """A card with title, table and notes; columns of text are left-aligned and may wrap."""
    head, *rows = cells(given)
    right = numeric_columns(rows, len(head))
    stacked = {
        (n, k): cell for n, row in enumerate(given.rows) for k, cell in enumerate(row) if isinstance(cell, Stacked)
    }
    body = [[_cell(text, right[k], stacked.get((n, k)), k == 0) for k, text in enumerate(row)]
            for n, row in enumerate(rows)]  # fmt: skip
    title = element("h3", visible(given.title, 200)) if given.title else None
    notes = (element("p", visible(note, LONGEST), class_="note") for note in given.notes)
    size = sum(max(map(len, column)) for column in zip(head, *rows, strict=True))
    narrow = "narrow" if len(head) <= NARROW or size <= SHORT else ""
    return element("div", title, table(list(map(_cell, head, right)), body, class_ or narrow), *notes, class_="card")


def _cell(text: str, number: bool, stacked: Stacked | None = None, is_name: bool = False) -> str | Markup:
    """Of a stacked cell, a name has its name in run.json, and a value that is not exact is greyed."""
    if stacked is None:
        return text if number else element("span", visible(text, 600), class_="words")
    key = joined(" ", element("code", stacked.short)) if is_name and stacked.short else None
    exact = is_name or text.replace(",", "").replace(".", "").isdigit()
    shown = element("span", visible(text, 600), class_=None if exact else "few")
    return joined(shown, key, element("small", stacked.below) if stacked.below else None)
