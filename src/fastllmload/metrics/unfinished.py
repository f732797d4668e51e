"""Percentiles that do not forget the requests that were cut off: a time limit, the end of the drain, a killed run.

Such a request is known to have taken at least as long as it was watched. Leaving it out, as a sample of ended requests
does, makes a slow target look fast. Requests that failed for another reason tell nothing of how long they would have
taken; they are left out here as in every latency.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.percentiles import NAMED
from fastllmload.metrics.users import apart
from fastllmload.metrics.window import Mask, Window
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.statistics.censored import bounds, survival

CUT_OFF = (layout.TIMEOUT, layout.CANCELLED, layout.IN_FLIGHT)
NAMES = {  # metric: from, to, and whether a request that was cut off later still has it
    "ttft": ("t_submit", "t_first", True),
    "ttft_sched": ("t_sched", "t_first", True),
    "e2e": ("t_submit", "t_last", False),
    "e2e_sched": ("t_sched", "t_last", False),
}


def with_unfinished(run: Run, window: Window | None, measured: Mask) -> dict[str, dict[str, Any]]:
    """By metric: `with_unfinished` of run.json; empty where every request came to an end of its own."""
    if window is None:
        return {}
    rows = run.rows[measured & window.holds(run.rows["t_submit"])]
    rows = rows[np.isin(rows["status"], (layout.OK, *CUT_OFF)) & ~apart(rows)]
    if not np.isin(rows["status"], CUT_OFF).any():
        return {}
    last_seen = max(window.w1_ns, int(run.event_t.max()) if len(run.events) else 0)
    return {name: described(rows, *how, last_seen) for name, how in NAMES.items()}


def described(rows: npt.NDArray[Any], start: str, end: str, kept_if_cut: bool, last_seen: int) -> dict[str, Any]:
    """`p50` ... in ms by Kaplan and Meier, None where too few ended; `at_least`: had the rest ended when last seen."""
    ended = rows[end] > 0 if kept_if_cut else rows["status"] == layout.OK
    watched = np.where(rows["t_end"] > 0, rows["t_end"], last_seen)
    times = np.where(ended, rows[end], watched) - rows[start]
    curve = survival(times, ended)
    least = {name: bounds(times, ended, q) for name, q in NAMED.items()}
    found = {name: curve.percentile(q) for name, q in NAMED.items()}
    return {
        "n": len(rows),
        "n_unfinished": int((~ended).sum()),
        **{name: None if value is None else value / 1e6 for name, value in found.items()},
        "at_least": {name: None if both is None else both[0] / 1e6 for name, both in least.items()},
    }
