"""Computes percentiles that include requests that were cut off: by a time limit, the end of the drain or a killed run.

Such a request took at least as long as it was observed. A sample without it makes a slow target appear fast, so where they
can change a percentile, `unfinished_bounds` replace it. Requests that failed for another reason have no known duration; they
are left out here as in every latency.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.documents.fields import known
from fastllmload.documents.metric import Bounds, Metric, WithUnfinished
from fastllmload.metrics.distribution.percentiles import NAMED
from fastllmload.metrics.run.users import excluded
from fastllmload.metrics.run.window import Mask, Populations, Window
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.statistics.kaplan_meier import bounds, survival

CUT_OFF = (layout.TIMEOUT, layout.CANCELLED, layout.IN_FLIGHT)
NEGLIGIBLE = 0.01  # share of requests, or of a figure, that needs no bound
NAMES = {  # metric: from, to, and whether a request that was cut off after *to* still has it
    "ttft": ("t_submit", "t_first", True),
    "ttft_sched": ("t_sched", "t_first", True),
    "ttft_any": ("t_submit", "t_any", True),
    "e2e": ("t_submit", "t_last", False),
    "e2e_sched": ("t_sched", "t_last", False),
    "ttft_dispatch": ("t_dispatch", "t_first", True),
    "e2e_dispatch": ("t_dispatch", "t_last", False),
}


def with_unfinished(run: Run, window: Window | None, measured: Mask) -> dict[str, WithUnfinished]:
    """By metric: `with_unfinished` of run.json; {} where no request was cut off."""
    if window is None:
        return {}
    rows = run.rows[measured & window.holds(run.rows["t_submit"])]
    rows = rows[np.isin(rows["status"], (layout.OK, *CUT_OFF)) & ~excluded(rows)]
    if not np.isin(rows["status"], CUT_OFF).any():
        return {}
    last_seen = max(window.w1_ns, int(run.event_t.max()) if len(run.events) else 0)
    return {name: one_metric(rows, *how, last_seen) for name, how in NAMES.items()}


def unfinished_in_window(run: Run, window: Window | None, chosen: Populations) -> tuple[int, int]:
    """(among those submitted, beyond them): requests of the window that the drain, an interrupt or a kill cut off. Requests
    that exceeded the time limit do not count: they failed.
    """
    if window is None:
        return 0, 0
    cancelled = chosen.submitted & (run.rows["status"] == layout.CANCELLED)
    in_flight = chosen.measured & window.holds(run.rows["t_submit"]) & (run.rows["status"] == layout.IN_FLIGHT)
    return int(cancelled.sum()), int((in_flight & ~excluded(run.rows)).sum())


def one_metric(rows: npt.NDArray[Any], start: str, end: str, kept_if_cut: bool, last_seen: int) -> WithUnfinished:
    """`p50` ... in ms by Kaplan and Meier, None where too few ended. `at_least`: as if the others had ended when last
    observed; `at_most`: as if they had never ended, None where they are too many for the percentile. A complete answer
    without *end*, such as one that is all reasoning and has no answer token, is left out.
    """
    rows = rows[(rows["status"] != layout.OK) | (rows[end] > 0)]
    ended = rows[end] > 0 if kept_if_cut else rows["status"] == layout.OK
    observed = np.where(rows["t_end"] > 0, rows["t_end"], last_seen)
    times = np.where(ended, rows[end], observed) - rows[start]
    curve = survival(times, ended)
    least = {name: bounds(times, ended, q) for name, q in NAMED.items()}
    at = {name: None if (ns := curve.percentile(q)) is None else ns / 1e6 for name, q in NAMED.items()}
    return WithUnfinished(
        n=len(rows),
        n_unfinished=int((~ended).sum()),
        p50=at["p50"],
        p75=at["p75"],
        p90=at["p90"],
        p95=at["p95"],
        p99=at["p99"],
        p999=at["p999"],
        at_least={
            **{name: None if both is None else both[0] / 1e6 for name, both in least.items()},
            "mean": float(times.mean()) / 1e6,
            "max": float(times.max()) / 1e6,
        },
        at_most={name: None if both is None or both[1] is None else both[1] / 1e6 for name, both in least.items()},
    )


def bounds_in_place(found: WithUnfinished, figures: Metric) -> dict[str, Bounds | None]:
    """By statistic, the bounds `low` and `high` in ms that replace a figure which unfinished requests can change.

    *found*: `with_unfinished` of the metric whose *figures* are those of ended requests. A figure is kept where its upper
    bound is known and the lower one is hardly above the figure. The upper bound of the mean and of the maximum is never
    known; they are replaced where more than a hundredth did not end, or where the lower bound is above the figure.
    """
    unfinished, n = known(found.n_unfinished), known(found.n) or 0
    if not unfinished:
        return {}
    replaced: dict[str, Bounds | None] = {}
    for name, least in found.at_least.items():
        figure, low, high = known(figures.statistic(name)), known(least), found.at_most.get(name)
        of_all = name in ("mean", "max")
        open_end = high is None and (not of_all or unfinished > NEGLIGIBLE * n)
        if low is not None and (figure is None or open_end or low > (1 + NEGLIGIBLE) * figure):
            replaced[name] = Bounds(low=low, high=high)
    return replaced
