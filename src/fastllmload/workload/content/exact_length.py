"""Texts of an exact number of tokens: cut or filled up, and encoded again until the count is right.

A cut text may have another count than the tokens that were kept, so it is encoded again: all of it, or (`Seams`) what
follows the last position at which a split changes no token on either side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fastllmload.documents.plan import TokenizerFacts

Ids = npt.NDArray[np.int64]
ROUNDS = 20  # one is enough for nearly all texts; after this many a text keeps its length
Filler = Callable[[int], str]  # text of about that many tokens to append
ALNUM = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


class Tokenizer(Protocol):
    """One encoding. Ids of ordinary (not special) tokens are 0 to `ordinary` - 1."""

    name: str
    ordinary: int

    def encode(self, text: str) -> list[int]:
        """Token ids of ordinary text."""

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """The same for many texts, on all cores if the library supports it."""

    def count(self, text: str) -> int:
        return len(self.encode(text))

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self.encode_many(texts)]

    def cut_many(self, texts: Sequence[str], wanted: Sequence[int]) -> Cut:
        """Cut *texts* with more than *wanted* tokens to that many."""
        return cut_many(self, texts, wanted)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of *ids*; bytes that are not UTF-8 become U+FFFD."""

    def decode_many(self, many: Sequence[Sequence[int]]) -> list[str]:
        return [self.decode(ids) for ids in many]

    def vocabulary(self) -> list[bytes]:
        """The bytes of every ordinary token, by id; b"" for an id without a token."""

    def facts(self) -> TokenizerFacts:
        """As IETF 4.4.1 requires: name, source, version, size of the vocabulary with special tokens."""


@dataclass(frozen=True)
class Cut:
    """*texts* after the cut, and the token counts of each: *counts* after it, *before* it."""

    texts: list[str]
    counts: list[int]
    before: list[int]


def cut_many(encoding: Tokenizer, texts: Sequence[str], wanted: Sequence[int]) -> Cut:
    """Cut *texts* with more than *wanted* tokens to that many; for any tokenizer."""
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
    """Where texts of a byte-level vocabulary can be split: between an ASCII letter or digit and a space. In a
    pre-tokenizer of such a vocabulary no pattern matches a space after anything but white space, and none reads further
    ahead. The tokens' bytes must equal the text's.
    """

    def __init__(self, vocabulary: Sequence[bytes]) -> None:
        self._sizes = np.array([len(token) for token in vocabulary], np.int64)
        self._begins = np.array([token[:1] == b" " for token in vocabulary], np.bool_)
        self._ends = np.array([bool(token) and token[-1] in ALNUM for token in vocabulary], np.bool_)

    def cut_many(self, encoding: Tokenizer, texts: Sequence[str], wanted: Sequence[int], ids: Ids, ends: Any) -> Cut:
        """As `cut_many`; *ids* are the concatenated tokens of all *texts*, those of text k end at ends[k + 1]."""
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._sizes[ids])])
        split = np.zeros(len(ids), np.bool_)
        split[1:] = self._begins[ids[1:]] & self._ends[ids[:-1]]
        splits = np.flatnonzero(split)
        found = list(texts)
        before = np.diff(ends).tolist()
        counts = list(before)
        long = [at for at, have in enumerate(before) if have > wanted[at]]
        tails, kept = [], []
        for at in long:
            first, last = int(ends[at]), int(ends[at]) + wanted[at]
            raw = texts[at].encode()
            size = int(offsets[last] - offsets[first])
            near = int(np.searchsorted(splits, last)) - 1
            seam = max(first, int(splits[near])) if near >= 0 else first
            found[at] = raw[:size].decode(errors="replace")
            tails.append(raw[int(offsets[seam] - offsets[first]) : size].decode(errors="replace"))
            kept.append(seam - first)
        for at, head, count in zip(long, kept, encoding.count_many(tails), strict=True):
            counts[at] = head + count
        return Cut(found, counts, before)


def filler_words(tokens: int) -> str:
    """*tokens* words that are one token each in every vocabulary with English."""
    return " the" * tokens


def fit_many(
    tokenizer: Tokenizer, texts: Sequence[str], wanted: Sequence[int], filler: Filler = filler_words
) -> tuple[list[str], list[int]]:
    """*texts* with *wanted* tokens each, as far as ROUNDS suffice, and the count of each."""
    cut = tokenizer.cut_many(texts, wanted)
    fitted, counts = cut.texts, cut.counts
    short = [at for at, before in enumerate(cut.before) if before < wanted[at]]
    _fill(tokenizer, fitted, counts, wanted, short, filler)
    for _ in range(ROUNDS - 1):
        wrong = [at for at, count in enumerate(counts) if count != wanted[at]]
        if not wrong:
            break
        encoded = tokenizer.encode_many([fitted[at] for at in wrong])
        for at, ids in zip(wrong, encoded, strict=True):
            if len(ids) > wanted[at]:
                fitted[at] = tokenizer.decode(ids[: wanted[at]])
            else:
                fitted[at] += filler(wanted[at] - len(ids))
        for at, count in zip(wrong, tokenizer.count_many([fitted[at] for at in wrong]), strict=True):
            counts[at] = count
    return fitted, counts


def _fill(
    tokenizer: Tokenizer,
    texts: list[str],
    counts: list[int],
    wanted: Sequence[int],
    short: list[int],
    filler: Filler,
) -> None:
    for at in short:
        texts[at] += filler(wanted[at] - counts[at])
    for at, count in zip(short, tokenizer.count_many([texts[at] for at in short]), strict=True):
        counts[at] = count


def fit(tokenizer: Tokenizer | None, text: str, tokens: int) -> str:
    """*text* with *tokens* tokens; with that many words if *tokenizer* is None."""
    if tokenizer is None:
        words = text.split(" ")
        return " ".join(words[:tokens] + ["the"] * (tokens - len(words)))
    return fit_many(tokenizer, [text], [tokens])[0][0]
