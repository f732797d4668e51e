"""Samples of which only an HDR histogram is known: counts, sums, least and most are exact, ranks to three digits."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fastllmload._ext.record import histogram
from fastllmload.arrays import Numbers
from fastllmload.documents.event_summary import ValueCounts
from fastllmload.statistics.order_statistics import Ranked

SUB_BUCKETS, HALF_BITS = 1024, 10  # of a histogram, `_ext/record/histogram.pxd`


class Counting:
    """Counts values in ns, block by block."""

    def __init__(self) -> None:
        self._words = histogram.empty()
        self._n, self._total, self._squares = 0, 0, 0.0
        self._least, self._most = 0, 0

    def add(self, block: Numbers) -> None:
        if not len(block):
            return
        histogram.record_many(self._words, np.ascontiguousarray(block))
        n, total = len(block), int(block.sum())
        squares = float(np.square(block - total / n).sum())
        self._squares = squares_of((self._n, self._total, self._squares), (n, total, squares))
        self._least = int(block.min()) if not self._n else min(self._least, int(block.min()))
        self._most = max(self._most, int(block.max()))
        self._n, self._total = self._n + n, self._total + total

    def counts(self) -> ValueCounts:
        buckets = np.flatnonzero(self._words[: histogram.COUNTS])
        return ValueCounts(
            n=self._n,
            total=self._total,
            squares=self._squares,
            least=self._least,
            most=self._most,
            buckets=tuple(buckets.tolist()),
            counts=tuple(self._words[buckets].tolist()),
        )


def counts_of(blocks: Iterable[Numbers]) -> ValueCounts:
    """The values of all *blocks*."""
    found = Counting()
    for block in blocks:
        found.add(block)
    return found.counts()


def squares_of(one: tuple[int, int, float], other: tuple[int, int, float]) -> float:
    """Squares of the distances from the common mean of two samples of (n, total, squares), after Chan and others."""
    if not one[0] or not other[0]:
        return one[2] + other[2]
    distance = one[1] / one[0] - other[1] / other[0]
    return one[2] + other[2] + distance**2 * one[0] * other[0] / (one[0] + other[0])


def together(parts: Iterable[ValueCounts]) -> ValueCounts:
    """The values of all *parts* as one sample."""
    found = [part for part in parts if part.n]
    if len(found) < 2:
        return found[0] if found else ValueCounts()
    words = np.zeros(histogram.COUNTS, np.int64)
    n, total, squares = 0, 0, 0.0
    for part in found:
        words[np.array(part.buckets, np.int64)] += np.array(part.counts, np.int64)
        squares = squares_of((n, total, squares), (part.n, part.total, part.squares))
        n, total = n + part.n, total + part.total
    buckets = np.flatnonzero(words)
    return ValueCounts(
        n=n,
        total=total,
        squares=squares,
        least=min(part.least for part in found),
        most=max(part.most for part in found),
        buckets=tuple(buckets.tolist()),
        counts=tuple(words[buckets].tolist()),
    )


def ends_of(buckets: Numbers) -> tuple[Numbers, Numbers]:
    """The smallest and the largest value that are counted in each of *buckets*."""
    shift = np.maximum((buckets >> HALF_BITS) - 1, 0)
    sub = np.where(buckets < SUB_BUCKETS, buckets, (buckets & (SUB_BUCKETS - 1)) + SUB_BUCKETS)
    return sub << shift, ((sub + 1) << shift) - 1


class HdrSample(Ranked):
    """Values by rank, each as the highest of its bucket, as in HdrHistogram, or the *lowest*, for lower bounds; the first
    and the last are exact. *values* ascend, and there are *counts* of each.
    """

    def __init__(self, counts: ValueCounts, lowest: bool = False) -> None:
        self._n, self.low, self.high = counts.n, counts.least, counts.most
        self.total, self._squares = counts.total, counts.squares
        self.mean = counts.total / counts.n if counts.n else 0.0
        low, high = ends_of(np.array(counts.buckets, np.int64))
        self.values = np.maximum(low, counts.least) if lowest else np.minimum(high, counts.most)
        self.counts = np.array(counts.counts, np.int64)
        self._ends = np.cumsum(self.counts)

    def std(self) -> float:
        return float(np.sqrt(self._squares / self._n)) if self._n else 0.0

    def prepare(self, ranks: Iterable[int]) -> None:
        """All ranks are known."""

    def _find(self, rank: int) -> np.int64:
        if rank == 0 or rank == self._n - 1:
            return np.int64(self.low if rank == 0 else self.high)
        found: np.int64 = self.values[np.searchsorted(self._ends, rank, side="right")]
        return found
