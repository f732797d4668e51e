"""Prompts of a trace: its lengths in its order, with text that is shared exactly where its blocks were shared."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fastllmload._ext.plan.mersenne import Mersenne
from fastllmload.workload.synthetic import BATCH_TOKENS, Batch, Quota
from fastllmload.workload.trace import Trace, cached_tokens, shared_tokens

Drawn = npt.NDArray[np.uint32]
BLOCKS_KEPT = 4096  # 8 MiB of the blocks used last


class Replay:
    """The requests of *trace*, repeated without end. `repeated`: tokens so far that an unlimited prefix cache finds."""

    def __init__(self, trace: Trace, span: int, seed: int | str) -> None:
        self._trace = trace
        self._span = span
        self._stream = Mersenne(seed)
        self._shared = shared_tokens(trace)
        self._seen: set[int] = set()
        self.repeated = 0
        self._block = lru_cache(BLOCKS_KEPT)(
            lambda name: self._draw(Mersenne(f"{seed}/block/{name}"), trace.block_tokens)
        )

    def batches(self, quota: Quota) -> Iterator[Batch]:
        """The first requests until *quota* is met; a batch has at least one."""
        requests = output_tokens = input_tokens = 0
        while not quota.met(requests, output_tokens, input_tokens):
            parts: list[Drawn] = []
            prompt: list[int] = []
            output: list[int] = []
            shared: list[int] = []
            used = 0
            while used < BATCH_TOKENS and not quota.met(requests, output_tokens, input_tokens):
                row, round_number = requests % len(self._trace), requests // len(self._trace)
                parts += self._prompt(row, round_number)
                if row == 0:
                    self._seen = set()  # a new round shares nothing with the previous one
                self.repeated += cached_tokens(self._trace, row, self._seen)
                shared.append(int(self._shared[row]))
                prompt.append(int(self._trace.input[row]))
                output.append(int(self._trace.output[row]))
                requests += 1
                used += prompt[-1]
                input_tokens += prompt[-1]
                output_tokens += output[-1]
            yield Batch(
                np.concatenate(parts), np.array(prompt, np.int32), np.array(output, np.int32),
                shared=None if self._trace.block is None else np.array(shared, np.int32),
            )  # fmt: skip

    def _prompt(self, row: int, round_number: int) -> list[Drawn]:
        """Each round has its own blocks, so that a cache that still holds the previous round does not find them."""
        remaining = int(self._trace.input[row])
        blocks = self._trace.blocks_of(row)
        if not blocks:
            return [self._draw(self._stream, remaining)]
        parts = []
        for one in blocks:
            size = min(remaining, self._trace.block_tokens)
            parts.append(self._block(f"{round_number}/{one}" if round_number else str(one))[:size])
            remaining -= size
        return parts

    def _draw(self, stream: Mersenne, size: int) -> Drawn:
        drawn = np.empty(size, np.uint32)
        stream.below(self._span, drawn, 0, size)
        return drawn
