"""Tokens of each chunk where only the recorded text tells: counted again and again in what has come so far (metrics.md
3.4)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.records.text import chunk_texts, paired, tokenizer_of
from fastllmload.records.timeline import on_timeline, stated_tokens
from fastllmload.workload.tokenizer import Tokenizer

Numbers = npt.NDArray[np.int64]

# Between a letter and " x" every encoding that is counted here cuts: what lies before never changes again.
CUT = re.compile(r"(?<=[^\W\d_]) (?=[^\W\d_])")
BEARING = (layout.EVENT_WHITESPACE, layout.EVENT_CONTENT, layout.EVENT_TOOL, layout.EVENT_REFUSAL)


class ChunkCounts:
    """Of one run: every request's text is counted once, when it is first asked for."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._found: dict[int, list[int] | None] = {}

    def of(self, rows: Numbers) -> dict[int, list[int]]:
        """Tokens of each timed chunk of these *rows* (ascending); without those whose text records do not match their
        events one to one.
        """
        wanted = {row for row in rows.tolist() if row not in self._found} if len(self.run.text) else set()
        tokenizer = tokenizer_of(self.run) if wanted else None
        if tokenizer is not None:
            for row, pieces in chunk_texts(self.run, slice(min(wanted), max(wanted) + 1)):
                if row in wanted:
                    timed = timed_pieces(self.run, row, pieces)
                    self._found[row] = None if timed is None else list(tokens_of_chunks(timed, tokenizer))
        found = ((row, self._found.get(row)) for row in rows.tolist())
        return {row: counts for row, counts in found if counts is not None}

    @property
    def untouched(self) -> bool:
        """Nothing was asked for, or there is no text: the server's own counts are all there is."""
        return not self._found

    def weights(self, begin: int, after: int) -> Numbers:
        """Tokens of every event of the rows *begin* to *after*: as the server said, else 1; timed ones of requests that
        were asked for, as they were counted.
        """
        first = self.run.first_event[begin : after + 1]
        weights = stated_tokens(self.run.event_tokens[int(first[0]) : int(first[-1])], 1)
        for row in range(begin, after) if self._found else ():
            counts = self._found.get(row)
            if counts is not None:
                mine = weights[first[row - begin] - first[0] : first[row - begin + 1] - first[0]]
                mine[on_timeline(self.run, slice(row, row + 1))] = counts
        return weights


def timed_pieces(run: Run, row: int, pieces: list[str]) -> list[str] | None:
    """The texts of *row*'s timed events; None when events with text and texts are not as many."""
    events = slice(int(run.first_event[row]), int(run.first_event[row + 1]))
    mine = np.isin(run.event_kind[events], BEARING)
    with_text = run.event_stamp[events][mine] & layout.STAMP_WITHOUT_TEXT == 0
    if np.count_nonzero(with_text) != len(pieces):
        return None
    texts = iter(pieces)
    timed = [next(texts) if has_text else "" for has_text in with_text.tolist()]
    content = np.flatnonzero(run.event_kind[events][mine] != layout.EVENT_WHITESPACE)
    return timed[int(content[0]) :] if len(content) else []


def tokens_of_chunks(pieces: list[str], tokenizer: Tokenizer) -> Iterator[int]:
    """n_k = c_k - c_(k-1) with c_k = max(c_(k-1), tokens of the first k pieces together)."""
    done, tail, before = 0, "", 0
    for piece in pieces:
        tail += piece
        cut = max((found.start() for found in CUT.finditer(tail)), default=0)
        if cut:
            done, tail = done + tokenizer.count(paired(tail[:cut])), tail[cut:]
        now = max(before, done + tokenizer.count(paired(tail)))
        yield now - before
        before = now
