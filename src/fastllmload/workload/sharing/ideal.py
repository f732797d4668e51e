"""The hit rate that a prefix cache can reach with a graph's calls, in the order of their starts: stated before sending.

A block hits when an earlier call of the same scope had it and all blocks before it hit. The cache has no end, or *capacity*
blocks: then the least recently used block that no cached block follows is dropped first. A call that continues another one's
conversation finds that call's prompt and, where it is the server's own, the reply to it; its own blocks are new.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fastllmload.workload.graph import SCOPES, UNKNOWN, CallGraph, Numbers
from fastllmload.workload.paths import due_and_end
from fastllmload.workload.sharing.histories import entire_histories
from fastllmload.workload.sharing.segments import Segments, common_tokens, segments_of


@dataclass(frozen=True, eq=False)
class IdealHits:
    """For each call: *blocks* and *tokens* of its prompt, and which of these hit; *whole_tokens* in full blocks only.

    *blocks* is 0 where a trace has prefix lengths and no ids.
    """

    blocks: Numbers
    hit_blocks: Numbers
    tokens: Numbers
    hit_tokens: Numbers
    whole_tokens: Numbers
    scope: str
    capacity: int | None

    def of(self, calls: Numbers) -> IdealHits:
        """Of these *calls* alone."""
        return replace(
            self,
            blocks=self.blocks[calls],
            hit_blocks=self.hit_blocks[calls],
            tokens=self.tokens[calls],
            hit_tokens=self.hit_tokens[calls],
            whole_tokens=self.whole_tokens[calls],
        )

    def block_rate(self) -> float | None:
        return _share(self.hit_blocks, self.blocks)

    def token_rate(self) -> float | None:
        return _share(self.hit_tokens, self.tokens)

    def whole_rate(self) -> float | None:
        return _share(self.whole_tokens, self.tokens)


def _share(part: Numbers, whole: Numbers) -> float | None:
    total = int(whole.sum())
    return int(part.sum()) / total if total else None


def ideal_hits(
    graph: CallGraph, scope: str | None = None, capacity: int | None = None, order: Numbers | None = None,
    planned: bool = False, segments: Segments | None = None,
) -> IdealHits | None:  # fmt: skip
    """None where the trace does not say what its prompts share; and with *capacity*, where something else than blocks does.

    *scope*: within which calls share a cache, one of SCOPES; None: as the graph says. *capacity* None: without end. *order*:
    the calls that are sent; None: all, when they are due. *planned*: replies in a conversation are planned text, which no
    server has generated; else they are the server's, which is taken to keep them in its cache. *segments* of the prompts, if
    they are known.
    """
    scope = graph.scope if scope is None else scope
    if scope not in SCOPES:
        raise ValueError(scope)
    adds = graph.context != UNKNOWN
    if graph.block is None and graph.prefix_tokens is None and not (adds.any() and graph.input.all()):
        return None
    if capacity is not None and (adds.any() or graph.block is None):
        return None
    group, order = _group(graph, scope), hit_order(graph) if order is None else order
    blocks = np.diff(graph.first_block)
    if planned if adds.any() else graph.block is None:
        segments = segments_of(graph, len(graph)) if segments is None else segments
        tokens, hit = segments.tokens(), common_tokens(segments, group, order)
        full, size = _in_blocks(segments), max(graph.block_tokens, 1)
        whole = np.minimum(hit, np.maximum(tokens - 1, 0)) // size * size
        return IdealHits(full, np.minimum(hit // size, full), tokens, hit, whole, scope, capacity)
    if (graph.kept[adds] >= 0).any():
        if graph.messages is not None:
            return None
        graph, moved = entire_histories(graph)
        adds, blocks = graph.context != UNKNOWN, np.diff(graph.first_block)
    else:
        moved = np.zeros(len(graph), np.int64)
    hits, size = np.zeros(len(graph), np.int64), max(graph.block_tokens, 1)
    if graph.block is not None:
        hits = _endless(graph, group, order) if capacity is None else _bounded(graph, group, order, capacity)
    tokens = graph.input.copy()
    hit, whole = np.minimum(hits * size, tokens), _whole(hits, tokens, size)
    for call in np.flatnonzero(
        adds
    ).tolist():  # the server has all that was said, and what was kept of the call after it
        of, repeated = int(graph.context[call]), int(moved[call])
        found = int(tokens[of] + graph.output[of]) + repeated
        tokens[call] += found - repeated
        hits[call], blocks[call] = blocks[of] + repeated // size, blocks[call] + blocks[of]
        hit[call], whole[call] = found, found // size * size
    return IdealHits(blocks, hits, tokens, hit, whole, scope, capacity)


def _whole(hits: Numbers, tokens: Numbers, size: int) -> Numbers:
    """Tokens of the *hits* in full blocks, without the last token of a prompt, which a server computes in any case."""
    found: Numbers = np.minimum(hits, np.maximum(tokens - 1, 0) // size) * size
    return found


def _in_blocks(segments: Segments) -> Numbers:
    """Number of the blocks of a trace that each prompt has."""
    total = np.concatenate([np.zeros(1, np.int64), np.cumsum(segments.number < segments.blocks)])
    return np.diff(total[segments.first])


def _group(graph: CallGraph, scope: str) -> Numbers:
    """A number of each call's scope."""
    if scope == "file":
        return np.zeros(len(graph), np.int64)
    session = graph.session_of()
    return session if scope == "session" else session * (int(graph.chain.max()) + 1) + graph.chain


def _endless(graph: CallGraph, group: Numbers, order: Numbers) -> Numbers:
    """Number of leading blocks of each call that earlier calls of its group have."""
    assert graph.block is not None
    hits = np.zeros(len(graph), np.int64)
    seen = np.full(int(graph.block.max(initial=-1)) + 1, -1, np.int64)  # the last group that had the block
    for call in order[np.argsort(group[order], kind="stable")].tolist():
        if graph.context[call] != UNKNOWN:
            continue
        own = graph.blocks_of(call)
        known = seen[own] == group[call]
        hits[call] = len(own) if known.all() else int(known.argmin())
        seen[own] = group[call]
    return hits


def _bounded(graph: CallGraph, group: Numbers, order: Numbers, capacity: int) -> Numbers:
    """The same with a cache of *capacity* blocks for all groups. A block is used when those before it are, and so it is
    never used later than they are: the least recently used block, the last of a prompt first, has none after it.
    """
    assert graph.block is not None
    hits = np.zeros(len(graph), np.int64)
    cached: OrderedDict[int, None] = OrderedDict()
    stride = int(graph.block.max(initial=-1)) + 1
    for call in order.tolist():
        own: list[int] = (graph.blocks_of(call) + int(group[call]) * stride).tolist()
        hits[call] = next((number for number, one in enumerate(own) if one not in cached), len(own))
        for one in reversed(own):
            cached[one] = None
            cached.move_to_end(one)
        while len(cached) > capacity:
            cached.popitem(last=False)
    return hits


def hit_order(graph: CallGraph) -> npt.NDArray[np.int64]:
    """Calls in the order in which `ideal_hits` counts them."""
    return np.argsort(due_and_end(graph, absolute=True)[0], kind="stable")
