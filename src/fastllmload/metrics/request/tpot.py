"""Computes time per output token of each request in float ns (spec/metrics 5.4, 5.5), and its tokens per second by three
definitions with three names (5.6). NaN for null.
"""

from __future__ import annotations

import numpy as np

from fastllmload.arrays import Floats, Mask, Numbers, Rows
from fastllmload.metrics.request.durations import NULL, between, e2e, e2e_dispatch, e2e_sched, gen_duration, to_float
from fastllmload.metrics.tokens.counts import UNKNOWN
from fastllmload.records.layout import FLAG_STREAM
from fastllmload.records.run import Run

SHORTEST_NS = 10_000_000  # below 10 ms of generation the rate is degenerate: 0.0 (ASIAI-M1)


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


def per_second(tokens: Numbers, duration_ns: Floats) -> Floats:
    """tokens / duration in 1/s, NaN for no duration or one of 0."""
    usable = duration_ns > 0
    return np.where(usable, tokens * 1e9 / np.where(usable, duration_ns, 1), np.nan)


def gen_tok_s(rows: Rows, output: Numbers) -> Floats:
    """output tokens / gen_duration; 0.0, *degenerate*, when that is below 10 ms (ASIAI-M1: n, not n - 1)."""
    duration = gen_duration(rows)
    rate = per_second(output, to_float(duration))
    return np.where(duration == NULL, np.nan, np.where(duration < SHORTEST_NS, 0.0, rate))


def degenerate(rows: Rows) -> Mask:
    """Rows whose gen_tok_s is 0.0 by rule; averages leave them out, and their number is reported."""
    duration = gen_duration(rows)
    found: Mask = (duration != NULL) & (duration < SHORTEST_NS)
    return found


def decode_tok_s(rows: Rows, timed: Numbers) -> Floats:
    """1 / tpot."""
    each = tpot(rows, timed)
    return np.where(each > 0, 1e9 / np.where(each > 0, each, 1), np.nan)


def request_tok_s(rows: Rows, output: Numbers) -> Floats:
    """output tokens / e2e."""
    return per_second(output, to_float(e2e(rows)))


def request_tok_s_dispatch(rows: Rows, output: Numbers) -> Floats:
    """output tokens / e2e_dispatch (BLOG)."""
    return per_second(output, to_float(e2e_dispatch(rows)))
