"""Checks that a run was steady: drift of latencies, growth of the queue, MSER-5 next to the draft's ramp, Little's law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fastllmload.arrays import Floats, Numbers, Rows
from fastllmload.documents.run_parts.steadiness import DriftFacts, InFlightTrend, LittlesLaw, Steadiness, Transient
from fastllmload.metrics.distribution.summary import without_nulls
from fastllmload.metrics.request.durations import NULL, e2e, ttft, ttft_any
from fastllmload.metrics.request.latencies import in_time
from fastllmload.metrics.run.window import Populations, Window, on_schedule
from fastllmload.metrics.tokens.itl import PooledGaps, TokenGaps
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.statistics.batches import BATCHES, batch_edges
from fastllmload.statistics.interval import Sample
from fastllmload.statistics.trend import DRIFTED, drift, mser5

MEASURED = {"ttft": ttft, "e2e": e2e}
STRETCHES, INSTANTS = BATCHES, 20  # parts of the window; instants in each at which requests in flight are counted
LEAST_REQUESTS = 10 * BATCHES
LEAST_CHANGE = 0.2  # relative change of a level; smaller ones are not reported
LEAST_GROWTH, LEAST_RISE = 0.2, 2.0  # of requests in flight: share, number
TOLERANCE = 0.01  # of Little's law; with a larger residual requests were lost or counted twice
LEAST_IN_FLIGHT = 100.0  # summed over the samples; below it one request more or less exceeds the tolerance


def steadiness(run: Run, window: Window | None, chosen: Populations, gaps: PooledGaps) -> Steadiness:
    """`steadiness` of run.json: the transient and the drift by metric, the queue, Little's law, and `steady`: False where
    a level drifts or the queue grows, None where neither could be judged. MSER-5 does not decide it, because it calls too
    many steady runs unsteady (docs/statistics.md).
    """
    drifting, in_flight = drifts(run, chosen, gaps), queue(run, window, chosen)
    decisions = [one.steady for one in drifting.values() if one is not None]
    decisions += [not in_flight.growing] if in_flight is not None else []
    rows = run.rows[(run.rows["phase"] == layout.MEASURE) & (run.rows["status"] == layout.OK)]
    rows = rows[np.argsort(rows["t_sched"], kind="stable")]
    return Steadiness(
        transient={name: transient(rows, of(rows), window) for name, of in MEASURED.items()},
        littles_law=little(run, window),
        drift=drifting,
        in_flight=in_flight,
        steady=all(decisions) if decisions else None,
    )


def drifts(run: Run, chosen: Populations, gaps: PooledGaps) -> dict[str, DriftFacts | None]:
    """By metric: the drift of the level over STRETCHES of equally many requests of the window. TTFT any is included only
    where answers reason, because it equals TTFT elsewhere.
    """
    rows = run.rows[in_time(run.rows, chosen.latency)]
    judged = {**MEASURED, "ttft_any": ttft_any} if (rows["reasoning_events"] > 0).any() else MEASURED
    values = {name: without_nulls(of(rows)) for name, of in judged.items()}
    found = {name: drifted(Sample(each, each)) for name, each in values.items()}
    return {**found, "itl": drifted_gaps(gaps.gaps)}


def drifted_gaps(gaps: TokenGaps) -> DriftFacts | None:
    """`drifted` of gaps, of which only the sum of each request need be known."""
    if gaps.known is None:
        return drifted(Sample(gaps.each, gaps.each, gaps.first))
    if len(gaps.known.sums) < LEAST_REQUESTS:
        return None
    borders = batch_edges(len(gaps.known.sums))
    sums = np.diff(np.concatenate([[0], np.cumsum(gaps.known.sums)])[borders])
    return between_stretches(sums.astype(np.float64), np.diff(gaps.first[borders]))


def drifted(sample: Sample) -> DriftFacts | None:
    """ms of both halves, and on both sides of the most likely step; None for too few requests or an empty stretch."""
    if sample.units < LEAST_REQUESTS:
        return None
    edges = sample.edges()
    sums = [sample.values[begin:end].sum(dtype=np.float64) for begin, end in pairwise(edges.tolist())]
    return between_stretches(np.array(sums), np.diff(edges))


def between_stretches(sums: Floats, sizes: Numbers) -> DriftFacts | None:
    """The drift of stretches with as many values as in *sizes*, and these *sums* in ns."""
    if not sizes.all():
        return None
    found = drift(sums / sizes / 1e6)
    return DriftFacts(
        first_half=found.first,
        second_half=found.second,
        p=found.p,
        step_at=found.at,
        before_step=found.before,
        after_step=found.after,
        p_step=found.p_step,
        steady=not found.moved(LEAST_CHANGE),
    )


def queue(run: Run, window: Window | None, chosen: Populations) -> InFlightTrend | None:
    """Requests in flight over the window of an open loop: `growing` where each fifth has more than the one before, and the
    second half significantly more than the first, by LEAST_GROWTH and LEAST_RISE. None for a closed loop, where slots fix
    the number, and for too few requests; of a mix with closed loops, only requests of open ones count.
    """
    described, rows = run.document.plan.description, run.rows[chosen.measured & (run.rows["t_submit"] > 0)]
    loop, rows = described.load.loop, rows[on_schedule(described, rows["request_class"])]
    if window is None or loop != "open" or len(rows) < LEAST_REQUESTS or window.w1_ns <= window.w0_ns:
        return None
    instants = np.linspace(window.w0_ns, window.w1_ns, STRETCHES * INSTANTS, endpoint=False)
    begun, ended = np.sort(rows["t_submit"]), np.sort(rows["t_end"][rows["t_end"] > 0])
    count = np.searchsorted(begun, instants, "right") - np.searchsorted(ended, instants, "right")
    means = count.reshape(STRETCHES, INSTANTS).mean(axis=1)
    found, rising = drift(means), bool((np.diff(means.reshape(5, -1).mean(axis=1)) > 0).all())
    rise = found.second - found.first
    grown = rising and found.p < DRIFTED and rise >= max(LEAST_RISE, LEAST_GROWTH * found.first)
    return InFlightTrend(n=len(rows), first_half=found.first, second_half=found.second, p=found.p, growing=grown)


def transient(rows: Rows, values: Numbers, window: Window | None) -> Transient | None:
    """Where MSER-5 would begin to measure in the measure phase, and where the window begins, for comparison.

    *rows* in order of t_sched. None for too few requests. `steady` false: the best cut leaves less than half.
    """
    known = values != NULL
    found = mser5(values[known])
    if found is None or window is None:
        return None
    at = rows["t_sched"][known]
    begin = int(at[0])
    return Transient(
        cut_requests=found.cut,
        cut_share=found.share,
        cut_seconds=float(at[min(found.cut, len(at) - 1)] - begin) / 1e9,
        window_cut_seconds=max(0.0, (window.w0_ns - begin) / 1e9),
        steady=found.steady,
    )


@dataclass(frozen=True)
class Counted:
    """What a worker counted in flight at instants *t_ns*; *begun* and *ended* of its requests in ns, 0 = not yet."""

    t_ns: Numbers
    in_flight: Numbers
    begun: Numbers
    ended: Numbers


def little(run: Run, window: Window | None) -> LittlesLaw | None:
    """Requests in flight as the workers counted them against those computed from the rows; None without counts."""
    counted = in_flight_counted(run)
    return None if window is None or not counted else littles_law(counted, window.w0_ns, window.w1_ns)


def littles_law(workers: Sequence[Counted], w0_ns: int, w1_ns: int) -> LittlesLaw | None:
    """Mean number in flight = arrival rate x mean time in flight. None without a count or a request in the window.

    The rate and the time are of requests that began in the window. Their product differs from the number by requests that
    cross the window's borders and by changes between the counts. The residual has neither: it is the relative difference
    between the counts and the number in flight by the requests' own times at the same instants; None if too few were. Each
    worker is compared at its own instants, as those of several hosts are not the same.
    """
    mean, there, total, seen_any = 0.0, 0, 0, False
    inside, spent_ns = 0, 0
    for one in workers:
        began = (one.begun >= w0_ns) & (one.begun < w1_ns) & (one.ended > 0)
        inside += int(np.count_nonzero(began))
        spent_ns += int((one.ended - one.begun)[began].sum())
        seen = (one.t_ns >= w0_ns) & (one.t_ns < w1_ns)
        if not seen.any():
            continue
        seen_any = True
        at, count = one.t_ns[seen], one.in_flight[seen]
        entered = np.searchsorted(np.sort(one.begun[one.begun > 0]), at, "right")
        left = np.searchsorted(np.sort(one.ended[one.ended > 0]), at, "right")
        mean, there, total = mean + float(count.mean()), there + int(count.sum()), total + int((entered - left).sum())
    if not inside or not seen_any:
        return None
    residual = abs(there - total) / total if total >= LEAST_IN_FLIGHT else None
    return LittlesLaw(
        in_flight=mean,
        rate_per_s=inside / ((w1_ns - w0_ns) / 1e9),
        time_s=spent_ns / inside / 1e9,
        residual=residual,
        holds=None if residual is None else residual <= TOLERANCE,
    )


def in_flight_counted(run: Run) -> list[Counted]:
    """By worker, the instants of its samples in the measure phase and how many requests it had in flight."""
    samples, phase = run.samples, run.phase("measure")
    if samples is None or phase is None or "in_flight" not in (samples.dtype.names or ()):
        return []
    selected = samples[(samples["worker"] >= 0) & (samples["t_ns"] >= phase.start_ns)]
    rows = run.rows[run.rows["phase"] == layout.MEASURE]
    found = []
    for worker in np.unique(selected["worker"]):
        own, sent = selected[selected["worker"] == worker], rows[rows["worker"] == worker]
        times = (own["t_ns"], own["in_flight"], sent["t_dispatch"], sent["t_end"])
        found.append(Counted(*(each.astype(np.int64) for each in times)))
    return found
