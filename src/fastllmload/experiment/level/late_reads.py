"""Lower bound of TTFT if a worker stalled while first tokens arrived; used to judge limits that the measured TTFT misses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastllmload.certificate.monitor import WORKER_STALLS
from fastllmload.certificate.run_evidence import worker_stalls
from fastllmload.metrics.distribution.percentiles import percentile
from fastllmload.metrics.run.bounds import earliest
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.records import layout
from fastllmload.records.run import Run

CATCH_UP_NS = 5_000_000  # a worker reads what arrived during a stall within this time after it


def may_be_in_time(run: Run, limit_ms: float) -> bool:
    """Whether P99 of TTFT may have been at most *limit_ms*, though the measured value is above, because a worker stalled."""
    if not (run.directory / WORKER_STALLS).exists():
        return False
    best = ttft_p99_at_best_ms(run)
    return best is not None and best <= limit_ms


def ttft_p99_at_best_ms(run: Run) -> float | None:
    """P99 of TTFT in ms over the same requests as the level's own, with each first token as early as its stamp allows.

    The kernel stamps a read once, with its last segment. If several events were read at once after a stall,
    the first of them may have arrived when the stall began. None without requests.
    """
    chosen = populations(run, window_of(run))
    wanted = chosen.latency & (run.rows["t_first"] > 0)
    return percentile(np.sort(earliest_first_ns(run, wanted) - run.rows["t_submit"][wanted]) / 1e6, 0.99)


def earliest_first_ns(run: Run, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """The earliest time at which the first token of each row in *wanted* can have arrived: its stamp, or earlier if it was
    read after a stall.
    """
    rows = run.rows[wanted]
    first: npt.NDArray[np.int64] = rows["t_first"].astype(np.int64)
    least, together = earliest(run).first[wanted], (rows["flags"] & layout.FLAG_FIRST_COALESCED) != 0
    for worker in np.unique(rows["worker"]):
        stalls = worker_stalls(run, int(worker))
        if stalls is None or not len(stalls):
            continue
        begin, end = stalls[np.argsort(stalls[:, 0])].T
        at = np.searchsorted(begin, first, side="right") - 1
        hidden = together & (rows["worker"] == worker) & (at >= 0) & (first <= end[at] + CATCH_UP_NS)
        first[hidden] = np.minimum(first, np.maximum(least, begin[at]))[hidden]
    return first
