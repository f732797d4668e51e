"""Counts the tokens of each request, with the source of each count (spec/metrics 3.3); never the number of chunks.

Counting option A (IETF 4.4.2) uses the server's usage where it reports one; option B counts the recorded text with the
reference tokenizer, and uses the planned count of the prompt. Tokens of single chunks are counted by repeated counts of the
text so far (spec/metrics 3.4).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from fastllmload.arrays import Mask, Numbers, Rows
from fastllmload.documents.run import RunDocument
from fastllmload.endpoint import ENDPOINTS, Endpoint
from fastllmload.metrics.tokens.timeline import of_kind, on_timeline, stated_tokens
from fastllmload.records import layout
from fastllmload.records.generated_text import chunk_texts, paired, texts, tokenizer_of
from fastllmload.records.run import Run
from fastllmload.workload.tokenizers.tokenizer import Tokenizer

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
    output: Numbers
    source: npt.NDArray[np.uint8]
    reasoning: Numbers
    timed: Numbers
    chunks: ChunkCounts


def by_reference(run: Run) -> bool:
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
    usage = np.maximum(rows["completion_tokens"].astype(np.int64), summed_tokens(run))
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
        output=output,
        source=source,
        reasoning=np.minimum(np.where(all_reasoning(rows), output, reasoning), output),
        timed=timed_tokens(run, output, source, reasoned),
        chunks=ChunkCounts(run),
    )


def spoken(document: RunDocument) -> list[Endpoint | None]:
    """The protocol of each class of the run by its number, or the only one; None: this version does not have it."""
    names = [one.endpoint_type for one in document.target.classes] or [document.target.endpoint_type]
    return [ENDPOINTS.get(name or "") for name in names]


def of_protocol(run: Run, has: Callable[[Endpoint | None], bool]) -> Mask:
    """Rows of the classes whose protocol *has* something."""
    by_class = np.array([has(one) for one in spoken(run.document)])
    found: Mask = np.full(len(run.rows), by_class[0]) if len(by_class) == 1 else by_class[run.rows["request_class"]]
    return found


def answers_tokens(run: Run) -> Mask:
    """Rows of requests whose answers are tokens."""
    return of_protocol(run, lambda one: one is None or one.tokens)


def classes_with_tokens(document: RunDocument) -> tuple[str, ...]:
    """Names of the classes whose answers are tokens; empty where those of all, or of none, are."""
    which = [one is None or one.tokens for one in spoken(document)]
    names = [str(one.name) for one in document.target.classes]
    return () if all(which) else tuple(name for name, has in zip(names, which, strict=False) if has)


def summed_tokens(run: Run) -> Numbers:
    """Tokens that the events of complete answers report, where the protocol has no sum of them; else UNKNOWN, also of a text
    whose events report none.
    """
    found = np.full(len(run.rows), UNKNOWN, np.int64)
    summed = of_protocol(run, lambda one: one is not None and one.summed)
    for row in np.flatnonzero(summed & (run.rows["status"] == layout.OK)):
        stated = run.event_tokens[run.first_event[row] : run.first_event[row + 1]]
        total = int(stated[stated != layout.TOKENS_NONE].sum(dtype=np.int64))
        if total > 0 or run.rows["text_bytes"][row] == 0:
            found[row] = total
    return found


def leading_tokens(run: Run) -> Numbers:
    """Tokens of whitespace before the first content: as stated by the server, else one for each such event."""
    if run.elsewhere is not None:
        return run.elsewhere.totals["leading"].astype(np.int64)
    leading = of_kind(run, layout.EVENT_WHITESPACE)
    rows = run.events["row"][leading]
    leading = leading[run.event_t[leading] <= np.where(run.rows["t_first"] == 0, 2**62, run.rows["t_first"])[rows]]
    stated = stated_tokens(run.event_tokens[leading], 1)
    return np.bincount(run.events["row"][leading], stated, len(run.rows)).astype(np.int64)


def all_reasoning(rows: Rows) -> Mask:
    """Answers without an answer token."""
    mask: Mask = (rows["reasoning_events"] > 0) & (rows["content_events"] == 0)
    return mask


def reasoning_tokens(run: Run) -> Numbers:
    """Of each row as the server reports it, in its usage or with each reasoning event; UNKNOWN where it does not."""
    if run.elsewhere is not None:
        known = np.where(run.elsewhere.counted, run.elsewhere.totals["reasoning"], run.rows["reasoning_tokens"])
        return known.astype(np.int64)
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


# All encodings that are used here split between a letter and " x", so the tokens before such a place are final.
CUT = re.compile(r"(?<=[^\W\d_]) (?=[^\W\d_])")
# Scripts without blanks, and malicious servers, have no such place. Then the tail is cut at the end of a token that is far
# enough from the end of the text that later text hardly changes it.
LONGEST_TAIL, KEPT_CHARACTERS, KEPT_TOKENS = 256, 96, 64
MOST_CHUNKS = 1 << 17  # counted per request: a server that sends more floods its client
BEARING = (layout.EVENT_WHITESPACE, layout.EVENT_CONTENT, layout.EVENT_TOOL, layout.EVENT_REFUSAL)


class ChunkCounts:
    """Token counts of the chunks of one run; the text of a request is counted once, at the first use."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._found: dict[int, list[int] | None] = {}

    def of(self, rows: Numbers) -> dict[int, list[int]]:
        """Tokens of each timed chunk of these *rows* (ascending); without rows that have more than MOST_CHUNKS text records,
        or whose records do not match their events one to one.
        """
        wanted = {row for row in rows.tolist() if row not in self._found} if len(self.run.text) else set()
        tokenizer = tokenizer_of(self.run) if wanted else None
        if tokenizer is not None:
            for row, pieces in chunk_texts(self.run, slice(min(wanted), max(wanted) + 1), MOST_CHUNKS):
                if row in wanted:
                    timed = timed_pieces(self.run, row, pieces)
                    self._found[row] = None if timed is None else list(tokens_of_chunks(timed, tokenizer))
            self._found |= dict.fromkeys(wanted - self._found.keys())  # not searched again
        found = ((row, self._found.get(row)) for row in rows.tolist())
        return {row: counts for row, counts in found if counts is not None}

    @property
    def untouched(self) -> bool:
        """Nothing was counted: only the server's own counts are available."""
        return all(counts is None for counts in self._found.values())

    def weights(self, begin: int, after: int) -> Numbers:
        """Tokens of every event of the rows *begin* to *after*: as the server reports them, else 1; for timed events of
        counted requests the counted number.
        """
        first = self.run.first_event[begin : after + 1]
        weights = stated_tokens(self.run.event_tokens[int(first[0]) : int(first[-1])], 1)
        for row in range(begin, after) if self._found else ():
            counts = self._found.get(row)
            if counts is not None:
                part = weights[first[row - begin] - first[0] : first[row - begin + 1] - first[0]]
                part[on_timeline(self.run, slice(row, row + 1))] = counts
        return weights


