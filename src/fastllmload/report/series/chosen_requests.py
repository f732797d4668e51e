"""Chooses notable requests, and compares their tokens with a reader (figure 1 of the smooth-goodput paper)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.tokens.idle import Reader
from fastllmload.metrics.tokens.timeline import on_timeline, stated_tokens
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.report.series.axis import Floats
from fastllmload.report.series.tokens import TokenSeries, rows_of

Mask = npt.NDArray[np.bool_]

MOST_STEPS = 400


@dataclass(frozen=True)
class Delivery:
    """Tokens of one request: *received[k]* in total at *t_s[k]*, s since submission; deadlines are those of *reader*.

    *waits*: float64[m, 2], the intervals (s) in which the reader has nothing to read; *wait_s* is their sum.
    *read_s*, *read*: corners of the reader's progress; the reader needs token read[k] at read_s[k]. *slack_s*: the
    smallest lead of a token over its deadline, negative when a token was late.
    """

    row: int
    request: int
    why: str
    status: str
    reader: Reader
    t_s: Floats
    received: Floats
    waits: Floats
    wait_s: float
    read_s: Floats
    read: Floats
    slack_s: float
    pause_s: float | None
    tokens: int


def choose_rows(tokens: TokenSeries, latency: Mask, measured: Mask) -> dict[int, str]:
    """Rows with the reason: the median, P99 and worst request by lateness against the reader, and the one with the longest
    pause. Of the latency population; when nothing succeeded, of all requests with a token.
    """
    known = ~np.isnan(tokens.late_ns)
    pool = np.flatnonzero(known & latency)
    if not len(pool):
        pool = np.flatnonzero(known & measured)
    if not len(pool):
        return {}
    order = pool[np.argsort(tokens.late_ns[pool], kind="stable")]
    chosen: dict[int, str] = {}
    named = {"Worst request": 1.0, "Median request": 0.5, "P99 request": 0.99}
    for why, q in named.items():
        if why != "P99 request" or len(order) >= 100:
            chosen.setdefault(int(order[round(q * (len(order) - 1))]), why)
    pauses = tokens.pause_ns[pool]
    if not np.isnan(pauses).all():
        chosen.setdefault(int(pool[np.nanargmax(pauses)]), "Longest pause")
    return chosen


def delivery_of(run: Run, row: int, why: str, pause_ns: float, reader: Reader) -> Delivery:
    """The tokens of the request *row* against *reader*."""
    part = rows_of(run, row, row + 1)
    timed = on_timeline(part)
    fields = part.rows[0]
    sizes = stated_tokens(part.event_tokens[timed], 1)
    t = part.event_t[timed] - int(fields["t_submit"])
    waits, corners = reader_progress(t, sizes, reader)
    due = reader.first_ns + (np.cumsum(sizes) - sizes) * reader.per_token_ns
    return Delivery(
        row=row,
        request=int(fields["request"]),
        why=why,
        status=layout.STATUS_NAMES[int(fields["status"])],
        reader=reader,
        t_s=t / 1e9,
        received=np.cumsum(sizes).astype(np.float64),
        waits=waits / 1e9,
        wait_s=float(np.diff(waits, axis=1).sum()) / 1e9,
        read_s=corners[:, 0] / 1e9,
        read=corners[:, 1],
        slack_s=float((due - t).min()) / 1e9,
        pause_s=None if np.isnan(pause_ns) else pause_ns / 1e9,
        tokens=int(sizes.sum()),
    )


def reader_progress(t_ns: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], reader: Reader) -> tuple[Floats, Floats]:
    """(waits float64[m, 2] in ns, corners float64[k, 2] of (ns, token needed then)) of a reader who needs the first
    token `first_ns` after submission, takes `per_token_ns` for each, and waits where the next one has not arrived.
    """
    waits: list[tuple[float, float]] = []
    ready, needed = reader.first_ns, 1
    corners: list[tuple[float, float]] = [(ready, needed)]
    for t, size in zip(t_ns.tolist(), sizes.tolist(), strict=True):
        if t > ready:
            waits.append((ready, t))
            corners += [(ready, needed), (t, needed)]
            ready = t
        ready += size * reader.per_token_ns
        needed += size
    corners.append((ready - reader.per_token_ns, needed - 1))
    return np.array(waits, np.float64).reshape(-1, 2), np.array(corners, np.float64)


def thinned(delivery: Delivery, most: int = MOST_STEPS) -> Delivery:
    """The same for drawing, with at most about *most* steps, corners and waits; the first and last are kept, and waits
    that are close together are merged.
    """
    steps, corners = evenly_chosen(len(delivery.t_s), most), evenly_chosen(len(delivery.read_s), 2 * most)
    span = float(delivery.read_s[-1]) if len(delivery.read_s) else 0.0
    return replace(
        delivery,
        t_s=delivery.t_s[steps],
        received=delivery.received[steps],
        read_s=delivery.read_s[corners],
        read=delivery.read[corners],
        waits=delivery.waits if len(delivery.waits) <= most else merged(delivery.waits, span / most),
    )


def evenly_chosen(n: int, most: int) -> npt.NDArray[np.int64]:
    """Indices of at most *most* of *n*, evenly spaced, with the first and the last."""
    return np.arange(n) if n <= most else np.unique(np.linspace(0, n - 1, most).astype(np.int64))


def merged(intervals: Floats, gap: float) -> Floats:
    """Ascending intervals float64[m, 2]; those less than *gap* apart are merged."""
    breaks = np.flatnonzero(intervals[1:, 0] - intervals[:-1, 1] >= gap)
    starts = intervals[np.concatenate([[0], breaks + 1]), 0]
    ends = intervals[np.concatenate([breaks, [len(intervals) - 1]]), 1]
    return np.column_stack([starts, ends])
