"""What prompts of messages have in common: segments of their text, in tokens of a tokenizer.

A prompt begins with its model and its definitions of tools, which are not counted. Two messages of one role are shared up
to the first token that differs; what follows a message is shared if all of it is the same. A planned reply is new text.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import msgspec
import numpy as np

from fastllmload.workload.calls import After, TracedCall, build_graph
from fastllmload.workload.graph import UNKNOWN, CallGraph, Message, Numbers, gathered
from fastllmload.workload.request import texts
from fastllmload.workload.sharing.ideal import IdealHits
from fastllmload.workload.sharing.segments import Prompt, Segments, common_tokens
from fastllmload.workload.tokenizers.tokenizer import Tokenizer

Tokens = list[int]


@dataclass(frozen=True)
class MessageSegments(Segments):
    """*opens*: segments at which a message begins, of no tokens of the text."""

    opens: frozenset[int] = frozenset()


@dataclass(frozen=True)
class PromptTree:
    """Prompts as paths from the root of a tree: prompt i has the nodes `node[first[i]:first[i + 1]]`, each of *tokens*, and
    of *opens* messages, 0 or 1, that begin there.
    """

    first: Numbers
    node: Numbers
    tokens: Numbers
    opens: Numbers

    def taken(self, prompts: Numbers) -> tuple[Numbers, Numbers]:
        """The nodes of the *prompts*, one after the other, and how many each has."""
        place, first = gathered(self.first, prompts)
        return self.node[place], np.diff(first)


def prompt_tree(segments: MessageSegments) -> PromptTree:
    ways: dict[tuple[int, int], int] = {}  # from where, by which segment: to where
    node, tokens, opens = np.empty(len(segments.number), np.int64), list[int](), list[int]()
    for low, high in pairwise(segments.first.tolist()):
        at = UNKNOWN
        for place in range(low, high):
            one = int(segments.number[place])
            at = ways.setdefault((at, one), len(ways))
            if at == len(tokens):
                tokens.append(int(segments.used[place]))
                opens.append(int(one in segments.opens))
            node[place] = at
    return PromptTree(segments.first, node, np.array(tokens, np.int64), np.array(opens, np.int64))


def message_segments(graph: CallGraph, call: Numbers, tokenizer: Tokenizer) -> MessageSegments:
    """The prompts of the calls *call* of *graph*, complete sessions in its order, maybe some of them again; calls continue
    all of a conversation or none (`entire_histories`). A call without messages is text of its own.
    """
    return _Messages(graph, call.tolist(), tokenizer).segments()


class _Messages:
    def __init__(self, graph: CallGraph, calls: list[int], tokenizer: Tokenizer) -> None:
        self._graph, self._calls = graph, calls
        self._numbers: dict[Hashable, int] = {}
        self._size: list[int] = []
        self._opens: set[int] = set()
        self._paths = self._shared(tokenizer)
        self._prompts: list[Prompt] = []

    def segments(self) -> MessageSegments:
        for place, call in enumerate(self._calls):
            self._prompts.append([*self._before(place, call), *self._own(place, call)])
        first = np.cumsum([0, *(len(prompt) for prompt in self._prompts)])
        flat = np.fromiter(
            chain.from_iterable(chain.from_iterable(self._prompts)), np.int64, 2 * int(first[-1])
        ).reshape(-1, 2)
        return MessageSegments(
            first, flat[:, 0].copy(), flat[:, 1].copy(), np.array(self._size, np.int64), opens=frozenset(self._opens)
        )

    def _before(self, place: int, call: int) -> Prompt:
        """The conversation that *call* continues, with the reply unless the call has another one in its place."""
        graph, context = self._graph, int(self._graph.context[call])
        if context == UNKNOWN:
            model = None if graph.model is None else graph.model[call]
            tools = None if graph.tools is None else msgspec.json.encode(graph.tools[call])
            return [self._segment(("opening", model, tools), 0)]
        before = place + context - call  # calls of a session are consecutive in both
        own = None if graph.messages is None else graph.messages[call]
        if own and answers(own[0]):
            return self._prompts[before]
        opening = [] if own and own[0].get("role") == "assistant" else [self._begin("assistant")]
        return [*self._prompts[before], *opening, self._segment(("reply", before), int(graph.output[context]))]

    def _own(self, place: int, call: int) -> Prompt:
        graph = self._graph
        messages = None if graph.messages is None else graph.messages[call]
        if messages is None:
            return [self._begin("user"), self._segment(("words", place), max(1, int(graph.input[call])))]
        return list(chain.from_iterable(self._paths[msgspec.json.encode(one)] for one in messages))

    def _begin(self, role: str) -> tuple[int, int]:
        found = self._segment(("begin", role), 0)
        self._opens.add(found[0])
        return found

    def _segment(self, key: Hashable, tokens: int) -> tuple[int, int]:
        number = self._numbers.setdefault(key, len(self._size))
        if number == len(self._size):
            self._size.append(tokens)
        return number, tokens

    def _shared(self, tokenizer: Tokenizer) -> dict[bytes, Prompt]:
        """The segments of each different message, by its JSON."""
        messages = self._graph.messages or []
        used = (one for call in dict.fromkeys(self._calls) for one in messages[call] or ())
        different = {msgspec.json.encode(one): one for one in used}
        by_role: dict[str, list[tuple[Tokens, bytes]]] = {}
        for name, one in different.items():
            tokens = list(chain.from_iterable(map(tokenizer.encode, texts([one]))))
            by_role.setdefault(str(one.get("role")), []).append((tokens, name))
        found: dict[bytes, Prompt] = {}
        for role, several in by_role.items():
            for name, sizes in parts(several).items():
                path = [self._segment((role, begins, at), size) for begins, at, size in sizes]
                found[name] = [self._begin(role), *path, self._segment(("end", name), 0)]
        return found


def answers(message: Message) -> bool:
    """Whether it takes the place of the reply before it: an assistant's with content."""
    return message.get("role") == "assistant" and bool(message.get("content"))


