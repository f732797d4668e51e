"""The load of a run, and what only some runs have: classes, conversations, users who left, unusual endings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from fastllmload.documents.certificate import ClosedClassSlots
from fastllmload.documents.fields import WITHHELD, Number, known
from fastllmload.documents.metric import Metric
from fastllmload.documents.plan import ArrivalFacts, ClassDescription
from fastllmload.documents.run import RunDocument
from fastllmload.documents.run_parts.backends import BackendFigures, BackendMoves
from fastllmload.documents.run_parts.classes import ClassResult, ModelResult, PartResult, SlotsFollowed
from fastllmload.documents.run_parts.objectives import ClassObjectives
from fastllmload.documents.run_parts.sessions import BlockHits, Conversations, SessionFigures, SessionObjective, Users
from fastllmload.endpoint import ENDPOINTS
from fastllmload.records.error_texts import message_of
from fastllmload.report.blocks import BELOW, Fact
from fastllmload.report.text.doubts import bound
from fastllmload.report.text.numbers import (
    SAMPLES_NEEDED,
    asked_rate,
    count,
    has_too_few_samples,
    percent,
    quantity,
    some,
)
from fastllmload.report.text.tokens import has_tokens

MOST = 12  # classes in the summary
MODELS = 5  # models in the summary
BACKENDS = 4  # servers in the summary
LEAST_SHARE = 0.0005  # of a part of the longest chain that is shown


def load_text(document: RunDocument) -> str:
    """`500/s poisson`, `closed loop, 64 in flight` or, of a mix, `40/s + 16 concurrent in 2 classes`: the load of the plan,
    which is also known where a saved plan was sent; else of the settings.
    """
    load, settings = document.plan.description.load, document.config.load
    slots = load.concurrency or settings.concurrency
    closed, several = closed_classes(document), document.plan.description.classes
    if load.is_withheld:
        return f"{loops(document)}, load withheld"
    if slots is not None:
        changes, of = load.concurrency_changes, f" in {count(len(several))} classes" if closed else ""
        most = "up to " if document.plan.description.slots_change else ""
        return f"closed loop, {most}{count(slots) if changes is None else f'{changes} (most {count(slots)})'} in flight{of}"
    arrivals = load.arrivals or ArrivalFacts(name=None if settings.rate is None else settings.arrival)
    rate, name, classes = arrivals.rate or settings.rate, arrivals.name or "", document.plan.classes
    shown = asked_rate(rate)
    of_sessions = document.plan.description.workload.sessions
    unit = " sessions" if of_sessions is not None and of_sessions.timing != "recorded" else ""
    if name == "trace":
        return f"a trace, {'all' if rate == 'inf' else shown}{unit}{' at once' if rate == 'inf' else ' on average'}"
    if name == "classes" and classes:
        return f"{shown}{concurrent(document)} in {count(len(classes))} classes"
    if arrivals.changes is not None:
        shown = f"{arrivals.changes} (mean {shown})"
    if not unit and document.plan.description.conversations is not None:
        unit = " conversations"
    return f"{shown} {'' if name == 'inf' else name}".rstrip() + unit


def closed_classes(document: RunDocument) -> list[ClassDescription]:
    """The classes of a run that are closed loops."""
    classes = document.plan.description.classes
    return [one for one in classes if one.load is not None and one.load.loop == "closed"]


def mixes_loops(document: RunDocument) -> bool:
    """Whether some classes are open loops and others closed ones."""
    return document.plan.description.load.loop == "open" and bool(closed_classes(document))


def loops(document: RunDocument) -> str:
    """`open loop`, `closed loop`, or `open and closed loops`."""
    if mixes_loops(document):
        return "open and closed loops"
    load = document.plan.description.load
    return "open loop" if load.loop == "open" or load.concurrency is None else "closed loop"


def concurrent(document: RunDocument) -> str:
    """` + 16 concurrent`: the slots of the closed loops next to open ones; empty without any."""
    if not mixes_loops(document):
        return ""
    described = document.plan.description
    most = "up to " if described.slots_change else ""
    return f" + {most}{count(sum(described.closed_classes.values()))} concurrent"


def of_open_loops(document: RunDocument) -> str:
    """What follows a figure of the schedule in a mix: closed loops have none."""
    return " in open loops" if mixes_loops(document) else ""


def protocols(document: RunDocument) -> str | None:
    """The protocol of the target, or those of its classes."""
    of_classes = dict.fromkeys(str(one.endpoint_type) for one in document.target.classes)
    return ", ".join(of_classes) or document.target.endpoint_type


def unstreamed_answers(document: RunDocument) -> str | None:
    """The answers that were not streamed: `all`, or their number by class; None where all were, or none is tokens."""
    if not has_tokens(document):
        return None
    if document.plan.description.streaming is False:
        return "all"
    counts = document.counts
    if counts.came_whole is WITHHELD:
        return "some answers (how many is withheld)"
    unstreamed, answers = known(counts.came_whole), known(counts.latency_population)
    if not unstreamed:
        return None
    if unstreamed == answers:
        return "all"
    classes = document.classes or {}
    by_class = [f"{name} {count(one.came_whole)}" for name, one in classes.items() if known(one.came_whole)]
    return f"{count(unstreamed)} of {count(answers)} answers" + (f" ({', '.join(by_class[:MOST])})" if by_class else "")


def traffic_facts(document: RunDocument) -> Iterator[Fact]:
    """What only some runs have, below the summary; nothing for a run with one request class whose users wait for the end."""
    found = document.classes or {}
    met = {} if document.slo is None else document.slo.classes
    for name, one in list(found.items())[:MOST]:
        yield _fact(name, _class(one, met.get(name) if has_objective(document, name) else None))
    if len(found) > MOST:
        yield _fact("", f"{len(found) - MOST} more classes in run.json")
    if document.slots is not None:
        yield _fact("slots", slots_text(document.slots))
    closed = [f"{name} {loop_text(one)}" for name, one in found.items() if one.loop == "closed"]
    if closed:
        yield Fact("in flight", ["; ".join(closed[:MOST] + ["..."] * (len(closed) > MOST))], BELOW, overflow="wrap")
    yield from _facts("models", list(model_texts(document)))
    yield from _facts("backends", backend_texts(document))
    yield from _facts("targets", class_targets(document)[:MOST])
    sessions = document.plan.description.workload.sessions
    if document.conversations is not None and sessions is None:
        yield _fact("turns", _conversations(document.conversations))
    if document.sessions is not None and sessions is not None:
        yield from _facts("sessions", session_texts(document.sessions))
    if document.users is not None:
        yield _fact("users", f"{users_text(document.users)} (no failures)")
    yield from _facts("also ok", ending_texts(document))


def _facts(label: str, texts: Sequence[str]) -> Iterator[Fact]:
    yield from (_fact("" if place else label, text) for place, text in enumerate(texts))


def _fact(label: str, text: str) -> Fact:
    return Fact(label, [text], BELOW)


def _class(one: ClassResult, met: ClassObjectives | None) -> str:
    left = f", {count(one.left)} left" if one.left else ""
    goal = "" if met is None or met.slo_attainment is None else f"; {percent(met.slo_attainment)} meet"
    of_tokens = answers_in_tokens(one)
    first = one.ttft if of_tokens else one.e2e
    latency = f"{'ttft' if of_tokens else 'e2e'} {_percentiles(first)}"
    rest = f"; tpot {quantity(one.tpot.p50)} ms" if of_tokens else f" ms; {quantity(one.input_tok_s)} input tok/s"
    failed = f", {count(one.failed)} failed" if some(one.failed) else ""
    return f"{count(one.ok)} ok{failed}{left}; {latency}{rest}{goal}"


def loop_text(one: ClassResult) -> str:
    """`open loop`, or `16 asked, 15.98 on average`: of a class of a mix. Of slots that change `up to 16 asked, 8.5 on
    average, 8.47 in flight`.
    """
    if one.loop != "closed":
        return "open loop"
    if one.concurrency is WITHHELD:
        return "closed loop"
    if one.slots is None:
        return f"{count(one.concurrency)} asked"
    asked, achieved = one.slots.asked_mean, one.slots.achieved_mean
    if isinstance(asked, float) and not math.isclose(asked, one.concurrency or 0):
        return f"up to {count(one.concurrency)} asked, {quantity(asked)} on average, {quantity(achieved)} in flight"
    return f"{count(one.concurrency)} asked, {quantity(achieved)} on average"


def closed_class_text(one: ClosedClassSlots) -> str:
    """How the client held the slots of a closed loop of a mix."""
    turn = one.turn_around_us
    mean = "" if one.asked_mean is None else f", {quantity(one.asked_mean)} on average"
    return (
        f"{'up to ' if mean else ''}{count(one.slots)} asked{mean}, {percent(one.empty_share)} of their time lost by the "
        f"client; turn-around P50, P99, max "
        f"{', '.join(map(quantity, (turn.p50, turn.p99, turn.max)))} us of {count(one.n)} requests"
    )


def has_objective(document: RunDocument, name: str) -> bool:
    """Whether an objective applies to the class *name*; without one, every request that succeeds meets all."""
    classes = document.plan.classes
    number = str(classes.index(name)) if name in classes else None
    found = () if document.slo is None else document.slo.objectives
    return not found or any(one.class_ in (None, name, number) for one in found)


def answers_in_tokens(one: ClassResult) -> bool:
    """Whether answers of a class are tokens; its protocol is known where it is one of the run's classes."""
    spoken = ENDPOINTS.get(one.endpoint_type or "")
    return spoken is None or spoken.tokens


