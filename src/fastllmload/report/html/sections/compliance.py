"""How far the run followed the methodology: verdict, what does not hold and what to do, as run.json has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastllmload.report.html.context import ReportContext
from fastllmload.report.html.markup import Markup, element, joined, visible
from fastllmload.report.html.tables import drawn
from fastllmload.report.terminal.summary import part
from fastllmload.report.text.numbers import count
from fastllmload.report.text.tables import Table

CLASSES = {"must": "MUST, MUST NOT, REQUIRED", "should": "SHOULD, RECOMMENDED"}
STATES = ("false", "undeclared", "unchecked")
COLUMNS = {"id": "requirement", "level": "level", "state": "state", "reason": "why", "remedy": "what to do"}


def section(context: ReportContext) -> Markup | None:
    """None when nobody judged."""
    found = context.get("compliance")
    if not isinstance(found, Mapping) or not isinstance(found.get("verdict"), str):
        return None
    scope = found.get("scope")
    said = joined(element("b", visible(found["verdict"], 60)), f"; {visible(scope, 300)}." if scope else ".")
    rows = [_tally(label, found[key]) for key, label in CLASSES.items() if isinstance(found.get(key), Mapping)]
    tally = Table("", ["key words", "hold", "of", *STATES], rows)
    return element(
        "section",
        element("h2", "Methodology"),
        element("p", said, class_="intro"),
        drawn(tally, "narrow") if rows else None,
        _unmet("What does not hold", found.get("unmet")),
        _unmet("What does not hold, without a key word: it decides nothing", found.get("beside")),
        id="methodology",
        class_="blocks-below",
    )


def _tally(label: str, found: Any) -> list[str]:
    open_ = [found.get(state) for state in STATES]
    numbers = [len(ids) if isinstance(ids, list) else None for ids in open_]
    return [label, count(part(found, "hold")), count(part(found, "of")), *map(count, numbers)]


def _unmet(title: str, given: object) -> Markup | None:
    """Requirements that do not hold, the key words of MUST first as the document has them."""
    if not isinstance(given, list) or not given:
        return None
    rows = [[str(part(one, key) or "-") for key in COLUMNS] for one in given]
    heading = element("summary", element("h3", title), element("span", f"{len(rows)}", class_="quiet"))
    return element("details", heading, drawn(Table("", list(COLUMNS.values()), rows), "told"), class_="more on-paper")