def timed_pieces(run: Run, row: int, pieces: list[str]) -> list[str] | None:
    """The texts of *row*'s timed events; None when the numbers of events with text and of texts differ."""
    events = slice(int(run.first_event[row]), int(run.first_event[row + 1]))
    bearing = np.isin(run.event_kind[events], BEARING)
    with_text = run.event_stamp[events][bearing] & layout.STAMP_WITHOUT_TEXT == 0
    if np.count_nonzero(with_text) != len(pieces):
        return None
    texts = iter(pieces)
    timed = [next(texts) if has_text else "" for has_text in with_text.tolist()]
    content = np.flatnonzero(run.event_kind[events][bearing] != layout.EVENT_WHITESPACE)
    return timed[int(content[0]) :] if len(content) else []


def tokens_of_chunks(pieces: list[str], tokenizer: Tokenizer) -> Iterator[int]:
    """n_k = c_k - c_(k-1) with c_k = max(c_(k-1), tokens of the first k pieces together). Linear in the text's length."""
    done, tail, before = 0, "", 0
    for piece in pieces:
        known = len(tail)
        tail += piece
        if " " in tail:
            cut = max((found.start() for found in CUT.finditer(tail, max(0, known - 1))), default=0)
            if cut:
                done, tail = done + tokenizer.count(paired(tail[:cut])), tail[cut:]
        count = tokenizer.count(paired(tail))
        now = max(before, done + count)
        yield now - before
        before = now
        if len(tail) > LONGEST_TAIL:
            tail = end_of(tail, tokenizer)
            done += count - tokenizer.count(paired(tail))


def end_of(tail: str, tokenizer: Tokenizer) -> str:
    """The last tokens of *tail*: at most three quarters of it."""
    half = tail[-1] if "\ud800" <= tail[-1] <= "\udbff" else ""  # the first half of a surrogate pair
    text = paired(tail[: len(tail) - len(half)])
    tokens = tokenizer.encode(text)
    first = max(1, len(tokens) // 2, len(tokens) - KEPT_TOKENS)
    for begin in range(first, min(first + 4, len(tokens))):  # a token may end within a character
        end = tokenizer.decode(tokens[begin:])
        if text.endswith(end) and len(end) <= len(text) * 3 // 4:
            return end + half
    return text[-KEPT_CHARACTERS:] + half