def slots_text(found: SlotsFollowed) -> str:
    """How requests in flight followed the slots."""
    return (
        f"{quantity(found.achieved_mean)} in flight, {quantity(found.asked_mean)} asked on average; within one of it for "
        f"{percent(found.within_one_share)} of the time"
    )


def model_name(document: RunDocument) -> str | None:
    """The model, or how many there are."""
    several = document.plan.description.models
    return f"{several[0].name} and {len(several) - 1:,} more" if len(several) > 1 else document.target.model


def most_asked(found: Sequence[ModelResult]) -> list[ModelResult]:
    """Those with the most requests first."""
    return sorted(found, key=lambda one: -(known(one.sent) or 0))


def model_texts(document: RunDocument) -> Iterator[str]:
    """One text for each of the models with the most requests; of each class that asks several, if any does."""
    of_classes = [(f"{name}: ", one.models) for name, one in (document.classes or {}).items() if one.models]
    for label, models in of_classes[:MOST] or [("", document.models)]:
        found = most_asked(models)
        yield from (f"{label}{one.name} {percent(one.share_sent)}{_part(one)}" for one in found[:MODELS])
        if len(found) > MODELS:
            yield f"{label}{len(found) - MODELS} more models in run.json"


def _part(one: PartResult) -> str:
    """`, 3 failed; ttft 13.67, p99 19.60; itl 3.000, p99 8.487 ms` of one model or backend."""
    failed = f", {count(one.failed)} failed" if some(one.failed) else ""
    name, gaps = gaps_of_part(one)
    latencies = [
        f"{label} {_percentiles(metric)}"
        for label, metric in (("ttft", one.ttft), (name, gaps)) if metric.n
    ] or [f"e2e {_percentiles(one.e2e)}"]  # fmt: skip
    return f"{failed}; {'; '.join(latencies)} ms"


