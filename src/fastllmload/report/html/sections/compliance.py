"""Section on compliance with the methodology, from run.json: verdict and unmet requirements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastllmload.report.html.charts.figure import render_table
from fastllmload.report.html.context import ReportContext, part
from fastllmload.report.html.markup import Markup, element, joined, visible
from fastllmload.report.text.numbers import count
from fastllmload.report.text.tables import Table

CLASSES = {"must": "MUST, MUST NOT, REQUIRED", "should": "SHOULD, RECOMMENDED"}
STATES = ("false", "undeclared", "unchecked")
COLUMNS = {"id": "requirement", "level": "level", "state": "state", "reason": "why", "remedy": "what to do"}


def section(context: ReportContext) -> Markup | None:
    """None where compliance was not evaluated."""
    found = context.get("compliance")
    if not isinstance(found, Mapping) or not isinstance(found.get("verdict"), str):
        return None
    scope = found.get("scope")
    verdict = joined(element("b", visible(found["verdict"], 60)), f"; {visible(scope, 300)}." if scope else ".")
    rows = [_tally(label, found[key]) for key, label in CLASSES.items() if isinstance(found.get(key), Mapping)]
    tally = Table("", ["key words", "hold", "of", *STATES], rows)
    return element(
        "section",
        element("h2", "Methodology"),
        element("p", verdict, class_="intro"),
        render_table(tally, "narrow") if rows else None,
        _unmet("Unmet requirements", found.get("unmet")),
        _unmet("Unmet, but without a key word: no effect on the verdict", found.get("beside")),  # prose: allow, a key
        id="methodology",
        class_="blocks-below",
    )


def _tally(label: str, found: Any) -> list[str]:
    open_ = [found.get(state) for state in STATES]
    numbers = [len(ids) if isinstance(ids, list) else None for ids in open_]
    return [label, count(part(found, "hold")), count(part(found, "of")), *map(count, numbers)]


def _unmet(title: str, given: object) -> Markup | None:
    """Unmet requirements in the order of the document, MUST first."""
    if not isinstance(given, list) or not given:
        return None
    rows = [[str(part(one, key) or "-") for key in COLUMNS] for one in given]
    heading = element("summary", element("h3", title), element("span", f"{len(rows)}", class_="quiet"))
    return element(
        "details", heading, render_table(Table("", list(COLUMNS.values()), rows), "told"), class_="more on-paper"
    )