def parts(several: Sequence[tuple[Tokens, bytes]]) -> dict[bytes, list[tuple[bytes, int, int]]]:
    """The tokens of each text in parts, by its name: (name of one that has the part, where it begins, its length). Texts
    that begin alike have the same parts up to the first token that differs.
    """
    ordered = sorted(several)
    found: dict[bytes, list[tuple[bytes, int, int]]] = {name: [] for _, name in ordered}
    left = [(0, len(ordered), 0)]
    while left:
        low, high, at = left.pop()
        common = alike(ordered[low][0], ordered[high - 1][0], at)
        if common:
            for _, name in ordered[low:high]:
                found[name].append((ordered[low][1], at, common))
        at += common
        while low < high and len(ordered[low][0]) == at:
            low += 1
        while low < high:
            next_one = ordered[low][0][at]
            end = low + 1
            while end < high and ordered[end][0][at] == next_one:
                end += 1
            left.append((low, end, at))
            low = end
    return found


def alike(one: Tokens, other: Tokens, at: int) -> int:
    """Number of tokens from *at* that both have."""
    most = min(len(one), len(other))
    return next((place for place in range(at, most) if one[place] != other[place]), most) - at


def message_hits(
    graph: CallGraph,
    call: Numbers,
    order: Numbers,
    segments: MessageSegments,
    planned: bool,
    capacity: int | None = None,
) -> IdealHits:
    """Of the calls *call*, which have *segments*, in the *order* of these positions. *planned*: replies are text of the
    plan; else the server's, which is taken to keep them in its cache. *capacity*: of the cache in tokens; None: without end.
    """
    tokens = segments.tokens()
    if capacity is None:
        hit = common_tokens(segments, np.zeros(len(call), np.int64), order)
        hit = hit if planned else conversations_kept(hit, tokens, graph, call)
    else:
        hit = bounded_tokens(segments, order, capacity)
    none = np.zeros(len(call), np.int64)
    return IdealHits(none, none, tokens, hit, np.minimum(hit, np.maximum(tokens - 1, 0)), "file", capacity)


