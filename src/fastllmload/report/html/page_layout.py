"""Renders a page of given tables and plots: reports of procedures, searches, sweeps and comparisons.

Data model: a page has a `PageHead` and sections; a `PageSection` has a heading and blocks; a block is a `PageTable`, a
`Plot` (see `report.html.charts.plot`: line, scatter with fit, cdf, bars) or a paragraph as plain text. All text is
escaped, so it may be external; redact secrets before (`redact.Redactor`). Nothing is computed here.

    page = page_layout(PageHead("Throughput and latency"), [
        PageSection("Curve", [
            Plot("line", "P99 TTFT against throughput", [Series("seed 1", y=[30, 40, 90], x=[10, 20, 25])],
                 Axis("throughput", "requests/s"), Axis("P99 TTFT", "ms", log=True), marks=[Rule("y", 200, "limit")]),
            Table(["rate", "P99 TTFT (ms)"], [[10, 30.1], [20, 40.2], [25, None]], notes=["None: not estimable."]),
        ]),
    ])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastllmload.files import replace_with
from fastllmload.report.blocks import Table
from fastllmload.report.html.charts.chart import Rule, Span
from fastllmload.report.html.charts.figure import Figures, grid, render_table
from fastllmload.report.html.charts.forest import Effect, Forest, render_forest
from fastllmload.report.html.charts.plot import Plot, PlotAxis, PlotSeries, cdf, figure_of
from fastllmload.report.html.html_document import html_document, tone_of
from fastllmload.report.html.markup import Markup, element, joined, visible
from fastllmload.report.html.sections.verdict import VerdictReason, verdict_card
from fastllmload.report.text.numbers import NOT_KNOWN, quantity

__all__ = [
    "Effect",
    "Forest",
    "PageHead",
    "PageSection",
    "PageTable",
    "Plot",
    "PlotAxis",
    "PlotSeries",
    "Rule",
    "Span",
    "VerdictReason",
    "cdf",
    "page_layout",
    "write_page",
]

NARROW = 3  # a table with at most that many columns does not take the full width
Cell = str | int | float | bool | None


@dataclass(frozen=True)
class PageTable:
    """*rows*: one cell for each of *columns*; the first names its row. Floats are written with about four digits, int with
    all digits, None as `n/a`, text unchanged. *notes* are below the table.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class PageSection:
    """Blocks in the given order; consecutive plots share a row."""

    title: str
    blocks: Sequence[PageTable | Plot | Forest | str]
    intro: str = ""


@dataclass(frozen=True)
class PageHead:
    """*verdict*: one word (valid, suspect, invalid, or another such as `met`), *meaning* its sentence, *tone* (valid,
    suspect, invalid) its colour for any other word. *facts*: what was run, name to text. *simulated*:
    adds a banner.
    """

    title: str
    lead: str = ""
    verdict: str = ""
    meaning: str = ""
    tone: str = ""
    reasons: Sequence[VerdictReason] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    simulated: bool = False
    foot: str = ""


def page_layout(head: PageHead, sections: Sequence[PageSection]) -> str:
    """The page's text: one file, light and dark, on screen and printed. ValueError for a row or column of the wrong
    length.
    """
    figures = Figures()
    named = {"top": ("", _top(head))}
    for number, section in enumerate(sections):
        named[f"s{number}"] = (visible(section.title, 40), _section(figures, f"s{number}", section))
    where = "SIMULATED ENGINE · " if head.simulated else ""
    title = f"{where}{visible(head.title, 120)} · fastllmload"
    return html_document(
        title, named, figures, tag=visible(head.verdict, 30), tone=head.tone, foot=head.foot, simulated=head.simulated
    )


def write_page(path: Path, head: PageHead, sections: Sequence[PageSection]) -> None:
    """Write the page atomically. OSError when the disk is full."""
    replace_with(path, page_layout(head, sections))


def _top(head: PageHead) -> Markup:
    lead = element("p", visible(head.lead, 2000), class_="lead") if head.lead != "" else None
    heading = element("div", element("h1", visible(head.title, 200)), lead, class_="heading")
    pairs = [
        joined(element("dt", visible(name, 60)), element("dd", visible(text))) for name, text in head.facts.items()
    ]
    facts = element("div", element("h2", "What was run"), element("dl", *pairs), class_="card facts") if pairs else None
    judged = (
        verdict_card(head.verdict, head.meaning, head.reasons, tone=head.tone or tone_of(head.verdict))
        if head.verdict
        else None
    )
    cards = [block for block in (judged, facts) if block is not None]
    return joined(
        heading, element("section", *cards, class_="top" if len(cards) > 1 else "top alone") if cards else None
    )


def _section(figures: Figures, key: str, section: PageSection) -> Markup:
    blocks: list[Markup | None] = []
    plots: list[Markup] = []
    for number, block in enumerate(section.blocks):
        if isinstance(block, Plot):
            plots.append(figure_of(figures, f"{key}-{number}", block))
            continue
        blocks += [grid(*plots), _block(block)]
        plots = []
    intro = element("p", visible(section.intro, 4000), class_="intro") if section.intro != "" else None
    heading = element("h2", visible(section.title, 200))
    return element("section", heading, intro, *blocks, grid(*plots), id=key, class_="blocks-below")


def _block(block: PageTable | Forest | str) -> Markup:
    if isinstance(block, Forest):
        return render_forest(block)
    return _table(block) if isinstance(block, PageTable) else _paragraph(block)


def _paragraph(text: str) -> Markup:
    return element("p", visible(text, 8000), class_="intro")


def _table(given: PageTable) -> Markup:
    for row in given.rows:
        if len(row) != len(given.columns):
            raise ValueError(
                f"{given.title or given.columns}: a row of {len(row)} cells for {len(given.columns)} columns"
            )
    rows = [[_cell(cell) for cell in row] for row in given.rows]
    narrow = "narrow" if len(given.columns) <= NARROW else ""
    return render_table(Table(given.title, [visible(name, 200) for name in given.columns], rows, given.notes), narrow)


def _cell(cell: Cell) -> str:
    if cell is None:
        return NOT_KNOWN
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return quantity(cell) if isinstance(cell, float) else visible(cell, 400)
