"""Checks how requests were sent: a schedule that was fixed before the run and kept, and the load model (IETF 4.2)."""

from __future__ import annotations

import random

import numpy as np

from fastllmload.arrays import Numbers
from fastllmload.arrivals.choice import choose_arrivals
from fastllmload.arrivals.process import draw_schedule
from fastllmload.compliance.checks.runs import per_level, per_run, with_arguments
from fastllmload.compliance.evidence import MeasuredRun, Rows
from fastllmload.compliance.outcome import RequirementOutcome, false, inapplicable, judged
from fastllmload.documents.fields import known
from fastllmload.documents.plan import ArrivalFacts
from fastllmload.errors import InputError
from fastllmload.metrics.run.window import on_schedule
from fastllmload.plan.plan import array_hash
from fastllmload.settings import RunSettings

ENOUGH = 100_000  # instants that are drawn again
LAG_US = 1_000.0  # P99 of releases (spec/procedures 0.4)
ROUNDING_NS = 1


@per_run
def schedule_kept(run: MeasuredRun) -> RequirementOutcome:
    """Open loop: the instants of the rows are those of the plan, whose digest was taken before the first request."""
    if run.closed:
        return inapplicable("the load is a closed loop")
    planned, start = run.planned, run.run.phase("measure")
    if planned is None or start is None:
        return false("the folder contains no schedule", "keep plan/schedule.npy")
    if array_hash(planned["t_sched_ns"]) != run.plan.members.get("t_sched.npy"):
        return false("plan/schedule.npy does not have the digest that plan.json states", "keep the plan as it was")
    rows = run.measure.where((run.measure["turn"] == 0) & (run.measure["request"] < len(planned)))
    rows = rows.where(planned["t_sched_ns"][rows["request"]] >= 0)  # the others wait for a slot
    moved = np.abs(rows["t_sched"] - start.start_ns - planned["t_sched_ns"][rows["request"]]) > ROUNDING_NS
    reason = f"{int((~moved).sum()):,} of {len(rows):,} requests were due at the instant of their plan"
    return judged(not moved.any(), reason, "measure again: instants of an open loop must not move")


@with_arguments
@per_run
def arrivals_redrawn(run: MeasuredRun, *names: str) -> RequirementOutcome:
    """Open loop with one of the processes *names*: its seed gives the same instants again."""
    arrivals = run.arrivals
    if run.closed or arrivals.name not in names:
        return inapplicable(f"arrivals were {'a closed loop' if run.closed else arrivals.name}")
    if arrivals.changes is not None:
        return inapplicable("the rate changes with time, so the instants are those of a curve")
    starts = np.empty(0, np.int64) if run.planned is None else run.planned["t_sched_ns"]
    starts = starts[starts >= 0]  # later turns of a conversation are due when the one before is answered
    again = redrawn(arrivals, len(starts))
    if again is None:
        return false("the schedule cannot be drawn again from plan.json", "keep plan/ as it was")
    same = np.array_equal(again, starts[: len(again)])
    reason = f"{len(again):,} instants drawn again from {arrivals.stream!r} are {'' if same else 'not '}the same"
    return judged(same, reason, "measure again: the instants are not those of the named process")


def redrawn(arrivals: ArrivalFacts, count: int) -> Numbers | None:
    """The first instants of an arrival process; None where its description is insufficient or nothing is due."""
    rate = known(arrivals.rate)
    if not count or rate is None or arrivals.stream is None:
        return None
    name = str(arrivals.name)
    if name == "onoff":
        on, off = (1 if value is None else value for value in (arrivals.on_s, arrivals.off_s))
        name = f"onoff:{on},{off}"
    shape = known(arrivals.burstiness)
    try:
        process = choose_arrivals(name, rate, 1.0 if shape is None else shape)
    except InputError:  # a description that no option can give: it was changed
        return None
    return draw_schedule(process, rate, random.Random(arrivals.stream), count=min(count, ENOUGH))


