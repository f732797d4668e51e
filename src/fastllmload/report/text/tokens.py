"""Texts on tokens: which figures are of the answer and which of any token, answers that were all reasoning, the source of
the number of tokens of an event, and the metric of the gaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastllmload.documents.fields import WITHHELD, known
from fastllmload.documents.run import RunDocument
from fastllmload.metrics.tokens.counts import spoken
from fastllmload.report.text.numbers import count, quantity, some

OF_TOKENS = ("ttft", "tpot", "itl", "norm_latency", "jitter", "max_pause")  # first letters of their names
OF_REASONING = ("ttft_any", "tpot_any")  # headline figures where answers reason
GAPS = ("itl", "tbc", "itl_b")
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

UNKNOWN = "not known, so an event counts as one token"
SOURCE_TEXTS = {
    "text": "the tokenizer, on the text up to each event",
    "single": "there are as many events as tokens, so one each",
    "chunk": UNKNOWN,
}


def reasoned(document: RunDocument) -> bool:
    """Whether answers of a run streamed reasoning."""
    return some(document.counts.reasoned)


def has_tokens(document: RunDocument) -> bool:
    """Whether answers are tokens, in the protocol of the run or of one of its classes."""
    return any(one is None or one.tokens for one in spoken(document))


def mixture_text(document: RunDocument) -> str | None:
    """Of which classes figures of tokens are, and what other figures mix; None where all, or no, answers are tokens."""
    names = document.classes_with_tokens
    if not names:
        return None
    of, others = names_or_count(document), [one for one in document.classes or {} if one not in names]
    whose = "the others" if WITHHELD.value in names else ", ".join(others)
    return (
        f"TTFT, TPOT, ITL and tok/s are of {of} alone, as answers of {whose} are not tokens; E2E, requests/s and success "
        "mix all classes"
    )


def names_or_count(document: RunDocument) -> str:
    """The classes whose answers are tokens, where those of others are not: `chat, batch`, or `2 classes`."""
    names = document.classes_with_tokens
    return f"{len(names)} classes" if WITHHELD.value in names else ", ".join(names)


def headlines(document: RunDocument, names: Sequence[str]) -> list[str]:
    """*names*; for a run without reasoning or tokens, without the metrics that only these have."""
    if not has_tokens(document):
        return [name for name in names if not name.startswith(OF_TOKENS)]
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
    """Notes of a latency table; none for a run of one protocol without reasoning whose events were copied."""
    texts = (mixture_text(document), token_text(document), alone_text(document), merged_text(document))
    return [f"{text[0].upper()}{text[1:]}." for text in texts if text is not None]


def merged_text(document: RunDocument) -> str | None:
    """How gaps are known of a run whose events stayed on their hosts."""
    note = document.metric(gap_name(document)).note
    return None if note is None else f"gaps ({gap_name(document)}): {note}"


def gap_name(document: RunDocument, name: str = "itl") -> str:
    """The metric that the run has in place of `itl`: where chunks carry several tokens, the time between chunks `tbc`
    (IETF B.2.1, option A) or `itl_b` (option B). Any other *name* unchanged.
    """
    present = [other for other in GAPS if document.metric(other).n]
    return present[0] if name == "itl" and present else name


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
