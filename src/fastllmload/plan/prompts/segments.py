"""Prompts made of segments, each of which is written once, however many prompts have it.

A segment is a number of drawn words or token ids: a block of a trace, or what only one prompt has. A body is a list of
pieces of one file: the bytes in front of the prompt, its segments, the bytes after it. Segments lie in the order in which
they are first sent, so what a session adds with each call lies together, and a body has few pieces.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fastllmload._ext.plan.mersenne import Mersenne
from fastllmload._ext.plan.stitch import Stitcher
from fastllmload.endpoint import BodyPieces
from fastllmload.plan.bodies import disk_errors
from fastllmload.plan.plan import PIECE
from fastllmload.workload.content.words import WordTable
from fastllmload.workload.sharing.segments import Segments

Numbers = npt.NDArray[np.int64]
BATCH_TOKENS = 1 << 20


@dataclass(frozen=True)
class Written:
    """PIECE items, of body i those from *first[i]* on; SHA-256 of the file."""

    pieces: npt.NDArray[np.void]
    first: npt.NDArray[np.uint64]
    sha256: str


def write_segments(
    path: Path, segments: Segments, table: WordTable, pieces: BodyPieces, output: Numbers, seed: str,
    bodies: Numbers | None = None,
) -> Written:  # fmt: skip
    """Write the file of bodies whose prompts are *segments*, drawn from *seed*; *output*: tokens of the answers. *bodies*:
    the prompts that have one; None: all. Prompts after the last of these change nothing but which segments open a prompt.
    """
    order, opens = order_of_use(segments)
    if bodies is not None:
        used = segments.number[: int(segments.first[int(bodies.max(initial=-1)) + 1])]
        order = order[: len(np.unique(used))]
        segments = segments.taken(bodies)
    if not segments.prompts:
        with disk_errors(path):
            path.write_bytes(b"")
        return Written(np.empty(0, PIECE), np.zeros(1, np.uint64), hashlib.sha256().hexdigest())
    hasher = hashlib.sha256()
    texts = Texts(segments)
    with disk_errors(path), open(path, "wb") as file:
        out = Hashed(file, hasher)
        before = pieces.before + table.opening
        out.write(before)
        # What opens a prompt may be written without a space, so it is another text than inside of one.
        texts.write(out, order[opens[order]], table, table.first, Mersenne(f"{seed}/openings"))
        texts.write(out, order[~opens[order]], table, table.words, Mersenne(f"{seed}/blocks"))
        answers, which = np.unique(output, return_inverse=True)
        closings = [table.closing + (b"%d" % tokens).join((*pieces.middle, pieces.tail)) for tokens in answers.tolist()]
        close_at = np.array([out.write(text) for text in closings], np.int64)
        close_size = np.array([len(text) for text in closings], np.int64)
    n = np.diff(segments.first) + 2  # the bytes before and after the prompt
    ends = np.cumsum(n)
    at, size = np.zeros(int(ends[-1]), np.int64), np.zeros(int(ends[-1]), np.int64)
    inside = np.ones(len(at), np.bool_)
    inside[ends - n] = inside[ends - 1] = False
    at[inside], size[inside] = texts.at[segments.number], texts.used_size()
    size[ends - n] = len(before)
    at[ends - 1], size[ends - 1] = close_at[which], close_size[which]
    found, first = joined(at, size, ends - n)
    return Written(found, first, hasher.hexdigest())


def joined(at: Numbers, size: Numbers, begins: Numbers) -> tuple[npt.NDArray[np.void], npt.NDArray[np.uint64]]:
    """Pieces that lie together made one; *begins*: the first of each body. The pieces, and the first of each body."""
    new = np.ones(len(at), np.bool_)
    new[1:] = at[1:] != at[:-1] + size[:-1]
    new[begins] = True
    starts = np.flatnonzero(new)
    found = np.empty(len(starts), PIECE)
    found["at"], found["size"] = at[starts], np.add.reduceat(size, starts)
    first = np.append(np.searchsorted(starts, begins), len(starts)).astype(np.uint64)
    return found, first


def order_of_use(segments: Segments) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """The segments that prompts have, in the order in which they are first used; and which of all open a prompt."""
    unused = len(segments.number)
    seen = np.full(len(segments.size), unused, np.int64)
    seen[segments.number[::-1]] = np.arange(unused - 1, -1, -1)  # of several assignments to one item the last counts
    order = np.argsort(seen, kind="stable")[: int(np.count_nonzero(seen < unused))]
    opens = np.zeros(len(segments.size), np.bool_)
    opens[segments.number[segments.first[:-1][np.diff(segments.first) > 0]]] = True
    return order, opens


def batches(order: Numbers, size: Numbers) -> Iterator[Numbers]:
    """*order* in parts of at most BATCH_TOKENS tokens, or of one segment."""
    ends = np.cumsum(size[order])
    first = 0
    while first < len(order):
        done = int(ends[first - 1]) if first else 0
        after = max(first + 1, int(np.searchsorted(ends, done + BATCH_TOKENS, "right")))
        yield order[first:after]
        first = after


class Texts:
    """The texts of *segments* in the file: `at` and `size` of each, in bytes."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self.at, self.size = np.zeros(len(segments.size), np.int64), np.zeros(len(segments.size), np.int64)
        cut = np.flatnonzero(segments.used != segments.size[segments.number])
        self._cut = cut[np.argsort(segments.number[cut], kind="stable")]  # uses of a part of a segment
        self._cut_size = np.zeros(len(self._cut), np.int64)

    def write(
        self, out: Hashed, order: Numbers, table: WordTable, first: npt.NDArray[np.uint32], stream: Mersenne
    ) -> None:
        """Draw and write the segments *order*; *first*: how their first words are written."""
        stitch = Stitcher(table.blob, table.words, first, b"", [b""])
        for batch in batches(order, self._segments.size):
            tokens = self._segments.size[batch]
            drawn = np.empty(int(tokens.sum()), np.uint32)
            stream.below(table.span, drawn, 0, len(drawn))
            buffer, ends = np.empty(stitch.room(len(drawn), len(batch)), np.uint8), np.empty(len(batch), np.uint64)
            size = stitch.stitch(drawn, tokens.astype(np.int32), np.zeros(len(batch), np.int32), buffer, ends)
            at = out.write(buffer[:size].data)
            bounds = np.concatenate([np.zeros(1, np.int64), ends.astype(np.int64)])
            self.at[batch], self.size[batch] = at + bounds[:-1], np.diff(bounds)
            self._cut_at(batch, tokens, drawn, table.words, first)

    def _cut_at(
        self, batch: Numbers, tokens: Numbers, drawn: npt.NDArray[np.uint32], words: npt.NDArray[np.uint32],
        first: npt.NDArray[np.uint32],
    ) -> None:  # fmt: skip
        """Sizes of the parts that prompts use of the segments of *batch*."""
        owner = self._segments.number[self._cut]
        low, high = np.searchsorted(owner, batch), np.searchsorted(owner, batch, "right")
        many = high - low
        if not many.any():
            return
        begins = np.cumsum(tokens) - tokens
        sizes = (words[drawn] & 0xFF).astype(np.int64)
        sizes[begins] = first[drawn[begins]] & 0xFF
        total = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        uses = np.repeat(low - (np.cumsum(many) - many), many) + np.arange(int(many.sum()))
        begin = np.repeat(begins, many)
        self._cut_size[uses] = total[begin + self._segments.used[self._cut[uses]]] - total[begin]

    def used_size(self) -> Numbers:
        """Bytes of each use of a segment."""
        found = self.size[self._segments.number]
        found[self._cut] = self._cut_size
        return found


class Hashed:
    """A file of which each written byte is hashed."""

    def __init__(self, file: IO[bytes], hasher: Any) -> None:
        self._file, self._hasher = file, hasher
        self.at = 0

    def write(self, data: Any) -> int:
        """Returns where *data* begins."""
        at = self.at
        self._hasher.update(data)
        self._file.write(data)
        self.at += len(data)
        return at
