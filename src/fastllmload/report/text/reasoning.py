"""Texts on reasoning: which figures are of the answer and which of any token, the number of reasoning tokens, and the
answers that were all reasoning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastllmload.report.text.numbers import count, number, part, quantity, some

Document = Mapping[str, Any]

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


def reasoned(document: Document) -> bool:
    """Whether answers of a run streamed reasoning."""
    return some(part(document, "counts", "reasoned"))


def headlines(document: Document, names: Sequence[str]) -> list[str]:
    """*names*; for a run without reasoning, without the metrics that only reasoning has."""
    return [name for name in names if name not in OF_REASONING or reasoned(document)]


def label(document: Document, name: str, otherwise: str) -> str:
    """The label of metric *name*; *otherwise* where answers do not reason."""
    return LABELS.get(name, otherwise) if reasoned(document) else otherwise


def legend(document: Document) -> str | None:
    """Which figures are of the answer; None for a run without reasoning."""
    if not reasoned(document):
        return None
    return "ttft, tpot: of the answer; ttft_any, tpot_any: with the reasoning"


def token_text(document: Document) -> str | None:
    """`1,200 reasoning tokens (by the server's usage), 800 answer tokens; 98.20 reasoning tok/s per request (P50)`; None
    without reasoning tokens.
    """
    counts = part(document, "counts")
    if not reasoned(document) and not some(part(counts, "reasoning_tokens")):
        return None
    taken = part(counts, "reasoning_tokens_source")
    unknown = part(taken, "unknown")
    known = [SOURCES[name] for name in SOURCES if name != "unknown" and some(part(taken, name))]
    source = f" ({', '.join(known)})" if known else ""
    reasoning, answer = (count(part(counts, name)) for name in ("reasoning_tokens", "answer_tokens"))
    text = f"{reasoning} reasoning tokens{source}, {answer} answer tokens"
    if some(unknown):
        text += f"; of {count(unknown)} more answers the number of reasoning tokens is not known"
    rate = part(document, "metrics", "reasoning_tok_s", "p50")
    return text if number(rate) is None else f"{text}; {quantity(rate)} reasoning tok/s per request (P50)"


def alone_text(document: Document) -> str | None:
    """The number of answers without an answer token; None where there are none."""
    alone, answers = (part(document, "counts", name) for name in ("all_reasoning", "latency_population"))
    if not some(alone):
        return None
    return (
        f"{count(alone)} of {count(answers)} answers were all reasoning: without an answer token they are not in TTFT, TPOT "
        "and ITL of the answer"
    )


def notes(document: Document) -> list[str]:
    """Notes of a latency table; none for a run without reasoning."""
    return [
        f"{text[0].upper()}{text[1:]}." for text in (token_text(document), alone_text(document)) if text is not None
    ]
