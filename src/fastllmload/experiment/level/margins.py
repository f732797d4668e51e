"""How far the client's lateness may have moved the figures that a level is judged by (spec/procedures 0.4.4).

A criterion is decided if its outcome is the same at both bounds: with all lateness of the client removed (BEST for the
system), and with each figure at its worse bound (WORST). A request that was sent late may have delayed every later one by
as much; its own lag is not in a latency that is counted from its submission.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.certificate.monitor import WORKER_STALLS
from fastllmload.certificate.run_evidence import worker_stalls
from fastllmload.experiment.level import criteria as rule
from fastllmload.experiment.level.client_lateness import dispatch_lags
from fastllmload.metrics.distribution.percentiles import percentile
from fastllmload.metrics.request.durations import committed
from fastllmload.metrics.run.bounds import earliest
from fastllmload.metrics.run.success import failed_here
from fastllmload.metrics.run.window import Populations, Window, populations, window_of
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.statistics.trend import slope

BEST, WORST = -1, 1  # for the system
CATCH_UP_NS = 5_000_000  # a worker reads what arrived during a stall within this time after it


@dataclass(frozen=True)
class Late:
    """*sent_ns*, *read_ns*: the largest dispatch lag, and the largest uncertainty of a last event. *failed*: requests
    scheduled in the window that failed by an error of the client's own. *share*: time that a slot was idle or waited for a
    late read, over the time of a request in the system. *unsent*: requests that were due and not yet sent, at each sample
    of the queue.
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
class LevelFigures:
    """Input of the criteria. *q*: queue samples. *ttft_p99*, *lowest_p50*, *lowest_p99* in ms. *scheduled*, *ended*:
    requests due, and requests that ended ok, in the window of *seconds*. *rates*: output tokens/s of its parts. *lower*:
    see `verdict.judge_level`.
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

    def moved(self, late: Late, ttft_p99: float | None, lowest_p50: float | None, side: int) -> LevelFigures:
        """The figures at the bound *side*, with the two figures of TTFT at that bound. At its end, the queue may have been
        shorter by the requests that would have ended, or longer by those that were due and not yet sent.
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


def late_of(run: Run, window: Window, samples: int = 1) -> Late:
    """Lateness in the measure phase of *run*. *samples*: number of evenly spaced samples of the queue in the window."""
    rows = run.rows[run.rows["phase"] == layout.MEASURE]
    lags = dispatch_lags(run, rows, window)
    early = earliest(run).last[run.rows["phase"] == layout.MEASURE]
    ended = (rows["status"] == layout.OK) & (rows["t_last"] > 0)
    unread = np.maximum(rows["t_last"] - early, 0)[ended]
    served = (early - committed(rows))[ended]
    idle = float(np.maximum(lags, 0).mean()) if len(lags) else 0.0
    own = failed_here(rows) & window.holds(rows["t_sched"])
    return Late(
        sent_ns=max(0, int(lags.max(initial=0))),
        read_ns=int(unread.max(initial=0)),
        failed=int(np.count_nonzero(own)),
        share=(idle + float(unread.mean())) / max(1.0, float(served.mean())) if len(served) else 0.0,
        unsent=unsent(rows[rows["t_dispatch"] > 0], window, samples) if len(lags) else np.zeros(samples),
    )


def unsent(rows: npt.NDArray[Any], window: Window, samples: int) -> rule.Floats:
    """How many of *rows*, all sent in the end, were due and not yet sent at each of *samples* instants."""
    at = np.linspace(window.w0_ns, window.w1_ns, samples, endpoint=False)
    due, sent = (np.searchsorted(np.sort(rows[name]), at, side="right") for name in ("t_sched", "t_dispatch"))
    found: rule.Floats = np.maximum(due - sent, 0).astype(np.float64)
    return found


def lag_ns(run: Run, window: Window) -> npt.NDArray[np.int64]:
    """How late each request was sent; all 0 if requests have no scheduled instants of their own."""
    rows = run.rows
    if not len(dispatch_lags(run, rows, window)):
        return np.zeros(len(rows), np.int64)
    lags: npt.NDArray[np.int64] = np.where(
        rows["t_dispatch"] > 0, np.maximum(rows["t_dispatch"] - rows["t_sched"], 0), 0
    )
    return lags


