"""Lines of the closing summary that only some runs have: classes, conversations, users who left, unusual endings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastllmload.records.error_texts import message_of
from fastllmload.report.text.numbers import WITHHELD, count, has_too_few_samples, number, percent, quantity

LABEL = 11
MOST = 12  # classes in the summary
P99_NEEDS = 1_000  # requests (IETF 5.1.2.1)


def unstreamed_answers(document: Mapping[str, Any]) -> str | None:
    """The answers that were not streamed: `all`, or their number by class; None where all were streamed."""
    if ((document.get("plan") or {}).get("description") or {}).get("streaming") is False:
        return "all"
    counts, classes = document.get("counts") or {}, document.get("classes") or {}
    if counts.get("came_whole") == WITHHELD:
        return "some answers (how many is withheld)"
    unstreamed, answers = number(counts.get("came_whole")), number(counts.get("latency_population"))
    if not unstreamed:
        return None
    if unstreamed == answers:
        return "all"
    by_class = [f"{name} {count(one['came_whole'])}" for name, one in classes.items() if number(one.get("came_whole"))]
    return f"{count(unstreamed)} of {count(answers)} answers" + (f" ({', '.join(by_class[:MOST])})" if by_class else "")


def traffic_texts(document: Mapping[str, Any]) -> list[str]:
    """One text per line; none for a run with one request class whose users wait for the end."""
    return [
        *_classes(document),
        *_class_targets(document),
        *_conversations(document.get("conversations")),
        *_users(document.get("users")),
        *_endings(document),
    ]


def _classes(document: Mapping[str, Any]) -> list[str]:
    found = document.get("classes") or {}
    met = (document.get("slo") or {}).get("classes") or {}
    lines = [_class(name, one, met.get(name)) for name, one in list(found.items())[:MOST]]
    return lines + [f"{'':<{LABEL}}{len(found) - MOST} more classes in run.json"] * (len(found) > MOST)


def _class(name: str, one: Mapping[str, Any], met: Mapping[str, Any] | None) -> str:
    ttft, tpot = one["ttft"], one["tpot"]
    left = f", {count(one['left'])} left" if one["left"] else ""
    goal = "" if met is None or met["slo_attainment"] is None else f"; {percent(met['slo_attainment'])} meet"
    few = "*" if has_too_few_samples(ttft, "p99", P99_NEEDS) else ""
    return (
        f"{name[: LABEL - 1]:<{LABEL}}{count(one['ok'])} ok, {count(one['failed'])} failed{left}; "
        f"ttft {quantity(ttft['p50'])}, p99 {quantity(ttft['p99'])}{few}; tpot {quantity(tpot['p50'])} ms{goal}"
    )


def class_targets(document: Mapping[str, Any]) -> list[str]:
    """The target of each class, one text per class; none where all classes have the same targets and protocol."""
    classes = document.get("classes")
    found = [(name, one) for name, one in classes.items() if one.get("urls")] if isinstance(classes, Mapping) else []
    targets = [(name, target_text(one), one.get("model")) for name, one in found]
    if len({target for _, target, _ in targets}) < 2:
        return []
    return [f"{name} to {target}, model {model})" for name, target, model in targets]


def target_text(one: Mapping[str, Any]) -> str:
    """`http://b:8000 (openai-completions`: the start of a class's target text."""
    return f"{', '.join(map(str, one['urls']))} ({one.get('endpoint_type')}"


def _class_targets(document: Mapping[str, Any]) -> list[str]:
    lines = class_targets(document)[:MOST]
    return [f"{'' if number else 'targets':<{LABEL}}{line}" for number, line in enumerate(lines)]


def _conversations(found: Mapping[str, Any] | None) -> list[str]:
    if not found:
        return []
    stopped = found["ended_by_failure"] + found["ended_by_leaving"]
    cached = [turn["cached_share"] for turn in found["turns"][1:] if number(turn["cached_share"]) is not None]
    called = f"; {count(found['tool_call_replies'])} replies called tools" if found.get("tool_call_replies") else ""
    share = f"; later turns {percent(sum(cached) / len(cached))} cached" if cached else ""
    return [
        f"{'turns':<{LABEL}}{count(found['turns_sent'])} in {count(found['begun'])} conversations, "
        f"{count(stopped)} stopped early{called}{share}"
    ]


def _users(found: Mapping[str, Any] | None) -> list[str]:
    if not found:
        return []
    parts = (
        (found["left_by_plan"], "left by plan"),
        (found["gave_up"], "gave up"),
        (found["slow_readers"], "read slowly"),
    )
    text = ", ".join(f"{count(many)} {what}" for many, what in parts if many)
    return [f"{'users':<{LABEL}}{text or 'all waited for the end'} (no failures)"]


def ending_texts(document: Mapping[str, Any]) -> list[str]:
    """Successful answers with an unusual ending."""
    counts, texts = document.get("counts") or {}, document.get("error_texts") or {}
    unknown, cut = number(counts.get("unknown_finish")), number(counts.get("cut_after_end"))
    lines = []
    if unknown:
        words = ", ".join(f'"{message_of(str(each["word"]))[:20]}"' for each in texts.get("finish_reasons") or ())
        lines.append(f"{count(unknown)} with a finish_reason that is not known{f': {words}' if words else ''}")
    if cut:
        lines.append(f"{count(cut)} without the end of the HTTP message, after their finish_reason")
    return lines


def _endings(document: Mapping[str, Any]) -> list[str]:
    lines = ending_texts(document)
    return [f"{'' if place else 'also ok':<{LABEL}}{line}" for place, line in enumerate(lines)]
