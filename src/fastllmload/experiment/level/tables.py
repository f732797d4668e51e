"""Tables of levels as declarations. A column has a heading with its unit, says how the cell of one subject (a level, a state
of the system) is computed, and what it reveals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from fastllmload.documents.experiment import Cell
from fastllmload.documents.fields import Reveals
from fastllmload.experiment.level.result import Measured
from fastllmload.experiment.report.findings import LOAD, NOTHING, Findings

MOST_POINTS = 4_000  # of a distribution in a plot
T = TypeVar("T", contravariant=True)


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column of a table with a row for each subject, or a row of one with a column for each. *reveals* counts in a table
    that reveals nothing else.
    """

    heading: str
    cell: Callable[[T], Cell]
    reveals: Reveals = NOTHING


def figure(metric: str, statistic: str = "value", heading: str = "") -> Column[Measured]:
    """*heading*: by default that of a latency, `TTFT P99 (ms)`."""
    heading = heading or f"{metric.upper()} {statistic.capitalize()} (ms)"
    return Column(heading, lambda of: of.figure(metric, statistic))


def output_tok_s(heading: str = "Output (tok/s)", reveals: Reveals = NOTHING) -> Column[Measured]:
    return Column(heading, lambda of: of.figure("output_tok_s") or 0.0, reveals)


def req_s(heading: str = "Requests (r/s)") -> Column[Measured]:
    return Column(heading, lambda of: of.figure("req_s") or 0.0)


def success(heading: str, digits: int = 2, reveals: Reveals = NOTHING) -> Column[Measured]:
    """The success rate in percent, as text."""

    def cell(of: Measured) -> str:
        share = of.figure("success_rate")
        return "n/a" if share is None else f"{share:.{digits}%}"

    return Column(heading, cell, reveals)


def tabulate(
    found: Findings, id: str, title: str, columns: Sequence[Column[T]], subjects: Iterable[T], *notes: str,
    reveals: Reveals = LOAD,
) -> None:  # fmt: skip
    """Add a table with a row for each of *subjects*."""
    rows = [[column.cell(subject) for column in columns] for subject in subjects]
    heads = [column.heading for column in columns]
    found.table(id, title, heads, rows, *notes, reveals=reveals, column_reveals=declared(columns))


def transpose(
    found: Findings, id: str, title: str, rows: Sequence[Column[T]], subjects: Mapping[str, T], *notes: str,
    reveals: Reveals = NOTHING, public: Sequence[str] = (),
) -> None:  # fmt: skip
    """Add a table with a column for each of *subjects*, by its heading. *public*: headings that reveal nothing."""
    cells = [[row.heading, *map(row.cell, subjects.values())] for row in rows]
    heads = ("Metric", *subjects)
    found.table(id, title, heads, cells, *notes, reveals=reveals, row_reveals=declared(rows), public_columns=public)


def declared(columns: Sequence[Column[T]]) -> tuple[Reveals, ...]:
    """What each column reveals; empty if none reveals anything."""
    found = tuple(column.reveals for column in columns)
    return found if any(one is not NOTHING for one in found) else ()


def thinned(ordered: npt.NDArray[np.float64]) -> tuple[float, ...]:
    """Ascending values, or their quantiles if they are too many for a plot."""
    if len(ordered) > MOST_POINTS:
        ordered = np.quantile(ordered, np.linspace(0, 1, MOST_POINTS))
    return tuple(float(value) for value in ordered)