def ttft_ends(run: Run, chosen: Populations, sent_ns: int, q: float) -> dict[int, float | None]:
    """Percentile *q* of TTFT in ms at both bounds. *sent_ns*: how long a late dispatch may have delayed other requests."""
    wanted = chosen.latency & (run.rows["t_first"] > 0)
    rows = run.rows[wanted]
    first = np.minimum(earliest(run).first[wanted], earliest_first_ns(run, wanted))
    begun = np.where(rows["t_submit_start"] > 0, np.minimum(rows["t_submit_start"], rows["t_submit"]), rows["t_submit"])
    own = np.where(sent_ns > 0, np.clip(rows["t_dispatch"] - rows["t_sched"], 0, sent_ns), 0)
    sides = {BEST: np.maximum(first - rows["t_submit"] - sent_ns, 0), WORST: rows["t_first"] - begun + own}
    return {side: with_unfinished(run, percentile(np.sort(values) / 1e6, q), q) for side, values in sides.items()}


def with_unfinished(run: Run, value: float | None, q: float) -> float | None:
    """Percentile *q* of TTFT in ms, or its lower bound if that is above it since requests did not end."""
    low = run.document.metric("ttft").at_least(f"p{100 * q:g}")
    return value if value is None or low is None else max(value, low)


def drift_ends(rates: rule.Floats, in_time: rule.Floats) -> bool | None:
    """Whether throughput drifts; None if *rates* and the rates *in_time*, without lateness, drift differently."""
    found = {direction(rates), direction(in_time)}
    common = found.pop() if len(found) == 1 else None
    return None if common is None else common != 0


def direction(rates: rule.Floats) -> int | None:
    """1 or -1 if throughput drifts up or down, 0 if it does not; None without throughput."""
    drifts = rule.throughput_drifts(rates)
    return None if drifts is None else int(drifts and np.sign(slope(rates.tolist())))


def within(ends: Mapping[int, float | None], limit: float) -> bool | None:
    """Whether a figure is at most *limit*; None if this differs between its two bounds *ends*, or a bound is not known."""
    best, worst = ends[BEST], ends[WORST]
    if best is None or worst is None:
        return None
    return False if best > limit else True if worst <= limit else None


# -- a worker that stalled while first tokens arrived -----------------------------------------------------------------


def may_be_in_time(run: Run, limit_ms: float) -> bool:
    """Whether P99 of TTFT may have been at most *limit_ms*, though the measured value is above, because a worker stalled."""
    if not (run.directory / WORKER_STALLS).exists():
        return False
    best = ttft_p99_at_best_ms(run)
    return best is not None and best <= limit_ms


def ttft_p99_at_best_ms(run: Run) -> float | None:
    """P99 of TTFT in ms over the same requests as the level's own, with each first token as early as its stamp allows.

    The kernel stamps a read once, with its last segment. If several events were read at once after a stall,
    the first of them may have arrived when the stall began. None without requests.
    """
    chosen = populations(run, window_of(run))
    wanted = chosen.latency & (run.rows["t_first"] > 0)
    return percentile(np.sort(earliest_first_ns(run, wanted) - run.rows["t_submit"][wanted]) / 1e6, 0.99)


def earliest_first_ns(run: Run, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """The earliest time at which the first token of each row in *wanted* can have arrived: its stamp, or earlier if it was
    read after a stall.
    """
    rows = run.rows[wanted]
    first: npt.NDArray[np.int64] = rows["t_first"].astype(np.int64)
    least, together = earliest(run).first[wanted], (rows["flags"] & layout.FLAG_FIRST_COALESCED) != 0
    for worker in np.unique(rows["worker"]):
        stalls = worker_stalls(run, int(worker))
        if stalls is None or not len(stalls):
            continue
        begin, end, _ = stalls[np.argsort(stalls[:, 0])].T
        at = np.searchsorted(begin, first, side="right") - 1
        hidden = together & (rows["worker"] == worker) & (at >= 0) & (first <= end[at] + CATCH_UP_NS)
        first[hidden] = np.minimum(first, np.maximum(least, begin[at]))[hidden]
    return first
