"""All that the sections of the page draw from, computed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.request.tpot import came_whole
from fastllmload.metrics.run.window import Populations, populations, window_of
from fastllmload.metrics.tokens.idle import Reader, reader_of
from fastllmload.records.integrity import EVENTS
from fastllmload.records.run import DONE, Run
from fastllmload.report.html.charts.figure import Figures
from fastllmload.report.series.axis import TimeAxis, time_axis
from fastllmload.report.series.tokens import TokenSeries, token_series
from fastllmload.report.terminal.summary import part

GAP_NAMES = ("itl", "itl_b", "tbc")


@dataclass
class ReportContext:
    """A run, its run.json, and what several sections need. *axis* is None when nothing was sent, *tokens* also where
    events are lost. Rows or events that are not whole are not drawn at all: part of them looks like another run.
    """

    run: Run
    document: Mapping[str, Any]
    figures: Figures = field(default_factory=Figures)

    def __post_init__(self) -> None:
        self.run = self.run.whole

    def why(self, otherwise: str, *names: str) -> str:
        """Why there is nothing to draw from the files *names*: they are damaged, or else *otherwise*."""
        return "Not drawn: a file that it needs is damaged, see above." if self.run.lost(*names) else otherwise

    @cached_property
    def axis(self) -> TimeAxis | None:
        return time_axis(self.run)

    @cached_property
    def populations(self) -> Populations:
        return populations(self.run, window_of(self.run) if self.axis is None else self.axis.window)

    @cached_property
    def latency_rows(self) -> npt.NDArray[Any]:
        """Rows of the latency population."""
        return self.run.rows[self.populations.latency]

    @cached_property
    def tokens(self) -> TokenSeries | None:
        if self.axis is None or self.run.lost(EVENTS):
            return None
        streamed = self.populations.latency & ~came_whole(self.run)
        return token_series(self.run, self.axis, streamed, self.gap_name != "tbc", self.reader)

    @cached_property
    def reader(self) -> Reader:
        return reader_of(self.run.manifest)

    @cached_property
    def gap_name(self) -> str:
        """Under which name the gaps were pooled: itl, itl_b, or tbc between chunks (metrics.md 3.4)."""
        return next((name for name in GAP_NAMES if part(self.document, "metrics", name, "n")), "itl")

    @cached_property
    def complete(self) -> bool:
        return self.document.get("status") == DONE

    @cached_property
    def damage(self) -> tuple[str, ...]:
        """What is wrong with the folder's files, without the folder's name."""
        return tuple(text.replace(f"{self.run.directory}/", "") for text in self.run.damage)

    def get(self, *keys: str) -> Any:
        """What stands in run.json at *keys*, None where a step is missing."""
        return part(self.document, *keys)

    def milliseconds(self, start: str, end: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """(t_submit, end - start in ms) of the latency population, rows that lack one of the two left out."""
        rows = self.latency_rows
        both = (rows[start] > 0) & (rows[end] > 0)
        return rows["t_submit"][both], (rows[end][both] - rows[start][both]) / 1e6
