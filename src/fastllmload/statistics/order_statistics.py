"""Reads integers by rank, as if they were sorted, in memory that does not grow with their number.

Passes over blocks of the values count them in equal cells, then in cells of the cell that contains a rank, until few
enough remain to be copied and sorted. The result is exact: the value that a sorted copy has at that rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from fastllmload.arrays import Numbers, Values

Blocks = Callable[[], Iterator[Numbers]]  # the same int64 values at each call, in blocks of any size

MANY = 1 << 20  # values from which no sorted copy is made
AT_ONCE = 1 << 16  # values of a block of an array, so that intermediate results stay in the cache
CELL_BITS = 14
PICKED = 1 << 17  # values around a rank that are copied together


class Ordered(Protocol):
    """Values in ascending order, to be read by rank: a sorted array, or `Ranked`."""

    def __len__(self) -> int: ...

    def __getitem__(self, at: Any, /) -> Any: ...


@dataclass
class RankPart:
    """The *count* values from *low* to *high*, of which the smallest has the rank *base*; *ranks*: requested."""

    low: int
    high: int
    base: int
    count: int
    ranks: list[int] = field(default_factory=list)

    @property
    def shift(self) -> int:
        """Bits that a cell leaves out: cells are 2^shift wide."""
        return max(0, (self.high - self.low).bit_length() - CELL_BITS)


class Ranked:
    """`len` of them, and the value at each rank from 0. *low*, *high*, *mean* (0 for none): of all values."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks, self._picked = blocks, PICKED
        self._n, self.low, self.high = 0, 2**63 - 1, -(2**63)
        sums = []
        for block in blocks():
            if len(block):
                self._n += len(block)
                self.low, self.high = min(self.low, int(block.min())), max(self.high, int(block.max()))
                sums.append(float(block.sum(dtype=np.float64)))
        self.mean = math.fsum(sums) / self._n if self._n else 0.0
        self._known: list[tuple[int, Numbers]] = []  # rank of the first, values in order
        self._cells: dict[tuple[int, int], Numbers] = {}  # counts in the cells of a part, by its ends

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, at: int) -> np.int64:
        """Value at rank *at*; negative: from the end, as in an array. IndexError for a rank that does not exist."""
        rank = at + self._n if at < 0 else at
        if not 0 <= rank < self._n:
            raise IndexError(f"{self._n} values have no rank {at}")
        found = self._find(rank)
        if found is None:
            self.prepare([rank])
            found = self._find(rank)
            assert found is not None
        return found

    def std(self) -> float:
        """Standard deviation of all values, dividing by their number; 0 for none."""
        squares = math.fsum(float(np.square(block - self.mean).sum()) for block in self._blocks())
        return math.sqrt(squares / self._n) if self._n else 0.0

    def prepare(self, ranks: Iterable[int]) -> None:
        """Find the values around all *ranks* in common passes."""
        wanted = sorted({rank for rank in ranks if 0 <= rank < self._n and self._find(rank) is None})
        parts = [RankPart(self.low, self.high, 0, self._n, wanted)] if wanted else []
        while parts:
            for part in parts:
                if part.low == part.high:
                    self._known.append((part.base, np.broadcast_to(np.int64(part.low), part.count)))
            parts = [part for part in parts if part.low < part.high]
            self._pass([part for part in parts if part.count > 2 * self._picked], parts)
            parts = [inner for part in parts if part.count > 2 * self._picked for inner in self._inner(part)]

    def _find(self, rank: int) -> np.int64 | None:
        for first, values in self._known:
            if first <= rank < first + len(values):
                found: np.int64 = values[rank - first]
                return found
        return np.int64(self.low) if rank == 0 else np.int64(self.high) if rank == self._n - 1 else None

    def _pass(self, counted: list[RankPart], parts: list[RankPart]) -> None:
        """Count the values of the parts that will be divided; copy those of the others."""
        unseen = [part for part in counted if (part.low, part.high) not in self._cells]
        for part in unseen:
            self._cells[part.low, part.high] = np.zeros(1 << CELL_BITS, np.int64)
        few = [part for part in parts if part.count <= 2 * self._picked]
        picked: list[list[Numbers]] = [[] for _ in few]
        for block in self._blocks() if unseen or few else ():
            for part in unseen:
                count_cells(inside(block, part), part, self._cells[part.low, part.high])
            for part, values in zip(few, picked, strict=True):
                values.append(inside(block, part).copy())
        for part, values in zip(few, picked, strict=True):
            self._known.append((part.base, np.sort(np.concatenate(values))))

    def _inner(self, part: RankPart) -> list[RankPart]:
        """Parts of *part* around each rank: as many cells as contain few values in total, or one cell that contains many."""
        counts = self._cells[part.low, part.high]
        ends = np.cumsum(counts)
        found: list[RankPart] = []
        for rank in part.ranks:
            if found and rank < found[-1].base + found[-1].count:
                found[-1].ranks.append(rank)
                continue
            at = rank - part.base
            cell = int(np.searchsorted(ends, at, side="right"))
            first, last = cell, cell
            if counts[cell] <= self._picked:
                half = self._picked // 2
                first = min(cell, int(np.searchsorted(ends, at - half, side="right")) + 1)
                last = max(cell, int(np.searchsorted(ends, at + half, side="right")) - 1)
            base = int(ends[first - 1]) if first else 0
            low, high = part.low + (first << part.shift), part.low + ((last + 1) << part.shift) - 1
            found.append(RankPart(low, min(high, part.high), part.base + base, int(ends[last]) - base, [rank]))
        return found


def inside(block: Numbers, part: RankPart) -> Numbers:
    kept: Numbers = block[(block >= part.low) & (block <= part.high)]
    return kept


def count_cells(values: Numbers, part: RankPart, counts: Numbers) -> None:
    """Add the *values*, all of which lie in *part*, to its *counts*."""
    if len(values):
        above = (values - np.int64(part.low)).view(np.uint64)  # a difference beyond 2^63 wraps to the right value
        counts += np.bincount((above >> np.uint64(part.shift)).astype(np.int64), minlength=len(counts))


def pieces(values: Values) -> Iterator[Values]:
    """*values*, AT_ONCE at a time."""
    for begin in range(0, len(values), AT_ONCE):
        yield values[begin : begin + AT_ONCE]


def in_order(values: Values | Ranked) -> Values | Ranked:
    """*values* ascending: a sorted copy, or a `Ranked` for MANY or more integers."""
    if isinstance(values, Ranked):
        return values
    if len(values) < MANY or values.dtype != np.int64:
        ordered: Values = np.sort(values)
        return ordered
    return Ranked(lambda: pieces(values))


def collected(blocks: Blocks, most: int) -> Numbers | Ranked:
    """The values of *blocks*, at most *most* of them: as one array, or by rank if there may be MANY."""
    if most >= MANY:
        return Ranked(blocks)
    return np.concatenate([np.empty(0, np.int64), *blocks()])
