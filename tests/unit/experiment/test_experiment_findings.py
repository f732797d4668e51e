"""What a procedure leaves to read: cells, aligned tables, Markdown that shows text as it is, a page."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from typed_documents import typed_procedure

from fastllmload.documents.experiment import FindingMark, FindingPlot, FindingSeries
from fastllmload.documents.procedure import ProcedureDocument
from fastllmload.experiment.report.findings import Findings, format_cell
from fastllmload.experiment.report.procedure import lines, page
from fastllmload.report.html.page import render
from fastllmload.report.render.markdown import render_page


@pytest.mark.parametrize(
    ("value", "column", "text"),
    [
        (None, "", "n/a"),
        (0.0, "", "0"),
        (12345, "Requests", "12,345"),
        (12.3456, "TTFT (ms)", "12.35"),
        (123456.7, "tok/s", "123,457"),
        (-3.9, "Reduction (%)", "-3.9%"),
        (12.0163, "50% (15 r/s)", "12.02"),  # a level's share in the heading makes no percent of its figures
        ("1.0", "", "1.0"),
    ],
)
def test_cells(value: Any, column: str, text: str) -> None:
    assert format_cell(value, column) == text


def document(**entries: Any) -> ProcedureDocument:
    found = Findings()
    found.table("t", "A table", ("Name", "Value (ms)"), [("a|b", 1.5), ("<script>", None)], "a note")
    series, x, y = FindingSeries("one", (1.0, None, 3.0), (1.0, 2.0, 3.0)), ("load", "r/s", None), ("TTFT", "ms", True)
    found.plot(FindingPlot("p", "A plot", "line", (series,), x, y, marks=(FindingMark("x", 2.0, "knee"),)))
    found.say("Knee point: 2")
    found.warn("few-samples", "careful")
    found.deviate("short")
    made = typed_procedure({
        "procedure": "ttft", "section": "5.1", "title": "Time to First Token", "status": "done", "quick": False,
        "command": ["fastllmload"], "started_utc": "2026-01-01T00:00:00Z",
        "manifest": {"declarations": {"sut.boundary": "model_engine"}, "simulated": True, "urls": []},
        "levels": [{"number": 0, "name": "one", "load": 2.0, "folder": "levels/000-one"}], "compliance": None,
    })  # fmt: skip
    return replace(made, **{**found.entries(made), **entries})


def test_columns_are_aligned() -> None:
    table = ["A table", "Name      Value (ms)", "a|b              1.5", "<script>         n/a", "a note"]
    assert "\n".join(table) in "\n".join(lines(document()))


def test_a_table_of_the_same_id_takes_the_place_of_the_old_one() -> None:
    found = Findings()
    found.table("t", "first", ("a",), [("1",)])
    found.table("t", "second", ("a",), [("2",)])
    assert [table.title for table in found.tables] == ["second"]


@pytest.mark.parametrize(("status", "mark"), [("interrupted", "INCOMPLETE (interrupted)"), ("failed", "INCOMPLETE")])
def test_what_was_cut_short_says_so_first(status: str, mark: str) -> None:
    assert mark in list(lines(document(status=status)))[1]
    assert mark in render_page(page(document(status=status))).splitlines()[0]


def test_quick_says_that_it_does_not_conform() -> None:
    assert "QUICK (does not conform)" in render_page(page(document(quick=True))).splitlines()[0]


def test_markdown_shows_text_as_it_is() -> None:
    text = render_page(page(document()))
    assert "a\\|b" in text and "<script>" not in text and "&lt;script&gt;" in text
    assert "SIMULATED ENGINE" in text and "| Name | Value (ms) |" in text


def test_the_page_has_table_plot_and_marks() -> None:
    text = render(page(document()))
    assert "A plot" in text and "knee" in text and "A table" in text and "<script>alert" not in text
    assert "SIMULATED ENGINE" in text


@pytest.mark.parametrize(("value", "text"), [(float("inf"), "inf"), (float("-inf"), "-inf"), (float("nan"), "nan")])
def test_numbers_that_are_not_finite_are_shown(value: float, text: str) -> None:
    """A rate of `inf` sends everything at once, and its table is written like any other."""
    assert format_cell(value) == format_cell(value, "Load (%)") == text
