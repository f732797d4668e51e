"""Counts the tokens of each chunk from the recorded text, by repeated counts of the text so far (spec/metrics 3.4)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.tokens.timeline import on_timeline, stated_tokens
from fastllmload.records import layout
from fastllmload.records.generated_text import chunk_texts, paired, tokenizer_of
from fastllmload.records.run import Run
from fastllmload.workload.tokenizers.tokenizer import Tokenizer

Numbers = npt.NDArray[np.int64]

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
