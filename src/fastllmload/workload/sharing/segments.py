"""What the prompts of a graph consist of: segments of text, which are shared where the trace says so.

A segment is a block of the trace, or text that begins with one call: what only its prompt adds, or a planned reply to it. A
prompt that continues a conversation has that prompt, its planned reply, and what the call adds. Where a trace says how many
leading tokens a prompt has in common with an earlier one (`prefix_tokens`), that is the prompt before it of its agent; for
the first one of an agent the latest of its parent, or the longest first prompt of an earlier agent of the same model.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from fastllmload.workload.graph import UNKNOWN, CallGraph, Numbers, gathered, occurrences, renumbered

Prompt = list[tuple[int, int]]  # segments, and the tokens that it has of each


@dataclass(frozen=True)
class Segments:
    """Prompt i has the segments `number[first[i]:first[i + 1]]`, and of each the first *used* tokens; a segment has *size*
    tokens at least. All int64. The first *blocks* numbers are blocks of the trace. *missing*: tokens of `prefix_tokens` that
    no earlier prompt has: replies of the recorded server, or prompts before the trace.
    """

    first: Numbers
    number: Numbers
    used: Numbers
    size: Numbers
    blocks: int = 0
    missing: int = 0

    @property
    def prompts(self) -> int:
        return len(self.first) - 1

    def taken(self, prompts: Numbers) -> Segments:
        """Those of the *prompts*, in that order."""
        place, first = gathered(self.first, prompts)
        return Segments(first, self.number[place], self.used[place], self.size, self.blocks)

    def of_rounds(self, prompts: Numbers, rounds: Numbers) -> Segments:
        """Those of the *prompts*, in that order; what is in two *rounds* is another text in each."""
        found, many = self.taken(prompts), int(rounds.max(initial=0)) + 1
        number = found.number + np.repeat(rounds, np.diff(found.first)) * len(self.size)
        return Segments(found.first, number, found.used, np.tile(self.size, many))

    def tokens(self) -> Numbers:
        """Length of each prompt."""
        total = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.used)])
        return np.diff(total[self.first])


def segments_of(graph: CallGraph, calls: int) -> Segments:
    """The prompts of the first *calls* of *graph*, complete sessions."""
    if (graph.context[:calls] != UNKNOWN).any() or (graph.block is None and graph.prefix_tokens is not None):
        return _Listed(graph).segments(calls)
    tokens = graph.input[:calls]
    block = np.zeros(0, np.int64) if graph.block is None else graph.block[: int(graph.first_block[calls])]
    first_block = np.zeros(calls + 1, np.int64) if graph.block is None else graph.first_block[: calls + 1]
    many = np.diff(first_block)
    covered = many * graph.block_tokens
    rest = np.maximum(tokens - covered, 0)
    own = rest > 0
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(many + own)])
    number = np.empty(int(first[-1]), np.int64)
    used = np.full(len(number), graph.block_tokens, np.int64)
    is_block = np.ones(len(number), np.bool_)
    is_block[first[1:][own] - 1] = False
    blocks = block_count(graph)
    number[is_block] = block
    number[~is_block] = blocks + np.flatnonzero(own)
    used[~is_block] = rest[own]
    partly = (covered > tokens) & (many > 0)
    used[first[1:][partly] - 1] -= (covered - tokens)[partly]
    size = np.concatenate([np.full(blocks, graph.block_tokens, np.int64), rest])
    return Segments(first, number, used, size, blocks)


def block_count(graph: CallGraph) -> int:
    """Number of different blocks."""
    return 0 if graph.block is None else int(graph.block.max(initial=-1)) + 1


class _Listed:
    """Prompts one after the other, for graphs in which one is made from another. A block that opens a prompt is another
    segment than inside of one, as it is written in another way. Of call c segment 2c after the blocks is its own text, and
    2c + 1 the planned reply to it.
    """

    def __init__(self, graph: CallGraph) -> None:
        self._graph, self._blocks = graph, 2 * block_count(graph)
        self._size = np.concatenate(
            [np.full(self._blocks, graph.block_tokens, np.int64), np.zeros(2 * len(graph), np.int64)]
        )
        self._prompts: list[Prompt] = []
        self._latest: dict[int, int] = {}  # call of each chain of the session
        self._firsts: dict[tuple[int, str | None], int] = {}  # the longest first prompt of each model and copy
        self._missing = 0

    def segments(self, calls: int) -> Segments:
        graph = self._graph
        copy = occurrences(renumbered(np.unique(graph.session_id, return_inverse=True)[1]))
        for session, (low, high) in enumerate(pairwise(graph.first_call.tolist())):
            self._latest.clear()
            for call in range(low, min(high, calls)):
                self._prompts.append(self._prompt(call, int(copy[session])))
                self._latest[int(graph.chain[call])] = call
        first = np.cumsum([0, *(len(prompt) for prompt in self._prompts)])
        flat = np.fromiter(
            chain.from_iterable(chain.from_iterable(self._prompts)), np.int64, 2 * int(first[-1])
        ).reshape(-1, 2)
        return Segments(first, flat[:, 0].copy(), flat[:, 1].copy(), self._size, self._blocks, self._missing)

    def _prompt(self, call: int, copy: int) -> Prompt:
        graph, context = self._graph, int(self._graph.context[call])
        if context != UNKNOWN:
            kept = self._kept(context, int(graph.kept[call]))
            return kept + self._own(call, int(graph.input[call]), inside=bool(kept))
        if graph.block is None and graph.prefix_tokens is not None:
            return self._grown(call, copy)
        return self._own(call, int(graph.input[call]))

    def _own(self, call: int, tokens: int, inside: bool = False) -> Prompt:
        """The blocks of *call*, and a rest that only it has; *inside*: after other text."""
        found: Prompt = []
        for block in self._graph.blocks_of(call).tolist():
            number = block + self._blocks // 2 if inside or found else block
            found.append((number, min(self._graph.block_tokens, tokens)))
            tokens -= found[-1][1]
        return found + self._new(2 * call, tokens)

    def _new(self, number: int, tokens: int) -> Prompt:
        self._size[self._blocks + number] = tokens
        return [(self._blocks + number, tokens)] if tokens else []

    def _kept(self, context: int, kept: int) -> Prompt:
        """The prompt of *context* and the reply to it, or its first *kept* blocks."""
        prompt = self._prompts[context]
        if kept < 0:
            return prompt + self._new(2 * context + 1, int(self._graph.output[context]))
        if not kept:
            return []
        ends = [place for place, (number, _) in enumerate(prompt, 1) if number < self._blocks]
        return prompt[: ends[kept - 1]] if kept <= len(ends) else prompt

    def _grown(self, call: int, copy: int) -> Prompt:
        graph = self._graph
        assert graph.prefix_tokens is not None
        tokens = int(graph.input[call])
        wanted = min(int(graph.prefix_tokens[call]), tokens)
        group = copy, None if graph.model is None else graph.model[call]
        chain = int(graph.chain[call])
        sources = [self._latest[chain]] if chain in self._latest else []
        if not sources:
            candidates = self._latest.get(int(graph.parent_chain[call])), self._firsts.get(group)
            sources = [one for one in candidates if one is not None]
            longest = self._firsts.setdefault(group, call)
            self._firsts[group] = max(longest, call, key=lambda one: (int(graph.input[one]), -one))
        enough = (one for one in sources if graph.input[one] >= wanted)
        source = next(enough, max(sources, key=lambda one: int(graph.input[one]), default=None))
        prompt = [] if source is None else cut(self._prompts[source], wanted)
        shared = sum(used for _, used in prompt)
        self._missing += wanted - shared
        return prompt + self._new(2 * call, tokens - shared)


def cut(prompt: Prompt, tokens: int) -> Prompt:
    """The first *tokens* of *prompt*."""
    found: Prompt = []
    for number, used in prompt:
        if not tokens:
            break
        found.append((number, min(used, tokens)))
        tokens -= found[-1][1]
    return found


def common_tokens(segments: Segments, group: Numbers, order: npt.NDArray[np.int64]) -> Numbers:
    """Leading tokens of each prompt that one before it in *order* had, within its *group*; 0 for those not in *order*."""
    found = np.zeros(segments.prompts, np.int64)
    ways: dict[tuple[int, int, int], int] = {}  # from where, with how much of which segment: to where
    longest: dict[tuple[int, int], int] = {}  # tokens that were used of a segment from there
    number, used, first = segments.number.tolist(), segments.used.tolist(), segments.first.tolist()
    for call in order.tolist():
        at, same, hit = -1 - int(group[call]), True, 0
        for place in range(first[call], first[call + 1]):
            one, tokens = number[place], used[place]
            known = longest.get((at, one), 0)
            if same:
                hit += min(known, tokens)
            if tokens > known:
                longest[at, one] = tokens
            way = ways.get((at, one, tokens))
            same = same and way is not None
            if way is None:
                way = ways[at, one, tokens] = len(ways)
            at = way
        found[call] = hit
    return found
