"""The findings of a test: figures, tables with the draft's columns, plots, sentences. Plain values in procedure.json."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fastllmload.errors import coded
from fastllmload.report.text.numbers import percent

SHARES = ("success_rate", "slo_attainment")
Cell = str | float | int | None


@dataclass(frozen=True)
class FindingTable:
    """*rows* contain numbers in the unit of their column; None is "n/a"."""

    id: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FindingSeries:
    """*style*: "" for that of the plot's kind, else line, dash, step or points. For a cdf *y* holds the values."""

    name: str
    y: tuple[float | None, ...]
    x: tuple[float, ...] = ()
    style: str = ""


@dataclass(frozen=True)
class FindingMark:
    """A limit, a knee: a line at *at* across *axis* ("x" or "y")."""

    axis: str
    at: float
    label: str


@dataclass(frozen=True)
class FindingPlot:
    """*kind*: line, scatter, cdf or bars (one group for each of *names*). *x*, *y*: label, unit, logarithmic."""

    id: str
    title: str
    kind: str
    series: tuple[FindingSeries, ...]
    x: tuple[str, str, bool | None] = ("", "", None)
    y: tuple[str, str, bool | None] = ("", "", None)
    names: tuple[str, ...] = ()
    marks: tuple[FindingMark, ...] = ()
    note: str = ""


@dataclass
class Findings:
    """Filled while a test runs, so that a test that is stopped keeps its findings so far."""

    values: dict[str, Any] = field(default_factory=dict)
    tables: list[FindingTable] = field(default_factory=list)
    plots: list[FindingPlot] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    deviations: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def table(self, id: str, title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], *notes: str) -> None:
        """Add the table, or replace the one with the same id."""
        made = FindingTable(id, title, tuple(columns), tuple(tuple(row) for row in rows), notes)
        self.tables = [table for table in self.tables if table.id != id] + [made]

    def plot(self, plot: FindingPlot) -> None:
        self.plots = [other for other in self.plots if other.id != plot.id] + [plot]

    def say(self, sentence: str) -> None:
        if sentence not in self.sentences:
            self.sentences.append(sentence)

    def deviate(self, sentence: str) -> None:
        if sentence not in self.deviations:
            self.deviations.append(sentence)

    def warn(self, code: str, sentence: str) -> None:
        if coded(code, sentence) not in self.warnings:
            self.warnings.append(coded(code, sentence))

    def entries(self) -> dict[str, Any]:
        """The entries of procedure.json."""
        return {
            "findings": self.values,
            "tables": [asdict(table) for table in self.tables],
            "plots": [asdict(plot) for plot in self.plots],
            "sentences": self.sentences,
            "deviations": self.deviations,
            "warnings": self.warnings,
        }


def in_percent(key: str, value: float | None) -> str | float | None:
    """A share as `99.4 %`, as in every other report; any other figure unchanged."""
    return percent(value) if key in SHARES and value is not None else value


def format_cell(value: Cell, column: str = "") -> str:
    """A cell as text: four significant digits, thousands separators; with `%` if *column* ends with `(%)`."""
    if value is None:
        return "n/a"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    percent = column.endswith("(%)")
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}" + ("%" if percent else "")
    text = f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    return text + ("%" if percent else "")
