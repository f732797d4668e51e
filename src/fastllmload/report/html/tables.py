"""Renders the tables of all reports as HTML."""

from __future__ import annotations

from fastllmload.report.html.charts.figure import table
from fastllmload.report.html.markup import Markup, element, visible
from fastllmload.report.text.tables import Table, cells, numeric_columns


def render_table(given: Table, class_: str = "") -> Markup:
    """A card with title, table and notes; columns of text are left-aligned and may wrap."""
    head, *rows = cells(given)
    right = numeric_columns(rows, len(head))
    body = [[_cell(cell, number) for cell, number in zip(row, right, strict=True)] for row in rows]
    heads = [_cell(cell, number) for cell, number in zip(head, right, strict=True)]
    title = element("h3", visible(given.title, 200)) if given.title else None
    notes = (element("p", visible(note, 2000), class_="note") for note in given.notes)
    return element("div", title, table(heads, body, class_), *notes, class_="card")


def _cell(text: str, number: bool) -> str | Markup:
    return text if number else element("span", visible(text, 600), class_="words")
