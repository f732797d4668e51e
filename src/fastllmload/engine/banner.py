"""The lines that are printed before anything is sent: target, load, plan."""

from __future__ import annotations

from collections.abc import Sequence

from fastllmload import __version__
from fastllmload.documents.fields import known
from fastllmload.documents.plan import ArrivalFacts, PlanDescription
from fastllmload.endpoint import shown
from fastllmload.endpoint.identity import lines as session_lines
from fastllmload.endpoint.identity import resolved
from fastllmload.engine.preflight.check import Preflight
from fastllmload.engine.preflight.client import H2
from fastllmload.engine.run_plans import Plans
from fastllmload.errors import coded
from fastllmload.plan.pace import WARMUP_REQUESTS
from fastllmload.plan.plan import Plan
from fastllmload.report.text.verdict import SIMULATED
from fastllmload.settings import Load, SessionIdentity, TrafficClass

EXACT_SHARE = 0.999  # of the prompts should have exactly their length


def opening(simulated: bool) -> list[str]:
    return [str(SIMULATED)] * simulated + [f"fastllmload {__version__}"]


def target_lines(protocol: str, classes: Sequence[TrafficClass], found: Preflight) -> list[str]:
    urls = [target.url for target in found.targets]
    version = ", HTTP/2" if found.http_version == H2 else ""
    lines = [f"target: {', '.join(urls)}, {shown(protocol)}{version}, model {found.model}"]
    for one, (first, many), model in zip(classes, found.class_targets, found.class_models, strict=True):
        if one.urls or one.endpoint_type:
            spoken = shown(one.endpoint_type or protocol)
            lines.append(f"class {one.name}: {', '.join(urls[first : first + many])}, {spoken}, model {model}")
    return lines + [f"note: {note}" for note in found.notes]


def plan_lines(load: Load, seed: int, plans: Plans, workers: int, session: SessionIdentity) -> list[str]:
    measure = plans.measure
    plan = f"seed {seed}; plan {measure.digest[:12]}"
    lines = [
        f"load: {loop(measure, load)}; {bounds(measure)}; {plan}",
        f"warm-up: {warm_up(plans.warmup)}; {workers} worker{'' if workers == 1 else 's'}",
    ]
    lines += [f"sessions: {line}" for line in session_lines(session)]
    if resolved(session).token is not None and measure.turns is None:
        lines.append("note: no session has a second request, so no token is sent back; --turns makes conversations")
    if measure.deviations:
        note = f"note: not the standard workload: {'; '.join(measure.deviations)}"
        lines.append(coded("workload-not-standard", note))
    exact = measure.description.workload.exact
    share = None if exact is None else known(exact.share)
    if share is not None and share < EXACT_SHARE:
        note = f"note: only {share:.2%} of the prompts have the length that was drawn for them"
        lines.append(coded("prompt-lengths-inexact", note))
    of_trace, of_turns = measure.description.workload.sessions, measure.description.conversations
    stated = () if of_trace is None else of_trace.inexact
    stated = stated or (() if of_turns is None else of_turns.inexact)
    lines += [coded("hits-inexact", f"note: {text}") for text in stated]
    deviation = plans.warmup_deviation
    if deviation is not None and load.default_warmup:
        note = f"note: cut to the run's length or a minute, {deviation}; --warmup {WARMUP_REQUESTS} for more"
        lines.append(coded("warmup-shortened", note))
    return lines


def warm_up(plan: Plan) -> str:
    """Number of requests and, where the plan fixes it, their duration: `100 requests in 12 s`."""
    if not plan.requests:
        return "none"
    seconds = plan.duration_s
    if seconds is None and plan.t_sched is not None:
        seconds = float(plan.t_sched.max()) / 1e9
    count = "" if plan.cycles or plan.closed_cycles else requests(plan, plan.requests)
    return " in ".join(part for part in (count, "" if seconds is None else f"{seconds:.3g} s") if part)


def requests(plan: Plan, many: int | None = None) -> str:
    many = plan.open_requests if many is None else many
    return f"{many:,} request{'' if many == 1 else 's'}"


def arriving(described: PlanDescription) -> str:
    """What the requested rate counts: `requests`, `conversations`, or both."""
    several = [each.conversations is not None for each in described.classes if each.requests]
    if described.conversations is not None or (several and all(several)):
        return "conversations"
    return "requests and conversations" if any(several) else "requests"


def loop(plan: Plan, load: Load) -> str:
    """`open loop, poisson, 500 requests/s, at most 8 waiting for a first token`; of a mix both loops."""
    waiting = f", at most {load.max_prefill:,} waiting for a first token" if load.max_prefill is not None else ""
    most = "up to " if plan.description.slots_change else ""
    if plan.concurrency is not None:
        changes = plan.description.load.concurrency_changes
        of = f" in {class_count(len(plan.closed_classes))}" if plan.closed_classes else ""
        return f"closed loop, {most}{plan.concurrency if changes is None else changes} in flight{of}{waiting}"
    arrivals = plan.description.load.arrivals or ArrivalFacts()
    text = "all at once" if arrivals.rate == "inf" else f"{arrivals.rate:g} {arriving(plan.description)}/s"
    if arrivals.changes is not None:
        text = f"{arrivals.changes} (mean {text})"
    capped = f", at most {load.max_concurrency:,} in flight" if load.max_concurrency is not None else ""
    slots = sum(plan.closed_classes.values())
    closed = f" + closed loop, {most}{slots:,} in flight in {class_count(len(plan.closed_classes))}" if slots else ""
    return f"open loop, {arrivals.name}, {text}{capped}{closed}{waiting}"


def class_count(many: int) -> str:
    return f"{many:,} class{'' if many == 1 else 'es'}"


def bounds(plan: Plan) -> str:
    parts = [] if plan.cycles else [requests(plan) + (" in the open loop" if plan.closed_classes else "")]
    parts += [] if plan.duration_s is None else [f"{plan.duration_s:g} s"]
    return " in ".join(parts)