def gaps_of_part(one: PartResult) -> tuple[str, Metric]:
    """The gaps that have values, by the option of the run, and their name."""
    return next(((name, found) for name in ("tbc", "itl_b") if (found := getattr(one, name)).n), ("itl", one.itl))


def _percentiles(metric: Metric) -> str:
    """`21.73, p99 >=704.9`: a bound where requests that were cut off can change the figure."""
    p99 = bound(metric, "p99") or f"{quantity(metric.p99)}{_mark(metric)}"
    return f"{bound(metric, 'p50') or quantity(metric.p50)}, p99 {p99}"


def _mark(metric: Metric) -> str:
    return "*" if has_too_few_samples(metric, "p99", SAMPLES_NEEDED["p99"]) else ""


def backend_texts(document: RunDocument) -> list[str]:
    """How requests spread over the servers of a router, and whether turns stayed where their sessions were."""
    found = document.backends
    if found is None:
        return []
    if not some(found.named):
        return [f"no answer has the header {found.header}"]
    unnamed = f"; {count(found.unnamed)} answers without it" if some(found.unnamed) else ""
    lines = [f"{count(found.servers)} by {found.header}{unnamed}"]
    lines += [f"{one.name or 'others'} {percent(one.share)}{_part(one)}" for one in found.each[:BACKENDS]]
    if (more := (known(found.servers) or 0) - BACKENDS) > 0:
        lines.append(f"{count(more)} more backends in run.json")
    lines.append(balance_text(found))
    if found.moves is not None and some(found.moves.compared):
        lines += moves_texts(found.moves)
    return lines if found.caveat is None else [*lines, found.caveat]


def balance_text(found: BackendFigures) -> str:
    by_session = known(found.max_over_mean_by_session)
    sessions = "" if by_session is None else f", by session {quantity(by_session)}"
    at_random = f"{quantity(found.max_over_mean_at_random)}{sessions}"
    return f"busiest {quantity(found.max_over_mean)} x the mean (at random {at_random})"


def moves_texts(found: BackendMoves) -> Iterator[str]:
    yield (
        f"{percent(found.stayed_share)} of turns went where the turn before went ({percent(found.stayed_share_at_random)} "
        "at random)"
    )
    shares = (found.cached_share_stayed, found.cached_share_moved)
    yield f"{count(found.moved)} turns moved, in {count(found.sessions_moved)} of {count(found.sessions)} sessions"
    if None not in shares:
        yield f"cached: {percent(shares[0])} of turns that stayed, {percent(shares[1])} of others"


