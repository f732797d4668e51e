"""Computes tokens per second of each request, by three definitions with three names (spec/metrics 5.6). NaN for null."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.request.durations import NULL, Mask, to_float
from fastllmload.metrics.request.e2e import e2e, e2e_dispatch, gen_duration
from fastllmload.metrics.request.tpot import tpot

Rows = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

SHORTEST_NS = 10_000_000  # below 10 ms of generation the rate is degenerate: 0.0 (ASIAI-M1)


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
