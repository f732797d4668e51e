"""Texts on reasoning: which figures are of the answer and which of any token, the number of reasoning tokens, and the
answers that were all reasoning.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastllmload.documents.fields import known
from fastllmload.documents.run import RunDocument
from fastllmload.report.text.numbers import count, quantity, some

OF_REASONING = ("ttft_any", "tpot_any")  # headline figures where answers reason
# Labels where a report has both kinds of figures
LABELS = {
    "ttft": "TTFT (first answer token)",
    "ttft_sched": "TTFT from t_sched (first answer token)",
    "ttft_any": "TTFT (first token of any kind, reasoning included)",
    "tpot": "TPOT (answer tokens)",
    "tpot_any": "TPOT (all tokens, reasoning included)",
}
SOURCES = {
    "usage": "by the server's usage",
    "events": "reported by each event",
    "output": "all output where nothing else was generated",
    "chunks": "one per event",
    "unknown": "not known",
}


def reasoned(document: RunDocument) -> bool:
    """Whether answers of a run streamed reasoning."""
    return some(document.counts.reasoned)


def headlines(document: RunDocument, names: Sequence[str]) -> list[str]:
    """*names*; for a run without reasoning, without the metrics that only reasoning has."""
    return [name for name in names if name not in OF_REASONING or reasoned(document)]


def label(document: RunDocument, name: str, otherwise: str) -> str:
    """The label of metric *name*; *otherwise* where answers do not reason."""
    return LABELS.get(name, otherwise) if reasoned(document) else otherwise


def legend(document: RunDocument) -> str | None:
    """Which figures are of the answer; None for a run without reasoning."""
    if not reasoned(document):
        return None
    return "ttft, tpot: of the answer; ttft_any, tpot_any: with the reasoning"


def token_text(document: RunDocument) -> str | None:
    """`1,200 reasoning tokens (by the server's usage), 800 answer tokens; 98.20 reasoning tok/s per request (P50)`; None
    without reasoning tokens.
    """
    counts, sources = document.counts, document.counts.reasoning_tokens_source
    if not reasoned(document) and not some(counts.reasoning_tokens):
        return None
    named = [text for name, text in SOURCES.items() if name != "unknown" and some(sources.get(name))]
    source = f" ({', '.join(named)})" if named else ""
    text = f"{count(counts.reasoning_tokens)} reasoning tokens{source}, {count(counts.answer_tokens)} answer tokens"
    if some(sources.get("unknown")):
        text += f"; of {count(sources['unknown'])} more answers the number of reasoning tokens is not known"
    rate = document.metric("reasoning_tok_s").p50
    return text if known(rate) is None else f"{text}; {quantity(rate)} reasoning tok/s per request (P50)"


def alone_text(document: RunDocument) -> str | None:
    """The number of answers without an answer token; None where there are none."""
    counts = document.counts
    if not some(counts.all_reasoning):
        return None
    return (
        f"{count(counts.all_reasoning)} of {count(counts.latency_population)} answers were all reasoning: without an answer "
        "token they are not in TTFT, TPOT and ITL of the answer"
    )


def notes(document: RunDocument) -> list[str]:
    """Notes of a latency table; none for a run without reasoning."""
    return [
        f"{text[0].upper()}{text[1:]}." for text in (token_text(document), alone_text(document)) if text is not None
    ]
