"""Calls that keep a part of the conversation that they continue, as after a compaction, or in a branch from its middle.

What is kept is cut after a number of messages or blocks. It ends in what one call of the conversation added, so the call
continues the reply before that with all that was said up to there, and has the rest of what is kept among its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fastllmload.errors import InputError
from fastllmload.workload.graph import UNKNOWN, CallGraph, Message, Numbers


def entire_histories(graph: CallGraph) -> tuple[CallGraph, Numbers]:
    """*graph* with calls that continue all of a conversation or none; and the tokens (of blocks) of what each has in
    addition, N. InputError where a call continues a reply that it does not wait for, or cannot have the rest.
    """
    check_contexts(graph)
    moved = np.zeros(len(graph), np.int64)
    partial = np.flatnonzero((graph.context != UNKNOWN) & (graph.kept >= 0)).tolist()
    if not partial:
        return graph, moved
    parts = {call: _kept_part(graph, call) for call in partial}
    context, tokens = graph.context.copy(), graph.input.copy()
    for call, part in parts.items():
        context[call] = part.continued
        moved[call] = part.tokens
        tokens[call] += part.tokens
    found = replace(graph, context=context, kept=np.full(len(graph), UNKNOWN), input=tokens)
    found = _with_edges(found, [(part.continued, call) for call, part in parts.items() if part.continued != UNKNOWN])
    if graph.messages is not None:
        messages = list(graph.messages)
        for call, part in parts.items():
            own = messages[call]
            assert own is not None
            messages[call] = [*part.messages(), *own]
        return replace(found, messages=messages), moved
    if graph.block is None:
        return found, moved
    own_of = [graph.blocks_of(call) for call in range(len(graph))]
    blocks = [np.append(parts[call].blocks(), own) if call in parts else own for call, own in enumerate(own_of)]
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(one) for one in blocks])])
    return replace(found, block=np.concatenate(blocks).astype(np.int64), first_block=first), moved


def check_contexts(graph: CallGraph) -> None:
    """InputError where a call continues a conversation whose last reply it does not wait for."""
    calls = np.flatnonzero(graph.context != UNKNOWN).tolist()
    ends = ~graph.edge_from_start
    edges = set(zip(graph.edge_from[ends].tolist(), graph.edge_to[ends].tolist(), strict=True)) if calls else set()
    for call in calls:
        if (int(graph.context[call]), call) not in edges:
            raise InputError(
                "call-graph-invalid",
                f"call {graph.call_id[call]} of the trace continues call {graph.call_id[graph.context[call]]}, for whose "
                "reply it does not wait; add that call to those that it waits for",
            )


class _Item(NamedTuple):
    """One message or block of a conversation, or (*reply*) the reply to that call, maybe with a message in its place."""

    reply: int = UNKNOWN
    message: Message | None = None
    block: int = UNKNOWN
    tokens: int = 0


@dataclass(frozen=True)
class _Part:
    """What is kept: all up to the reply to *continued* (UNKNOWN: nothing of that), then these messages or blocks."""

    continued: int
    items: list[_Item]

    @property
    def tokens(self) -> int:
        return sum(one.tokens for one in self.items)

    def messages(self) -> list[Message]:
        return [one.message for one in self.items if one.message is not None]

    def blocks(self) -> Numbers:
        return np.array([one.block for one in self.items], np.int64)


def _kept_part(graph: CallGraph, call: int) -> _Part:
    context = int(graph.context[call])
    found = _cut(graph, call, [*_conversation(graph, context), _Item(context)])
    last = max((place for place, one in enumerate(found) if one.reply != UNKNOWN), default=UNKNOWN)
    items = found[last + 1 :]
    if last >= 0 and found[last].message is not None:
        items.insert(0, found[last])
    if graph.messages is None and any(one.tokens < graph.block_tokens for one in items):
        raise InputError(
            "option-not-applicable",
            f"call {graph.call_id[call]} of the trace keeps a block of less than {graph.block_tokens} tokens, which only a "
            "reply can follow; let it keep fewer blocks, or use --history planned",
        )
    return _Part(UNKNOWN if last < 0 else found[last].reply, items)


def _conversation(graph: CallGraph, call: int) -> list[_Item]:
    """The prompt of *call*."""
    line = [call]
    while (call := int(graph.context[call])) != UNKNOWN:
        line.append(call)
    own_of = _own_of(graph)
    found: list[_Item] = []
    for before, one in pairwise([UNKNOWN, *reversed(line)]):
        own = own_of(graph, one)
        if before == UNKNOWN:
            found = own
        elif graph.kept[one] >= 0:
            found = _cut(graph, one, [*found, _Item(before)]) + own
        elif own and own[0].message is not None and own[0].message.get("role") == "assistant":
            in_place = not own[0].message.get("content")  # of the reply
            found = found + ([_Item(before, own[0].message), *own[1:]] if in_place else own)
        else:
            found = [*found, _Item(before), *own]
    return found


def _cut(graph: CallGraph, call: int, items: list[_Item]) -> list[_Item]:
    """What *call* keeps of *items*. InputError where it keeps more. Replies count among messages, not among blocks."""
    kept, by_block = int(graph.kept[call]), graph.messages is None
    ends = [place for place, one in enumerate(items, 1) if one.block != UNKNOWN or not by_block]
    if kept > len(ends):
        raise InputError(
            "call-graph-invalid",
            f"call {graph.call_id[call]} of the trace keeps {kept} {'blocks' if by_block else 'messages'} of the "
            f"conversation of call {graph.call_id[graph.context[call]]}, which has {len(ends)} with its reply; correct kept",
        )
    return items[: ends[kept - 1]] if kept else []


def _own_of(graph: CallGraph) -> Callable[[CallGraph, int], list[_Item]]:
    return _own_blocks if graph.messages is None else _own_messages


def _own_messages(graph: CallGraph, call: int) -> list[_Item]:
    assert graph.messages is not None
    own = graph.messages[call]
    if own is None:
        raise InputError(
            "option-not-applicable",
            f"call {graph.call_id[call]} of the trace has no messages, but a part of its conversation is kept with those of "
            "others; give all calls messages or none",
        )
    return [_Item(message=one) for one in own]


def _own_blocks(graph: CallGraph, call: int) -> list[_Item]:
    found, left = [], int(graph.input[call])
    for block in graph.blocks_of(call).tolist():
        found.append(_Item(block=block, tokens=min(graph.block_tokens, left)))
        left -= found[-1].tokens
    return [*found, _Item(tokens=left)] if left else found


def _with_edges(graph: CallGraph, pairs: list[tuple[int, int]]) -> CallGraph:
    """*graph* in which the second of each of *pairs* waits for the reply to the first."""
    ends = ~graph.edge_from_start
    known = set(zip(graph.edge_from[ends].tolist(), graph.edge_to[ends].tolist(), strict=True))
    more = np.array(sorted(set(pairs) - known), np.int64).reshape(-1, 2)
    edge_from, edge_to = np.append(graph.edge_from, more[:, 0]), np.append(graph.edge_to, more[:, 1])
    order = np.lexsort((edge_to, edge_from))
    none = np.zeros(len(more), np.int64)
    return replace(
        graph,
        edge_from=edge_from[order],
        edge_to=edge_to[order],
        edge_wait_ns=np.append(graph.edge_wait_ns, none)[order],
        edge_from_start=np.append(graph.edge_from_start, none > 0)[order],
    )
