"""The host's own noise during the window, and whether it explains what was late."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastllmload._ext import histogram
from fastllmload.certificate.evidence import Figures, HostRecord, Times, Window

SLACK_NS = 2_000_000  # the meter looks every millisecond or few, and a late process needs a moment to catch up


def host(record: HostRecord, window: Window) -> Figures:
    """hiccup_p50_us, _p99_us, _p999_us, _max_us over the run; stalls (count, max, in the window); steal_share."""
    stalls = stalls_in(record, window)
    figures: Figures = {
        "hiccup_p50_us": None,
        "hiccup_p99_us": None,
        "hiccup_p999_us": None,
        "hiccup_max_us": None,
        "stalls": len(stalls),
        "stall_max_us": float(stalls[:, 1].max()) / 1e3 if len(stalls) else 0.0,
        "steal_share": record.steal_share,
    }
    if record.words is not None:
        for name, q in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)):
            value = histogram.percentile(record.words, q)
            figures[f"hiccup_{name}_us"] = None if value is None else value / 1e3
    return figures


def stalls_in(record: HostRecord, window: Window) -> Times:
    """Stalls that touch the window."""
    begin, end = record.stalls[:, 0], record.stalls[:, 0] + record.stalls[:, 1]
    touched: Times = record.stalls[(end > window.start_ns) & (begin < window.end_ns)]
    return touched


def around(stalls: Times) -> Times:
    """Rows (begin, end) of what the host's stalls (instant, lateness) may have made late."""
    return np.column_stack([stalls[:, 0] - SLACK_NS, stalls[:, 0] + stalls[:, 1] + SLACK_NS])


def covered(late: Times, spans: Times) -> npt.NDArray[np.bool_]:
    """Which of the intervals *late* (begin, end) the intervals *spans* account for: those that they cover for at least
    half of their time, because a short hiccup does not excuse a long stop.
    """
    if not len(late) or not len(spans):
        return np.zeros(len(late), np.bool_)
    begin, end = _merged(spans[:, 0], spans[:, 1])
    so_far = np.concatenate([[0], np.cumsum(end - begin)])

    def covered_before(t: Times) -> Times:
        i = np.searchsorted(begin, t, side="right")
        inside = np.where(i > 0, np.minimum(t, end[i - 1]) - begin[i - 1], 0)
        total: Times = np.where(i > 0, so_far[i - 1] + inside, 0)
        return total

    share = covered_before(late[:, 1]) - covered_before(late[:, 0])
    found: npt.NDArray[np.bool_] = 2 * share >= late[:, 1] - late[:, 0]
    return found


def touched(intervals: Times, spans: Times) -> npt.NDArray[np.bool_]:
    """Which of the *intervals* (begin, end) have a time in common with one of the *spans*."""
    if not len(intervals) or not len(spans):
        return np.zeros(len(intervals), np.bool_)
    begin, end = _merged(spans[:, 0], spans[:, 1])
    before = np.searchsorted(begin, intervals[:, 1]) - 1  # the last span that begins earlier than the interval ends
    found: npt.NDArray[np.bool_] = (before >= 0) & (end[before] > intervals[:, 0])
    return found


def _merged(begin: Times, end: Times) -> tuple[Times, Times]:
    """Overlapping intervals joined; *begin* is ascending."""
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    new = np.concatenate([[True], begin[1:] > end[:-1]])
    last = np.concatenate([new[1:], [True]])
    return begin[new], end[last]
