"""The data of all sections of the page, computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.documents.certificate import Certificate
from fastllmload.documents.run import RunDocument
from fastllmload.metrics.request.tpot import came_whole
from fastllmload.metrics.run.window import Populations, on_schedule, populations, window_of
from fastllmload.metrics.tokens.idle import Reader, reader_of
from fastllmload.records.integrity import EVENTS
from fastllmload.records.run import DONE, Run
from fastllmload.report.series.axis import TimeAxis, time_axis
from fastllmload.report.series.tokens import TokenSeries, token_series
from fastllmload.report.text.tokens import gap_name


@dataclass
class ReportContext:
    """A run, its run.json, and data of several sections. *axis* is None when nothing was sent, *tokens* also where events
    are lost. Incomplete rows or events are not drawn, as charts of a part would be misleading.
    """

    run: Run

    def __post_init__(self) -> None:
        self.run = self.run.intact

    def reason(self, otherwise: str, *names: str) -> str:
        """The reason for an empty chart: one of the files *names* is damaged, or else *otherwise*."""
        if self.run.damage_of(*names):
            return "Not drawn: a file that this chart needs is damaged, see above."
        return (
            "Not drawn: the events stayed on their hosts (--collect summary)." if self.run.lost(*names) else otherwise
        )

    @property
    def document(self) -> RunDocument:
        return self.run.document

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
        return reader_of(self.run.document.config.output)

    @cached_property
    def gap_name(self) -> str:
        """The metric of the gaps: itl, itl_b, or tbc between chunks (IETF B.2.1)."""
        return gap_name(self.document)

    @cached_property
    def complete(self) -> bool:
        return self.document.status == DONE

    @cached_property
    def damage(self) -> tuple[str, ...]:
        """Damage of the files of the folder, without the folder name."""
        return tuple(text.replace(f"{self.run.directory}/", "") for text in self.run.damage)

    @cached_property
    def certificate(self) -> Certificate:
        """The certificate; an empty one where the client was not judged."""
        return self.document.certificate or Certificate()

    def milliseconds(self, start: str, end: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """(t_submit, end - start in ms) of the latency population, without rows that lack one of the two, and from t_sched
        those of open loops where these are mixed with closed ones.
        """
        rows = self.latency_rows
        rows = rows[on_schedule(self.document.plan.description, rows["request_class"])] if start == "t_sched" else rows
        both = (rows[start] > 0) & (rows[end] > 0)
        return rows["t_submit"][both], (rows[end][both] - rows[start][both]) / 1e6