@dataclass(frozen=True)
class TurnSaid:
    """One turn of a conversation: its own *messages*, the planned *reply* to the turn before it ("": none, or none known),
    and the tokens of its *output*.
    """

    messages: list[Message]
    reply: str
    output: int


def with_reply(messages: Sequence[Message], reply: str) -> list[Message]:
    """*messages* of a turn after the *reply* to the turn before, which can be in the first of them."""
    if not reply:
        return list(messages)
    first = messages[0] if messages else {}
    if first.get("role") == "assistant":
        return [{**first, "content": reply}, *messages[1:]]
    return [{"role": "assistant", "content": reply}, *messages]


def line_hits(lines: Sequence[Sequence[TurnSaid]], before: int, tokenizer: Tokenizer, planned: bool) -> IdealHits:
    """Of the turns of conversations, of which the first *before* were sent before the others and are not counted; each turn
    continues the one before it. *planned*: with the planned replies, else with the server's.
    """
    calls = []
    for number, line in enumerate(lines):
        for turn, said in enumerate(line):
            messages = with_reply(said.messages, said.reply) if planned else said.messages
            last = f"{number}.{turn - 1}" if turn else None
            calls.append(
                TracedCall(
                    f"{number}.{turn}",
                    "",
                    f"{number}",
                    0,
                    said.output,
                    [After(last)] if last else [],
                    f"{number}",
                    due_ns=None if last else number,
                    messages=messages,
                    context=last,
                )
            )
    graph = build_graph("conversations", "", calls)
    every = np.arange(len(graph))
    order = every[np.lexsort((every, graph.turn, graph.session_of() >= before))]
    return message_hits(graph, every, order, message_segments(graph, every, tokenizer), planned).of(
        every[graph.session_of() >= before]
    )


def bounded_tokens(segments: Segments, order: Numbers, capacity: int) -> Numbers:
    """Leading tokens of each prompt in a cache of *capacity* tokens, which drops the least recently used token that none
    follows; 0 for prompts that are not in *order*. Of each segment a prompt has all.
    """
    found = np.zeros(segments.prompts, np.int64)
    ways: dict[tuple[int, int], int] = {}  # from where, by which segment: to where
    cached: OrderedDict[int, int] = OrderedDict()  # tokens by where they end; the least recently used first
    total = 0
    for call in order.tolist():
        at, same, path = UNKNOWN, True, []
        for place in range(int(segments.first[call]), int(segments.first[call + 1])):
            one, tokens = int(segments.number[place]), int(segments.used[place])
            known = (at, one) in ways
            at = ways.setdefault((at, one), len(ways))
            have = cached.get(at, 0)
            found[call] += have if same else 0
            same = same and known and have == tokens
            path.append((at, tokens))
        for at, tokens in reversed(path):
            total += tokens - cached.get(at, 0)
            cached[at] = tokens
            cached.move_to_end(at)
        while total > capacity:
            oldest, tokens = next(iter(cached.items()))
            dropped = min(tokens, total - capacity)
            total -= dropped
            if dropped == tokens:
                del cached[oldest]
            else:
                cached[oldest] = tokens - dropped
    return found


def conversations_kept(hits: Numbers, tokens: Numbers, graph: CallGraph, call: Numbers) -> Numbers:
    """*hits* of a server that keeps the replies that it generated: a call finds all that was said before it."""
    found = hits.copy()
    for place in np.flatnonzero(graph.context[call] != UNKNOWN).tolist():
        one = int(call[place])
        context = int(graph.context[one])
        own: Any = None if graph.messages is None else graph.messages[one]
        reply = 0 if own and answers(own[0]) else int(graph.output[context])
        found[place] = max(int(found[place]), int(tokens[place + context - one]) + reply)
    return found
