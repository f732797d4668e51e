"""Evaluates which requests met an objective, and by how much others missed it (spec/metrics 5.12); inclusive, integer ns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fastllmload._ext.measure import tokenline
from fastllmload.arrays import Floats, Mask, Numbers, Rows, Values
from fastllmload.metrics.request.durations import NULL, committed, e2e, e2e_sched, ttft, ttft_any, ttft_sched
from fastllmload.metrics.request.tpot import tpot, tpot_any
from fastllmload.metrics.tokens.fluidity import Fluidity
from fastllmload.metrics.tokens.idle import Reader, idle_latency, max_lateness
from fastllmload.metrics.tokens.times import TokenTimes
from fastllmload.records.layout import OK

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
    targets; *reader*: whose speed `idle` is computed for; *acted*: ns to the first action, None: no reply has a tool call.
    """

    rows: Rows
    timed: Numbers
    output: Numbers
    times: TokenTimes
    fluid: Fluidity
    reader: Reader
    acted: Numbers | None = None

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
    """*met*: requests that are ok and within the limit. *excess*: by how much the value is beyond the limit, in ns where
    that is in ms, else in its unit, below 0 within it; NaN without a value."""

    met: Mask
    excess: Floats


def longest_gap(judged: JudgedRequests, chunks: bool) -> Values:
    """Longest gap of each request between its tokens, or between its chunks, in ns; NaN without a gap."""
    if judged.times.totals is not None:
        return np.ascontiguousarray(judged.times.totals["chunk_pause" if chunks else "token_pause"])
    of = judged.times.chunks if chunks else judged.times
    found = np.empty(len(judged.rows))
    tokenline.longest_gaps(of.t_ns, of.first, found)
    return found


def late_by(judged: JudgedRequests, reader: Reader) -> Numbers:
    """max_lateness for *reader*, from t_submit."""
    return max_lateness(judged.rows, judged.times, reader, committed(judged.rows))


@dataclass(frozen=True)
class RequestMetric:
    """A metric with one value per request, which objectives can limit.

    *unit* of the limit: ms, share, tokens/s or count. *value*: of each request, in ns where the limit is in ms (NULL or NaN:
    none); *least*: it must be at least the limit, else at most. *null_passes*: a request without a value meets any limit.
    *all_tokens*: it is also about answers that are all reasoning. *title*: its distribution is in `metrics` of run.json and
    in the reports under that title; without one it has an entry of its own there, or none.
    """

    unit: str
    value: Callable[[JudgedRequests], Values]
    least: bool = False
    null_passes: bool = False
    all_tokens: bool = False
    title: str = ""


# By name: vLLM's names, and those of the deadline frameworks of the smooth-goodput paper. One token has no gap that could be
# too long, so the gaps of a request without any meet their limit.
METRICS: dict[str, RequestMetric] = {
    "ttft": RequestMetric("ms", lambda judged: ttft(judged.rows)),
    "tpot": RequestMetric("ms", lambda judged: tpot(judged.rows, judged.timed), null_passes=True),
    "e2el": RequestMetric("ms", lambda judged: e2e(judged.rows), all_tokens=True),
    "itl": RequestMetric("ms", lambda judged: longest_gap(judged, chunks=False), null_passes=True),
    "tbt": RequestMetric("ms", lambda judged: longest_gap(judged, chunks=False), null_passes=True),
    "tbc": RequestMetric("ms", lambda judged: longest_gap(judged, chunks=True), null_passes=True),
    "idle": RequestMetric("ms", lambda judged: idle_latency(late_by(judged, judged.reader))),
    "reading": RequestMetric("tokens/s", lambda judged: late_by(judged, judged.reader), least=True),  # see outcome
    "fluidity": RequestMetric("share", lambda judged: judged.fluid.index, least=True),
    "ttft_sched": RequestMetric("ms", lambda judged: ttft_sched(judged.rows)),
    "e2el_sched": RequestMetric("ms", lambda judged: e2e_sched(judged.rows), all_tokens=True),
    "ttft_any": RequestMetric("ms", lambda judged: ttft_any(judged.rows), all_tokens=True),
    "ttfa": RequestMetric("ms", lambda judged: ttft(judged.rows) if judged.acted is None else judged.acted),
    "tpot_any": RequestMetric(
        "ms", lambda judged: tpot_any(judged.rows, judged.output), null_passes=True, all_tokens=True
    ),
}


OF_ANSWERS = ("e2el", "e2el_sched")  # of METRICS: those of answers that are not tokens
# What a session as a whole can be limited to, and its unit: `sessions` of run.json says how many meet it.
OF_SESSIONS = {"session_makespan": "ms", "session_first_action": "ms", "session_stretch": "factor"}


def outcome(judged: JudgedRequests, name: str, limit: float) -> ObjectiveOutcome:
    """The outcome for every request, whatever its class; *name* is a key of METRICS, *limit* in its unit. An answer that is
    all reasoning misses objectives of the answer, because its reader received none.
    """
    metric = METRICS[name]
    meets = judged.ok if metric.all_tokens else judged.ok & judged.answered
    if name == "reading":  # the limit is the reader's speed: no token may be late for it
        return compared(meets, late_by(judged, Reader(limit)), 0, False)
    values = metric.value(judged)
    if metric.unit == "ms":
        limit = round(limit * 1e6)
    if metric.least:
        return compared(meets, -values, -limit, metric.null_passes)
    return compared(meets, values, limit, metric.null_passes)


def compared(may_meet: Mask, values: Values, limit: float, null_passes: bool) -> ObjectiveOutcome:
    """Values of at most *limit* meet it, among the requests that *may_meet* it."""
    null = values == NULL if values.dtype == np.int64 else np.isnan(values)
    met = np.where(null, null_passes, values <= limit)
    return ObjectiveOutcome(may_meet & met, np.where(null | ~may_meet, np.nan, values - limit))


def evaluator(metrics: set[str]) -> str | None:
    """The framework whose metrics these are; None for any other combination."""
    names = {"tbt" if name == "itl" else name for name in metrics}
    return next((name for name, parts in EVALUATORS.items() if set(parts) == names), None)
