"""Checks how requests were sent: a schedule that was fixed before the run and kept, and the load model (IETF 4.2)."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.arrivals.choice import choose_arrivals
from fastllmload.arrivals.process import draw_schedule
from fastllmload.compliance.checks.registry import check, each
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun
from fastllmload.compliance.outcome import RequirementOutcome, false, inapplicable, judged, true
from fastllmload.plan.plan import array_hash

ENOUGH = 100_000  # instants that are drawn again
LAG_US = 1_000.0  # P99 of releases (spec/procedures 0.4)
ROUNDING_NS = 1


@check
def schedule_kept(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Open loop: the instants of the rows are those of the plan, whose digest was taken before the first request."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        if run.closed:
            return inapplicable("the load is a closed loop")
        planned, start = run.planned, run.run.phase("measure")
        if planned is None or start is None:
            return false("the folder contains no schedule", "keep plan/schedule.npy")
        known = (run.plan.get("members") or {}).get("t_sched.npy")
        if known is None or array_hash(planned["t_sched_ns"]) != known:
            return false("plan/schedule.npy does not have the digest that plan.json states", "keep the plan as it was")
        rows = run.measure.where((run.measure["turn"] == 0) & (run.measure["request"] < len(planned)))
        moved = np.abs(rows["t_sched"] - start.start_ns - planned["t_sched_ns"][rows["request"]]) > ROUNDING_NS
        return judged(
            not moved.any(),
            f"{int((~moved).sum()):,} of {len(rows):,} requests were due at the instant of their plan",
            "measure again: instants of an open loop must not move",
        )

    return each(evidence, judge)


@check
def arrivals_redrawn(evidence: ComplianceEvidence, /, names: list[str]) -> RequirementOutcome:
    """Open loop with one of the processes *names*: its seed gives the same instants again."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        arrivals = run.get("plan.description.load.arrivals") or {}
        name = arrivals.get("name")
        if run.closed or name not in names:
            return inapplicable(f"arrivals were {'a closed loop' if run.closed else name}")
        if "changes" in arrivals:
            return inapplicable("the rate changes with time, so the instants are those of a curve")
        starts = np.empty(0, np.int64) if run.planned is None else run.planned["t_sched_ns"]
        starts = starts[starts >= 0]  # later turns of a conversation are due when the one before is answered
        again = redrawn(arrivals, len(starts))
        if again is None:
            return false("the schedule cannot be drawn again from plan.json", "keep plan/ as it was")
        same = np.array_equal(again, starts[: len(again)])
        return judged(
            same,
            f"{len(again):,} instants drawn again from {arrivals.get('stream')!r} are {'' if same else 'not '}the same",
            "measure again: the instants are not those of the named process",
        )

    return each(evidence, judge)


def redrawn(arrivals: dict[str, Any], count: int) -> npt.NDArray[np.int64] | None:
    """The first instants of an arrival process; None where its description is insufficient or nothing is due."""
    name, rate, stream = arrivals.get("name"), arrivals.get("rate"), arrivals.get("stream")
    if not count or not isinstance(rate, int | float) or stream is None:
        return None
    words = str(name)
    if words == "onoff":
        words = f"onoff:{arrivals.get('on_s', 1)},{arrivals.get('off_s', 1)}"
    shape = float(arrivals.get("burstiness", 1.0))
    process = choose_arrivals(words, float(rate), shape)
    return draw_schedule(process, float(rate), random.Random(str(stream)), count=min(count, ENOUGH))


