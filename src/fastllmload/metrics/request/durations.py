"""Computes durations of each request (spec/metrics 5.1, 5.2): differences of two of its times in ns, NULL where one of
them did not happen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

NULL = np.iinfo(np.int64).min  # null in arrays of ns; arrays of floats have NaN

Rows = npt.NDArray[Any]
Nanoseconds = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def between(rows: Rows, start: str, end: str) -> Nanoseconds:
    """rows[end] - rows[start] in ns, NULL for rows that lack one of the two."""
    happened = (rows[start] > 0) & (rows[end] > 0)
    return np.where(happened, rows[end] - rows[start], NULL)


def committed(rows: Rows) -> Nanoseconds:
    """t_submit of each row, or t_dispatch where the last byte never left: the instant from which its user waits."""
    return np.where(rows["t_submit"] > 0, rows["t_submit"], rows["t_dispatch"])


def to_float(values: npt.NDArray[Any], scale: float = 1.0) -> npt.NDArray[np.float64]:
    """As floats divided by *scale*, NULL and NaN as NaN."""
    if values.dtype == np.int64:
        return np.where(values == NULL, np.nan, values / scale)
    return values / scale


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