def class_targets(document: RunDocument) -> list[str]:
    """The target of each class, one text per class; none where all classes have the same targets and protocol."""
    found = [(name, one) for name, one in (document.classes or {}).items() if one.urls]
    if len({target_text(one) for _, one in found}) < 2:
        return []
    return [f"{name} to {target_text(one)}, {_models(one)})" for name, one in found]


def _models(one: ClassResult) -> str:
    return f"{len(one.models)} models" if one.models else f"model {one.model}"


def target_text(one: ClassResult) -> str:
    """`http://b:8000 (openai-completions`: the start of a class's target text."""
    return f"{', '.join(one.urls)} ({one.endpoint_type}"


def _conversations(found: Conversations) -> str:
    stopped = total((found.ended_by_failure, found.ended_by_leaving))
    cached = [each for turn in found.turns[1:] if (each := known(turn.cached_share)) is not None]
    called = f"; {count(found.tool_call_replies)} replies called tools" if found.tool_call_replies else ""
    share = f"; later turns {percent(sum(cached) / len(cached))} cached" if cached else ""
    begun = f"{count(found.turns_sent)} in {count(found.begun)} conversations"
    return f"{begun}, {count(stopped)} stopped early{called}{share}"


def limit_text(one: SessionObjective) -> str:
    """`<= 30,000 ms`, `<= 1.5`."""
    return f"<= {quantity(one.limit)}" + (" ms" if one.unit == "ms" else "")


def session_texts(found: SessionFigures) -> list[str]:
    """How many sessions ended well, how long they took, where the time went, and what the cache found."""
    few = _mark(found.makespan)
    lines = [
        f"{count(found.completed)} of {count(found.begun)} completed ({quantity(found.completed_per_s)}/s), "
        f"{count(found.failed)} failed, {count(found.unfinished)} cut off",
    ]
    if known(found.under_way):
        lines.append(f"{count(found.under_way)} more were under way at the start")
    if found.met is not None:
        lines.append(f"{count(found.met)} met all objectives in every call ({quantity(found.goodput)}/s)")
        lines += [f"{count(one.met)} had {one.objective} {limit_text(one)}" for one in found.objectives]
    if known(found.completed):
        lines.append(
            f"makespan p50 {quantity(found.makespan.p50)}, p99 {quantity(found.makespan.p99)}{few} ms; "
            f"{quantity(found.calls.mean)} calls and {quantity(found.agents.mean)} agents each"
        )
    if known(found.first_action.n):
        lines.append(
            f"first action p50 {quantity(found.first_action.p50)}, p99 {quantity(found.first_action.p99)}{few} ms"
        )
    path = found.critical_path
    if path is not None:
        named = ((name, getattr(path, name)) for name in path.__struct_fields__)
        shown = ((name, share) for name, share in named if (known(share) or 0) >= LEAST_SHARE)
        lines.append("chain: " + ", ".join(f"{name} {percent(share)}" for name, share in shown))
    return lines + ([] if found.cache is None else [cache_text(found.cache)])


def cache_text(found: BlockHits) -> str:
    return (
        f"cached {percent(found.achieved)} of prompts, {percent(found.ideal_at_send)} possible when sent, "
        f"{percent(found.ideal)} ideal"
    )


def users_text(found: Users) -> str:
    parts = (
        (found.left_by_plan, "left by plan"),
        (found.ended_before_leaving, "had their answer before they would have left"),
        (found.gave_up, "gave up at a deadline"),
        (found.slow_readers, "read slowly"),
    )
    return ", ".join(f"{count(many)} {what}" for many, what in parts if some(many)) or "all waited for the end"


def total(counted: Iterable[Number]) -> Number:
    """The sum of *counted*; withheld where one of them is."""
    found = list(counted)
    return WITHHELD if WITHHELD in found else sum(known(one) or 0 for one in found)


def ending_texts(document: RunDocument) -> list[str]:
    """Successful answers with an unusual ending."""
    unknown, cut = known(document.counts.unknown_finish), known(document.counts.cut_after_end)
    lines = []
    if unknown:
        words = ", ".join(f'"{message_of(str(each.word))[:20]}"' for each in document.error_texts.finish_reasons)
        lines.append(f"{count(unknown)} with a finish_reason that is not known{f': {words}' if words else ''}")
    if cut:
        lines.append(f"{count(cut)} without the end of the HTTP message, after their finish_reason")
    return lines
