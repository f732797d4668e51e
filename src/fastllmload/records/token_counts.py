"""Tokens of each request, and where each count comes from (metrics.md 3.3). Never the number of chunks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.records.text import texts
from fastllmload.workload.tokenizer import NONE, Tokenizer, load_tokenizer

Numbers = npt.NDArray[np.int64]

SOURCES = ("usage", "tokenizer", "estimate", None)
USAGE, TOKENIZER, ESTIMATE, NO_TEXT = range(len(SOURCES))
UNKNOWN = -1
BYTES_PER_TOKEN = 4  # of the estimate
SINGLE_SHARE = 0.9  # IETF B.2.1: at least so many events with one token each let events stand for tokens


@dataclass(frozen=True)
class TokenCounts:
    """One item per row.

    *output*: all generated tokens; *source*: position in SOURCES; *reasoning*: those of *output* that are reasoning;
    *timed*: tokens of the content timeline, UNKNOWN where they cannot be told from reasoning; *input*: of the prompt.
    """

    input: Numbers
    input_from_usage: npt.NDArray[np.bool_]
    output: Numbers
    source: npt.NDArray[np.uint8]
    reasoning: Numbers
    timed: Numbers

    def estimated(self) -> int:
        """Number of requests whose output is only estimated: with any, the run is not conforming."""
        return int(np.count_nonzero(self.source == ESTIMATE))


def tokenizer_of(run: Run) -> Tokenizer | None:
    """The reference tokenizer that the run was planned with; None when it was switched off."""
    name = run.manifest.get("config", {}).get("workload", {}).get("tokenizer", "cl100k_base")
    return None if name == NONE else load_tokenizer(name)


def tokenized_output(run: Run) -> Numbers:
    """Reference-tokenizer count of each row's concatenated text, UNKNOWN without recorded text or tokenizer."""
    counts = np.full(len(run.rows), UNKNOWN, np.int64)
    missing = run.rows["completion_tokens"] < 0
    tokenizer = tokenizer_of(run) if len(run.text) and missing.any() else None
    if tokenizer is None:
        return counts
    for row, text in texts(run):
        if missing[row]:
            counts[row] = tokenizer.count(text)
    return counts


def count_tokens(run: Run) -> TokenCounts:
    """Tokens of every row of *run*; usage first, then the tokenizer, then bytes // 4 (at least 1 for any text)."""
    rows = run.rows
    text_bytes = rows["text_bytes"].astype(np.int64)
    estimate = np.where(text_bytes > 0, np.maximum(1, text_bytes // BYTES_PER_TOKEN), 0)
    tokenized = tokenized_output(run)
    usage = rows["completion_tokens"].astype(np.int64)
    output = np.where(usage >= 0, usage, np.where(tokenized >= 0, tokenized, estimate))
    by_guess = np.where(text_bytes > 0, ESTIMATE, NO_TEXT)
    source = np.where(usage >= 0, USAGE, np.where(tokenized >= 0, TOKENIZER, by_guess)).astype(np.uint8)
    reasoning = np.maximum(rows["reasoning_tokens"].astype(np.int64), 0)
    prompt = rows["prompt_tokens"].astype(np.int64)
    return TokenCounts(
        input=np.where(prompt >= 0, prompt, rows["input_target"]),
        input_from_usage=prompt >= 0,
        output=output,
        source=source,
        reasoning=np.minimum(reasoning, output),
        timed=timed_tokens(run, output, source),
    )


def leading_tokens(run: Run) -> Numbers:
    """Tokens of whitespace before the first content: as stated by the server, else one for each such event."""
    leading = np.flatnonzero(run.event_kind == layout.EVENT_WHITESPACE)
    rows = run.events["row"][leading]
    leading = leading[run.event_t[leading] <= np.where(run.rows["t_first"] == 0, 2**62, run.rows["t_first"])[rows]]
    stated = np.maximum(1, run.event_tokens[leading].astype(np.int64))
    return np.bincount(run.events["row"][leading], stated, len(run.rows)).astype(np.int64)


def timed_tokens(run: Run, output: Numbers, source: npt.NDArray[np.uint8]) -> Numbers:
    """visible tokens - leading tokens, at least 0 (metrics.md 3.3).

    When reasoning was streamed but the server does not say how many tokens it had, events stand for tokens if there is
    nearly one per token; else the count is UNKNOWN.
    """
    rows = run.rows
    reasoning = rows["reasoning_tokens"].astype(np.int64)
    # Recorded text holds no reasoning, so a tokenizer's count is visible tokens already.
    hidden = np.where(source == TOKENIZER, 0, np.maximum(reasoning, 0))
    timed = np.maximum(output - hidden - leading_tokens(run), 0)
    unsaid = (source != TOKENIZER) & (reasoning < 0) & (rows["reasoning_events"] > 0)
    events = rows["content_events"].astype(np.int64) + rows["reasoning_events"] + rows["leading_events"]
    one_each = (events > SINGLE_SHARE * output) & (events <= output)
    return np.where(unsaid, np.where(one_each, rows["content_events"].astype(np.int64), UNKNOWN), timed)
