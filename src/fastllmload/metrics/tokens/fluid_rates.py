"""Computes the tightest token deadline that a stream keeps, and its rate (metrics.md 5.9, 6.6)."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastllmload._ext import deadlines
from fastllmload.metrics.distribution.summary import distribution, scalar
from fastllmload.metrics.request.durations import Mask, Nanoseconds
from fastllmload.metrics.tokens.times import TokenTimes

STEP_NS = 100_000  # bisection ends at 0.1 ms


def min_tbt_deadline(times: TokenTimes) -> Nanoseconds:
    """Smallest D_d in ns whose deadline miss rate over the decode gaps is at most 0.1; NULL below two tokens."""
    found = np.empty(len(times.rows), np.int64)
    deadlines.least_deadline(times.t_ns, times.first, STEP_NS, found)
    return found


def stream_rate(p99_ms: float | None) -> float | None:
    """1 / P99 over requests of min_tbt_deadline, tokens/s; None without a deadline or for one of 0."""
    return None if p99_ms is None or p99_ms <= 0 else 1000.0 / p99_ms


def deadline_metrics(population: Mask, times: TokenTimes) -> dict[str, Any]:
    """`min_tbt_deadline` over the latency *population* and `fluid_token_rate_stream` (etalon's
    deadline_based_throughput)."""
    found = distribution(min_tbt_deadline(times)[population[times.rows]], "ms")
    by = {"miss_rate_at_most": 1 / deadlines.MISS_SHARE, "to_ms": STEP_NS / 1e6}
    return {
        "min_tbt_deadline": {**found, **by},
        "fluid_token_rate_stream": scalar(stream_rate(found["p99"]), "tokens/s", **by),
    }
