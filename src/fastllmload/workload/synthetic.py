"""Synthetic prompts: lengths and content drawn from one stream, in the order of IETF A.1.4.

Per request: the input length, the output length, then one number per prompt token, all from the workload's stream.
With `uniform:128,512` and `uniform:64,256` this is the draft's pseudocode, draw for draw. Every prompt is unique from its
first token on (16 drawn words agree by chance once in 10^60), so no prefix cache can hit; prompts have shared prefixes
only when they are requested.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fastllmload._ext.plan.mersenne import Mersenne
from fastllmload.workload.lengths import Lengths, RandomStream

BATCH_TOKENS = 1 << 17  # drawn numbers of one batch, which is stitched and hashed while it is in the CPU cache


SALT_STRIDE = 1_009  # numbers between two salts: more than have the same word (`content.words`)


@dataclass(frozen=True)
class Quota:
    """When a sequence is long enough: both *requests* and *output_tokens* are reached, or *input_tokens* is.

    *input_tokens* bounds the memory and disk that a plan takes, but never to fewer than *at_least* requests. *at_most*
    requests are always enough.
    """

    requests: int
    output_tokens: int = 0
    input_tokens: int | None = None
    at_least: int = 0
    at_most: int | None = None

    def met(self, requests: int, output_tokens: int, input_tokens: int) -> bool:
        if self.at_most is not None and requests >= self.at_most:
            return True
        if requests >= self.requests and output_tokens >= self.output_tokens:
            return True
        return self.input_tokens is not None and requests >= self.at_least and input_tokens >= self.input_tokens


@dataclass(frozen=True)
class Batch:
    """Consecutive requests: *drawn* uint32 numbers of all prompts; *prompt*, *output* int32 tokens per
    request; *kind* uint16 number of its class; *shared* int32 tokens of each prompt that other prompts have too.
    """

    drawn: npt.NDArray[np.uint32]
    prompt: npt.NDArray[np.int32]
    output: npt.NDArray[np.int32]
    kind: npt.NDArray[np.uint16] | None = None  # None: all are of class 0
    shared: npt.NDArray[np.int32] | None = None  # None: none are

    def first(self, count: int) -> Batch:
        prompt = self.prompt[:count]
        kind = None if self.kind is None else self.kind[:count]
        return Batch(self.drawn[: int(prompt.sum())], prompt, self.output[:count], kind)

    def marks(self) -> tuple[list[int], list[int]]:
        """Class and shared tokens of each request."""
        none = [0] * len(self.prompt)
        return (
            none if self.kind is None else self.kind.tolist(),
            none if self.shared is None else self.shared.tolist(),
        )

    def prompts(self) -> Iterator[npt.NDArray[np.uint32]]:
        at = 0
        for size in self.prompt.tolist():
            yield self.drawn[at : at + size]
            at += size


def salted(batches: Iterator[Batch], salt: int, span: int) -> Iterator[Batch]:
    """*batches* with other numbers below *span* for another *salt*: no two salts give prompts that begin alike."""
    shift = np.uint32(salt * SALT_STRIDE % span)
    for batch in batches:
        yield batch if salt == 0 else replace(batch, drawn=(batch.drawn + shift) % np.uint32(span))


class Shape(Protocol):
    """Source of the lengths and classes of successive requests."""

    def draw(self, stream: RandomStream) -> tuple[int, int, int]:
        """Input tokens, output tokens and class of the next request."""


@dataclass(frozen=True)
class Independent:
    """Input length, then output length; one class."""

    isl: Lengths
    osl: Lengths

    def draw(self, stream: RandomStream) -> tuple[int, int, int]:
        return self.isl.draw(stream), self.osl.draw(stream), 0


def zipf(count: int, exponent: float) -> list[float]:
    """Cumulative probabilities of 1 to *count* as k^-exponent. The last is exactly 1."""
    weights = [(k + 1) ** -exponent for k in range(count)]
    total = sum(weights)
    return [*(part / total for part in accumulate(weights[:-1])), 1.0]


def draw_index(cumulative: list[float], u: float) -> int:
    """First k whose cumulative probability is at least *u*."""
    return bisect_left(cumulative, u)


class Prefixes:
    """*count* shared prefixes of *length* tokens below *span*. *share* of the requests start with one of them, chosen
    uniformly or as k^-*exponent*; the others with as many tokens of their own, so that their lengths do not differ.
    `repeated`: tokens of shared prefixes that an earlier request had.
    """

    def __init__(
        self, length: int, count: int, span: int, seed: str, share: float = 1.0, exponent: float = 0.0
    ) -> None:
        self.length = length
        self._span, self._share = span, share
        self._tokens = np.empty((count, length), dtype=np.uint32)
        Mersenne(f"{seed}/text").below(span, self._tokens.reshape(-1), 0, count * length)
        self._choice = random.Random(seed)
        self._cumulative = zipf(count, exponent) if exponent else None
        self._own = Mersenne(f"{seed}/own")
        self._used: set[int] = set()
        self.repeated = 0

    def next(self) -> tuple[npt.NDArray[np.uint32], int]:
        """The prefix of the next request, and how many of its tokens are shared: all or none."""
        if self._share < 1.0 and self._choice.random() >= self._share:
            own = np.empty(self.length, dtype=np.uint32)
            self._own.below(self._span, own, 0, self.length)
            return own, 0
        if self._cumulative is None:
            number = self._choice.randrange(len(self._tokens))
        else:
            number = draw_index(self._cumulative, self._choice.random())
        self.repeated += self.length if number in self._used else 0
        self._used.add(number)
        found: npt.NDArray[np.uint32] = self._tokens[number]
        return found, self.length


class Synthetic:
    """Requests without end. *prefixes* are added to the drawn input length, of which *fixed* tokens are a fixed text."""

    def __init__(
        self, shape: Shape, span: int, seed: int | str, prefixes: Prefixes | None = None, fixed: int = 0
    ) -> None:
        self._shape = shape
        self._fixed = fixed
        self._span = span
        self._stream = Mersenne(seed)
        self._prefixes = prefixes

    def batches(self, quota: Quota) -> Iterator[Batch]:
        """The first requests of the sequence until *quota* is met; a batch has at least one."""
        requests = output_tokens = input_tokens = 0
        while not quota.met(requests, output_tokens, input_tokens):
            drawn = np.empty(BATCH_TOKENS, dtype=np.uint32)
            prompt: list[int] = []
            output: list[int] = []
            kinds: list[int] = []
            shared: list[int] = []
            used = 0
            while used < BATCH_TOKENS and not quota.met(requests, output_tokens, input_tokens):
                size, answer, kind = self._shape.draw(self._stream)
                drawn, taken, common = self._fill(drawn, used, max(1, size - self._fixed))
                used += taken
                prompt.append(taken)
                output.append(answer)
                kinds.append(kind)
                shared.append(common)
                requests += 1
                output_tokens += answer
                input_tokens += taken + self._fixed
            yield Batch(
                drawn[:used], np.array(prompt, np.int32), np.array(output, np.int32), np.array(kinds, np.uint16),
                None if self._prefixes is None else np.array(shared, np.int32),
            )  # fmt: skip

    def _fill(self, drawn: npt.NDArray[np.uint32], at: int, size: int) -> tuple[npt.NDArray[np.uint32], int, int]:
        """Draw one prompt into drawn[at:], enlarged when too small; returns it, the prompt's tokens, and those shared."""
        prefix = 0 if self._prefixes is None else self._prefixes.length
        shared = 0
        if at + prefix + size > len(drawn):
            drawn = np.concatenate((drawn[:at], np.empty(prefix + size, dtype=np.uint32)))
        if self._prefixes is not None:
            drawn[at : at + prefix], shared = self._prefixes.next()
        self._stream.below(self._span, drawn, at + prefix, at + prefix + size)
        return drawn, prefix + size, shared
