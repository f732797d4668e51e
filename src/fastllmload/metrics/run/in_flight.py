"""Tokens in flight: tokens of prompt and answer so far of all requests between submission and end (metrics.md 7.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.distribution.summary import scalar
from fastllmload.metrics.run.window import Window
from fastllmload.metrics.tokens.counts import TokenCounts
from fastllmload.metrics.tokens.timeline import BEARING
from fastllmload.records.run import Run

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

EVENTS_AT_ONCE = 1 << 16  # so that what is computed of them stays in the cache
CELLS = 1 << 16  # of time, in which the highest level is looked for first
ROUNDING = 1e-9  # relative, of sums in another order


@dataclass(frozen=True)
class TokensInFlight:
    """Time average and maximum over the window."""

    mean: float
    max: float


@dataclass(frozen=True)
class Alive:
    """Requests while they are in flight, one item each: row in the run, ns of submission and end, prompt tokens."""

    rows: Numbers
    begin: Numbers
    end: Numbers
    prompt: Floats

    def where(self, mask: Mask) -> Alive:
        return Alive(self.rows[mask], self.begin[mask], self.end[mask], self.prompt[mask])


@dataclass(frozen=True)
class Arrivals:
    """Output tokens that came before the end of their requests: *amount* at *t_ns*, in flight until *end*. *sums* of those
    that are looked at from *begin* on, one item per request.
    """

    t_ns: Numbers
    end: Numbers
    amount: Floats
    begin: int
    sums: Floats

    def add_to(self, held: Floats) -> None:
        held[self.begin : self.begin + len(self.sums)] += self.sums


def tokens_in_flight(run: Run, window: Window, tokens: TokenCounts, chosen: Mask) -> TokensInFlight | None:
    """Of the *chosen* rows that were submitted; None for a window without a duration.

    The sum falls only where a request ends, so it is highest just before an end, or at the end of the window. Where that
    may be is narrowed down first, in cells of time: the level in a cell is at most that at its start and all that comes
    in it. A token that comes at the very instant at which its request ends was never in flight.
    """
    if window.w1_ns <= window.w0_ns:
        return None
    mine = np.flatnonzero(chosen & (run.rows["t_submit"] > 0))
    ends = run.rows["t_end"][mine]
    prompts = np.maximum(tokens.input[mine], 0).astype(np.float64)
    alive = Alive(mine, run.rows["t_submit"][mine], np.where(ends > 0, ends, window.w1_ns), prompts)
    if len(mine) == 0:
        return TokensInFlight(0.0, 0.0)
    cells = Cells(min(int(alive.begin.min()), window.w0_ns), window)
    area = float(np.dot(overlap_s(alive.begin, alive.end, window), prompts))
    cells.add(alive.begin, prompts)
    held = prompts.copy()
    for came in arrivals(run, tokens, alive):
        # einsum: dot would wake BLAS threads for so little
        area += float(np.einsum("i,i", overlap_s(came.t_ns, came.end, window), came.amount))
        cells.add(came.t_ns, came.amount)
        came.add_to(held)
    cells.remove(alive.end, held)
    near = alive.where(cells.may_be_highest(alive.begin, alive.end))
    return TokensInFlight(area / window.seconds, highest(run, window, tokens, near, cells))


class Cells:
    """Equal cells of time from *begin* to the end of the window: tokens that came, and that went with their requests."""

    def __init__(self, begin: int, window: Window) -> None:
        self.begin, self.scale = begin, CELLS / (window.w1_ns - begin + 1)
        self.behind = window.w1_ns - begin + 1
        self.inside = self.of(np.array([window.w0_ns, window.w1_ns]))
        self.came, self.gone = np.zeros(CELLS + 1), np.zeros(CELLS + 1)

    def of(self, t_ns: Numbers) -> Numbers:
        """Cell of each instant, ascending with it; CELLS behind the window."""
        cell: Numbers = (np.minimum(t_ns - self.begin, self.behind) * self.scale).astype(np.int64)
        return cell

    def add(self, t_ns: Numbers, amount: Floats) -> None:
        add_at(self.came, self.of(t_ns), amount)

    def remove(self, t_ns: Numbers, amount: Floats) -> None:
        add_at(self.gone, self.of(t_ns), amount)

    def candidates(self) -> Mask:
        """bool[CELLS + 1]: cells in which the highest level of the window may be."""
        start: Floats = np.concatenate([[0.0], np.cumsum(self.came - self.gone)[:-1]])
        most = start + self.came
        low, high = self.inside.tolist()
        surely = start[low + 1 : high + 1].max(initial=0.0)
        found: Mask = most >= surely - ROUNDING * float(most.max(initial=0.0))
        found[:low], found[high + 1 :] = False, False
        return found

    def may_be_highest(self, begin: Numbers, end: Numbers) -> Mask:
        """Which of these requests are in flight in one of the candidates."""
        before = np.concatenate([[0], np.cumsum(self.candidates())])
        found: Mask = before[self.of(end) + 1] > before[self.of(begin)]
        return found


def highest(run: Run, window: Window, tokens: TokenCounts, alive: Alive, cells: Cells) -> float:
    """The highest sum of the requests *alive* just before one of the ends in the cells that may have it, or before w1."""
    looks = looking_instants(alive.end, window)
    looks = looks[cells.candidates()[cells.of(looks)]]
    change, held = np.zeros(len(looks) + 1), alive.prompt.copy()
    add_at(change, first_look(looks, alive.begin), alive.prompt)
    for came in arrivals(run, tokens, alive):
        add_at(change, first_look(looks, came.t_ns), came.amount)
        came.add_to(held)
    add_at(change, first_look(looks, alive.end), -held)
    return float(np.cumsum(change)[:-1].max(initial=0.0))


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
    positions: Numbers = np.searchsorted(looks, t_ns, side="right")
    return positions


def overlap_s(begin: Numbers, end: Numbers, window: Window) -> Floats:
    """Seconds of each [begin, end) inside the window."""
    seconds: Floats = np.maximum(np.minimum(end, window.w1_ns) - np.maximum(begin, window.w0_ns), 0) / 1e9
    return seconds


def arrivals(run: Run, tokens: TokenCounts, alive: Alive) -> Iterator[Arrivals]:
    """Output tokens of the requests *alive*, so many events at a time."""
    events = np.concatenate([[0], np.cumsum(np.diff(run.first_event)[alive.rows])])
    at = 0
    while at < len(alive.rows):
        after = max(at + 1, int(np.searchsorted(events, events[at] + EVENTS_AT_ONCE, side="right")) - 1)
        for begin, stop in neighbours(alive.rows[at:after]):
            yield received(run, tokens, alive, at + begin, at + stop)
        at = after


def neighbours(rows: Numbers) -> Iterator[tuple[int, int]]:
    """Stretches of *rows* that follow each other without a hole."""
    borders = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
    yield from pairwise(borders)


def received(run: Run, tokens: TokenCounts, alive: Alive, begin: int, after: int) -> Arrivals:
    """Of *alive* from *begin* to *after*, which are neighbours: output tokens over their token-bearing events, as the
    server said or their text was counted, else evenly.
    """
    first, last = int(alive.rows[begin]), int(alive.rows[after - 1]) + 1
    events = run.events[run.first_event[first] : run.first_event[last]]
    count = np.diff(run.first_event[first : last + 1])
    output, end = np.maximum(tokens.output[first:last], 0), alive.end[begin:after]
    t_ns, ends = np.ascontiguousarray(events["t_ns"]), np.repeat(end, count)
    bearing, in_time = BEARING[events["kind"]], t_ns < ends
    if tokens.chunks.untouched and bearing.all() and in_time.all() and events["tokens"].max(initial=0) <= 1:
        amount = np.repeat(output / np.maximum(count, 1), count)  # what most runs are: a fifth of the work below
        return Arrivals(t_ns, ends, amount, begin, np.where(count > 0, output, 0) * 1.0)
    row = np.repeat(np.arange(len(count)), count)
    weight = np.where(bearing, tokens.chunks.weights(first, last), 0).astype(np.float64)
    total = np.bincount(row, weight, len(count))
    weight *= (output / np.maximum(total, 1))[row]
    kept = in_time & (weight > 0)
    t_ns, ends, row, weight = t_ns[kept], ends[kept], row[kept], weight[kept]
    return Arrivals(t_ns, ends, weight, begin, np.bincount(row, weight, len(count)).astype(np.float64))


def in_flight_metrics(run: Run, window: Window | None, tokens: TokenCounts, measured: Mask) -> dict[str, Any]:
    """`tokens_in_flight` of the *measured* rows: time average over the window, and its maximum."""
    found = None if window is None else tokens_in_flight(run, window, tokens, measured)
    mean, most = (None, None) if found is None else (found.mean, found.max)
    return {"tokens_in_flight": scalar(mean, "tokens", max=most)}
