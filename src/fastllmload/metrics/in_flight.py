"""Tokens in flight: tokens of prompt and answer so far of all requests between submission and end (metrics.md 7.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.distribution import scalar
from fastllmload.metrics.throughput import BEARING
from fastllmload.metrics.window import Window
from fastllmload.records.run import Run
from fastllmload.records.token_counts import TokenCounts

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

EVENTS_AT_ONCE = 1 << 16  # so that what is computed of them stays in the cache


@dataclass(frozen=True)
class TokensInFlight:
    """Time average and maximum over the window."""

    mean: float
    max: float


@dataclass(frozen=True)
class Arrivals:
    """Tokens that begin to be in flight: *amount* at *t_ns*, until the request of *row* has ended."""

    t_ns: Numbers
    row: Numbers
    amount: Floats


def tokens_in_flight(run: Run, window: Window, tokens: TokenCounts, chosen: Mask) -> TokensInFlight | None:
    """Of the *chosen* rows that were submitted; None for a window without a duration.

    The sum falls only where a request ends, so it is highest just before an end, or at the end of the window: only
    there does the maximum look. A token that comes at the very instant at which its request ends was never in flight.
    """
    if window.w1_ns <= window.w0_ns:
        return None
    mine = chosen & (run.rows["t_submit"] > 0)
    ends = np.where(run.rows["t_end"] > 0, run.rows["t_end"], window.w1_ns)
    looks = looking_instants(ends[mine], window)
    area, change, held = 0.0, np.zeros(len(looks) + 1), np.zeros(len(ends))
    for arrived in arrivals(run, tokens, mine, ends):
        area += float(np.dot(overlap_s(arrived.t_ns, ends[arrived.row], window), arrived.amount))
        add_at(change, first_look(looks, arrived.t_ns), arrived.amount)
        add_at(held, arrived.row, arrived.amount)
    add_at(change, first_look(looks, ends), -held)
    return TokensInFlight(area / window.seconds, float(np.cumsum(change)[:-1].max(initial=0.0)))


def add_at(sums: Floats, positions: Numbers, amount: Floats) -> None:
    """sums[positions] += amount, with repeated positions; quick when these lie close together."""
    if len(positions):
        low = int(positions.min())
        part = np.bincount(positions - low, amount)
        sums[low : low + len(part)] += part


def looking_instants(ends: Numbers, window: Window) -> Numbers:
    """Ends in (w0, w1), and w1: the level is looked at just before each of them."""
    inside = ends[(ends > window.w0_ns) & (ends < window.w1_ns)]
    return np.unique(np.append(inside, window.w1_ns))


def first_look(looks: Numbers, t_ns: Numbers) -> Numbers:
    """Position of the first look that sees what happened at each time: the first one after it."""
    if len(t_ns) == 0:
        return np.empty(0, np.int64)
    low, high = np.searchsorted(looks, [t_ns.min(), t_ns.max()], side="right")
    positions: Numbers = low + np.searchsorted(looks[low:high], t_ns, side="right")
    return positions


def overlap_s(begin: Numbers, end: Numbers, window: Window) -> Floats:
    """Seconds of each [begin, end) inside the window."""
    seconds: Floats = np.maximum(np.minimum(end, window.w1_ns) - np.maximum(begin, window.w0_ns), 0) / 1e9
    return seconds


def arrivals(run: Run, tokens: TokenCounts, mine: Mask, ends: Numbers) -> Iterator[Arrivals]:
    """Prompts first, then output tokens, so many events at a time."""
    rows = np.flatnonzero(mine)
    yield Arrivals(run.rows["t_submit"][rows], rows, np.maximum(tokens.input[rows], 0).astype(np.float64))
    first, row = run.first_event, 0
    while row < len(mine):
        after = max(row + 1, int(np.searchsorted(first, first[row] + EVENTS_AT_ONCE, side="right")) - 1)
        yield received(run, tokens, row, after, mine, ends)
        row = after


def received(run: Run, tokens: TokenCounts, begin: int, after: int, mine: Mask, ends: Numbers) -> Arrivals:
    """Output tokens of rows begin:after, over their token-bearing events as the server said, else evenly."""
    events = run.events[run.first_event[begin] : run.first_event[after]]
    bearing = BEARING[events["kind"]] & mine[events["row"]]
    t_ns, row = events["t_ns"][bearing], events["row"][bearing].astype(np.int64)
    weight = np.maximum(events["tokens"][bearing], 1).astype(np.float64)
    total = np.bincount(row - begin, weight, after - begin)
    each = np.maximum(tokens.output[begin:after], 0) / np.maximum(total, 1)
    in_time = t_ns < ends[row]
    return Arrivals(t_ns[in_time], row[in_time], (weight * each[row - begin])[in_time])


def in_flight_metrics(run: Run, window: Window | None, tokens: TokenCounts, measured: Mask) -> dict[str, Any]:
    """`tokens_in_flight` of the *measured* rows: time average over the window, and its maximum."""
    found = None if window is None else tokens_in_flight(run, window, tokens, measured)
    mean, most = (None, None) if found is None else (found.mean, found.max)
    return {"tokens_in_flight": scalar(mean, "tokens", max=most)}
