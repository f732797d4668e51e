"""Synthetic prompts: lengths and content drawn from one stream, in the order of IETF A.1.4.

Per request: the input length, the output length, then as many numbers as the prompt has tokens, all from the
workload's stream. With `uniform:128,512` and `uniform:64,256` that is the draft's own pseudocode, draw for
draw. Every prompt's content is its own from the first token on (16 drawn words agree by chance once in
10^60), so no prefix cache can hit; shared prefixes stand in front only when asked for.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastllmload._ext.mersenne import Mersenne
from fastllmload.workload.lengths import Lengths

BATCH_TOKENS = (
    1 << 17
)  # drawn numbers of one batch: what is drawn, stitched and hashed while it is in the cache


@dataclass(frozen=True)
class Quota:
    """When a sequence is long enough: all of *requests* and *output_tokens* are reached, or *input_tokens*
    is.

    *input_tokens* bounds the memory and disk that a plan takes; it never cuts below *at_least* requests.
    *at_most* requests are enough, whatever they hold.
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
        return (
            self.input_tokens is not None and requests >= self.at_least and input_tokens >= self.input_tokens
        )


@dataclass(frozen=True)
class Batch:
    """Consecutive requests: *drawn* uint32 numbers of all prompts; *prompt*, *output* int32 tokens per
    request.
    """

    drawn: npt.NDArray[np.uint32]
    prompt: npt.NDArray[np.int32]
    output: npt.NDArray[np.int32]


class Prefixes:
    """*count* shared prefixes of *length* tokens below *span*; each request takes one of them, uniformly."""

    def __init__(self, length: int, count: int, span: int, seed: str) -> None:
        self.length = length
        self._tokens = np.empty((count, length), dtype=np.uint32)
        Mersenne(f"{seed}/text").below(span, self._tokens.reshape(-1), 0, count * length)
        self._choice = random.Random(seed)

    def next(self) -> npt.NDArray[np.uint32]:
        chosen: npt.NDArray[np.uint32] = self._tokens[self._choice.randrange(len(self._tokens))]
        return chosen


class Synthetic:
    """An endless sequence of requests; *prefixes* come on top of the drawn input length."""

    def __init__(
        self, isl: Lengths, osl: Lengths, span: int, seed: int | str, prefixes: Prefixes | None = None
    ) -> None:
        self._isl = isl
        self._osl = osl
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
            used = 0
            while used < BATCH_TOKENS and not quota.met(requests, output_tokens, input_tokens):
                drawn, size = self._request(drawn, used, output)
                used += size
                prompt.append(size)
                requests += 1
                output_tokens += output[-1]
                input_tokens += size
            yield Batch(drawn[:used], np.array(prompt, dtype=np.int32), np.array(output, dtype=np.int32))

    def _request(
        self, drawn: npt.NDArray[np.uint32], at: int, output: list[int]
    ) -> tuple[npt.NDArray[np.uint32], int]:
        """Draw one request to drawn[at:], which grows when it is too small; its output length goes to
        *output*.
        """
        size = self._isl.draw(self._stream)
        output.append(self._osl.draw(self._stream))
        shared = 0 if self._prefixes is None else self._prefixes.length
        if at + shared + size > len(drawn):
            drawn = np.concatenate((drawn[:at], np.empty(shared + size, dtype=np.uint32)))
        if self._prefixes is not None:
            drawn[at : at + shared] = self._prefixes.next()
        self._stream.below(self._span, drawn, at + shared, at + shared + size)
        return drawn, shared + size
