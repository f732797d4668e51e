"""Renders blocks as HTML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import count

from fastllmload.report.blocks import (
    Bar,
    Block,
    Callout,
    Card,
    Cell,
    Columns,
    Fact,
    Facts,
    Folded,
    Heading,
    Items,
    Paragraph,
    Section,
    Stacked,
    Strong,
    Table,
    Text,
    Tile,
    Tiles,
    Verdict,
    VerdictReason,
    cells,
    numeric_columns,
    parts_of,
    tone_of,
)
from fastllmload.report.charts import Chart
from fastllmload.report.html.charts.figure import ChartNumbers
from fastllmload.report.html.charts.scales import round_above
from fastllmload.report.html.markup import Markup, element, joined, shortened, visible

LONGEST = 2000  # characters of a text
NARROW, SHORT = 3, 60  # columns and characters of a table that does not take the full width
ICONS = {
    "valid": "M5 12.5l4.5 4.5L19 7.5",
    "suspect": "M12 6v7.5M12 17.4v.1",
    "invalid": "M7 7l10 10M17 7L7 17",
    "note": "M12 10.5v7M12 6.6v.1",
}
TAGS = {"failures": "invalid", "incident": "suspect", "unsteady": "suspect"}
WIDTH, HEIGHT, EDGE = 220.0, 22.0, 6.0  # px of the drawing of an interval
WIDEST = 200.0  # the axis of intervals ends there, in the unit of the column


def render(blocks: Iterable[Block], figures: ChartNumbers | None = None, key: str = "") -> Markup:
    """Consecutive charts share a row. *figures* takes the numbers of charts; those without a key are called *key*-0, ..."""
    figures = ChartNumbers() if figures is None else figures
    found: list[Markup] = []
    charts: list[Markup] = []
    for number, block in enumerate(blocks):
        made = render_block(block, figures, f"{key}-{number}")
        if isinstance(block, Chart):
            charts.append(made)
        else:
            found += [*_row(charts), made]
            charts = []
    return joined(*found, *_row(charts))


def _row(charts: list[Markup]) -> list[Markup]:
    return [element("div", *charts, class_="grid")] if charts else []


def sections(given: Sequence[Section], figures: ChartNumbers) -> dict[str, Markup]:
    """By id; a section without a key is called s0, s1, ..."""
    numbers = count()
    keys = [section.key or f"s{next(numbers)}" for section in given]
    return {key: _section(section, figures, key) for key, section in zip(keys, given, strict=True)}


def _section(found: Section, figures: ChartNumbers, key: str) -> Markup:
    title = element("h2", visible(found.title, 200)) if found.title else None
    return element("section", title, render(found.blocks, figures, key), id=key or None)


def render_block(block: Block, figures: ChartNumbers, key: str) -> Markup:
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
            return facts(pairs)
        case Folded():
            return _folded(block, figures, key)
        case Verdict():
            return _verdict(block, figures, key)
        case Table():
            return render_table(block)
        case Tiles(tiles):
            return element("div", *map(_tile, tiles), class_="tiles eight" if len(tiles) > 6 else "tiles")
        case Card(title, inner):
            return element("div", element("h3", visible(title, 200)), render(inner, figures, key), class_="card")
        case Columns(inner):
            columns = (render_block(each, figures, f"{key}-{n}") for n, each in enumerate(inner))
            return element("div", *columns, class_="grid")
        case Section():
            return _section(block, figures, block.key)
        case Chart():
            return figures.figure(block, block.key or key)


def inline(text: Text) -> Markup:
    return joined(
        *(
            shortened(part, LONGEST)
            if isinstance(part, str)
            else element("strong" if isinstance(part, Strong) else "code", visible(part.text, LONGEST))
            for part in parts_of(text)
        )
    )


def facts(pairs: Iterable[tuple[Text, Text]]) -> Markup:
    """A list of names with their texts."""
    return element("dl", *(joined(element("dt", inline(name)), element("dd", inline(text))) for name, text in pairs))


def _folded(found: Folded, figures: ChartNumbers, key: str) -> Markup:
    """With the number of rows or facts in it."""
    entries = sum(len(each.rows if isinstance(each, Table) else each.pairs)
                  for each in found.blocks if isinstance(each, Table | Facts))  # fmt: skip
    number = element("span", f"{entries}", class_="quiet") if entries else None
    return element(
        "details",
        element("summary", element("h3", visible(found.summary, 200)), number),
        render(found.blocks, figures, key),
        class_="card more on-paper" if found.printed else "card more",
        open="" if found.unfolded else None,
    )


def _verdict(found: Verdict, figures: ChartNumbers, key: str) -> Markup:
    tone = found.tone or tone_of(found.word)
    mark = element(
        "svg",
        element("circle", cx=12, cy=12, r=11),
        element("path", d=ICONS[tone]),
        class_="mark",
        viewBox="0 0 24 24",
        aria_hidden="true",
    )
    over = element("p", f"Verdict on {found.of}" if found.of else "Verdict", class_="over")
    word = element("div", mark, element("div", over, element("h2", visible(found.word, 60).upper(), class_="big")),
                   class_="word")  # fmt: skip
    meaning = element("p", visible(found.meaning, 600), class_="meaning") if found.meaning else None
    listed = element("ul", *map(_reason, found.reasons), class_="reasons") if found.reasons else None
    return element(
        "div", word, meaning, render(found.warnings, figures, key), listed, render(found.more, figures, key),
        class_=f"card verdict {tone}",
    )  # fmt: skip


def _reason(reason: VerdictReason) -> Markup:
    tone = TAGS.get(reason.severity) or tone_of(reason.severity)
    label = element("b", visible(reason.severity, 20), class_=f"tag {tone}")
    todo = element("span", visible(reason.todo, 600), class_="todo") if reason.todo != "" else None
    return element("li", label, element("span", visible(reason.text, 900), " " if todo else None, todo))


def _tile(tile: Tile) -> Markup:
    value = element("p", element("b", tile.value), element("span", tile.unit), class_="value")
    return element(
        "div", element("p", tile.name, class_="over"), value, element("p", tile.below, class_="below"),
        class_=f"card tile {tile.tone}".strip(),
    )  # fmt: skip


def render_table(given: Table) -> Markup:
    """A card with title, table and notes, which scrolls where it is too wide. The first column names its row; columns of
    text are left-aligned and may wrap.
    """
    head, *rows = cells(given)
    right = numeric_columns(rows, len(head))
    size = sum(max(map(len, column)) for column in zip(head, *rows, strict=True))
    reach = {k: reach_of([row[k] for row in given.rows if k < len(row)]) for k in range(len(head))}
    named = (element("th", _named(name, right[k], reach[k]), scope="col") for k, name in enumerate(head))
    body = []
    for texts, raw in zip(rows, given.rows, strict=True):
        first, *others = (
            _cell(text, right[k], raw[k] if k < len(raw) else None, k == 0, reach[k]) for k, text in enumerate(texts)
        )
        body.append(element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in others)))
    narrow = "narrow" if len(head) <= NARROW or size <= SHORT else None
    table = element("table", element("thead", element("tr", *named)), element("tbody", *body), class_=narrow)
    title = element("h3", visible(given.title, 200)) if given.title else None
    notes = (element("p", visible(note, LONGEST), class_="note") for note in given.notes)
    return element("div", title, element("div", table, class_="scroll"), *notes, class_="card")


def _cell(text: str, number: bool, raw: Cell = None, is_name: bool = False, reach: float | None = None) -> Markup:
    """Of a stacked cell, a name has its name in run.json, and a value that is not exact is greyed."""
    words = element("span", visible(text, 600), class_=None if number else "words")
    if isinstance(raw, Bar):
        return element("span", _share(raw) if reach is None else _interval(raw, reach), words, class_="bar-cell")
    if not isinstance(raw, Stacked):
        return joined(text) if number else words
    if raw.tone:
        return element("span", visible(text, 600), class_=f"words toned {raw.tone}")
    if not raw.below and not raw.short:
        return words
    key = joined(" ", element("code", raw.short)) if is_name and raw.short else None
    exact = is_name or text.replace(",", "").replace(".", "").isdigit()
    shown = element("span", visible(text, 600), class_=None if exact else "few")
    return joined(shown, key, element("small", raw.below) if raw.below else None)


def reach_of(column: Sequence[Cell]) -> float | None:
    """The end, on both sides of 0, of the axis of a column with marked bars; None for any other column."""
    bars = [cell for cell in column if isinstance(cell, Bar) and cell.at is not None]
    ends = [abs(end) for one in bars for end in (one.at, one.low, one.high) if end is not None and math.isfinite(end)]
    return min(WIDEST, round_above(max(1.0, *ends))) if bars else None


def _named(name: str, number: bool, reach: float | None) -> Markup:
    """The head of a column; above marked bars with the ends of their axis."""
    if reach is None:
        return _cell(name, number)
    ends = (element("i", text) for text in (f"-{reach:g}", "0", f"+{reach:g}"))
    return element("span", element("span", *ends, class_="axis"), _cell(name, number), class_="bar-cell")


def _share(cell: Bar) -> Markup | None:
    if cell.low is None or cell.high is None:
        return None
    filled = element("rect", x=100 * cell.low, width=round(100 * (cell.high - cell.low), 2), height=8)
    return element("svg", filled, class_="meter", viewBox="0 0 100 8", preserveAspectRatio="none", aria_hidden="true")


def _interval(cell: Bar, reach: float) -> Markup | None:
    """The interval as a line with its mark and the line of 0; an arrow where it leaves the axis."""
    if cell.at is None:
        return None
    middle = HEIGHT / 2

    def place(value: float) -> float:
        return round(WIDTH / 2 + (WIDTH / 2 - EDGE) * min(max(value / reach, -1.0), 1.0), 1)

    parts = [element("line", x1=WIDTH / 2, x2=WIDTH / 2, y1=0, y2=HEIGHT, class_="none")]
    if cell.low is not None and cell.high is not None:
        parts.append(element("line", x1=place(cell.low), x2=place(cell.high), y1=middle, y2=middle, class_="reach"))
        for end in (cell.low, cell.high):
            if abs(end) > reach:
                x, back = place(end), math.copysign(5, end)
                arrow = f"M{x - back:g} {middle - 4:g}L{x:g} {middle:g}L{x - back:g} {middle + 4:g}"
                parts.append(element("path", d=arrow, class_="reach"))
    parts.append(element("circle", cx=place(cell.at), cy=middle, r=4))
    box = f"0 0 {WIDTH:g} {HEIGHT:g}"
    return element("svg", *parts, viewBox=box, class_=f"effect {cell.tone}".strip(), aria_hidden="true")
