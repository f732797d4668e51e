"""Gives the values that a figure of one run is computed from, by request in order of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from fastllmload.arrays import Floats, Mask, Numbers, Values
from fastllmload.compare.figure import CLASS, GAPS, MODEL, ComparedFigure, TrafficPart
from fastllmload.metrics.distribution.summary import known, without_nulls
from fastllmload.metrics.objectives.objective import class_number
from fastllmload.metrics.objectives.report import meeting_all
from fastllmload.metrics.request.latencies import by_request, in_time
from fastllmload.metrics.run.per_backend import backends_of_rows
from fastllmload.metrics.run.per_model import models_of_rows
from fastllmload.metrics.run.sent_calls import SentCalls
from fastllmload.metrics.run.sessions import (
    Completed,
    Judged,
    asked_objectives,
    completed,
    counted_sessions,
    from_the_first_call,
    measured_calls,
)
from fastllmload.metrics.run.throughput import amounts_by_stretch, mean_time_s, stretches
from fastllmload.metrics.run.window import Window, populations, window_of
from fastllmload.metrics.tokens.counts import TokenCounts, answers_tokens, classes_with_tokens, count_tokens
from fastllmload.metrics.tokens.fluidity import fluidity_of
from fastllmload.metrics.tokens.itl import PooledGaps, pooled
from fastllmload.metrics.tokens.timeline import BEARING, stated_tokens
from fastllmload.metrics.tokens.times import token_times
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.statistics.interval import Sample

RATES_OF_SESSIONS = ("sessions_s", "session_goodput")


@dataclass(frozen=True)
class Stretches:
    """Amounts in equal parts of a window of *seconds*; requests last *lasting_s* on average."""

    amounts: Floats
    seconds: float
    lasting_s: float


def members_of(run: Run, part: TrafficPart) -> Mask:
    """Rows of the requests of *part*; none where the run does not have it."""
    found: Mask = np.zeros(len(run.rows), np.bool_)
    if part.kind == CLASS:
        number = class_number(part.name, run.document)
        return found if number is None else run.rows["request_class"] == number
    if part.kind == MODEL:
        models = models_of_rows(run)
        names = [one.name for one in run.document.plan.description.models]
        if models is None or part.name not in names:
            return found
        found = models == names.index(part.name)
        return found if part.of_class is None else found & members_of(run, TrafficPart(CLASS, part.of_class))
    backends = backends_of_rows(run)
    return (
        found
        if backends is None or part.name not in backends.names
        else backends.of_row == backends.names.index(part.name)
    )


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

    def __init__(self, run: Run, name: str, part: TrafficPart | None = None, of: RunSeries | None = None) -> None:
        """*part*: that whose requests alone are meant; *of*: the series of all requests then."""
        self.run, self.name, self.part, self.of = run, name, part, of
        self.window = window_of(run)
        self.chosen = populations(run, self.window)
        self.members = None if part is None else members_of(run, part)
        if self.members is not None:
            self.chosen = self.chosen.among(self.members)
        self.tokens: TokenCounts = count_tokens(run) if of is None else of.tokens
        self.of_class = part is not None and part.kind == CLASS
        self.by_part: dict[TrafficPart, RunSeries] = {}

    def of_part(self, part: TrafficPart) -> RunSeries:
        """The series of *part* alone."""
        if part not in self.by_part:
            self.by_part[part] = RunSeries(self.run, self.name, part, self)
        return self.by_part[part]

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
        """Gaps between tokens, or chunks, as pooled in run.json: of a class by how it was delivered, else by the run's."""
        if self.of is not None and self.members is not None and not self.of_class:
            return self.of.pooled.among(self.members)
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

    def _judged(self, calls: SentCalls, done: Completed) -> Judged:
        """The sessions by the objectives of the run, which those of its requests are part of."""
        good, asked = None, asked_objectives(self.run)
        if not all(one.of_sessions for one in asked):
            times = token_times(self.run, self.chosen.submitted, self.tokens)
            good = meeting_all(self.run, self.tokens, times, fluidity_of(self.run, self.tokens, times))
        return Judged.of(calls, done, good, [one for one in asked if one.of_sessions])

    def _of_sessions(self, figure: ComparedFigure) -> Values | None:
        return None if self.sessions is None else self.sessions[1].values.get(figure.metric)

    def sample(self, figure: ComparedFigure) -> Sample | None:
        """The figure's values; None where it is not computed from values of requests or sessions."""
        if figure.part is not None:
            return self.of_part(figure.part).sample(replace(figure, part=None))
        of_sessions = self._of_sessions(figure)
        if of_sessions is not None:
            values = without_nulls(of_sessions)
            return Sample(values, np.sort(values), called=figure.observed) if len(values) else None
        if figure.metric in GAPS:
            return self.gaps if len(self.gaps.values) else None
        if figure.metric not in self.latencies:
            return None
        values = without_nulls(self.latencies[figure.metric])
        return Sample(values, np.sort(values)) if len(values) else None

    def requests(self, figure: ComparedFigure) -> Numbers:
        """Number in the plan of each unit of `sample`; of a session that of its first call."""
        if figure.part is not None:
            return self.of_part(figure.part).requests(replace(figure, part=None))
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
        if figure.part is not None:
            return self.of_part(figure.part).successes(replace(figure, part=None))
        rows = self.run.rows[in_time(self.run.rows, self.chosen.submitted)]
        ok: Mask = rows["status"] == layout.OK
        return ok

    def rates(self, figure: ComparedFigure) -> Stretches | None:
        """Amounts of a rate over the window; None where the figure is not a rate of requests or tokens."""
        if figure.part is not None:
            return self.of_part(figure.part).rates(replace(figure, part=None))
        if self.window is None or self.window.seconds <= 0:
            return None
        if figure.metric in RATES_OF_SESSIONS and self.sessions is not None:
            calls, done = self.sessions
            amounts = counted_sessions(self.window, calls, done, self._judged(calls, done)).get(figure.metric)
            return None if amounts is None else Stretches(amounts, self.window.seconds, done.lasting_s)
        rows = self.run.rows
        ok = self.chosen.measured & (rows["status"] == layout.OK)
        if (
            figure.metric != "req_s"
            and classes_with_tokens(self.run.document)
            and (self.part is None or self.part.kind != CLASS)
        ):
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
