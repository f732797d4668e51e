"""Renders a page of given blocks and plots: reports of procedures, searches, sweeps and comparisons.

Data model: a page has a `PageHead` and sections; a `PageSection` has a heading and blocks (`report.blocks`); a plot
(`report.html.charts.plot`: line, scatter with fit, cdf, bars) and a forest plot are blocks of a page only, and a str is a
paragraph. All text is escaped, so it may be external; redact secrets before (`redact.Redactor`). Nothing is computed here.

    page = page_layout(PageHead("Throughput and latency"), [
        PageSection("Curve", [
            Plot("line", "P99 TTFT against throughput", [PlotSeries("seed 1", y=[30, 40, 90], x=[10, 20, 25])],
                 PlotAxis("throughput", "requests/s"), PlotAxis("P99 TTFT", "ms"), marks=[Rule("y", 200, "limit")]),
            Table("", ["rate", "P99 TTFT (ms)"], [[10, 30.1], [20, 40.2], [25, None]], ["None: not estimable."]),
        ]),
    ])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastllmload.files import replace_with
from fastllmload.report.blocks import Block, Paragraph, Table, Verdict, VerdictReason
from fastllmload.report.html.charts.chart import Rule, Span
from fastllmload.report.html.charts.figure import Figures, grid
from fastllmload.report.html.charts.forest import Effect, Forest, render_forest
from fastllmload.report.html.charts.plot import Plot, PlotAxis, PlotSeries, cdf, figure_of
from fastllmload.report.html.html_document import html_document
from fastllmload.report.render.html import Markup, element, facts, joined, render_block, verdict_card, visible

__all__ = [
    "Effect",
    "Forest",
    "PageHead",
    "PageSection",
    "Plot",
    "PlotAxis",
    "PlotSeries",
    "Rule",
    "Span",
    "Table",
    "VerdictReason",
    "cdf",
    "page_layout",
    "write_page",
]

PageBlock = Block | Plot | Forest | str


@dataclass(frozen=True)
class PageSection:
    """Blocks in the given order; consecutive plots share a row."""

    title: str
    blocks: Sequence[PageBlock]
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
    """The page's text: one file, light and dark, on screen and printed. ValueError for uneven columns of a plot."""
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
    listed = facts((name, visible(text)) for name, text in head.facts.items())
    run = element("div", element("h2", "What was run"), listed, class_="card facts") if head.facts else None
    verdict = Verdict(head.verdict, head.meaning, head.reasons, head.tone)
    judged = verdict_card(verdict) if head.verdict else None
    cards = [block for block in (judged, run) if block is not None]
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


def _block(block: Block | Forest | str) -> Markup:
    if isinstance(block, Forest):
        return render_forest(block)
    return render_block(Paragraph(block) if isinstance(block, str) else block)
