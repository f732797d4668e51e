"""The findings of a test: figures, tables with the draft's columns, plots, sentences. As in procedure.json."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fastllmload.documents.experiment import Cell, ExperimentDocument, FindingPlot, FindingTable, FindingValues
from fastllmload.documents.fields import Reveals
from fastllmload.errors import coded
from fastllmload.report.text.numbers import percent

SHARES = ("success_rate", "slo_attainment")
LOAD, SHARE, NOTHING = Reveals.LOAD, Reveals.SHARE, Reveals.NOTHING


@dataclass
class Findings:
    """Filled while a test runs, so that a test that is stopped keeps its findings so far. *values*: its figures.

    A sentence may quote any figure unless it is declared *public*.
    """

    values: FindingValues = field(default_factory=FindingValues)
    tables: list[FindingTable] = field(default_factory=list)
    plots: list[FindingPlot] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    deviations: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    public: list[str] = field(default_factory=list)

    def table(
        self,
        id: str,
        title: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        *notes: str,
        reveals: Reveals = Reveals.LOAD,
        column_reveals: Sequence[Reveals] = (),
        row_reveals: Sequence[Reveals] = (),
        public_columns: Sequence[str] = (),
    ) -> None:
        """Add the table, or replace the one with the same id. A table may reveal the load unless *reveals* says NOTHING;
        then *column_reveals* and *row_reveals* say it of columns and rows. *public_columns*: titles for a published table,
        where *columns* quote a load.
        """
        made = FindingTable(
            id, title, tuple(columns), tuple(tuple(row) for row in rows), notes, reveals, tuple(column_reveals),
            tuple(row_reveals), tuple(public_columns),
        )  # fmt: skip
        self.tables = [table for table in self.tables if table.id != id] + [made]

    def plot(self, plot: FindingPlot) -> None:
        self.plots = [other for other in self.plots if other.id != plot.id] + [plot]

    def say(self, sentence: str, public: bool = False) -> None:
        self._add(self.sentences, sentence, public)

    def deviate(self, sentence: str, public: bool = False) -> None:
        self._add(self.deviations, sentence, public)

    def warn(self, code: str, sentence: str, public: bool = False) -> None:
        self._add(self.warnings, coded(code, sentence), public)

    def _add(self, texts: list[str], sentence: str, public: bool) -> None:
        if sentence not in texts:
            texts.append(sentence)
        if public:
            self.publish(sentence)

    def entries(self, document: ExperimentDocument) -> dict[str, Any]:
        """Entries of *document* with these findings, after the remarks that it already has."""
        return {
            "findings": self.values,
            "tables": tuple(self.tables),
            "plots": tuple(self.plots),
            "sentences": tuple(self.sentences),
            "deviations": tuple(dict.fromkeys([*document.deviations, *self.deviations])),
            "warnings": tuple(dict.fromkeys([*document.warnings, *self.warnings])),
            "public": tuple(dict.fromkeys([*document.public, *self.public])),
        }

    def publish(self, text: str) -> str:
        """Declare that *text* (of a note, for example) reveals nothing, and return it."""
        if text not in self.public:
            self.public.append(text)
        return text


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
