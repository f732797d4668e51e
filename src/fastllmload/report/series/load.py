"""Load over time: rates planned, sent, completed and failed, and requests in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.run.window import gave_up, left_by_plan, on_schedule
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.report.series.axis import Floats, TimeAxis, Times

Rows = npt.NDArray[Any]


@dataclass(frozen=True)
class LoadSeries:
    """float64[bins] each. Rates in requests/s; *left*: users who left, by plan or at a deadline.
    *in_flight*, *waiting* (for a first token): means over each bin."""

    planned: Floats
    sent: Floats
    completed: Floats
    failed: Floats
    left: Floats
    in_flight: Floats
    waiting: Floats


def load_over_time(run: Run, axis: TimeAxis) -> LoadSeries:
    """Load of the measured phase; what is planned is of open loops. A request completes with its last token, and fails when
    it ends.
    """
    rows = run.rows[run.rows["phase"] == layout.MEASURE]
    ok = rows["status"] == layout.OK
    left = left_early(rows)
    failed = (rows["status"] > layout.OK) & ~left
    ended = np.where(rows["t_end"] > 0, rows["t_end"], rows["t_dispatch"])
    begun, answered = rows["t_submit"], rows["t_first"]
    return LoadSeries(
        planned=axis.per_second(rows["t_sched"][on_schedule(run.document.plan.description, rows["request_class"])]),
        sent=axis.per_second(rows["t_dispatch"]),
        completed=axis.per_second(rows["t_last"][ok]),
        failed=axis.per_second(ended[failed]),
        left=axis.per_second(ended[left]),
        in_flight=mean_open(axis, rows["t_dispatch"], rows["t_end"]),
        waiting=mean_open(axis, begun, np.where(answered > 0, answered, rows["t_end"])),
    )


def left_early(rows: Rows) -> npt.NDArray[np.bool_]:
    """Rows of users who left before the end, which are not failures of the target (metrics.run.users)."""
    return left_by_plan(rows) | gave_up(rows)


def mean_open(axis: TimeAxis, start_ns: Times, end_ns: Times) -> Floats:
    """float64[bins]: time-weighted mean number of open intervals; 0 means that the start or end did not occur."""
    begun = start_ns > 0
    start = start_ns[begun] - axis.zero_ns
    end = end_ns[begun & (end_ns > 0)] - axis.zero_ns
    edges = np.arange(axis.bins + 1) * axis.width_ns
    area = elapsed(start, edges) - elapsed(end, edges)
    return np.maximum(np.diff(area) / axis.width_ns, 0.0)


def elapsed(since: Times, at: Times) -> Floats:
    """float64[len(at)]: the sum of max(0, at - since) over all of *since*."""
    ordered = np.sort(since)
    total = np.concatenate([[0.0], np.cumsum(ordered, dtype=np.float64)])
    passed = np.searchsorted(ordered, at, side="right")
    found: Floats = passed * at.astype(np.float64) - total[passed]
    return found


def failures_over_time(run: Run, axis: TimeAxis) -> dict[str, Floats]:
    """Failed requests of each bin by status name, the most frequent first; without statuses that did not
    occur.
    """
    rows = run.rows[(run.rows["phase"] == layout.MEASURE) & (run.rows["status"] > layout.OK) & ~left_early(run.rows)]
    at = np.where(rows["t_end"] > 0, rows["t_end"], rows["t_dispatch"])
    found = {
        layout.STATUS_NAMES[status]: axis.count(at[rows["status"] == status]).astype(np.float64)
        for status in np.unique(rows["status"]).tolist()
        if status < len(layout.STATUS_NAMES)
    }
    return dict(sorted(found.items(), key=lambda entry: -float(entry[1].sum())))
