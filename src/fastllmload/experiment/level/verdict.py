"""Applies the rules of `criteria` to one level: saturated, steady, limited by the client (spec/procedures 0.4.4, 0.9)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from fastllmload.documents.experiment import Criteria, CriteriaFigures
from fastllmload.experiment.level import criteria as rule
from fastllmload.experiment.level import margins
from fastllmload.experiment.level.client_lateness import client_limits, is_closed, load_of, offered_in_full
from fastllmload.experiment.level.criteria import waiting
from fastllmload.experiment.level.margins import BEST, WORST, LevelFigures, may_be_in_time
from fastllmload.metrics.distribution.percentiles import percentile
from fastllmload.metrics.request.durations import committed, ttft
from fastllmload.metrics.run.window import Populations, Window, populations, window_of
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.metrics.tokens.timeline import BEARING, stated_tokens
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.statistics.sequential_tests import Decision

IN_FLIGHT = "requests in flight"
QUEUE, COMPLETION, LATENCY, NO_GAIN = "queue growing", "completion", "latency", "no gain"
SHORT_OF = 10  # a level must be at least this many mean e2e latencies long for the completion criterion
TOO_SHORT = "too short for the completion criterion; take 300 s or more"


class Lowest(msgspec.Struct, frozen=True):
    """TTFT (ms) and mean e2e (s) of the lowest tested level, where the system has no queue. *p50_ends*: lower and upper
    bound of the P50; None: the P50 is taken as measured.
    """

    load: float
    ttft_p50: float | None
    ttft_p99: float | None
    e2e_mean: float | None = None
    p50_ends: tuple[float | None, float | None] | None = None

    def p50_at(self, side: int) -> float | None:
        """The bound of the P50 that gives another level the more favourable (BEST) or less favourable (WORST) limit."""
        return self.ttft_p50 if self.p50_ends is None else self.p50_ends[side == BEST]


class LevelVerdict(Criteria, frozen=True, kw_only=True):
    """What the criteria of a level decide. *saturated*, *steady*: also None if too little was measured, or if the client's
    lateness may decide it. *generator_limited*: the client's lateness may decide whether the level holds. *queue*: source of
    the queue: IN_FLIGHT, or the name of the server's gauge.
    """

    @property
    def decision(self) -> Decision:
        """PASS: not saturated and steady. A level with a late client passes only if it was offered in full."""
        unknown = Decision.CLIENT if self.generator_limited else Decision.UNDECIDED
        if self.saturated is None or self.steady is None:
            return Decision.FAIL if self.saturated else unknown
        if self.saturated or not self.steady:
            return Decision.FAIL
        return Decision.CLIENT if self.generator_limited and not self.offered_in_full else Decision.PASS

    def why(self) -> str:
        """Why the level does not hold: criterion, value and limit of each that fired."""
        if self.decision is Decision.CLIENT:
            return f"the client was the limit: {self.limits[-1]}" if self.limits else "the client was the limit"
        found = [self._criterion_text(name) for name in self.fired if name not in self.in_question]
        if not found and self.steady is False:
            found = ["throughput drifts: it is not steady"]
        if found and self.limits:
            found.append(f"whatever the client was late ({self.limits[-1]})")
        return "; ".join(found) or "it could not be judged"

    def _criterion_text(self, name: str) -> str:
        of = self.figures
        if name == LATENCY:
            p99, p50 = of.ttft_p99_ms, of.lowest_ttft_p50_ms
            most = math.nan if p50 is None else rule.TTFT_FACTOR * p50
            return f"latency: P99 TTFT {p99:,.4g} ms is above {most:,.4g} ms, {rule.TTFT_FACTOR:g} x the lowest level's P50"
        if name == COMPLETION:
            return f"completion: {of.completion_rate:.1%} of what was due in the window, below {rule.COMPLETION:.0%}"
        if name == QUEUE:
            mean, last = of.queue_mean, of.queue_last
            return f"queue growing: {self.queue}, {mean:,.4g} on average and {last:,.4g} at the end, grew in each fifth"
        if name == NO_GAIN:
            return f"no gain: {of.output_tok_s:,.4g} output tok/s, less than {rule.GAIN:.0%} above a lower level"
        return name

    @property
    def unsteady(self) -> bool:
        """Neither steady nor saturated: must be run again, twice as long (spec/procedures 0.9)."""
        return self.steady is False and not self.saturated


def lowest_of(run: Run) -> Lowest:
    """The reference values of the run at the lowest level."""
    chosen = populations(run, window_of(run))
    p50, p99 = ttft_percentiles(run, chosen)
    ends = margins.ttft_ends(run, chosen, 0, 0.5)
    return Lowest(load_of(run), p50, p99, mean_e2e_s(run, chosen), (ends[BEST], ends[WORST]))


def judge_level(
    run: Run, lowest: Lowest | None = None, lower: Sequence[tuple[float, float]] = (), queue: rule.Floats | None = None
) -> LevelVerdict:
    """Judge one run.

    *lowest*: None if this is the lowest level itself. *lower*: (concurrency, output tokens/s) of lower levels of a closed
    loop. *queue*: evenly spaced samples over the window, used instead of the server's gauge of waiting requests in the
    run's telemetry. Without either, requests in flight are the queue.
    """
    window, closed = window_of(run), is_closed(run)
    if window is None or window.seconds <= 0:
        return nothing_measured("closed" if closed else "open")
    compared = lowest if lowest is not None else lowest_of(run)
    flight = in_flight_of(run, window)
    q, source = (waiting(run, window) or (flight, IN_FLIGHT)) if queue is None else (queue, "given")
    found = figures_of(run, window, compared, q, lower)
    asked = asked_of(found)
    fired = tuple(name for name, holds in asked.items() if holds)
    limits = (*client_limits(run, window), *hidden_by_stall(run, fired, compared))
    certain, question, drifts = outcomes(run, window, found, lowest) if limits else (fired, (), found.drifts())
    applied = any(holds is not None for holds in asked.values())
    saturated = None if not applied or (question and not certain) else bool(certain)
    steady = steadiness(drifts, QUEUE in certain, QUEUE in question)
    offered = offered_in_full(run)
    decided = saturated or (saturated is False and (steady is False or (steady is True and offered)))
    mean_e2e = mean_e2e_s(run, populations(run, window))
    return LevelVerdict(
        loop="closed" if closed else "open",
        saturated=saturated,
        fired=fired,
        inapplicable=tuple(inapplicable(asked, closed, found.ttft_p99, compared)),
        steady=steady,
        generator_limited=bool(limits) and not decided,
        limits=limits,
        offered_in_full=offered,
        cascading=was_cascading(run),
        warnings=() if closed else too_short(run, mean_e2e),
        figures=CriteriaFigures(
            completion_rate=found.completion_rate,
            ttft_p99_ms=found.ttft_p99,
            lowest_ttft_p50_ms=compared.ttft_p50,
            output_tok_s=found.output,
            in_flight_mean=float(flight.mean()) if len(flight) else None,
            in_flight_last=float(flight[-1]) if len(flight) else None,
            queue_mean=float(q.mean()) if len(q) else None,
            queue_last=float(q[-1]) if len(q) else None,
            e2e_mean_s=mean_e2e,
        ),
        queue=source,
        in_question=question,
    )


def figures_of(
    run: Run, window: Window, lowest: Lowest, q: rule.Floats, lower: Sequence[tuple[float, float]]
) -> LevelFigures:
    """The input of the criteria, as measured."""
    rows = run.rows[run.rows["phase"] == layout.MEASURE]
    return LevelFigures(
        load=load_of(run),
        closed=is_closed(run),
        seconds=window.seconds,
        q=q,
        scheduled=int(np.count_nonzero(window.holds(rows["t_sched"]))),
        ended=float(np.count_nonzero((rows["status"] == layout.OK) & window.holds(rows["t_end"]))),
        outlasted=outlasted_s(run, lowest.e2e_mean) is not None,  # less than 90% can complete, at any load
        ttft_p99=ttft_percentiles(run, populations(run, window))[1],
        lowest_p50=lowest.ttft_p50,
        lowest_p99=lowest.ttft_p99,
        rates=token_rates(run, window),
        lower=tuple(lower),
    )


def asked_of(of: LevelFigures) -> dict[str, bool | None]:
    """Whether each criterion holds; None if it does not apply."""
    return {
        QUEUE: None if of.closed else rule.queue_growing(of.q),
        COMPLETION: None if of.outlasted else rule.incomplete(of.completion_rate),
        LATENCY: of.slow(),
        NO_GAIN: rule.no_gain(of.load, of.output, list(of.lower)) if of.closed else None,
    }


def outcomes(
    run: Run, window: Window, found: LevelFigures, lowest: Lowest | None
) -> tuple[tuple[str, ...], tuple[str, ...], bool | None]:
    """For a run in which the client was late: names of the criteria that hold at both bounds, names of those that the
    lateness may decide, and whether throughput drifts (None if the lateness may decide it). The lowest level itself
    (*lowest* is None) is compared with its own P50 as measured.
    """
    late = margins.late_of(run, window, len(found.q))
    p99 = margins.ttft_ends(run, populations(run, window), late.sent_ns, 0.99)
    ends = {
        side: (found.ttft_p99, found.lowest_p50) if lowest is None else (p99[side], lowest.p50_at(side)) for side in p99
    }
    at = {side: asked_of(found.moved(late, *ends[side], side)) for side in (BEST, WORST)}
    answers = {name: {holds, at[BEST][name], at[WORST][name]} for name, holds in asked_of(found).items()}
    certain = tuple(name for name, every in answers.items() if every == {True})
    question = tuple(name for name, every in answers.items() if True in every and name not in certain)
    return certain, question, margins.drift_ends(found.rates, token_rates(run, window, in_time=True))


def steadiness(drifts: bool | None, grows: bool, may_grow: bool) -> bool | None:
    """Whether throughput does not drift and the queue does not grow; None if one is unknown and the other is fine."""
    if drifts or grows:
        return False
    return None if drifts is None or may_grow else True


def nothing_measured(loop: str) -> LevelVerdict:
    """The verdict on a level without a window: nothing was sent, or nothing was received."""
    return LevelVerdict(
        loop=loop, generator_limited=False, offered_in_full=False, cascading=False, warnings=("nothing was measured",),
        queue=IN_FLIGHT,
    )  # fmt: skip


def inapplicable(
    asked: Mapping[str, bool | None], closed: bool, p99: float | None, lowest: Lowest
) -> list[tuple[str, str]]:
    """Name of each criterion that does not apply, and why."""
    why = {
        QUEUE: "a closed loop holds its queue constant" if closed else "the window is too short",
        COMPLETION: completion_reason(closed, lowest),
        LATENCY: latency_reason(p99, lowest),
        NO_GAIN: "no level with at most 1/1.25 of the concurrency was tested" if closed else "for closed loops only",
    }
    return [(name, why[name]) for name, holds in asked.items() if holds is None]


def completion_reason(closed: bool, lowest: Lowest) -> str:
    if closed:
        return "a closed loop schedules nothing"
    if lowest.e2e_mean is None:
        return "nothing was scheduled in the window"
    return f"the level is shorter than {SHORT_OF} answers of {lowest.e2e_mean:.3g} s, which it cuts off at its end"


def outlasted_s(run: Run, e2e_mean: float | None) -> float | None:
    """Length in s of a level of which answers of *e2e_mean* take more than a tenth; None for one that is long enough."""
    phase = run.phase("measure")
    if e2e_mean is None or phase is None or phase.end_ns is None:
        return None
    seconds = (phase.end_ns - phase.start_ns) / 1e9
    return seconds if e2e_mean > seconds / SHORT_OF else None


def too_short(run: Run, e2e_mean: float | None) -> tuple[str, ...]:
    seconds = outlasted_s(run, e2e_mean)
    if seconds is None:
        return ()
    return (
        f"the mean e2e latency of {e2e_mean:.3g} s is more than a tenth of the level's {seconds:.4g} s: {TOO_SHORT}",
    )


def latency_reason(p99: float | None, lowest: Lowest) -> str:
    if p99 is None or lowest.ttft_p50 is None or lowest.ttft_p99 is None:
        return "no TTFT was measured"
    ratio = lowest.ttft_p99 / lowest.ttft_p50 if lowest.ttft_p50 else math.inf
    return (
        f"at the lowest level ({lowest.load:g}) P99 TTFT is already {ratio:.3g} times its P50: input lengths cause that"
    )


# -- figures of a run -------------------------------------------------------------------------------------------------


def in_flight_of(run: Run, window: Window) -> rule.Floats:
    """Requests of the measure phase in flight: from submission, or from dispatch if the last byte was never sent."""
    rows = run.rows[run.rows["phase"] == layout.MEASURE]
    return rule.in_flight(committed(rows), rows["t_end"], window.w0_ns, window.w1_ns)


def ttft_percentiles(run: Run, chosen: Populations) -> tuple[float | None, float | None]:
    """P50 and P99 in ms over ok requests that were submitted in the window."""
    found = ttft(run.rows[chosen.latency & (run.rows["t_first"] > 0)])
    ordered = np.sort(found) / 1e6
    return percentile(ordered, 0.5), margins.with_unfinished(run, percentile(ordered, 0.99), 0.99)


def mean_e2e_s(run: Run, chosen: Populations) -> float | None:
    rows = run.rows[chosen.latency]
    return float((rows["t_end"] - committed(rows)).mean()) / 1e9 if len(rows) else None


def token_rates(run: Run, window: Window, parts: int = rule.SUB_WINDOWS, in_time: bool = False) -> rule.Floats:
    """Output tokens/s of ok requests in equal sub-windows; a request's tokens are spread over its events. *in_time*: as if
    each request had been sent when due, and each event had been read at its earliest possible time.
    """
    rows = run.rows
    ok = (rows["status"] == layout.OK) & (rows["phase"] == layout.MEASURE)
    events = run.events
    bearing = BEARING[events["kind"]] & ok[events["row"]]
    row, weight = events["row"][bearing], stated_tokens(events["tokens"][bearing], 1).astype(np.float64)
    total = np.bincount(row, weight, len(rows))
    each = count_tokens(run).output / np.maximum(total, 1)
    t_ns = events["t_ns"][bearing]
    if in_time:
        t_ns = t_ns - events["bracket_ns"][bearing].astype(np.int64) - margins.lag_ns(run, window)[row]
    return rule.sub_window_rates(t_ns, weight * each[row], window.w0_ns, window.w1_ns, parts)


def was_cascading(run: Run) -> bool:
    """Whether failures cascaded, among the requests of the measure phase that ended and were not cancelled."""
    rows = run.rows[(run.rows["phase"] == layout.MEASURE) & (run.rows["t_end"] > 0)]
    rows = rows[rows["status"] != layout.CANCELLED]
    return rule.cascading((rows["status"] != layout.OK)[np.argsort(rows["t_end"], kind="stable")])


def hidden_by_stall(run: Run, fired: Sequence[str], lowest: Lowest) -> tuple[str, ...]:
    """A client limit if only latency fired and, without a stall of the client, TTFT may have been in time
    (docs/decisions/13-client-lateness.md).
    """
    if tuple(fired) != (LATENCY,) or lowest.ttft_p50 is None:
        return ()
    limit = rule.TTFT_FACTOR * lowest.ttft_p50
    if not may_be_in_time(run, limit):
        return ()
    return (f"the client stalled while first tokens arrived: P99 TTFT may have been within {limit:.4g} ms",)
