"""Computes bounds of the times of a run and of its figures from the brackets of their stamps.

An event arrived between the two ends of its bracket (`EventRow.bracket_ns`), and a request was submitted between the first
and the last instant of its write. So each latency of a request lies between two values. The bounds of a figure are that
figure computed from all lower and from all upper values, because percentiles and means increase with their values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload._ext import regroup, tokenline
from fastllmload.documents.metric import Ends
from fastllmload.metrics.distribution.percentiles import percentile, ranks_of
from fastllmload.metrics.distribution.summary import mean_of
from fastllmload.metrics.request.tpot import spaced
from fastllmload.metrics.tokens.counts import TokenCounts
from fastllmload.metrics.tokens.itl import PooledGaps
from fastllmload.metrics.tokens.timeline import stretches
from fastllmload.records.run import Run
from fastllmload.records.worker_files import as_bytes
from fastllmload.statistics.order_statistics import AT_ONCE, Ranked, collected

Times = npt.NDArray[np.int64]
Values = npt.NDArray[Any]
# An exact stamp is taken when the kernel receives the segment; against the sender's own clock: 2 us at P50, 5 us at P99.
STAMP_NS = 5_000
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
NS_PER_MS = 1e6


@dataclass(frozen=True)
class Earliest:
    """Per row of a run, in ns: the lower ends of `t_any`, `t_first` and `t_last`; 0 where that did not happen."""

    any: Times
    first: Times
    last: Times


def earliest(run: Run) -> Earliest:
    """Lower ends of the times of every row of *run*; an exact stamp is its own lower end."""
    found = np.zeros((len(run.rows), 3), np.int64)
    submitted = np.ascontiguousarray(run.rows["t_submit"])
    regroup.earliest(as_bytes(run.events), run.first_event, submitted, found)
    columns = np.ascontiguousarray(found.T)
    return Earliest(columns[0], columns[1], columns[2])


def bounds_of(
    run: Run, population: npt.NDArray[np.bool_], tokens: TokenCounts, gaps: PooledGaps
) -> dict[str, dict[str, Ends]]:
    """By metric: `bounds` of run.json, {statistic: [low, high]} in ms, of the latency *population*."""
    of_requests = {
        name: (np.maximum(least - STAMP_NS, 0), most + STAMP_NS)
        for name, (least, most) in request_bounds(run, population, tokens).items()
    }
    found = {**of_requests, gaps.name: gap_bounds(run, gaps)}
    return {name: in_ms(least, most) for name, (least, most) in found.items() if len(least)}


def in_ms(least: Values | Ranked, most: Values | Ranked) -> dict[str, Ends]:
    """The figures of the lower and of the upper values, in ms."""
    low, high = figures_of(least), figures_of(most)
    return {name: (low[name] / NS_PER_MS, high[name] / NS_PER_MS) for name in low}


def figures_of(values: Values | Ranked) -> dict[str, float]:
    """Mean and percentiles of *values*, which are not empty."""
    ordered = values if isinstance(values, Ranked) else np.sort(values)
    if isinstance(ordered, Ranked):
        ordered.prepare(ranks_of(len(ordered), PERCENTILES.values()))
    found = {"mean": mean_of(ordered), **{name: percentile(ordered, q) for name, q in PERCENTILES.items()}}
    return {name: value for name, value in found.items() if value is not None}


def request_bounds(
    run: Run, population: npt.NDArray[np.bool_], tokens: TokenCounts
) -> Mapping[str, tuple[Values, Values]]:
    """Lower and upper values, in ns, of each request's latencies.

    A latency from the scheduled instant would be lower by the lag if the request had been sent in time. Where requests wait
    for a slot, or all are due at once, they have no planned instants.
    """
    early, selected = earliest(run), np.flatnonzero(population & (run.rows["t_any"] > 0))
    rows, any_, first, last = run.rows[selected], early.any[selected], early.first[selected], early.last[selected]
    begun = np.where(rows["t_submit_start"] > 0, rows["t_submit_start"], rows["t_submit"])
    began = np.where(rows["t_wire"] > 0, np.clip(rows["t_wire"], begun, rows["t_submit"]), begun)
    lag = np.maximum(rows["t_dispatch"] - rows["t_sched"], 0) if has_planned_instants(run) else 0
    answered = rows["t_first"] > 0  # the others are all reasoning
    return {
        "ttft": ((first - rows["t_submit"])[answered], (rows["t_first"] - began)[answered]),
        "ttft_sched": ((first - rows["t_sched"] - lag)[answered], (rows["t_first"] - rows["t_sched"])[answered]),
        "ttft_any": (any_ - rows["t_submit"], rows["t_any"] - began),
        "ttft_any_sched": (any_ - rows["t_sched"] - lag, rows["t_any"] - rows["t_sched"]),
        "tpot": per_pause(rows["t_first"], first, rows["t_last"], last, spaced(run, tokens.timed)[selected] * answered),
        "tpot_any": per_pause(rows["t_any"], any_, rows["t_last"], last, spaced(run, tokens.output)[selected]),
        "e2e": (last - rows["t_submit"], rows["t_last"] - began),
        "e2e_sched": (last - rows["t_sched"] - lag, rows["t_last"] - rows["t_sched"]),
    }


def per_pause(begin: Times, least_begin: Times, end: Times, least_end: Times, count: Times) -> tuple[Values, Values]:
    """Lower and upper (*end* - *begin*) / (*count* - 1) of the requests with two tokens or more."""
    several = count > 1
    pauses = np.maximum(count - 1, 1)
    return (np.maximum(least_end - begin, 0) / pauses)[several], ((end - least_begin) / pauses)[several]


def has_planned_instants(run: Run) -> bool:
    """Whether each request had an instant of its own at which to be sent: an open loop without a cap."""
    load = run.document.config.load
    return load.concurrency is None and load.max_concurrency is None


def gap_bounds(run: Run, gaps: PooledGaps) -> tuple[Values | Ranked, Values | Ranked]:
    """Lower and upper bounds of the pooled gaps in ns. Gaps inside a chunk are 0 by definition, and exact."""
    n = len(gaps.gaps.ns)
    least = collected(lambda: (np.maximum(low - STAMP_NS, 0) for low, _ in bounds_of_gaps(run, gaps)), n)
    return least, collected(lambda: (high + STAMP_NS for _, high in bounds_of_gaps(run, gaps)), n)


def bounds_of_gaps(run: Run, gaps: PooledGaps) -> Iterator[tuple[Times, Times]]:
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
