"""How far what the client did late may have moved the figures that a level is judged by (procedures 0.4.4).

A criterion is decided where it holds, or not, at both ends: with all that the client did late in time (BEST for the
system), and with each figure at the worse end of what is known of it (WORST). A request that was sent late may have kept
every later one waiting for that long; what it was late itself it did not wait where it was counted from its submission.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.experiment.level import criteria as rule
from fastllmload.experiment.level.client_lateness import OWN_ERRORS, dispatch_lags
from fastllmload.experiment.level.late_reads import earliest_first_ns
from fastllmload.metrics.distribution.percentiles import percentile
from fastllmload.metrics.request.durations import committed
from fastllmload.metrics.run.bounds import earliest
from fastllmload.metrics.run.window import Populations, Window
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.statistics.trend import slope

BEST, WORST = -1, 1  # for the system


@dataclass(frozen=True)
class Late:
    """*sent_ns*, *read_ns*: the latest release of any request, and the most that is not known of its last event. *failed*:
    requests scheduled in the window that ended with an error of the client's own. *share*: of a request's time in the
    system, what its slot stood empty or waited for a read that came late. *unsent*: requests that were due and not yet sent,
    at each look at the queue.
    """

    sent_ns: int
    read_ns: int
    failed: int
    share: float
    unsent: rule.Floats

    @property
    def seconds(self) -> float:
        return (self.sent_ns + self.read_ns) / 1e9


@dataclass(frozen=True)
class Figures:
    """What the criteria are asked of. *ttft_p99*, *lowest_p50*, *lowest_p99* in ms; *scheduled*, *ended*: requests due, and
    ok ends, in the window of *seconds*; *rates*: output tokens/s of its parts; *lower*: see `verdict.judge_level`.
    """

    load: float
    closed: bool
    seconds: float
    q: rule.Floats
    scheduled: int
    ended: float
    outlasted: bool
    ttft_p99: float | None
    lowest_p50: float | None
    lowest_p99: float | None
    rates: rule.Floats
    lower: tuple[tuple[float, float], ...]

    @property
    def output(self) -> float:
        return float(self.rates.mean())

    @property
    def completion_rate(self) -> float | None:
        return None if self.closed or not self.scheduled else self.ended / self.scheduled

    def drifts(self) -> bool | None:
        return rule.throughput_drifts(self.rates)

    def slow(self) -> bool | None:
        return rule.too_slow(self.ttft_p99, self.lowest_p50, self.lowest_p99)

    def moved(self, late: Late, ttft_p99: float | None, lowest_p50: float | None, side: int) -> Figures:
        """The same at one *side*, with the two figures of TTFT there. A queue that grew may have been less at its end by
        what would have ended, one that did not may have been more by what was due and not yet sent.
        """
        rate = self.ended / self.seconds
        queue = late.unsent if side == WORST else -rate * late.seconds
        ended = self.ended - side * rate * late.seconds + (late.failed if side == BEST else 0)
        return replace(
            self,
            q=self.q + np.linspace(0.0, 1.0, len(self.q)) * queue,
            ended=max(0.0, ended),
            ttft_p99=ttft_p99,
            lowest_p50=lowest_p50,
            rates=self.rates * (1 + late.share) if side == BEST and self.closed else self.rates,
            lower=tuple((load, rate * (1 + late.share)) for load, rate in self.lower) if side == WORST else self.lower,
        )


def late_of(run: Run, window: Window, looks: int = 1) -> Late:
    """Of the measure phase of *run*; *looks*: how often, in equal parts of the window, the queue was looked at."""
    rows = run.rows[run.rows["phase"] == layout.MEASURE]
    lags = dispatch_lags(run, rows, window)
    early = earliest(run).last[run.rows["phase"] == layout.MEASURE]
    ended = (rows["status"] == layout.OK) & (rows["t_last"] > 0)
    unread = np.maximum(rows["t_last"] - early, 0)[ended]
    served = (early - committed(rows))[ended]
    idle = float(np.maximum(lags, 0).mean()) if len(lags) else 0.0
    own = np.isin(rows["error"], OWN_ERRORS) & window.holds(rows["t_sched"])
    return Late(
        sent_ns=max(0, int(lags.max(initial=0))),
        read_ns=int(unread.max(initial=0)),
        failed=int(np.count_nonzero(own)),
        share=(idle + float(unread.mean())) / max(1.0, float(served.mean())) if len(served) else 0.0,
        unsent=unsent(rows[rows["t_dispatch"] > 0], window, looks) if len(lags) else np.zeros(looks),
    )


def unsent(rows: npt.NDArray[Any], window: Window, looks: int) -> rule.Floats:
    """How many of *rows*, all of them sent, were due and not yet sent at each look."""
    at = np.linspace(window.w0_ns, window.w1_ns, looks, endpoint=False)
    due, sent = (np.searchsorted(np.sort(rows[name]), at, side="right") for name in ("t_sched", "t_dispatch"))
    found: rule.Floats = np.maximum(due - sent, 0).astype(np.float64)
    return found


def lag_ns(run: Run, window: Window) -> npt.NDArray[np.int64]:
    """How late each request was sent; 0 where none has an instant of its own."""
    rows = run.rows
    if not len(dispatch_lags(run, rows, window)):
        return np.zeros(len(rows), np.int64)
    lags: npt.NDArray[np.int64] = np.where(
        rows["t_dispatch"] > 0, np.maximum(rows["t_dispatch"] - rows["t_sched"], 0), 0
    )
    return lags


def ttft_ends(run: Run, chosen: Populations, sent_ns: int, q: float) -> dict[int, float | None]:
    """Percentile *q* of TTFT in ms at either side. *sent_ns*: how long a late release may have kept others waiting."""
    wanted = chosen.latency & (run.rows["t_first"] > 0)
    rows = run.rows[wanted]
    first = np.minimum(earliest(run).first[wanted], earliest_first_ns(run, wanted))
    begun = np.where(rows["t_submit_start"] > 0, np.minimum(rows["t_submit_start"], rows["t_submit"]), rows["t_submit"])
    own = np.where(sent_ns > 0, np.clip(rows["t_dispatch"] - rows["t_sched"], 0, sent_ns), 0)
    sides = {BEST: np.maximum(first - rows["t_submit"] - sent_ns, 0), WORST: rows["t_first"] - begun + own}
    return {side: percentile(np.sort(values) / 1e6, q) for side, values in sides.items()}


def drift_ends(rates: rule.Floats, in_time: rule.Floats) -> bool | None:
    """Whether throughput drifts; None where its rates, and those with every token *in_time*, do not say the same."""
    found = {direction(rates), direction(in_time)}
    way = found.pop() if len(found) == 1 else None
    return None if way is None else way != 0


def direction(rates: rule.Floats) -> int | None:
    """1 or -1 where throughput drifts up or down, 0 where it does not; None without any."""
    drifts = rule.throughput_drifts(rates)
    return None if drifts is None else int(drifts and np.sign(slope(rates.tolist())))


def within(ends: Mapping[int, float | None], limit: float) -> bool | None:
    """Whether a figure is at most *limit*; None where it is at one of its *ends* and not at the other, or not known."""
    best, worst = ends[BEST], ends[WORST]
    if best is None or worst is None:
        return None
    return False if best > limit else True if worst <= limit else None
