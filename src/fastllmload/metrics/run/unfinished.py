"""Percentiles that do not forget the requests that were cut off: a time limit, the end of the drain, a killed run.

Such a request is known to have taken at least as long as it was watched. Leaving it out, as a sample of ended requests
does, makes a slow target look fast: where they can move a percentile, `unfinished_bounds` stand in its place. Requests that
failed for another reason tell nothing of how long they would have taken; they are left out here as in every latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.distribution.percentiles import NAMED
from fastllmload.metrics.run.users import apart
from fastllmload.metrics.run.window import Mask, Populations, Window
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.statistics.kaplan_meier import bounds, survival

CUT_OFF = (layout.TIMEOUT, layout.CANCELLED, layout.IN_FLIGHT)
SOME = 0.01  # share of requests, or of a figure, that is not worth a bound
NAMES = {  # metric: from, to, and whether a request that was cut off later still has it
    "ttft": ("t_submit", "t_first", True),
    "ttft_sched": ("t_sched", "t_first", True),
    "ttft_any": ("t_submit", "t_any", True),
    "e2e": ("t_submit", "t_last", False),
    "e2e_sched": ("t_sched", "t_last", False),
    "ttft_dispatch": ("t_dispatch", "t_first", True),
    "e2e_dispatch": ("t_dispatch", "t_last", False),
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


def unfinished_in_window(run: Run, window: Window | None, chosen: Populations) -> tuple[int, int]:
    """(among those submitted, beyond them): requests of the window that the drain, an interrupt or a kill cut off. Those
    that hit the time limit are none of them: whoever sets a limit calls them failed.
    """
    if window is None:
        return 0, 0
    cancelled = chosen.submitted & (run.rows["status"] == layout.CANCELLED)
    in_flight = chosen.measured & window.holds(run.rows["t_submit"]) & (run.rows["status"] == layout.IN_FLIGHT)
    return int(cancelled.sum()), int((in_flight & ~apart(run.rows)).sum())


def described(rows: npt.NDArray[Any], start: str, end: str, kept_if_cut: bool, last_seen: int) -> dict[str, Any]:
    """`p50` ... in ms by Kaplan and Meier, None where too few ended. `at_least`: had the rest ended when last seen;
    `at_most`: had the rest never ended, None where they reach below the percentile. An answer that ended without *end*, as
    one that is all reasoning did without an answer token, waits for nothing and is left out.
    """
    rows = rows[(rows["status"] != layout.OK) | (rows[end] > 0)]
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
        "at_least": {name: None if both is None else both[0] / 1e6 for name, both in least.items()}
        | {"mean": float(times.mean()) / 1e6, "max": float(times.max()) / 1e6},
        "at_most": {name: None if both is None or both[1] is None else both[1] / 1e6 for name, both in least.items()},
    }


def bounds_in_place(found: Mapping[str, Any], figures: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """By statistic, what to state in place of a figure that the unfinished requests can move: `low` and `high` in ms.

    *found*: `with_unfinished` of the metric whose *figures* are of those that ended. A figure stays where its upper end is
    known and the lower one is hardly above it. Of the mean and the maximum the upper end is never known; they move where
    more than a hundredth did not end, or where the lower end says so.
    """
    if not found["n_unfinished"]:
        return {}
    moved = {}
    for name, low in found["at_least"].items():
        figure, high = figures.get(name), found["at_most"].get(name)
        of_all = name in ("mean", "max")
        open_end = high is None and (not of_all or found["n_unfinished"] > SOME * found["n"])
        if low is not None and (figure is None or open_end or low > (1 + SOME) * figure):
            moved[name] = {"low": low, "high": high}
    return moved
