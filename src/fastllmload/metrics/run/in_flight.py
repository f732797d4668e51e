"""Computes tokens in flight: prompt and answer tokens so far of all requests in flight (spec/metrics 7.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from fastllmload.arrays import Floats, Mask, Numbers
from fastllmload.documents.metric import Metric, Value
from fastllmload.errors import coded
from fastllmload.metrics.distribution.summary import number
from fastllmload.metrics.run.window import Window
from fastllmload.metrics.tokens.counts import TokenCounts
from fastllmload.metrics.tokens.timeline import BEARING
from fastllmload.records.run import Run

EVENTS_AT_ONCE = 1 << 16  # so that intermediate arrays stay in the cache
CELLS = 1 << 16  # cells of time in which the maximum is located first
ROUNDING = 1e-9  # relative error of sums in another order


@dataclass(frozen=True)
class TokensInFlight:
    """Time average and maximum over the window; None: not known."""

    mean: float | None
    max: float | None


@dataclass(frozen=True)
class InFlight:
    """Requests while they are in flight, one item each: row in the run, ns of submission and end, prompt tokens."""

    rows: Numbers
    begin: Numbers
    end: Numbers
    prompt: Floats

    def where(self, mask: Mask) -> InFlight:
        return InFlight(self.rows[mask], self.begin[mask], self.end[mask], self.prompt[mask])


@dataclass(frozen=True)
class Arrivals:
    """Output tokens that came before the end of their requests: *amount* at *t_ns*, in flight until *end*. *sums*: per
    request, for the requests from position *begin*.
    """

    t_ns: Numbers
    end: Numbers
    amount: Floats
    begin: int
    sums: Floats

    def add_to(self, totals: Floats) -> None:
        totals[self.begin : self.begin + len(self.sums)] += self.sums


def tokens_in_flight(run: Run, window: Window, tokens: TokenCounts, chosen: Mask) -> TokensInFlight | None:
    """Tokens in flight of the *chosen* rows that were submitted; None for a window without a duration.

    The sum decreases only where a request ends, so its maximum is just before an end, or at the end of the window. Cells of
    time narrow this down first: the level in a cell is at most its level at the start plus all tokens that come in it. A
    token that comes at the instant at which its request ends was never in flight.
    """
    if window.w1_ns <= window.w0_ns:
        return None
    alive = in_flight_of(run, window, tokens, chosen)
    if len(alive.rows) == 0:
        return TokensInFlight(0.0, 0.0)
    area = float(np.dot(overlap_s(alive.begin, alive.end, window), alive.prompt))
    if run.elsewhere is not None:
        known = bool(run.elsewhere.counted[alive.rows].all())
        return TokensInFlight((area + run.elsewhere.together.token_seconds) / window.seconds if known else None, None)
    cells = TimeCells(min(int(alive.begin.min()), window.w0_ns), window)
    cells.add(alive.begin, alive.prompt)
    totals = alive.prompt.copy()
    for came in arrivals(run, tokens, alive):
        area += seconds_of(came, window)
        cells.add(came.t_ns, came.amount)
        came.add_to(totals)
    cells.remove(alive.end, totals)
    near = alive.where(cells.may_be_highest(alive.begin, alive.end))
    return TokensInFlight(area / window.seconds, highest(run, window, tokens, near, cells))


def in_flight_of(run: Run, window: Window, tokens: TokenCounts, chosen: Mask) -> InFlight:
    """The *chosen* rows that were submitted."""
    selected = np.flatnonzero(chosen & (run.rows["t_submit"] > 0))
    ends = run.rows["t_end"][selected]
    prompts = np.maximum(tokens.input[selected], 0).astype(np.float64)
    return InFlight(selected, run.rows["t_submit"][selected], np.where(ends > 0, ends, window.w1_ns), prompts)


def seconds_of(came: Arrivals, window: Window) -> float:
    """Seconds of the window in which tokens that *came* were in flight, summed over the tokens."""
    # einsum: dot would wake BLAS threads for small arrays
    return float(np.einsum("i,i", overlap_s(came.t_ns, came.end, window), came.amount))


def token_seconds(run: Run, window: Window, tokens: TokenCounts, chosen: Mask) -> float:
    """The same of all output tokens of the *chosen* rows."""
    alive = in_flight_of(run, window, tokens, chosen)
    return sum(seconds_of(came, window) for came in arrivals(run, tokens, alive))


class TimeCells:
    """Equal cells of time from *begin* to the end of the window: tokens that came, and tokens of requests that ended."""

    def __init__(self, begin: int, window: Window) -> None:
        self.begin, self.scale = begin, CELLS / (window.w1_ns - begin + 1)
        self.length = window.w1_ns - begin + 1
        self.inside = self.of(np.array([window.w0_ns, window.w1_ns]))
        self.came, self.gone = np.zeros(CELLS + 1), np.zeros(CELLS + 1)

    def of(self, t_ns: Numbers) -> Numbers:
        """Cell of each instant, ascending with it; CELLS after the window."""
        cell: Numbers = (np.minimum(t_ns - self.begin, self.length) * self.scale).astype(np.int64)
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


def highest(run: Run, window: Window, tokens: TokenCounts, alive: InFlight, cells: TimeCells) -> float:
    """The maximum for the requests *alive* just before the ends in candidate cells, or before w1."""
    inside = alive.end[(alive.end > window.w0_ns) & (alive.end < window.w1_ns)]
    instants = np.unique(np.append(inside, window.w1_ns))
    instants = instants[cells.candidates()[cells.of(instants)]]
    change, totals = np.zeros(len(instants) + 1), alive.prompt.copy()
    add_at(change, first_after(instants, alive.begin), alive.prompt)
    for came in arrivals(run, tokens, alive):
        add_at(change, first_after(instants, came.t_ns), came.amount)
        came.add_to(totals)
    add_at(change, first_after(instants, alive.end), -totals)
    return float(np.cumsum(change)[:-1].max(initial=0.0))


def add_at(sums: Floats, positions: Numbers, amount: Floats) -> None:
    """sums[positions] += amount, with repeated positions; fast when these are close together."""
    if len(positions):
        low = int(positions.min())
        part = np.bincount(positions - low, amount)
        sums[low : low + len(part)] += part


def first_after(instants: Numbers, t_ns: Numbers) -> Numbers:
    """Position of the first of *instants* after each time."""
    positions: Numbers = np.searchsorted(instants, t_ns, side="right")
    return positions


def overlap_s(begin: Numbers, end: Numbers, window: Window) -> Floats:
    """Seconds of each [begin, end) inside the window."""
    seconds: Floats = np.maximum(np.minimum(end, window.w1_ns) - np.maximum(begin, window.w0_ns), 0) / 1e9
    return seconds


def arrivals(run: Run, tokens: TokenCounts, alive: InFlight) -> Iterator[Arrivals]:
    """Output tokens of the requests *alive*, about EVENTS_AT_ONCE events at a time."""
    events = np.concatenate([[0], np.cumsum(np.diff(run.first_event)[alive.rows])])
    at = 0
    while at < len(alive.rows):
        after = max(at + 1, int(np.searchsorted(events, events[at] + EVENTS_AT_ONCE, side="right")) - 1)
        for begin, stop in neighbours(alive.rows[at:after]):
            yield received(run, tokens, alive, at + begin, at + stop)
        at = after


def neighbours(rows: Numbers) -> Iterator[tuple[int, int]]:
    """Parts of *rows* that are consecutive."""
    borders = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
    yield from pairwise(borders)


def received(run: Run, tokens: TokenCounts, alive: InFlight, begin: int, after: int) -> Arrivals:
    """Output tokens of *alive* from *begin* to *after*, which are consecutive rows, over their token-bearing events: as the
    server reports or as counted in their text, else evenly.
    """
    first, last = int(alive.rows[begin]), int(alive.rows[after - 1]) + 1
    events = run.events[run.first_event[first] : run.first_event[last]]
    count = np.diff(run.first_event[first : last + 1])
    output, end = np.maximum(tokens.output[first:last], 0), alive.end[begin:after]
    t_ns, ends = np.ascontiguousarray(events["t_ns"]), np.repeat(end, count)
    bearing, in_time = BEARING[events["kind"]], t_ns < ends
    if tokens.chunks.untouched and bearing.all() and in_time.all() and events["tokens"].max(initial=0) <= 1:
        amount = np.repeat(output / np.maximum(count, 1), count)  # most runs: a fifth of the work below
        return Arrivals(t_ns, ends, amount, begin, np.where(count > 0, output, 0) * 1.0)
    row = np.repeat(np.arange(len(count)), count)
    weight = np.where(bearing, tokens.chunks.weights(first, last), 0).astype(np.float64)
    total = np.bincount(row, weight, len(count))
    weight *= (output / np.maximum(total, 1))[row]
    kept = in_time & (weight > 0)
    t_ns, ends, row, weight = t_ns[kept], ends[kept], row[kept], weight[kept]
    return Arrivals(t_ns, ends, weight, begin, np.bincount(row, weight, len(count)).astype(np.float64))


class InFlightMetric(Value, frozen=True, kw_only=True):
    WRITTEN: ClassVar[tuple[str, ...]] = (*Value.WRITTEN, "max")


def in_flight_metrics(run: Run, window: Window | None, tokens: TokenCounts, measured: Mask) -> dict[str, Metric]:
    """`tokens_in_flight` of the *measured* rows: time average over the window, and its maximum."""
    found = None if window is None else tokens_in_flight(run, window, tokens, measured)
    mean, most = (None, None) if found is None else (found.mean, found.max)
    missing = run.elsewhere is not None and found is not None and (mean is None or most is None)
    note = coded(
        "events-elsewhere", f"{'the maximum' if mean is not None else 'it'} needs events that stayed on a host"
    )
    return {
        "tokens_in_flight": InFlightMetric(unit="tokens", value=number(mean), max=most, note=note if missing else None)
    }
