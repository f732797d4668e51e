"""Gives the values that a figure of one run is computed from, by request in order of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from fastllmload.arrays import Floats, Mask, Numbers, Values
from fastllmload.compare.figure import GAPS, ComparedFigure
from fastllmload.metrics.distribution.summary import known, without_nulls
from fastllmload.metrics.objectives.objective import class_number
from fastllmload.metrics.request.latencies import by_request, in_time
from fastllmload.metrics.run.sessions import Completed, SentCalls, completed, from_the_first_call, measured_calls
from fastllmload.metrics.run.throughput import amounts_by_stretch, mean_time_s, stretches
from fastllmload.metrics.run.window import Window, populations, window_of
from fastllmload.metrics.tokens.counts import answers_tokens, classes_with_tokens, count_tokens
from fastllmload.metrics.tokens.itl import PooledGaps, pooled
from fastllmload.metrics.tokens.timeline import BEARING, stated_tokens
from fastllmload.metrics.tokens.times import token_times
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.statistics.interval import Sample


@dataclass(frozen=True)
class Stretches:
    """Amounts in equal parts of a window of *seconds*; requests last *lasting_s* on average."""

    amounts: Floats
    seconds: float
    lasting_s: float


class ValueSeries(Protocol):
    """What the figures of a run are computed from: of a run of ours, or of a result file of another tool."""

    name: str

    @property
    def latencies(self) -> Mapping[str, Values]: ...
    def sample(self, figure: ComparedFigure) -> Sample | None: ...
    def requests(self, figure: ComparedFigure) -> Numbers: ...
    def successes(self, figure: ComparedFigure) -> Mask: ...
    def rates(self, figure: ComparedFigure) -> Stretches | None: ...


class RunSeries:
    """The series of one run, each computed on first use."""

    def __init__(self, run: Run, name: str, request_class: int | None = None) -> None:
        """*request_class*: number of the class whose requests alone are meant."""
        self.run, self.name, self.request_class = run, name, request_class
        self.window = window_of(run)
        self.chosen = populations(run, self.window)
        if request_class is not None:
            self.chosen = self.chosen.among(run.rows["request_class"] == request_class)
        self.tokens = count_tokens(run)
        self.by_class: dict[str, RunSeries] = {}

    def of_class(self, name: str) -> RunSeries:
        """The series of the class *name* alone."""
        if name not in self.by_class:
            self.by_class[name] = RunSeries(self.run, self.name, class_number(name, self.run.document))
        return self.by_class[name]

    @cached_property
    def chosen_rows(self) -> Numbers:
        """Rows of the latency population, in order of time."""
        return in_time(self.run.rows, self.chosen.latency)

    @cached_property
    def latencies(self) -> dict[str, Values]:
        """Metric → ns, or null, of each request of the latency population."""
        return by_request(self.run, self.tokens, self.chosen_rows)

    @cached_property
    def pooled(self) -> PooledGaps:
        """Gaps between tokens, or chunks, as pooled in run.json."""
        times = token_times(self.run, self.chosen.submitted, self.tokens)
        return pooled(self.run, self.chosen.latency, self.tokens, times)

    @cached_property
    def gaps(self) -> Sample:
        """`pooled` as a sample, in ns."""
        found = self.pooled.gaps
        return Sample(found.each, np.sort(found.each), found.first)

    @cached_property
    def sessions(self) -> tuple[SentCalls, Completed] | None:
        """The sessions whose values `sample` has; None where the run has none."""
        calls = None if self.window is None else measured_calls(self.run, self.chosen)
        if calls is None or self.window is None:
            return None
        return calls, completed(self.run, calls, self.window, from_the_first_call(self.run, calls))

    def _of_sessions(self, figure: ComparedFigure) -> Values | None:
        return None if self.sessions is None else self.sessions[1].values.get(figure.metric)

    def sample(self, figure: ComparedFigure) -> Sample | None:
        """The figure's values; None where it is not computed from values of requests or sessions."""
        if figure.of_class is not None:
            return self.of_class(figure.of_class).sample(replace(figure, of_class=None))
        of_sessions = self._of_sessions(figure)
        if of_sessions is not None:
            values = without_nulls(of_sessions)
            return Sample(values, np.sort(values)) if len(values) else None
        if figure.metric in GAPS:
            return self.gaps if len(self.gaps.values) else None
        if figure.metric not in self.latencies:
            return None
        values = without_nulls(self.latencies[figure.metric])
        return Sample(values, np.sort(values)) if len(values) else None

    def requests(self, figure: ComparedFigure) -> Numbers:
        """Number in the plan of each unit of `sample`; of a session that of its first call."""
        if figure.of_class is not None:
            return self.of_class(figure.of_class).requests(replace(figure, of_class=None))
        of_sessions = self._of_sessions(figure)
        if self.sessions is not None and of_sessions is not None:
            calls, done = self.sessions
            first: Numbers = calls.rows["request"][calls.first[done.number]].astype(np.int64)
            return first[known(of_sessions)]
        rows = self.chosen_rows
        if figure.metric in GAPS:
            rows = self.pooled.rows
        elif figure.metric in self.latencies:
            rows = rows[known(self.latencies[figure.metric])]
        found: Numbers = self.run.rows["request"][rows].astype(np.int64)
        return found

    def successes(self, figure: ComparedFigure) -> Mask:
        """Of the requests submitted in the window, in order of time: which were ok."""
        if figure.of_class is not None:
            return self.of_class(figure.of_class).successes(replace(figure, of_class=None))
        rows = self.run.rows[in_time(self.run.rows, self.chosen.submitted)]
        ok: Mask = rows["status"] == layout.OK
        return ok

    def rates(self, figure: ComparedFigure) -> Stretches | None:
        """Amounts of a rate over the window; None where the figure is not a rate of requests or tokens."""
        if figure.of_class is not None:
            return self.of_class(figure.of_class).rates(replace(figure, of_class=None))
        if self.window is None or self.window.seconds <= 0:
            return None
        if figure.metric == "sessions_s" and self.sessions is not None:
            done = self.sessions[1]
            amounts = amounts_by_stretch(done.ended, np.ones(len(done.ended)), self.window)
            return Stretches(
                amounts, self.window.seconds, float(done.makespan.mean()) / 1e9 if len(done.makespan) else 0.0
            )
        rows = self.run.rows
        ok = self.chosen.measured & (rows["status"] == layout.OK)
        if figure.metric != "req_s" and classes_with_tokens(self.run.document) and self.request_class is None:
            ok &= answers_tokens(self.run)
        missed = self.tokens.input - np.maximum(rows["cached_tokens"], 0)
        found = stretches(self.run, self.window, ok, self.chosen.measured & ~ok, self.tokens, missed)
        if figure.metric not in found:
            return None
        exact = self.tokens_by_event(self.window, ok) if figure.metric == "output_tok_s" else found[figure.metric]
        return Stretches(exact, self.window.seconds, mean_time_s(rows[ok]))

    def tokens_by_event(self, window: Window, ok: Mask) -> Floats:
        """float64[BATCHES]: every token counted at the time of its event, the main difference of runs of one plan."""
        events = self.run.events
        chosen = np.flatnonzero(BEARING[events["kind"]] & ok[events["row"]])
        row, weight = events["row"][chosen], stated_tokens(events["tokens"][chosen], 1).astype(np.float64)
        total = np.bincount(row, weight, len(ok))
        each = np.maximum(self.tokens.output, 0) / np.maximum(total, 1)
        return amounts_by_stretch(events["t_ns"][chosen], weight * each[row], window)
