"""How far a stated TTFT or ITL may lie from the truth, because of how its two instants were stamped."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastllmload.certificate.evidence import NO_TIMES, Evidence, Figures, Times
from fastllmload.records import layout

# A kernel stamp is taken in the softirq that queues the segment, and mapped from CLOCK_REALTIME by an offset that is
# read
# once per batch: against a sender's own clock on the same host this was 2 us at p50 and 5 us at p99.
KERNEL_STAMP_NS = 5_000
BLOCK = 1_000_000


def latency_error_bar_us(evidence: Evidence) -> dict[str, Figures]:
    """{"ttft": {p50, p99, max}, "itl": ...}: absolute error in us that the stamping allows.

    The same holds for ttft_sched: lateness of a release is part of what that measures, not an error of it.
    """
    ttft, itl = evidence.stamps.ttft_error_ns, evidence.stamps.itl_error_ns
    return {"ttft": percentiles(ttft), "itl": percentiles(itl)}


def percentiles(errors: Times) -> Figures:
    if not len(errors):
        return {"p50": None, "p99": None, "max": None}
    p50, p99 = np.percentile(errors, [50, 99])
    return {"p50": float(p50) / 1e3, "p99": float(p99) / 1e3, "max": float(errors.max()) / 1e3}


def ttft_error_ns(rows: npt.NDArray[np.void], first_low: Times) -> Times:
    """One per row with a t_first. Receipt: its bracket, down to *first_low*; submission: the time that its write took."""
    timed = rows["t_first"] > 0
    rows, first_low = rows[timed], first_low[timed]
    received = rows["t_first"] - first_low + KERNEL_STAMP_NS
    written = np.where(rows["t_submit_start"] > 0, rows["t_submit"] - rows["t_submit_start"], 0)
    errors: Times = np.maximum(received, written)
    return errors


def itl_error_ns(events: npt.NDArray[np.void], first_event: Times, rows: npt.NDArray[np.intp]) -> Times:
    """One per gap between two content events of the same row; *rows* are the row numbers to look at, ascending."""
    blocks = []
    at = 0
    while at < len(rows):
        until = int(np.searchsorted(first_event[rows], first_event[rows[at]] + BLOCK, side="right"))
        until = max(until, at + 1)
        begin, end = int(first_event[rows[at]]), int(first_event[rows[until - 1] + 1])
        wanted = np.zeros(int(rows[until - 1] - rows[at]) + 1, np.bool_)
        wanted[rows[at:until] - rows[at]] = True
        blocks.append(_block_errors(events[begin:end], first_event[rows[at] : rows[until - 1] + 2] - begin, wanted))
        at = until
    return np.concatenate(blocks) if blocks else NO_TIMES


def _block_errors(events: npt.NDArray[np.void], first: Times, wanted: npt.NDArray[np.bool_]) -> Times:
    """The larger error of a gap's two ends."""
    lengths = np.diff(first)
    row = np.repeat(np.arange(len(lengths)), lengths)
    timed = np.isin(events["kind"], (layout.EVENT_CONTENT, layout.EVENT_WHITESPACE, layout.EVENT_TOOL)) & wanted[row]
    error = events["bracket_ns"][timed].astype(np.int64) + KERNEL_STAMP_NS
    row = row[timed]
    gaps: Times = np.maximum(error[1:], error[:-1])[row[1:] == row[:-1]]
    return gaps
