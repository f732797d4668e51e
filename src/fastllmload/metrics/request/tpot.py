"""Computes time per output token of each request, and variants (spec/metrics 5.4, 5.5): float ns per row, NaN for null."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.request.durations import Mask, between, to_float
from fastllmload.metrics.request.e2e import e2e, e2e_sched
from fastllmload.metrics.tokens.counts import UNKNOWN
from fastllmload.records.layout import FLAG_STREAM
from fastllmload.records.run import Run

Rows = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


def divide(numerator: Floats, count: Numbers, least: int) -> Floats:
    """numerator / count, NaN where count < *least*."""
    enough = count >= least
    return np.where(enough, numerator / np.where(enough, count, 1), np.nan)


def came_whole(run: Run) -> Mask:
    """Rows whose answer was not streamed: all tokens came at one instant, without gaps.

    All rows where the plan requests no streams; else those that were answered by a single body.
    """
    if run.document.plan.description.streaming is False:
        return np.ones(len(run.rows), np.bool_)
    found: Mask = (run.rows["flags"] & FLAG_STREAM == 0) & (run.rows["events"] == 1)
    return found


def spaced(run: Run, count: Numbers) -> Numbers:
    """Token counts for metrics of gaps: UNKNOWN where answers were not streamed, because TPOT would be 0."""
    single = came_whole(run)
    return np.where(single, UNKNOWN, count) if single.any() else count


def tpot(rows: Rows, timed: Numbers) -> Floats:
    """(t_last - t_first) / (n - 1) over the n *timed* tokens; null for n < 2. BLOG calls it ITL."""
    return divide(to_float(between(rows, "t_first", "t_last")), timed - 1, 1)


def tpot_n(rows: Rows, timed: Numbers) -> Floats:
    """(t_last - t_first) / n: one interpretation of etalon's definition."""
    return divide(to_float(between(rows, "t_first", "t_last")), timed, 1)


def tpot_any(rows: Rows, output: Numbers) -> Floats:
    """(t_last - t_any) / (output tokens - 1): reasoning and leading whitespace included."""
    return divide(to_float(between(rows, "t_any", "t_last")), output - 1, 1)


def norm_latency(rows: Rows, output: Numbers) -> Floats:
    """e2e / output tokens (etalon); null for 0 tokens."""
    return divide(to_float(e2e(rows)), output, 1)


def norm_latency_sched(rows: Rows, output: Numbers) -> Floats:
    """e2e_sched / output tokens."""
    return divide(to_float(e2e_sched(rows)), output, 1)
