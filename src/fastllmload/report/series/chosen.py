"""Requests worth a look, and each one's tokens against a reader (figure 1 of the smooth-goodput paper, metrics.md
5.10).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.records.timeline import on_timeline
from fastllmload.report.series.axis import Floats
from fastllmload.report.series.tokens import V_NS, TokenSeries, rows_of

Mask = npt.NDArray[np.bool_]

MOST_STEPS = 400


@dataclass(frozen=True)
class Reader:
    """Tokens of one request: *received[k]* in all at *t_s[k]*, s since submission; deadlines are d_i = i / speed.

    *waits*: float64[m, 2], the intervals (s) in which a reader of that speed has nothing to read; *wait_s* is their
    sum.
    """

    row: int
    request: int
    why: str
    status: str
    t_s: Floats
    received: Floats
    waits: Floats
    wait_s: float
    pause_s: float | None
    tokens: int


def choose_rows(tokens: TokenSeries, latency: Mask, measured: Mask) -> dict[int, str]:
    """Rows and why: by the reader's wait the median, the P99 and the worst request, and the one with the longest pause.

    Of the latency population; when nothing succeeded, of all that had a token.
    """
    known = ~np.isnan(tokens.wait_ns)
    pool = np.flatnonzero(known & latency)
    if not len(pool):
        pool = np.flatnonzero(known & measured)
    if not len(pool):
        return {}
    order = pool[np.argsort(tokens.wait_ns[pool], kind="stable")]
    chosen: dict[int, str] = {}
    named = {"Median request": 0.5, "P99 request": 0.99, "Worst request": 1.0}
    for why, q in named.items():
        if why != "P99 request" or len(order) >= 100:
            chosen.setdefault(int(order[round(q * (len(order) - 1))]), why)
    pauses = tokens.pause_ns[pool]
    if not np.isnan(pauses).all():
        chosen.setdefault(int(pool[np.nanargmax(pauses)]), "Longest pause")
    return chosen


def reader_of(run: Run, row: int, why: str, pause_ns: float) -> Reader:
    """The request of *row* as its reader saw it."""
    part = rows_of(run, row, row + 1)
    timed = on_timeline(part)
    fields = part.rows[0]
    sizes = np.maximum(part.event_tokens[timed].astype(np.int64), 1)
    t = part.event_t[timed] - int(fields["t_submit"])
    waits = reader_waits(t, sizes)
    return Reader(
        row=row,
        request=int(fields["request"]),
        why=why,
        status=layout.STATUS_NAMES[int(fields["status"])],
        t_s=t / 1e9,
        received=np.cumsum(sizes).astype(np.float64),
        waits=waits / 1e9,
        wait_s=float(np.diff(waits, axis=1).sum()) / 1e9,
        pause_s=None if np.isnan(pause_ns) else pause_ns / 1e9,
        tokens=int(sizes.sum()),
    )


def reader_waits(t_ns: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> Floats:
    """float64[m, 2] in ns: a reader needs the first token V after submission and takes V for each; it waits from when
    it is ready until the next token is there.
    """
    found: list[tuple[float, float]] = []
    ready = V_NS
    for t, size in zip(t_ns.tolist(), sizes.tolist(), strict=True):
        if t > ready:
            found.append((ready, t))
            ready = t
        ready += size * V_NS
    return np.array(found, np.float64).reshape(-1, 2)


def thinned(reader: Reader, most: int = MOST_STEPS) -> tuple[Floats, Floats]:
    """(t_s, received) with at most about *most* steps: the first, the last and evenly chosen ones between."""
    n = len(reader.t_s)
    if n <= most:
        return reader.t_s, reader.received
    kept = np.unique(np.linspace(0, n - 1, most).astype(np.int64))
    return reader.t_s[kept], reader.received[kept]
