"""Joins the calls of a trace into sessions, orders and checks them: a format's reader makes one `TracedCall` per request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastllmload.errors import InputError
from fastllmload.workload.dataset import MOST_TOKENS
from fastllmload.workload.graph import UNKNOWN, CallGraph, Message, Numbers, WaitKind
from fastllmload.workload.request import field_error
from fastllmload.workload.sharing.blocks import CheckedBlocks, check_blocks, join_blocks


class After(NamedTuple):
    """A predecessor, by its id. *from_start*: *wait_ns* runs from its due instant, else from its end."""

    call: str
    wait_ns: int = 0
    from_start: bool = False


@dataclass(slots=True, eq=False)
class TracedCall:
    """One request as a reader found it. *where* is its place in the file, for messages.

    *chain* names its agent, uniquely in the file. Calls of one chain, of one *session*, and those that wait for each other
    form a session. *due_ns* is the instant of a call without predecessors, which is due *wait_ns* later; None: its start.
    *tool_ns* is the part of *wait_ns* in which tools ran. *context* is the id of the call whose conversation this one
    continues, of which *kept* leading messages or blocks stay (-1: all). *cached* is what the recorded server said to have
    cached. *parent* is the chain that spawned this one ("": none), and *background* says whether no call waits for it;
    None: both follow from the predecessors.
    """

    id: str
    where: str
    chain: str
    input: int
    output: int
    after: Sequence[After] = ()
    session: str | None = None
    wait_ns: int = 0
    wait_kind: WaitKind = WaitKind.UNKNOWN
    tool_ns: int = 0
    start_ns: int | None = None
    end_ns: int | None = None
    due_ns: int | None = None
    blocks: npt.NDArray[Any] | None = None
    prefix_tokens: int | None = None
    cached: int | None = None
    messages: list[Message] | None = None
    context: str | None = None
    kept: int = -1
    parent: str | None = None
    background: bool | None = None
    model: str | None = None
    tools: list[Any] | None = None
    extra: dict[str, Any] | None = None


def graph_error(text: str) -> InputError:
    """The error for calls that do not form a graph; *text*: where, what is wrong, what to do."""
    return InputError("call-graph-invalid", text)


def build_graph(
    name: str, sha256: str, calls: Sequence[TracedCall], *, block_tokens: int = 0, scope: str = "file",
    left_out: Mapping[str, int] | None = None, notes: Sequence[str] = (), begins: str = "a start or a predecessor",
) -> CallGraph:  # fmt: skip
    """The graph of *calls*, in the order of the file. InputError for cycles, unknown predecessors, and the like.

    *begins*: the fields of the format that say when a call begins, for messages.
    """
    if not calls:
        why = ", ".join(f"{count} {reason}" for reason, count in (left_out or {}).items())
        raise InputError("dataset-empty", f"the trace contains no call{f' ({why})' if why else ''}")
    index = _index(calls)
    after = [
        [(index[one.call], one.wait_ns, one.from_start) for one in _after(call, calls, index, begins)] for call in calls
    ]
    sessions = _order(calls, after)
    order = [call for session in sessions for call in session.calls]
    place = {call: at for at, call in enumerate(order)}
    edges = sorted(
        (place[of], place[call], wait, from_start)
        for session in sessions
        for call in session.calls
        for of, wait, from_start in [*after[call], *session.roots.get(call, ())]
    )
    edge = np.array([one[:3] for one in edges], np.int64).reshape(-1, 3)
    origin = sessions[0].start
    recorded = min(
        (call.start_ns for call in calls if call.start_ns is not None and call.start_ns < origin), default=origin
    )
    first_call = np.cumsum([0, *(len(session.calls) for session in sessions)])
    listed = [calls[call] for call in order]
    chains = _Chains(listed, first_call, edges)
    block, first_block = None, np.zeros(len(listed) + 1, np.int64)
    tokens = np.array([call.input for call in listed], np.int64)
    if any(call.blocks is not None and len(call.blocks) for call in listed):
        lengths = [0 if call.blocks is None else len(call.blocks) for call in listed]
        first_block = np.cumsum([0, *lengths], dtype=np.int64)
        groups = _groups(scope, first_call, chains.number)
        if not 1 <= block_tokens <= MOST_TOKENS:
            raise field_error(f"{calls[0].where}: a block has {block_tokens} tokens; write 1 to {MOST_TOKENS}")
        ids, where = [call.blocks for call in listed], [call.where for call in listed]
        block = join_blocks(ids, first_block, groups, where)
        whole = np.array([call.context is None for call in listed])
        check_blocks(CheckedBlocks(ids, block, first_block, tokens, block_tokens, where), whole)

    def numbers(name: str, dtype: Any = np.int64) -> npt.NDArray[Any]:
        return np.array([getattr(call, name) for call in listed], dtype)

    def instants(name: str) -> Numbers:
        values = (getattr(call, name) for call in listed)
        return np.array([UNKNOWN if value is None else value - recorded for value in values], np.int64)

    def texts(name: str) -> list[Any] | None:
        values = [getattr(call, name) for call in listed]
        return None if all(value is None for value in values) else values

    contexts = (None if call.context is None else place[index[call.context]] for call in listed)
    prefix, cached = texts("prefix_tokens"), texts("cached")
    return CallGraph(
        name, sha256,
        session_id=[session.id for session in sessions],
        start_ns=np.array([session.start - origin for session in sessions], np.int64),
        first_call=first_call,
        call_id=[call.id for call in listed], agent=[call.chain for call in listed],
        wait_ns=np.array([call.wait_ns if call.after else 0 for call in listed], np.int64),
        tool_ns=np.array([min(call.tool_ns, call.wait_ns) if call.after else 0 for call in listed], np.int64),
        wait_kind=np.array([call.wait_kind * bool(call.after) for call in listed], np.uint8),
        input=tokens, output=numbers("output"),
        chain=chains.number, parent_chain=chains.parent, turn=chains.turn, depth=chains.depth,
        background=chains.background,
        start_recorded_ns=instants("start_ns"), end_recorded_ns=instants("end_ns"),
        edge_from=edge[:, 0], edge_to=edge[:, 1], edge_wait_ns=edge[:, 2],
        edge_from_start=np.array([one[3] for one in edges], np.bool_),
        block=block, first_block=first_block, block_tokens=block_tokens, scope=scope,
        prefix_tokens=None if prefix is None else np.array([one or 0 for one in prefix], np.int64),
        cached_tokens=None if cached is None else np.array([UNKNOWN if one is None else one for one in cached], np.int64),
        messages=texts("messages"),
        context=np.array([UNKNOWN if one is None else one for one in contexts], np.int64), kept=numbers("kept"),
        model=texts("model"), tools=texts("tools"), extra=texts("extra"),
        left_out=dict(left_out or {}), notes=tuple(notes),
    )  # fmt: skip


def _index(calls: Sequence[TracedCall]) -> dict[str, int]:
    """Number of each call by its id. InputError for an invalid value or a second call of the same id."""
    index: dict[str, int] = {}
    for number, call in enumerate(calls):
        first = index.setdefault(call.id, number)
        if first != number:
            raise graph_error(
                f"{call.where}: id {call.id!r} is also that of {calls[first].where}; give each call its own"
            )
        if min(call.input, call.output) < (0 if call.messages else 1):
            what = "prompt" if call.input < 1 else "answer"
            raise field_error(f"{call.where}: call {call.id!r} has no tokens in its {what}; leave it out")
        if not (call.id and call.chain):
            raise field_error(f"{call.where}: its {'agent' if call.id else 'call'} has an empty name; write one")
        counts = (
            ("input", call.input),
            ("output", call.output),
            ("prefix_tokens", call.prefix_tokens),
            ("cached", call.cached),
        )
        wrong = next(((what, value) for what, value in counts if not 0 <= (value or 0) <= MOST_TOKENS), None)
        if wrong is not None:
            raise field_error(f"{call.where}: {wrong[0]} is {wrong[1]}, not a number of tokens from 0 to {MOST_TOKENS}")
        if not UNKNOWN <= call.kept <= MOST_TOKENS:
            raise field_error(
                f"{call.where}: kept is {call.kept}; write how many messages or blocks stay, or -1 for all"
            )
        _check_tokens(call)
        shortest = min(call.wait_ns, *(one.wait_ns for one in call.after), 0)
        if shortest < 0:
            raise field_error(f"{call.where}: call {call.id!r} has a wait of {shortest / 1e9:g} s; write 0 s or more")
        if call.end_ns is not None and call.start_ns is not None and call.end_ns < call.start_ns:
            raise field_error(
                f"{call.where}: call {call.id!r} ends {(call.start_ns - call.end_ns) / 1e9:g} s before it starts; "
                "correct its times"
            )
    return index


def _check_tokens(call: TracedCall) -> None:
    """InputError where more tokens are shared than the prompt has, or a part of no conversation is kept."""
    shared = call.prefix_tokens or 0
    if call.context is None and 0 < call.input < shared:
        raise field_error(
            f"{call.where}: prefix_tokens is {shared}, but the prompt has {call.input} tokens; correct one of them"
        )
    if call.context is None and call.kept != UNKNOWN:
        raise field_error(f"{call.where}: kept is {call.kept}, but the call continues no conversation; add context")


def _after(call: TracedCall, calls: Sequence[TracedCall], index: Mapping[str, int], begins: str) -> Sequence[After]:
    """Its predecessors. InputError when one does not exist or is listed twice, except once for its start and once for its
    end, and for a call without a start.
    """
    seen: set[tuple[str, bool]] = set()
    for one in call.after:
        if one.call not in index:
            raise graph_error(
                f"{call.where}: call {call.id!r} waits for {one.call!r}, which the file does not contain; add or remove it"
            )
        if (one.call, one.from_start) in seen:
            raise graph_error(f"{call.where}: call {call.id!r} waits for {one.call!r} twice; name it once")
        seen.add((one.call, one.from_start))
    if call.context is not None and call.context not in index:
        raise graph_error(
            f"{call.where}: call {call.id!r} continues {call.context!r}, which the file does not contain; add or remove it"
        )
    if call.start_ns is not None:
        late = next((one.call for one in call.after if (calls[index[one.call]].start_ns or 0) > call.start_ns), None)
        if late is not None:
            raise InputError(
                "trace-unsorted",
                f"{call.where}: call {call.id!r} starts before {late!r}, for which it waits; correct one of the two times",
            )
    if not call.after and call.due_ns is None and call.start_ns is None:
        raise graph_error(f"{call.where}: call {call.id!r} has neither a start nor a predecessor; add {begins}")
    return call.after


@dataclass(slots=True)
class _Session:
    id: str
    start: int
    calls: list[int]
    roots: dict[int, list[tuple[int, int, bool]]]  # edges from the first call to the other calls without predecessors


def _order(calls: Sequence[TracedCall], after: Sequence[Sequence[tuple[int, int, bool]]]) -> list[_Session]:
    """The sessions by start, their calls by start with predecessors first. InputError for a cycle."""
    root = _components(calls, after)
    left = [len(one) for one in after]
    next_of: list[list[int]] = [[] for _ in calls]
    for call, found in enumerate(after):
        for of, _, _ in found:
            next_of[of].append(call)
    start = [0] * len(calls)

    def place(call: int) -> tuple[int, int]:
        one = calls[call]
        if not after[call]:
            start[call] = (one.start_ns or 0) if one.due_ns is None else one.due_ns + one.wait_ns
        elif one.start_ns is not None:
            start[call] = one.start_ns
        else:
            ends = (
                (start[of] if from_start else _end(calls[of], start[of])) + wait for of, wait, from_start in after[call]
            )
            start[call] = max(ends) + one.wait_ns
        return start[call], call

    ready = [place(call) for call, waits in enumerate(left) if not waits]
    heapify(ready)
    members: dict[int, list[int]] = {}
    placed = 0
    while ready:
        _, call = heappop(ready)
        placed += 1
        members.setdefault(root[call], []).append(call)
        for one in next_of[call]:
            left[one] -= 1
            if not left[one]:
                heappush(ready, place(one))
    if placed < len(calls):
        raise _cycle(calls, after, left)
    sessions: list[_Session] = []
    for members_of in members.values():
        first, *others = members_of
        roots = {one: [(first, max(0, start[one] - start[first]), True)] for one in others if not after[one]}
        named = next((name for one in members_of if (name := calls[one].session) is not None), None)
        sessions.append(_Session(calls[first].chain if named is None else named, start[first], members_of, roots))
    sessions.sort(key=lambda one: (one.start, one.calls[0]))
    times: Counter[str] = Counter()
    for session in sessions:
        times[session.id] += 1
        if times[session.id] > 1:  # one is named by its agent
            session.id = f"{session.id}~{times[session.id]}"
    return sessions


def _end(call: TracedCall, start: int) -> int:
    """When *call* ends if it starts at *start*: with its recorded service time, else at once."""
    return start if call.end_ns is None or call.start_ns is None else start + call.end_ns - call.start_ns


def _components(calls: Sequence[TracedCall], after: Sequence[Sequence[tuple[int, int, bool]]]) -> list[int]:
    """One call of its session for each call: those of one chain or session, or with an edge between them, are together."""
    up = list(range(len(calls)))

    def top(call: int) -> int:
        while up[call] != call:
            up[call] = up[up[call]]
            call = up[call]
        return call

    named: dict[tuple[str, str], int] = {}
    for number, call in enumerate(calls):
        joined = [of for of, _, _ in after[number]]
        joined.append(named.setdefault(("chain", call.chain), number))
        if call.session is not None:
            joined.append(named.setdefault(("session", call.session), number))
        for one in joined:
            up[top(one)] = top(number)
    return [top(call) for call in range(len(calls))]


def _cycle(
    calls: Sequence[TracedCall], after: Sequence[Sequence[tuple[int, int, bool]]], left: Sequence[int]
) -> InputError:
    """The error that names one of the cycles among the calls that are *left*."""
    at = next(call for call, waits in enumerate(left) if waits)
    path: list[int] = []
    while at not in path:
        path.append(at)
        at = next(of for of, _, _ in after[at] if left[of])
    loop = path[path.index(at) :]
    names = " -> ".join(repr(calls[one].id) for one in [*loop[:8], loop[0]])
    return graph_error(
        f"{calls[loop[0]].where}: calls wait for each other in a circle, {names}; remove one of these predecessors"
    )


class _Chains:
    """Number, parent, turn, depth and background of each call's chain, for calls in the graph's order."""

    def __init__(
        self, calls: Sequence[TracedCall], first_call: Numbers, edges: Sequence[tuple[int, int, int, bool]]
    ) -> None:
        self.number = np.zeros(len(calls), np.int32)
        self.parent = np.full(len(calls), UNKNOWN, np.int32)
        self.turn = np.zeros(len(calls), np.int32)
        self.depth = np.zeros(len(calls), np.int32)
        self.background = np.zeros(len(calls), np.bool_)
        before: list[list[int]] = [[] for _ in calls]
        for of, to, _, from_start in edges:
            if not from_start:
                before[to].append(of)
        for low, high in pairwise(first_call.tolist()):
            if high - low > 1:
                self._session(calls, low, high, before)

    def _session(self, calls: Sequence[TracedCall], low: int, high: int, before: Sequence[Sequence[int]]) -> None:
        numbers: dict[str, int] = {}
        turns: Counter[int] = Counter()
        firsts: list[int] = []
        stated: list[bool | None] = []
        for at in range(low, high):
            number = numbers.setdefault(calls[at].chain, len(numbers))
            if number == len(firsts):
                firsts.append(at)
                stated.append(None)
            if stated[number] is None:
                stated[number] = calls[at].background
            self.number[at], self.turn[at] = number, turns[number]
            turns[number] += 1
        parents = [UNKNOWN] * len(numbers)
        for number, at in enumerate(firsts[1:], 1):
            named = calls[at].parent
            spawned = (int(self.number[of]) for of in reversed(before[at]) if self.number[of] != number)
            parents[number] = next(spawned, UNKNOWN) if named is None else numbers.get(named, UNKNOWN)
        lines = [_line(number, parents, calls[at].where) for number, at in enumerate(firsts)]
        joined = {
            int(self.number[of])
            for at in range(low, high)
            for of in before[at]
            if int(self.number[of]) not in lines[self.number[at]]
        }
        background = [
            number > 0 and (parents[number] != UNKNOWN and number not in joined if said is None else said)
            for number, said in enumerate(stated)
        ]
        after_background = [any(background[one] for one in line) for line in lines]
        for at in range(low, high):
            number = int(self.number[at])
            self.parent[at], self.depth[at], self.background[at] = (
                parents[number],
                len(lines[number]) - 1,
                after_background[number],
            )


def _line(chain: int, parents: Sequence[int], where: str) -> list[int]:
    """*chain*, its parent, and so on. InputError when a chain is its own ancestor."""
    line = [chain]
    while (parent := parents[line[-1]]) != UNKNOWN:
        if parent in line:
            raise graph_error(f"{where}: its agent is its own ancestor; correct the parents of agents")
        line.append(parent)
    return line


def _groups(scope: str, first_call: Numbers, chain: npt.NDArray[np.int32]) -> list[list[int]]:
    """The calls within which equal block ids mean equal text."""
    if scope == "file":
        return [list(range(int(first_call[-1])))]
    sessions = [list(range(low, high)) for low, high in pairwise(first_call.tolist())]
    if scope == "session":
        return sessions
    return [
        [call for call in session if chain[call] == number]
        for session in sessions
        for number in range(int(chain[session].max()) + 1)
    ]
