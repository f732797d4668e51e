"""Computes the host's stalls and steal during the window, and which late intervals they explain."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastllmload.certificate.evidence import HostRecord, Times, Window
from fastllmload.certificate.workers import percentiles_us
from fastllmload.documents.certificate import HostDelays

SLACK_NS = 2_000_000  # the meter wakes every millisecond or few, and a late process needs time to catch up


def host(record: HostRecord, window: Window, late: Times, stopped: Times) -> HostDelays:
    """Hiccups over the run, stalls in the window, and how many of the intervals *late* the host's own *stopped* explain."""
    stalls, hiccups = stalls_in(record, window), percentiles_us(record.hiccups)
    return HostDelays(
        hiccup_p50_us=hiccups.p50,
        hiccup_p99_us=hiccups.p99,
        hiccup_p999_us=hiccups.p999,
        hiccup_max_us=hiccups.max,
        stalls=len(stalls),
        stall_max_us=float(stalls[:, 1].max()) / 1e3 if len(stalls) else 0.0,
        steal_share=record.steal_share,
        late_intervals=len(late),
        late_explained=int(covered(late, stopped).sum()),
        competitors=record.competitors,
    )


def stalls_in(record: HostRecord, window: Window) -> Times:
    """Stalls that overlap the window."""
    begin, end = record.stalls[:, 0], record.stalls[:, 0] + record.stalls[:, 1]
    found: Times = record.stalls[(end > window.start_ns) & (begin < window.end_ns)]
    return found


def widened(stalls: Times) -> Times:
    """Rows (begin, end) of the intervals that the host's stalls (instant, lateness) may have made late."""
    return np.column_stack([stalls[:, 0] - SLACK_NS, stalls[:, 0] + stalls[:, 1] + SLACK_NS])


def covered(late: Times, spans: Times) -> npt.NDArray[np.bool_]:
    """Which of the intervals *late* (begin, end) the intervals *spans* explain: those of which they cover at least half,
    because a short hiccup does not explain a long stop.
    """
    if not len(late) or not len(spans):
        return np.zeros(len(late), np.bool_)
    begin, end = _merged(spans[:, 0], spans[:, 1])
    cumulative = np.concatenate([[0], np.cumsum(end - begin)])

    def covered_before(t: Times) -> Times:
        i = np.searchsorted(begin, t, side="right")
        inside = np.where(i > 0, np.minimum(t, end[i - 1]) - begin[i - 1], 0)
        total: Times = np.where(i > 0, cumulative[i - 1] + inside, 0)
        return total

    share = covered_before(late[:, 1]) - covered_before(late[:, 0])
    found: npt.NDArray[np.bool_] = 2 * share >= late[:, 1] - late[:, 0]
    return found


def overlapping(intervals: Times, spans: Times) -> npt.NDArray[np.bool_]:
    """Which of the *intervals* (begin, end) overlap one of the *spans*."""
    if not len(intervals) or not len(spans):
        return np.zeros(len(intervals), np.bool_)
    begin, end = _merged(spans[:, 0], spans[:, 1])
    before = np.searchsorted(begin, intervals[:, 1]) - 1  # the last span that begins earlier than the interval ends
    found: npt.NDArray[np.bool_] = (before >= 0) & (end[before] > intervals[:, 0])
    return found


def _merged(begin: Times, end: Times) -> tuple[Times, Times]:
    """The union of the intervals, ascending and without overlaps."""
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    new = np.concatenate([[True], begin[1:] > end[:-1]])
    last = np.concatenate([new[1:], [True]])
    return begin[new], end[last]
