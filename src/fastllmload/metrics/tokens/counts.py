"""Counts the tokens of each request, with the source of each count (spec/metrics 3.3); never the number of chunks.

Counting option A (IETF 4.4.2) uses the server's usage where it reports one; option B counts the recorded text with the
reference tokenizer, and uses the planned count of the prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.tokens.chunk_counts import ChunkCounts
from fastllmload.metrics.tokens.timeline import of_kind, stated_tokens
from fastllmload.records import layout
from fastllmload.records.generated_text import texts, tokenizer_of
from fastllmload.records.run import Run

Numbers = npt.NDArray[np.int64]

SOURCES = ("usage", "tokenizer", "estimate", None)
USAGE, TOKENIZER, ESTIMATE, NO_TEXT = range(len(SOURCES))
UNKNOWN = -1
BLOCK = 2048  # texts that are counted at once, on all cores
BYTES_PER_TOKEN = 4  # for estimates
SINGLE_SHARE = 0.9  # IETF B.2.1: with at least this share of events with one token each, events count as tokens


@dataclass(frozen=True)
class TokenCounts:
    """One item per row.

    *output*: all generated tokens; *source*: position in SOURCES; *reasoning*: those of *output* that are reasoning;
    *timed*: tokens of the content timeline, UNKNOWN where they cannot be separated from reasoning; *input*: of the prompt;
    *chunks*: tokens of each chunk, counted in the recorded text.
    """

    input: Numbers
    input_from_usage: npt.NDArray[np.bool_]
    output: Numbers
    source: npt.NDArray[np.uint8]
    reasoning: Numbers
    timed: Numbers
    chunks: ChunkCounts

    def estimated(self) -> int:
        """Number of requests whose output is only estimated; a run with any does not conform to the draft."""
        return int(np.count_nonzero(self.source == ESTIMATE))


def by_reference(run: Run) -> bool:
    """Whether the run uses counting option B."""
    return run.document.config.workload.counting == "B"


def tokenized_output(run: Run) -> Numbers:
    """Reference-tokenizer count of each row's concatenated text, UNKNOWN without recorded text or tokenizer, and where
    option A has the server's own count.
    """
    counts = np.full(len(run.rows), UNKNOWN, np.int64)
    wanted = np.full(len(run.rows), True) if by_reference(run) else run.rows["completion_tokens"] < 0
    tokenizer = tokenizer_of(run) if len(run.text) and wanted.any() else None
    if tokenizer is None:
        return counts
    found = ((row, text) for row, text in texts(run) if wanted[row])
    while block := list(islice(found, BLOCK)):
        counts[[row for row, _ in block]] = tokenizer.count_many([text for _, text in block])
    return counts


def count_tokens(run: Run) -> TokenCounts:
    """Tokens of every row of *run*; usage first, then the tokenizer, then bytes // 4 (at least 1 for any text)."""
    rows = run.rows
    text_bytes = rows["text_bytes"].astype(np.int64)
    estimate = np.where(text_bytes > 0, np.maximum(1, text_bytes // BYTES_PER_TOKEN), 0)
    tokenized = tokenized_output(run)
    usage = rows["completion_tokens"].astype(np.int64)
    reasoned = reasoning_tokens(run)
    reasoning = np.maximum(reasoned, 0)
    # Recorded text has no reasoning: add the number that the server reports.
    counted = np.where(tokenized >= 0, tokenized + reasoning, UNKNOWN)
    source = np.where(text_bytes > 0, ESTIMATE, NO_TEXT)
    output = estimate
    preferred = ((USAGE, usage), (TOKENIZER, counted)) if by_reference(run) else ((TOKENIZER, counted), (USAGE, usage))
    for name, numbers in preferred:  # the last known number is used
        output, source = np.where(numbers >= 0, numbers, output), np.where(numbers >= 0, name, source)
    source = source.astype(np.uint8)
    prompt = rows["prompt_tokens"].astype(np.int64)
    reported = (prompt >= 0) & (not by_reference(run))
    return TokenCounts(
        input=np.where(reported, prompt, rows["input_target"]),
        input_from_usage=reported,
        output=output,
        source=source,
        reasoning=np.minimum(np.where(all_reasoning(rows), output, reasoning), output),
        timed=timed_tokens(run, output, source, reasoned),
        chunks=ChunkCounts(run),
    )


def leading_tokens(run: Run) -> Numbers:
    """Tokens of whitespace before the first content: as stated by the server, else one for each such event."""
    leading = of_kind(run, layout.EVENT_WHITESPACE)
    rows = run.events["row"][leading]
    leading = leading[run.event_t[leading] <= np.where(run.rows["t_first"] == 0, 2**62, run.rows["t_first"])[rows]]
    stated = stated_tokens(run.event_tokens[leading], 1)
    return np.bincount(run.events["row"][leading], stated, len(run.rows)).astype(np.int64)


def all_reasoning(rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Answers without an answer token."""
    mask: npt.NDArray[np.bool_] = (rows["reasoning_events"] > 0) & (rows["content_events"] == 0)
    return mask


def reasoning_tokens(run: Run) -> Numbers:
    """Of each row as the server reports it, in its usage or with each reasoning event; UNKNOWN where it does not."""
    reported = run.rows["reasoning_tokens"].astype(np.int64)
    if not ((reported < 0) & (run.rows["reasoning_events"] > 0)).any():
        return reported
    of_reasoning = of_kind(run, layout.EVENT_REASONING)
    row, stated = run.events["row"][of_reasoning], stated_tokens(run.event_tokens[of_reasoning], UNKNOWN)
    events = np.bincount(row[stated >= 0], minlength=len(reported))
    counted = np.bincount(row, np.maximum(stated, 0), len(reported)).astype(np.int64)
    return np.where((reported < 0) & (events > 0) & (events == run.rows["reasoning_events"]), counted, reported)


def timed_tokens(run: Run, output: Numbers, source: npt.NDArray[np.uint8], reasoning: Numbers) -> Numbers:
    """visible tokens - leading tokens, at least 0 (spec/metrics 3.3).

    Where reasoning was streamed but the server does not report its tokens (*reasoning*), events count as tokens if there is
    nearly one per token; else the count is UNKNOWN.
    """
    rows = run.rows
    timed = np.maximum(output - np.maximum(reasoning, 0) - leading_tokens(run), 0)
    unreported = (source != TOKENIZER) & (reasoning < 0) & (rows["reasoning_events"] > 0)
    events = rows["content_events"].astype(np.int64) + rows["reasoning_events"] + rows["leading_events"]
    one_each = (events > SINGLE_SHARE * output) & (events <= output)
    timed = np.where(unreported, np.where(one_each, rows["content_events"].astype(np.int64), UNKNOWN), timed)
    return np.where(all_reasoning(rows), 0, timed)
