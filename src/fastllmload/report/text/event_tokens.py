"""Describes the source of the token count of an event, on which the gaps between tokens depend."""

from __future__ import annotations

from collections.abc import Iterator

from fastllmload.documents.fields import known
from fastllmload.documents.run import RunDocument
from fastllmload.report.text.numbers import count

UNKNOWN = "not known, so an event counts as one token"
SOURCE_TEXTS = {
    "text": "the tokenizer, on the text up to each event",
    "single": "there are as many events as tokens, so one each",
    "chunk": UNKNOWN,
}


def sources(document: RunDocument) -> dict[str, int]:
    """Number of answers by source; sources without answers are left out."""
    found = {name: known(n) for name, n in document.metric("share_single").token_times_source.items()}
    return {name: int(n) for name, n in found.items() if n}


def event_tokens_text(document: RunDocument) -> str | None:
    """`the server's usage in each event`; with several sources, the number of answers of each. None without a stream."""
    found = sources(document)
    texts = {name: _source_text(document, name) for name in found}
    if len(found) < 2:
        return next(iter(texts.values()), None)
    return "; ".join(f"of {count(n)} answers: {texts[name]}" for name, n in found.items())


def event_token_lines(document: RunDocument) -> Iterator[str]:
    """The same for a short summary, where a figure depends on more than what the server reports."""
    text = event_tokens_text(document)
    several = document.metric("share_single").pooled_as in ("tbc", "itl_b")
    if text is not None and (several or not sources(document).keys() <= {"server", "single"}):
        yield f"count of an event from: {text}"


def _source_text(document: RunDocument, source: str) -> str:
    if source != "server":
        return SOURCE_TEXTS.get(source, source)
    if document.plan.description.continuous_usage:
        return "the server's usage in each event"
    if document.plan.description.token_ids:
        return "the server's token ids in each event"
    return "what the server reports in each event (usage, token ids or logprobs)"
