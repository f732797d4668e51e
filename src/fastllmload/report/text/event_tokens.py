"""Where it is known from how many tokens an event carries, in plain words: gaps between tokens rest on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastllmload.report.text.numbers import count, number, part

Document = Mapping[str, Any]

UNKNOWN = "nobody said it, so an event counts as one token"
TOLD = {
    "text": "the tokenizer, on the text up to each event",
    "single": "there are as many events as tokens, so one each",
    "chunk": UNKNOWN,
}


def sources(document: Document) -> dict[str, int]:
    """Answers by where it is known from; without those of which there are none."""
    taken = part(document, "metrics", "share_single", "token_times_source")
    found = {str(name): number(n) for name, n in taken.items()} if isinstance(taken, Mapping) else {}
    return {name: int(n) for name, n in found.items() if n}


def event_tokens_text(document: Document) -> str | None:
    """`the server's usage in each event`, or with several sources how many answers each has; None without a stream."""
    found = sources(document)
    told = {name: _told(document, name) for name in found}
    if len(found) < 2:
        return next(iter(told.values()), None)
    return "; ".join(f"of {count(n)} answers: {told[name]}" for name, n in found.items())


def event_token_lines(document: Document) -> Iterator[str]:
    """That text for a short summary, where a figure depends on more than what the server said."""
    text = event_tokens_text(document)
    several = part(document, "metrics", "share_single", "pooled_as") in ("tbc", "itl_b")
    if text is not None and (several or not sources(document).keys() <= {"server", "single"}):
        yield f"of an event known by: {text}"


def _told(document: Document, source: str) -> str:
    if source != "server":
        return TOLD.get(source, source)
    if part(document, "plan", "description", "continuous_usage") is True:
        return "the server's usage in each event"
    if part(document, "plan", "description", "token_ids") is True:
        return "the server's token ids in each event"
    return "what the server says in each event (usage, token ids or logprobs)"
