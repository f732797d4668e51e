"""Computes time to first token of each request, and variants by start and by kind of first token (spec/metrics 5.1).

All functions take rows and return ns per row, NULL where one of the two times did not happen.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from fastllmload.metrics.request.durations import Nanoseconds, between

Rows = npt.NDArray[Any]


def ttft(rows: Rows) -> Nanoseconds:
    """t_first - t_submit: from the last byte sent to the first content token (IETF 5.1.3, B.1.1)."""
    return between(rows, "t_submit", "t_first")


def ttft_any(rows: Rows) -> Nanoseconds:
    """t_any - t_submit: to the first generated token of any kind, whitespace and reasoning included."""
    return between(rows, "t_submit", "t_any")


def ttft_any_sched(rows: Rows) -> Nanoseconds:
    """t_any - t_sched."""
    return between(rows, "t_sched", "t_any")


def ttft_dispatch(rows: Rows) -> Nanoseconds:
    """t_first - t_dispatch: includes connection set-up and upload (BLOG, ASIAI, etalon's client)."""
    return between(rows, "t_dispatch", "t_first")


def ttft_sched(rows: Rows) -> Nanoseconds:
    """t_first - t_sched: the wait of a user of an open-loop system, without coordinated omission."""
    return between(rows, "t_sched", "t_first")


def ttfb(rows: Rows) -> Nanoseconds:
    """t_headers - t_submit: to the complete response head."""
    return between(rows, "t_submit", "t_headers")


def ttfb_sched(rows: Rows) -> Nanoseconds:
    """t_headers - t_sched."""
    return between(rows, "t_sched", "t_headers")


def dispatch_lag(rows: Rows) -> Nanoseconds:
    """t_dispatch - t_sched: how late the generator was."""
    return between(rows, "t_sched", "t_dispatch")


def send_time(rows: Rows) -> Nanoseconds:
    """t_submit - t_dispatch: connection set-up and upload."""
    return between(rows, "t_dispatch", "t_submit")
