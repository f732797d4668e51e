"""Evaluates which requests met an objective, and by how much others missed it (spec/metrics 5.12); inclusive, integer ns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload._ext import tokenline
from fastllmload.metrics.objectives.objective import Objective
from fastllmload.metrics.request.durations import NULL, Mask, committed
from fastllmload.metrics.request.e2e import e2e, e2e_sched
from fastllmload.metrics.request.tpot import tpot, tpot_any
from fastllmload.metrics.request.ttft import ttft, ttft_any, ttft_sched
from fastllmload.metrics.tokens.fluidity import Fluidity
from fastllmload.metrics.tokens.idle import Reader, idle_latency, max_lateness
from fastllmload.metrics.tokens.times import TokenTimes
from fastllmload.records.layout import OK

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Values = npt.NDArray[Any]

# The deadline frameworks of the smooth-goodput paper, and the metrics of their objectives.
EVALUATORS = {
    "ttft_tbt": ("ttft", "tbt"),  # SG equation 2
    "e2e": ("e2el",),  # SG equation 3
    "reading": ("reading",),  # SG equation 4
    "ttft_tpot": ("ttft", "tpot"),
}


@dataclass(frozen=True)
class JudgedRequests:
    """The requests that objectives are about, one item per request of *times*.

    *rows*: their rows; *timed*: their content tokens, *output*: all of them, -1 where unknown; *fluid*: by the run's
    targets; *reader*: whose speed `idle` is computed for.
    """

    rows: npt.NDArray[Any]
    timed: Numbers
    output: Numbers
    times: TokenTimes
    fluid: Fluidity
    reader: Reader

    @property
    def ok(self) -> Mask:
        found: Mask = self.rows["status"] == OK
        return found

    @property
    def answered(self) -> Mask:
        """Requests with an answer token; an answer that is all reasoning has none."""
        found: Mask = self.rows["t_first"] > 0
        return found


@dataclass(frozen=True)
class ObjectiveOutcome:
    """*met*: requests that are ok and within the limit. *excess*: by how much the value is beyond the limit, in ns or
    as a share, below 0 within it; NaN without a value."""

    met: Mask
    excess: Floats


def longest_gap(judged: JudgedRequests, chunks: bool) -> Values:
    """Longest gap of each request between its tokens, or between its chunks, in ns; NaN without a gap."""
    of = judged.times.chunks if chunks else judged.times
    found = np.empty(len(judged.rows))
    tokenline.longest_gaps(of.t_ns, of.first, found)
    return found


def late_by(judged: JudgedRequests, reader: Reader) -> Numbers:
    """max_lateness for *reader*, from t_submit."""
    return max_lateness(judged.rows, judged.times, reader, committed(judged.rows))


# Metric -> its value per request: ns (NULL or NaN where it has none), or a share.
VALUES: dict[str, Callable[[JudgedRequests], Values]] = {
    "ttft": lambda judged: ttft(judged.rows),
    "ttft_sched": lambda judged: ttft_sched(judged.rows),
    "ttft_any": lambda judged: ttft_any(judged.rows),
    "tpot": lambda judged: tpot(judged.rows, judged.timed),
    "tpot_any": lambda judged: tpot_any(judged.rows, judged.output),
    "e2el": lambda judged: e2e(judged.rows),
    "e2el_sched": lambda judged: e2e_sched(judged.rows),
    "itl": lambda judged: longest_gap(judged, chunks=False),
    "tbt": lambda judged: longest_gap(judged, chunks=False),
    "tbc": lambda judged: longest_gap(judged, chunks=True),
    "idle": lambda judged: idle_latency(late_by(judged, judged.reader)),
    "fluidity": lambda judged: judged.fluid.index,
}
NULL_PASSES = frozenset({"tpot", "tpot_any", "itl", "tbt", "tbc"})  # one token has no gap that could be too long
OF_ALL_TOKENS = frozenset({"ttft_any", "tpot_any", "e2el", "e2el_sched"})  # all others need an answer token


def outcome(judged: JudgedRequests, asked: Objective) -> ObjectiveOutcome:
    """The outcome for every request, whatever its class. An answer that is all reasoning misses objectives of the answer,
    because its reader received none.
    """
    meets = judged.ok if asked.metric in OF_ALL_TOKENS else judged.ok & judged.answered
    if asked.metric == "reading":
        return compared(meets, late_by(judged, Reader(asked.limit)), 0, False)
    values = VALUES[asked.metric](judged)
    if asked.unit == "share":
        return compared(meets, -values, -asked.limit, False)
    return compared(meets, values, round(asked.limit * 1e6), asked.metric in NULL_PASSES)


def compared(may_meet: Mask, values: Values, limit: float, null_passes: bool) -> ObjectiveOutcome:
    """Values of at most *limit* meet it, among the requests that *may_meet* it."""
    null = values == NULL if values.dtype == np.int64 else np.isnan(values)
    met = np.where(null, null_passes, values <= limit)
    return ObjectiveOutcome(may_meet & met, np.where(null | ~may_meet, np.nan, values - limit))


def evaluator(metrics: set[str]) -> str | None:
    """The framework whose metrics these are; None for any other combination."""
    names = {"tbt" if name == "itl" else name for name in metrics}
    return next((name for name, parts in EVALUATORS.items() if set(parts) == names), None)
