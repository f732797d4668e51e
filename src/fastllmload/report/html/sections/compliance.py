"""Section on compliance with the methodology, from run.json: verdict and unmet requirements."""

from __future__ import annotations

from collections.abc import Sequence

from fastllmload.documents.run import Requirement, Requirements
from fastllmload.report.blocks import Table
from fastllmload.report.html.charts.figure import render_table
from fastllmload.report.html.context import ReportContext
from fastllmload.report.html.markup import Markup, element, joined, visible
from fastllmload.report.text.numbers import count

STATES = ("false", "undeclared", "unchecked")
COLUMNS = ("requirement", "level", "state", "why", "what to do")


def section(context: ReportContext) -> Markup | None:
    """None where compliance was not evaluated."""
    found = context.document.compliance
    if found is None or found.verdict is None:
        return None
    scope = f"; {visible(found.scope, 300)}." if found.scope else "."
    verdict = joined(element("b", visible(found.verdict, 60)), scope)
    rows = [_tally("MUST, MUST NOT, REQUIRED", found.must), _tally("SHOULD, RECOMMENDED", found.should)]
    tally = Table("", ["key words", "hold", "of", *STATES], rows)
    return element(
        "section",
        element("h2", "Methodology"),
        element("p", verdict, class_="intro"),
        render_table(tally, "narrow"),
        _unmet("Unmet requirements", found.unmet),
        _unmet("Unmet, but without a key word: no effect on the verdict", found.beside),  # prose: allow, a key
        id="methodology",
        class_="blocks-below",
    )


def _tally(label: str, found: Requirements) -> list[str]:
    open_ = (len(ids) for ids in (found.false, found.undeclared, found.unchecked))
    return [label, count(found.hold), count(found.of), *map(count, open_)]


def _unmet(title: str, given: Sequence[Requirement]) -> Markup | None:
    """Unmet requirements in the order of the document, MUST first."""
    if not given:
        return None
    rows = [[each or "-" for each in (one.id, one.level, one.state, one.reason, one.remedy)] for one in given]
    heading = element("summary", element("h3", title), element("span", f"{len(rows)}", class_="quiet"))
    return element("details", heading, render_table(Table("", list(COLUMNS), rows), "told"), class_="more on-paper")
