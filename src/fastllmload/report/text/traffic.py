"""Lines of the closing summary that only some runs have: classes, conversations, users who left, unusual endings."""

from __future__ import annotations

from collections.abc import Iterable

from fastllmload.documents.fields import WITHHELD, Number, known
from fastllmload.documents.run import ClassObjectives, ClassResult, Conversations, RunDocument, Users
from fastllmload.records.error_texts import message_of
from fastllmload.report.text.numbers import count, has_too_few_samples, percent, quantity

LABEL = 11
MOST = 12  # classes in the summary
P99_NEEDS = 1_000  # requests (IETF 5.1.2.1)


def unstreamed_answers(document: RunDocument) -> str | None:
    """The answers that were not streamed: `all`, or their number by class; None where all were streamed."""
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


def traffic_texts(document: RunDocument) -> list[str]:
    """One text per line; none for a run with one request class whose users wait for the end."""
    return [
        *_classes(document),
        *_class_targets(document),
        *_conversations(document.conversations),
        *_users(document.users),
        *_endings(document),
    ]


def _classes(document: RunDocument) -> list[str]:
    found = document.classes or {}
    met = {} if document.slo is None else document.slo.classes
    lines = [_class(name, one, met.get(name)) for name, one in list(found.items())[:MOST]]
    return lines + [f"{'':<{LABEL}}{len(found) - MOST} more classes in run.json"] * (len(found) > MOST)


def _class(name: str, one: ClassResult, met: ClassObjectives | None) -> str:
    left = f", {count(one.left)} left" if one.left else ""
    goal = "" if met is None or met.slo_attainment is None else f"; {percent(met.slo_attainment)} meet"
    few = "*" if has_too_few_samples(one.ttft, "p99", P99_NEEDS) else ""
    return (
        f"{name[: LABEL - 1]:<{LABEL}}{count(one.ok)} ok, {count(one.failed)} failed{left}; "
        f"ttft {quantity(one.ttft.p50)}, p99 {quantity(one.ttft.p99)}{few}; tpot {quantity(one.tpot.p50)} ms{goal}"
    )


def class_targets(document: RunDocument) -> list[str]:
    """The target of each class, one text per class; none where all classes have the same targets and protocol."""
    found = [(name, one) for name, one in (document.classes or {}).items() if one.urls]
    if len({target_text(one) for _, one in found}) < 2:
        return []
    return [f"{name} to {target_text(one)}, model {one.model})" for name, one in found]


def target_text(one: ClassResult) -> str:
    """`http://b:8000 (openai-completions`: the start of a class's target text."""
    return f"{', '.join(one.urls)} ({one.endpoint_type}"


def _class_targets(document: RunDocument) -> list[str]:
    lines = class_targets(document)[:MOST]
    return [f"{'' if number else 'targets':<{LABEL}}{line}" for number, line in enumerate(lines)]


def _conversations(found: Conversations | None) -> list[str]:
    if found is None:
        return []
    stopped = total((found.ended_by_failure, found.ended_by_leaving))
    cached = [each for turn in found.turns[1:] if (each := known(turn.cached_share)) is not None]
    called = f"; {count(found.tool_call_replies)} replies called tools" if found.tool_call_replies else ""
    share = f"; later turns {percent(sum(cached) / len(cached))} cached" if cached else ""
    return [
        f"{'turns':<{LABEL}}{count(found.turns_sent)} in {count(found.begun)} conversations, "
        f"{count(stopped)} stopped early{called}{share}"
    ]


def total(counted: Iterable[Number]) -> Number:
    """The sum of *counted*; withheld where one of them is."""
    found = list(counted)
    return WITHHELD if WITHHELD in found else sum(known(one) or 0 for one in found)


def _users(found: Users | None) -> list[str]:
    if found is None:
        return []
    parts = ((found.left_by_plan, "left by plan"), (found.gave_up, "gave up"), (found.slow_readers, "read slowly"))
    text = ", ".join(f"{count(many)} {what}" for many, what in parts if many)
    return [f"{'users':<{LABEL}}{text or 'all waited for the end'} (no failures)"]


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


def _endings(document: RunDocument) -> list[str]:
    lines = ending_texts(document)
    return [f"{'' if place else 'also ok':<{LABEL}}{line}" for place, line in enumerate(lines)]