@check
def responses_do_not_delay(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Open loop: no cap on what is in flight, and releases at most 1 ms late at P99."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        if run.closed:
            return inapplicable("the load is a closed loop")
        if run.get("config.load") is None:
            return false("the configured load is not recorded", "keep run.json as it was")
        cap = run.get("config.load.max_concurrency")
        if cap is not None:
            return false(f"--max-concurrency {cap} lets responses delay requests", "leave out --max-concurrency")
        if (run.get("plan.description.load.arrivals") or {}).get("rate") == "inf":
            return inapplicable("everything was due at once")
        late = lag_p99_us(run)
        if late is None:
            return inapplicable("nothing was released")
        host = run.get("certificate.host.hiccup_p99_us")
        own = f"; the host's own stalls had a P99 of {host:,.0f} us" if host is not None and late > LAG_US else ""
        return judged(
            late <= LAG_US,
            f"P99 of the releases was {late:,.1f} us late, allowed are {LAG_US:,.0f} us{own}",
            "give the client more workers or a quieter host (fastllmload doctor)",
        )

    return each(evidence, judge)


def lag_p99_us(run: MeasuredRun, after_ns: int = 0) -> float | None:
    """P99 of the lag of all requests of the measure phase that were due after *after_ns*."""
    rows = run.measure.where((run.measure["t_dispatch"] > 0) & (run.measure["t_sched"] > after_ns))
    if not len(rows):
        return None
    return float(np.percentile(rows["t_dispatch"] - rows["t_sched"], 99)) / 1e3


@check
def concurrent(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Requests that were due while an earlier one was in flight were sent before that one ended."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        rows = run.measure.where(run.measure["t_dispatch"] > 0)
        if run.closed or len(rows) < 2:
            return inapplicable("nothing was due while an earlier request was answered")
        order = np.argsort(rows["t_sched"], kind="stable")
        ends = np.maximum.accumulate(rows["t_end"][order])[:-1]
        due = rows["t_sched"][order][1:] < ends
        together = int(np.count_nonzero(due & (rows["t_dispatch"][order][1:] < ends)))
        if not due.any():
            return inapplicable("nothing was due while an earlier request was answered")
        return judged(
            together > 0,
            f"{together:,} of {int(due.sum()):,} requests that were due during another one were sent during it",
            "requests wait for each other: measure with this tool's own engine",
        )

    return each(evidence, judge)


@check
def turn_around(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Closed loop: the next request of a slot was sent at most 1 ms after the last one ended, at P99.

    The requests that first fill the slots are excluded.
    """

    def judge(run: MeasuredRun) -> RequirementOutcome:
        if not run.closed:
            return inapplicable("the load is an open loop")
        start = run.run.phase("measure")
        late = lag_p99_us(run, 0 if start is None else start.start_ns)
        if late is None:
            return inapplicable("nothing was replaced")
        return judged(late <= LAG_US, f"P99 of the turn-around was {late:,.1f} us", "give the client a quieter host")

    return each(evidence, judge)


@check
def concurrency_kept(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Closed loop: the maximum of requests in flight is the configured concurrency."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        if not run.closed:
            return inapplicable("the load is an open loop")
        asked = int(run.get("config.load.concurrency") or run.get("plan.description.load.concurrency") or 0)
        most = most_in_flight(run)
        wanted = min(asked, len(run.measure))
        return judged(
            most == wanted, f"at most {most:,} requests were in flight, asked were {asked:,}", "measure again"
        )

    return each(evidence, judge)


def most_in_flight(run: MeasuredRun) -> int:
    """Greatest number of requests between their dispatch and their end; an end at the same instant comes first."""
    rows = run.measure.where(run.measure["t_dispatch"] > 0)
    if not len(rows):
        return 0
    times = np.concatenate([rows["t_dispatch"], np.where(rows["t_end"] > 0, rows["t_end"], np.iinfo(np.int64).max)])
    steps = np.concatenate([np.ones(len(rows), np.int64), -np.ones(len(rows), np.int64)])
    return int(np.cumsum(steps[np.lexsort((steps, times))]).max())


@check
def rate_given(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Open loop: a rate above 0 is stated."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        if run.closed:
            return inapplicable("the load is a closed loop")
        rate = (run.get("plan.description.load.arrivals") or {}).get("rate")
        given = rate == "inf" or (isinstance(rate, int | float) and rate > 0)
        return judged(given, f"the rate is {rate} requests/s", "give --rate")

    return each(evidence, judge)


@check
def concurrency_given(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Closed loop: the number of slots is stated."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        slots = run.get("plan.description.load.concurrency")
        if not run.closed:
            return inapplicable("the load is an open loop")
        return judged(isinstance(slots, int) and slots >= 1, f"the concurrency is {slots}", "give --concurrency")

    return each(evidence, judge)


@check
def loop_is(evidence: ComplianceEvidence, /, names: list[str], refused: str = "") -> RequirementOutcome:
    """The load model of every level is one of *names*, except for levels that only find a capacity."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        found = run.get("plan.description.load.loop")
        return judged(found in names, f"the load model is {found} loop", refused or "give --rate or --concurrency")

    return each(evidence, judge, levels=True)


@check
def poisson_arrivals(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Open loop: arrivals are those of a Poisson process."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        if run.closed:
            return inapplicable("the load is a closed loop")
        name = (run.get("plan.description.load.arrivals") or {}).get("name")
        return judged(name == "poisson", f"arrivals are {name}", "leave out --arrival, --burstiness and rate curves")

    return each(evidence, judge)


@check
def arrivals_known(evidence: ComplianceEvidence, /, names: list[str]) -> RequirementOutcome:
    """Open loop: the arrival process is one of *names*."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        if run.closed:
            return inapplicable("the load is a closed loop")
        name = (run.get("plan.description.load.arrivals") or {}).get("name")
        return judged(name in names, f"arrivals are {name}", f"choose --arrival of {', '.join(names)}")

    return each(evidence, judge)


@check
def not_limited_by_client(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """No certificate reports that the client was the limit."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        limited = run.get("certificate.generator_limited")
        if limited is None:
            return false("the run was not judged", "measure again")
        return judged(not limited, f"the certificate's verdict is {run.get('certificate.verdict')}", "see its reasons")

    return each(evidence, judge)


@check
def waited_for(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Every request of the measure phase was sent: the configured count was reached."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        asked, sent = run.get("config.load.num_requests"), int(run.get("counts.dispatched") or 0)
        if asked is None:
            return true(f"bounded by time; {sent:,} requests were sent")
        return judged(sent >= int(asked), f"{sent:,} of {int(asked):,} requests were sent", "let it run to its end")

    return each(evidence, judge)