@per_run
def responses_do_not_delay(run: MeasuredRun) -> RequirementOutcome:
    """Open loop: no cap on what is in flight or waits for a first token, and releases at most 1 ms late at P99."""
    if run.closed:
        return inapplicable("the load is a closed loop")
    config, certificate = run.document.config, run.document.certificate
    if config == RunSettings():
        return false("the configured load is not recorded", "keep run.json as it was")
    cap = config.load.max_concurrency
    if cap is not None:
        return false(f"--max-concurrency {cap} lets responses delay requests", "leave out --max-concurrency")
    waiting = config.load.max_prefill
    if waiting is not None:
        return false(f"--max-prefill {waiting} lets first tokens delay requests", "leave out --max-prefill")
    if run.arrivals.rate == "inf":
        return inapplicable("everything was due at once")
    rows = run.measure.where((run.measure["t_dispatch"] > 0) & (run.measure["t_sched"] > 0))
    rows = rows.where(on_schedule(run.description, rows["request_class"]))
    if not len(rows):
        return inapplicable("nothing was released")
    late = float(np.percentile(rows["t_dispatch"] - rows["t_sched"], 99)) / 1e3
    host = None if certificate is None else known(certificate.host.hiccup_p99_us)
    own = f"; the host's own stalls had a P99 of {host:,.0f} us" if host is not None and late > LAG_US else ""
    reason = f"P99 of the releases was {late:,.1f} us late, allowed are {LAG_US:,.0f} us{own}"
    return judged(late <= LAG_US, reason, "give the client more workers or a quieter host (fastllmload doctor)")


@per_run
def concurrent(run: MeasuredRun) -> RequirementOutcome:
    """Requests that were due while an earlier one was in flight were sent before that one ended."""
    rows = run.measure.where(run.measure["t_dispatch"] > 0)
    rows = rows.where(on_schedule(run.description, rows["request_class"]))
    if run.closed or len(rows) < 2:
        return inapplicable("nothing was due while an earlier request was answered")
    order = np.argsort(rows["t_sched"], kind="stable")
    ends = np.maximum.accumulate(rows["t_end"][order])[:-1]
    due = rows["t_sched"][order][1:] < ends
    together = int(np.count_nonzero(due & (rows["t_dispatch"][order][1:] < ends)))
    if not due.any():
        return inapplicable("nothing was due while an earlier request was answered")
    reason = f"{together:,} of {int(due.sum()):,} requests that were due during another one were sent during it"
    return judged(together > 0, reason, "requests wait for each other: measure with this tool's own engine")


@per_run
def concurrency_kept(run: MeasuredRun) -> RequirementOutcome:
    """Closed loop: the maximum of requests in flight is the configured concurrency, of a mix in each class."""
    slots = run.description.closed_classes
    if slots:
        each = {number: most_in_flight(run.measure.where(run.measure["request_class"] == number)) for number in slots}
        named = {str(run.description.classes[number].name): (each[number], many) for number, many in slots.items()}
        reason = "; ".join(
            f"{name}: at most {most:,} in flight, asked were {many:,}" for name, (most, many) in named.items()
        )
        return judged(each == slots, reason, "measure again, for longer than a request takes")
    if not run.closed:
        return inapplicable("the load is an open loop")
    planned = known(run.description.load.concurrency)
    asked = int(run.document.config.load.concurrency or planned or 0)
    most = most_in_flight(run.measure)
    wanted = min(asked, len(run.measure))
    return judged(most == wanted, f"at most {most:,} requests were in flight, asked were {asked:,}", "measure again")


def most_in_flight(found: Rows) -> int:
    """Greatest number of requests between their dispatch and their end; an end at the same instant comes first."""
    rows = found.where(found["t_dispatch"] > 0)
    if not len(rows):
        return 0
    times = np.concatenate([rows["t_dispatch"], np.where(rows["t_end"] > 0, rows["t_end"], np.iinfo(np.int64).max)])
    steps = np.concatenate([np.ones(len(rows), np.int64), -np.ones(len(rows), np.int64)])
    return int(np.cumsum(steps[np.lexsort((steps, times))]).max())


@per_run
def rate_given(run: MeasuredRun) -> RequirementOutcome:
    if run.closed:
        return inapplicable("the load is a closed loop")
    rate = run.arrivals.rate
    given = rate == "inf" or (known(rate) or 0) > 0
    return judged(given, f"the rate is {rate} requests/s", "give --rate")


@per_run
def concurrency_given(run: MeasuredRun) -> RequirementOutcome:
    slots = run.description.load.concurrency
    if not run.closed:
        return inapplicable("the load is an open loop")
    return judged((known(slots) or 0) >= 1, f"the concurrency is {slots}", "give --concurrency")


@with_arguments
@per_level
def loop_is(run: MeasuredRun, *names: str, remedy: str = "give --rate or --concurrency") -> RequirementOutcome:
    """The load model of every level is one of *names*, except for levels that only find a capacity."""
    found = run.description.load.loop
    classes = ", next to classes that are closed loops" if found == "open" and run.description.closed_classes else ""
    return judged(found in names, f"the load model is {found} loop{classes}", remedy)


@per_run
def poisson_arrivals(run: MeasuredRun) -> RequirementOutcome:
    if run.closed:
        return inapplicable("the load is a closed loop")
    name = run.arrivals.name
    return judged(name == "poisson", f"arrivals are {name}", "leave out --arrival, --burstiness and rate curves")
