"""Computes user idle latency, the wait of a reader of constant speed for tokens (spec/metrics 5.10, SG equations 4, 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from fastllmload._ext.measure import deadlines
from fastllmload.arrays import Mask, Numbers, Rows
from fastllmload.documents.metric import Metric
from fastllmload.errors import RunFolderError
from fastllmload.metrics.distribution.summary import distribution
from fastllmload.metrics.request.durations import NULL, committed
from fastllmload.metrics.run.window import on_schedule
from fastllmload.metrics.tokens.times import TokenTimes
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.settings import Output

DEFAULT_SPEED = 20.0  # tokens/s (SG 5.1)


@dataclass(frozen=True)
class Reader:
    """Takes V = 1/*speed* per token and needs token 1 at *d1_ns* after the request, V when None (SG equation 4).

    SG gives "speeds" in tokens/s and multiplies an index by them; only V in time per token is dimensionally sound.
    """

    speed: float = DEFAULT_SPEED
    d1_ns: int | None = None

    @property
    def per_token_ns(self) -> int:
        return round(1e9 / self.speed)

    @property
    def first_ns(self) -> int:
        """D_1 in ns."""
        return self.per_token_ns if self.d1_ns is None else self.d1_ns

    def described(self) -> dict[str, Any]:
        """The settings, which are printed with every value."""
        return {"speed_tok_s": self.speed, "d1_ms": self.first_ns / 1e6}


def reader_of(output: Output) -> Reader:
    return Reader(DEFAULT_SPEED if output.reading_speed is None else output.reading_speed)


def unfinished(rows: Rows) -> Mask:
    """Requests that were cut off: their idle latency is a lower bound, *censored*."""
    return ~np.isin(rows["status"], (layout.OK, layout.EMPTY, layout.REFUSED))


def max_lateness(rows: Rows, times: TokenTimes, reader: Reader, origin: Numbers) -> Numbers:
    """max over tokens of t_i - d_i in ns after *origin*, for the requests of *times* with these *rows*; may be negative.

    For an unfinished request that ended at T also T - d_(k+1), because the reader was waiting for the next token.
    """
    if times.totals is not None:
        late = lateness_elsewhere(times.totals, times.readers, reader)
        return np.where(late == NULL, NULL, late + committed(rows) - origin)
    found = np.empty(len(rows), np.int64)
    waited = np.where(unfinished(rows) | (times.count == 0), rows["t_end"], 0)  # until then, for a further token
    deadlines.lateness(times.t_ns, times.first, origin, waited, reader.first_ns, reader.per_token_ns, found)
    return found


def lateness_elsewhere(totals: Rows, readers: Sequence[tuple[float, int]], reader: Reader) -> Numbers:
    """The lateness from `committed` that the hosts computed. RunFolderError for a reader for whom they did not."""
    known = (reader.speed, reader.first_ns)
    if known not in readers:
        raise RunFolderError(
            "events-elsewhere",
            f"the lateness for a reader of {reader.speed:g} tokens/s needs events, which stayed on their hosts",
        )
    found: Numbers = totals["late"][:, readers.index(known)]
    return found


def idle_latency(lateness: Numbers) -> Numbers:
    """The part of *lateness* above 0, the time that the reader is idle. NULL stays NULL."""
    return np.where(lateness == NULL, NULL, np.maximum(lateness, 0))


def idle_metrics(run: Run, times: TokenTimes) -> dict[str, Metric]:
    """Over all submitted requests, failed ones with their lower bounds; `n_censored` is their number."""
    rows, reader = run.rows[times.rows], reader_of(run.document.config.output)
    late = max_lateness(rows, times, reader, committed(rows))
    sched = max_lateness(rows, times, reader, np.ascontiguousarray(rows["t_sched"]))
    due = on_schedule(run.document.plan.description, rows["request_class"])
    sched[~due] = NULL
    values = {"idle_latency": idle_latency(late), "idle_latency_sched": idle_latency(sched), "max_lateness": late}
    cut = unfinished(rows)
    return {
        name: replace(
            distribution(each, "ms"),
            **reader.described(),
            n_censored=int((cut & due if name.endswith("_sched") else cut).sum()),
        )
        for name, each in values.items()
    }
