"""Tables that are declared as columns: cells, headings, and what each column or row reveals."""

from __future__ import annotations

import numpy as np

from fastllmload.experiment.level.tables import MOST_POINTS, Column, tabulate, thinned, transpose
from fastllmload.experiment.report.findings import LOAD, NOTHING, SHARE, Findings

COLUMNS: tuple[Column[int], ...] = (
    Column("n", lambda n: n, LOAD),
    Column("square", lambda n: n * n),
    Column("share (%)", lambda n: f"{n}%", SHARE),
)


def test_a_row_for_each_subject_and_a_column_for_each_subject() -> None:
    """What the columns reveal goes with the columns, or with the rows when they are rows."""
    found = Findings()
    tabulate(found, "a", "A", COLUMNS, (2, 3), "a note", reveals=NOTHING)
    transpose(found, "b", "B", COLUMNS, {"two": 2, "three": 3}, public=("Metric", "x", "y"))
    upright, turned = found.tables
    assert upright.columns == ("n", "square", "share (%)") and upright.rows == ((2, 4, "2%"), (3, 9, "3%"))
    assert (
        upright.column_reveals == (LOAD, NOTHING, SHARE) and upright.row_reveals == () and upright.notes == ("a note",)
    )
    assert turned.columns == ("Metric", "two", "three") and turned.public_columns == ("Metric", "x", "y")
    assert turned.rows == (("n", 2, 3), ("square", 4, 9), ("share (%)", "2%", "3%"))
    assert turned.row_reveals == (LOAD, NOTHING, SHARE) and turned.column_reveals == ()


def test_columns_that_reveal_nothing_are_not_listed() -> None:
    found = Findings()
    tabulate(found, "a", "A", COLUMNS[1:2], (2,))
    assert found.tables[0].reveals is LOAD and found.tables[0].column_reveals == ()


def test_a_plot_has_the_ends_of_a_distribution_that_is_thinned() -> None:
    assert thinned(np.array([1.0, 2.0])) == (1.0, 2.0)
    many = thinned(np.arange(20_001.0))
    assert len(many) == MOST_POINTS and (many[0], many[-1]) == (0.0, 20_000.0)
