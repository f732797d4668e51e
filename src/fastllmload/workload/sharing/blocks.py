"""Ids of shared blocks of text: made dense, and checked to form a tree in which each block has one length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.errors import InputError
from fastllmload.workload.request import field_error

Numbers = npt.NDArray[np.int64]


def block_ids(ids: Sequence[int], where: str) -> npt.NDArray[Any]:
    """*ids* as int64, or uint64 where one is above 2^63. InputError for what is not a 64-bit number."""
    try:
        return np.array(ids, np.int64)
    except OverflowError:
        pass
    try:
        return np.array(ids, np.uint64)
    except OverflowError:
        raise field_error(f"{where}: its hash_ids contain a number of more than 64 bits") from None


def join_blocks(
    blocks: Sequence[npt.NDArray[Any] | None], first: Numbers, groups: Sequence[Sequence[int]], where: Sequence[str]
) -> Numbers:
    """The *blocks* of all calls with ids from 0 without gaps; equal ids in two *groups* of calls become two.

    *first*: where each call's blocks begin. InputError when ids are above 2^63 in one call and negative in another.
    """
    joined = np.empty(int(first[-1]), np.int64)
    used = 0
    for calls in groups:
        found = [(call, one) for call in calls if (one := blocks[call]) is not None and len(one)]
        if not found:
            continue
        if len({one.dtype for _, one in found}) > 1:
            negative = next((call for call, one in found if one.dtype == np.int64 and one.min() < 0), None)
            if negative is not None:
                raise field_error(f"{where[negative]}: its hash_ids contain a negative number, others are above 2^63")
            found = [(call, one.astype(np.uint64)) for call, one in found]
        dense, count = _dense(np.concatenate([one for _, one in found]))
        dense += used
        used += count
        at = 0
        for call, one in found:
            joined[first[call] : first[call + 1]] = dense[at : at + len(one)]
            at += len(one)
    return joined


def _dense(ids: npt.NDArray[Any]) -> tuple[Numbers, int]:
    """*ids* renumbered from 0 in their order, and the number of different ones."""
    low, high = int(ids.min()), int(ids.max())
    if high - low <= 8 * len(ids) + 1024:
        offset = (ids - ids.dtype.type(low)).astype(np.int64, copy=False)
        used = np.zeros(high - low + 1, np.bool_)
        used[offset] = True
        number = np.cumsum(used) - 1
        return number[offset], int(number[-1]) + 1
    order = np.argsort(ids)  # np.unique needs more memory
    ids = ids[order]
    rank = np.zeros(len(ids), np.int64)
    np.cumsum(ids[1:] != ids[:-1], out=rank[1:])
    dense = np.empty_like(rank)
    dense[order] = rank
    return dense, int(rank[-1]) + 1


@dataclass(frozen=True)
class CheckedBlocks:
    """Blocks of calls: their *ids* in the file, the joined *block* with *first*, *tokens* of each call's prompt."""

    ids: Sequence[npt.NDArray[Any] | None]
    block: Numbers
    first: Numbers
    tokens: Numbers
    size: int
    where: Sequence[str]

    def refuse(self, at: int, what: str) -> InputError:
        """The error for the element *at* of `block`."""
        call = int(np.searchsorted(self.first, at, "right")) - 1
        place, ids = at - int(self.first[call]), self.ids[call]
        assert ids is not None
        return field_error(
            f"{self.where[call]}: hash_ids has {int(ids[place])} in place {place + 1}, {what}; equal ids mean equal text, "
            "so give it another id"
        )


def check_blocks(of: CheckedBlocks, whole: npt.NDArray[np.bool_]) -> None:
    """InputError when a call has more blocks than tokens, or a block has two lengths or follows two different blocks.

    *whole*: calls with a prompt of their own; the blocks of others follow those of another call.
    """
    count = np.diff(of.first)
    over = np.flatnonzero((count - 1) * of.size >= of.tokens)
    if len(over):
        call = int(over[0])
        raise field_error(
            f"{of.where[call]}: {count[call]} hash_ids of {of.size} tokens are more than its {of.tokens[call]} tokens need; "
            "correct hash_ids or the length"
        )
    _check_lengths(of, count)
    previous = np.empty_like(of.block)
    previous[1:] = of.block[:-1]
    filled = count > 0
    previous[of.first[:-1][filled]] = np.where(whole[filled], -1, -2)
    expected = np.empty(int(of.block.max(initial=-1)) + 1, np.int64)
    expected[of.block[::-1]] = previous[::-1]  # the first occurrence is assigned last
    wrong = np.flatnonzero(expected[of.block] != previous)
    wrong = wrong[(previous[wrong] != -2) & (expected[of.block[wrong]] != -2)]
    if len(wrong):
        raise of.refuse(int(wrong[0]), "after another id than in an earlier call")


def _check_lengths(of: CheckedBlocks, count: Numbers) -> None:
    """InputError when an id has two lengths: the last block of a call may be shorter than *size*."""
    rest = of.tokens - (count - 1) * of.size
    partial = np.flatnonzero((count > 0) & (rest < of.size))
    last = of.first[1:][partial] - 1
    length = np.full(int(of.block.max(initial=-1)) + 1, of.size, np.int64)
    length[of.block[last[::-1]]] = rest[partial[::-1]]
    short = np.flatnonzero(length[of.block] < of.size)
    here = np.full(len(short), of.size, np.int64)
    here[np.searchsorted(short, last)] = rest[partial]
    wrong = np.flatnonzero(here != length[of.block[short]])
    if len(wrong):
        at = int(short[wrong[0]])
        lengths = int(here[wrong[0]]), int(length[of.block[at]])
        raise of.refuse(at, f"a block of {lengths[0]} tokens here and of {lengths[1]} in another call")
