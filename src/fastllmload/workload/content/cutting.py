"""Texts cut behind a number of tokens, and how many tokens each then has.

What was cut may have another count than the tokens that were kept: the last of them may merge in another way, or end in
the middle of a character. So it is counted again: whole, or (`Seams`) only from the last place on at which a split changes
no token on either side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
ALNUM = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


class Encoding(Protocol):
    """What of a tokenizer is needed here."""

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]: ...

    def count_many(self, texts: Sequence[str]) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


@dataclass(frozen=True)
class Cut:
    """*texts* after the cut, the tokens that each has now, and those that each had before."""

    texts: list[str]
    counts: list[int]
    before: list[int]


def cut_many(encoding: Encoding, texts: Sequence[str], wanted: Sequence[int]) -> Cut:
    """Those of *texts* that have more than *wanted* tokens, cut behind them; for any tokenizer."""
    encoded = encoding.encode_many(texts)
    before = [len(ids) for ids in encoded]
    found, counts = list(texts), list(before)
    long = [at for at, have in enumerate(before) if have > wanted[at]]
    for at in long:
        found[at] = encoding.decode(encoded[at][: wanted[at]])
    for at, count in zip(long, encoding.count_many([found[at] for at in long]), strict=True):
        counts[at] = count
    return Cut(found, counts, before)


class Seams:
    """Where texts of a byte-level vocabulary can be split: between an ASCII letter or digit and a space. No pattern of
    such a vocabulary's pre-tokenizer takes a space behind anything but white space, and none looks further ahead. The
    tokens' bytes must be the text's.
    """

    def __init__(self, vocabulary: Sequence[bytes]) -> None:
        self._sizes = np.array([len(token) for token in vocabulary], np.int64)
        self._begins = np.array([token[:1] == b" " for token in vocabulary], np.bool_)
        self._ends = np.array([bool(token) and token[-1] in ALNUM for token in vocabulary], np.bool_)

    def cut_many(self, encoding: Encoding, texts: Sequence[str], wanted: Sequence[int], ids: Ids, ends: Any) -> Cut:
        """As `cut_many`; *ids* are the tokens of all *texts*, one behind the other, those of text k end at ends[k + 1]."""
        behind = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._sizes[ids])])
        split = np.zeros(len(ids), np.bool_)
        split[1:] = self._begins[ids[1:]] & self._ends[ids[:-1]]
        places = np.flatnonzero(split)
        found = list(texts)
        before = np.diff(ends).tolist()
        counts = list(before)
        long = [at for at, have in enumerate(before) if have > wanted[at]]
        tails, kept = [], []
        for at in long:
            first, last = int(ends[at]), int(ends[at]) + wanted[at]
            raw = texts[at].encode()
            size = int(behind[last] - behind[first])
            near = int(np.searchsorted(places, last)) - 1
            seam = max(first, int(places[near])) if near >= 0 else first
            found[at] = raw[:size].decode(errors="replace")
            tails.append(raw[int(behind[seam] - behind[first]) : size].decode(errors="replace"))
            kept.append(seam - first)
        for at, head, count in zip(long, kept, encoding.count_many(tails), strict=True):
            counts[at] = head + count
        return Cut(found, counts, before)
