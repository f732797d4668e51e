"""Computes end-to-end latency and related durations of each request (spec/metrics 5.2): ns per row, NULL where undefined."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.request.durations import NULL, Nanoseconds, between
from fastllmload.metrics.request.ttft import ttft_any

Rows = npt.NDArray[Any]


def e2e(rows: Rows) -> Nanoseconds:
    """t_last - t_submit: to the final content token (IETF 4.2.6)."""
    return between(rows, "t_submit", "t_last")


def e2e_sched(rows: Rows) -> Nanoseconds:
    """t_last - t_sched: free of coordinated omission."""
    return between(rows, "t_sched", "t_last")


def e2e_dispatch(rows: Rows) -> Nanoseconds:
    """t_last - t_dispatch (BLOG's request latency)."""
    return between(rows, "t_dispatch", "t_last")


def total_duration(rows: Rows) -> Nanoseconds:
    """t_end - t_submit: to the end of the stream, whatever ended it (ASIAI-M3)."""
    return between(rows, "t_submit", "t_end")


def total_duration_sched(rows: Rows) -> Nanoseconds:
    """t_end - t_sched."""
    return between(rows, "t_sched", "t_end")


def gen_duration(rows: Rows) -> Nanoseconds:
    """max(0, total_duration - ttft_any) (ASIAI-M5): the time of generating all output tokens, reasoning included."""
    total, first = total_duration(rows), ttft_any(rows)
    return np.where((total == NULL) | (first == NULL), NULL, np.maximum(0, total - np.maximum(first, 0)))


def final_silence(rows: Rows) -> Nanoseconds:
    """t_end - t_last: between the last content token and the end of the stream."""
    return between(rows, "t_last", "t_end")
