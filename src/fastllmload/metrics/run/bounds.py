"""Computes bounds of the times of a run and of its figures from the brackets of their stamps.

An event arrived between the two ends of its bracket (`EventRow.bracket_ns`), and a request was submitted between the first
and the last instant of its write. So each latency of a request lies between two values. The bounds of a figure are that
figure computed from all lower and from all upper values, because percentiles and means increase with their values.

A request that was cut off, by a time limit, the end of the drain or a killed run, took at least as long as it was observed.
A sample without it makes a slow target appear fast, so where they can change a percentile, `unfinished_bounds` replace it.
Requests that failed for another reason have no known duration; they are left out here as in every latency.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from fastllmload._ext.measure import regroup, tokenline
from fastllmload.arrays import Mask, Numbers, Rows, Values
from fastllmload.documents.fields import known
from fastllmload.documents.metric import Bounds, Ends, Metric, WithUnfinished
from fastllmload.metrics.distribution.percentiles import NAMED, percentile, ranks_of
from fastllmload.metrics.distribution.summary import mean_of
from fastllmload.metrics.request.tpot import spaced
from fastllmload.metrics.run.window import Populations, Window, excluded, on_schedule
from fastllmload.metrics.tokens.counts import TokenCounts
from fastllmload.metrics.tokens.itl import PooledGaps
from fastllmload.metrics.tokens.timeline import stretches
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.records.worker_files import as_bytes
from fastllmload.statistics.kaplan_meier import bounds, survival
from fastllmload.statistics.order_statistics import AT_ONCE, Ranked, collected

# An exact stamp is taken when the kernel receives the segment; against the sender's own clock: 2 us at P50, 5 us at P99.
STAMP_NS = 5_000
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
NS_PER_MS = 1e6


@dataclass(frozen=True)
class Earliest:
    """Per row of a run, in ns: the lower ends of `t_any`, `t_first` and `t_last`; 0 where that did not happen."""

    any: Numbers
    first: Numbers
    last: Numbers


def earliest(run: Run) -> Earliest:
    """Lower ends of the times of every row of *run*; an exact stamp is its own lower end."""
    if run.elsewhere is not None:
        totals = run.elsewhere.totals
        names = ("t_any_least", "t_first_least", "t_last_least")
        return Earliest(*(np.ascontiguousarray(totals[name]) for name in names))
    found = np.zeros((len(run.rows), 3), np.int64)
    submitted = np.ascontiguousarray(run.rows["t_submit"])
    regroup.earliest(as_bytes(run.events), run.first_event, submitted, found)
    columns = np.ascontiguousarray(found.T)
    return Earliest(columns[0], columns[1], columns[2])


def bounds_of(run: Run, population: Mask, tokens: TokenCounts, gaps: PooledGaps) -> dict[str, dict[str, Ends]]:
    """By metric: `bounds` of run.json, {statistic: [low, high]} in ms, of the latency *population*."""
    of_requests = {
        name: (np.maximum(least - STAMP_NS, 0), most + STAMP_NS)
        for name, (least, most) in request_bounds(run, population, tokens).items()
    }
    found = {**of_requests, gaps.name: gap_bounds(run, gaps)}
    return {name: in_ms(least, most) for name, (least, most) in found.items() if len(least)}


def in_ms(least: Values | Ranked, most: Values | Ranked) -> dict[str, Ends]:
    low, high = figures_of(least), figures_of(most)
    return {name: (low[name] / NS_PER_MS, high[name] / NS_PER_MS) for name in low}


def figures_of(values: Values | Ranked) -> dict[str, float]:
    ordered = values if isinstance(values, Ranked) else np.sort(values)
    if isinstance(ordered, Ranked):
        ordered.prepare(ranks_of(len(ordered), PERCENTILES.values()))
    found = {"mean": mean_of(ordered), **{name: percentile(ordered, q) for name, q in PERCENTILES.items()}}
    return {name: value for name, value in found.items() if value is not None}


def request_bounds(run: Run, population: Mask, tokens: TokenCounts) -> Mapping[str, tuple[Values, Values]]:
    """Lower and upper values, in ns, of each request's latencies.

    A latency from the scheduled instant would be lower by the lag if the request had been sent in time. Where requests wait
    for a slot, or all are due at once, they have no planned instants. Planned instants are the driver's, so the error of the
    clock of a host counts too.
    """
    early, selected = earliest(run), np.flatnonzero(population & (run.rows["t_last"] > 0))
    rows, any_, first, last = run.rows[selected], early.any[selected], early.first[selected], early.last[selected]
    begun = np.where(rows["t_submit_start"] > 0, rows["t_submit_start"], rows["t_submit"])
    began = np.where(rows["t_wire"] > 0, np.clip(rows["t_wire"], begun, rows["t_submit"]), begun)
    load = run.document.config.load
    planned = load.concurrency is load.max_concurrency is load.max_prefill is None  # an open loop without a cap
    lag = np.maximum(rows["t_dispatch"] - rows["t_sched"], 0) if planned else 0
    clock = run.clock_errors_ns(rows) if planned else 0
    answered, of_tokens = rows["t_first"] > 0, rows["t_any"] > 0  # the others: all reasoning; not tokens
    due = on_schedule(run.document.plan.description, rows["request_class"])
    return {
        "ttft": ((first - rows["t_submit"])[answered], (rows["t_first"] - began)[answered]),
        "ttft_sched": (
            (first - rows["t_sched"] - lag - clock)[answered & due],
            (rows["t_first"] - rows["t_sched"] + clock)[answered & due],
        ),
        "ttft_any": ((any_ - rows["t_submit"])[of_tokens], (rows["t_any"] - began)[of_tokens]),
        "ttft_any_sched": (
            (any_ - rows["t_sched"] - lag - clock)[of_tokens & due],
            (rows["t_any"] - rows["t_sched"] + clock)[of_tokens & due],
        ),
        "tpot": per_pause(rows["t_first"], first, rows["t_last"], last, spaced(run, tokens.timed)[selected] * answered),
        "tpot_any": per_pause(rows["t_any"], any_, rows["t_last"], last, spaced(run, tokens.output)[selected]),
        "e2e": (last - rows["t_submit"], rows["t_last"] - began),
        "e2e_sched": (
            (last - rows["t_sched"] - lag - clock)[due],
            (rows["t_last"] - rows["t_sched"] + clock)[due],
        ),
    }


def per_pause(
    begin: Numbers, least_begin: Numbers, end: Numbers, least_end: Numbers, count: Numbers
) -> tuple[Values, Values]:
    """Lower and upper (*end* - *begin*) / (*count* - 1) of the requests with two tokens or more."""
    several = count > 1
    pauses = np.maximum(count - 1, 1)
    return (np.maximum(least_end - begin, 0) / pauses)[several], ((end - least_begin) / pauses)[several]


def gap_bounds(run: Run, gaps: PooledGaps) -> tuple[Values | Ranked, Values | Ranked]:
    """Lower and upper bounds of the pooled gaps in ns. Gaps inside a chunk are 0 by definition, and exact."""
    if gaps.gaps.known is not None:
        return gaps.gaps.known.least, gaps.gaps.known.most
    n = len(gaps.gaps.ns)
    least = collected(lambda: (np.maximum(low - STAMP_NS, 0) for low, _ in bounds_of_gaps(run, gaps)), n)
    return least, collected(lambda: (high + STAMP_NS for _, high in bounds_of_gaps(run, gaps)), n)


def bounds_of_gaps(run: Run, gaps: PooledGaps) -> Iterator[tuple[Numbers, Numbers]]:
    """Lower and upper values by the brackets, for some rows at a time, then 0 ns for each gap inside a chunk."""
    chosen = np.zeros(len(run.rows), np.uint8)
    chosen[gaps.rows] = 1
    submitted = np.ascontiguousarray(run.rows["t_submit"])
    bearing = None if gaps.bearing is None else gaps.bearing.view(np.uint8)
    done = chunks = 0
    for part in stretches(run.first_event, AT_ONCE):
        first = run.first_event[part.start : part.stop + 1]
        least, most = (np.empty(int(first[-1] - first[0]), np.int64) for _ in range(2))
        remaining = None if bearing is None else bearing[chunks:]
        found, timed = tokenline.take_gap_bounds(
            as_bytes(run.events), first, chosen[part], submitted[part], remaining, least, most
        )
        done, chunks = done + found, chunks + timed
        yield least[:found], most[:found]
    inside = np.zeros(AT_ONCE, np.int64)
    for begin in range(done, len(gaps.gaps.ns), AT_ONCE):
        yield inside[: len(gaps.gaps.ns) - begin], inside[: len(gaps.gaps.ns) - begin]


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
    last_seen = max(window.w1_ns, run.last_event_ns)
    due = rows[on_schedule(run.document.plan.description, rows["request_class"])]
    chosen = {name: due if how[0] == "t_sched" else rows for name, how in NAMES.items()}
    return {name: one_metric(chosen[name], *how, last_seen) for name, how in NAMES.items() if len(chosen[name])}


OF_FIRST_TOKENS = tuple(name for name, (_, end, _) in NAMES.items() if end != "t_last")


def of_part(run: Run, window: Window | None, members: Mask, of_tokens: Mask) -> dict[str, WithUnfinished]:
    """`with_unfinished` of the measured requests *members*; first tokens are of those whose answers are tokens alone."""
    found = with_unfinished(run, window, members)
    if (members & ~of_tokens).any():
        tokens = with_unfinished(run, window, members & of_tokens)
        found = {
            name: tokens.get(name) or WithUnfinished() if name in OF_FIRST_TOKENS else one
            for name, one in found.items()
        }
    return {name: one for name, one in found.items() if one.n_unfinished}


def bounded(found: Mapping[str, WithUnfinished], metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Those of *metrics* of which something was *found*, with the bounds that take the place of their figures."""
    return {
        name: replace(metrics[name], with_unfinished=one, unfinished_bounds=bounds_in_place(one, metrics[name]))
        for name, one in found.items()
        if name in metrics
    }


def unfinished_in_window(run: Run, window: Window | None, chosen: Populations) -> tuple[int, int]:
    """(among those submitted, beyond them): requests of the window that the drain, an interrupt or a kill cut off. Requests
    that exceeded the time limit do not count: they failed.
    """
    if window is None:
        return 0, 0
    cancelled = chosen.submitted & (run.rows["status"] == layout.CANCELLED)
    in_flight = chosen.measured & window.holds(run.rows["t_submit"]) & (run.rows["status"] == layout.IN_FLIGHT)
    return int(cancelled.sum()), int((in_flight & ~excluded(run.rows)).sum())


def one_metric(rows: Rows, start: str, end: str, kept_if_cut: bool, last_seen: int) -> WithUnfinished:
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
    summary = WithUnfinished(
        n=len(rows),
        n_unfinished=int((~ended).sum()),
        at_least={
            **{name: None if both is None else both[0] / 1e6 for name, both in least.items()},
            "mean": float(times.mean()) / 1e6,
            "max": float(times.max()) / 1e6,
        },
        at_most={name: None if both is None or both[1] is None else both[1] / 1e6 for name, both in least.items()},
    )
    return replace(summary, **at)


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
