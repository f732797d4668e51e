"""Computes durations of each request (spec/metrics 5.1, 5.2): differences of two of its times in ns, NULL where one of
them did not happen.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastllmload.arrays import Floats, Numbers, Rows, Values

NULL = np.iinfo(np.int64).min  # null in arrays of ns; arrays of floats have NaN


def between(rows: Rows, start: str, end: str) -> Numbers:
    """rows[end] - rows[start] in ns, NULL for rows that lack one of the two."""
    happened = (rows[start] > 0) & (rows[end] > 0)
    return np.where(happened, rows[end] - rows[start], NULL)


def committed(rows: Rows) -> Numbers:
    """t_submit of each row, or t_dispatch where the last byte never left: the instant from which its user waits."""
    return np.where(rows["t_submit"] > 0, rows["t_submit"], rows["t_dispatch"])


def to_float(values: Values, scale: float = 1.0) -> Floats:
    """As floats divided by *scale*, NULL and NaN as NaN."""
    if values.dtype == np.int64:
        return np.where(values == NULL, np.nan, values / scale)
    return values / scale


def duration(name: str, start: str, end: str, meaning: str = "") -> Callable[[Rows], Numbers]:
    """The function *name*: the time from *start* to *end* of each row; *meaning* is part of its docstring."""

    def of(rows: Rows) -> Numbers:
        return between(rows, start, end)

    of.__name__ = of.__qualname__ = name
    of.__doc__ = f"{end} - {start}{meaning}."
    return of


ttft = duration("ttft", "t_submit", "t_first", ": last byte sent to first content token (IETF 5.1.3, B.1.1)")
ttft_any = duration("ttft_any", "t_submit", "t_any", ": to the first token of any kind, also whitespace and reasoning")
ttft_any_sched = duration("ttft_any_sched", "t_sched", "t_any")
ttft_dispatch = duration("ttft_dispatch", "t_dispatch", "t_first", ": with set-up and upload (BLOG, ASIAI, etalon)")
ttft_sched = duration(
    "ttft_sched", "t_sched", "t_first", ": a user's wait in an open loop, without coordinated omission"
)
ttfb = duration("ttfb", "t_submit", "t_headers", ": to the complete response head")
ttfb_sched = duration("ttfb_sched", "t_sched", "t_headers")
dispatch_lag = duration("dispatch_lag", "t_sched", "t_dispatch", ": how late the generator was")
send_time = duration("send_time", "t_dispatch", "t_submit", ": connection set-up and upload")
e2e = duration("e2e", "t_submit", "t_last", ": to the final content token (IETF 4.2.6)")
e2e_sched = duration("e2e_sched", "t_sched", "t_last", ": free of coordinated omission")
e2e_dispatch = duration("e2e_dispatch", "t_dispatch", "t_last", " (BLOG's request latency)")
total_duration = duration("total_duration", "t_submit", "t_end", ": to the stream's end, whatever ended it (ASIAI-M3)")
total_duration_sched = duration("total_duration_sched", "t_sched", "t_end")
final_silence = duration("final_silence", "t_last", "t_end", ": from the last content token to the end of the stream")


def gen_duration(rows: Rows) -> Numbers:
    """max(0, total_duration - ttft_any) (ASIAI-M5): the time of generating all output tokens, reasoning included."""
    total, first = total_duration(rows), ttft_any(rows)
    return np.where((total == NULL) | (first == NULL), NULL, np.maximum(0, total - np.maximum(first, 0)))
