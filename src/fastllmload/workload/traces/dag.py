"""AIPerf's `dag_jsonl`: sessions with real messages that spawn and fork others; delays in ms.

A spawned session begins with its own messages; a later turn of its parent waits for it (`join_at`, else the next turn). A
fork continues the parent's conversation and, unless it is in the background, ends the parent.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fastllmload.workload.calls import After, TracedCall, build_graph, graph_error
from fastllmload.workload.graph import CallGraph, WaitKind
from fastllmload.workload.request import field_error
from fastllmload.workload.traces.trace_file import MILLISECOND, TraceFile, time_ns, tokens


class Spawn(msgspec.Struct, forbid_unknown_fields=True):
    children: list[str]
    join_at: int | None = None


class Fork(msgspec.Struct, forbid_unknown_fields=True):
    child: str
    background: bool = False


class DagTurn(msgspec.Struct, forbid_unknown_fields=True):
    messages: list[dict[str, Any]]
    model: str | None = None
    max_tokens: int | None = None
    tools: list[Any] | None = None
    extra: dict[str, Any] | None = None
    delay: int | float = 0
    spawns: list[str | Spawn] = []
    forks: list[str | Fork] = []


class DagSession(msgspec.Struct, forbid_unknown_fields=True):
    session_id: str
    turns: list[DagTurn]
    pre_session_spawns: list[str] = []


def read(file: TraceFile) -> CallGraph:
    sessions: dict[str, tuple[str, DagSession]] = {}
    for where, session in file.rows(DagSession):
        if session.session_id in sessions:
            first = sessions[session.session_id][0]
            raise graph_error(f"{where}: session_id {session.session_id!r} is also that of {first}; give each its own")
        if not session.turns:
            raise field_error(f"{where}: session {session.session_id!r} has no turns; add one or remove the session")
        sessions[session.session_id] = where, session
    calls = {name: _turns(where, session) for name, (where, session) in sessions.items()}
    parents: dict[str, str] = {}
    for name, (where, session) in sessions.items():
        for child in session.pre_session_spawns:
            _adopt(calls, parents, child, name, where)
            for call in calls[child]:
                call.background = True
            calls[child][0].after = [After(calls[name][0].id, 0, from_start=True)]
        for number, turn in enumerate(session.turns):
            place = f"{where} turn {number}"
            for one in turn.spawns:
                _spawn(calls, parents, Spawn([one]) if isinstance(one, str) else one, name, number, place)
            for fork in turn.forks:
                _fork(calls, parents, Fork(fork) if isinstance(fork, str) else fork, name, number, place)
    for name, turns in calls.items():
        if name not in parents:
            turns[0].due_ns = 0
    notes = ["the file has no instants: each session begins when the load starts it"]
    return build_graph("dag", file.sha256, [call for turns in calls.values() for call in turns], notes=notes)


def _turns(where: str, session: DagSession) -> list[TracedCall]:
    found: list[TracedCall] = []
    for number, turn in enumerate(session.turns):
        place = f"{where} turn {number}"
        if not turn.messages:
            raise field_error(f"{place}: it has no messages; add one")
        answer = 0 if turn.max_tokens is None else tokens(turn.max_tokens, place, "max_tokens")
        call = TracedCall(
            f"{session.session_id}:{number}", place, session.session_id, 0, answer, messages=turn.messages,
            model=turn.model, tools=turn.tools, extra=turn.extra,
        )  # fmt: skip
        call.wait_ns = time_ns(turn.delay, MILLISECOND, place, "delay")
        if found:
            call.after, call.context = [After(found[-1].id)], found[-1].id
        found.append(call)
    return found


def _adopt(calls: dict[str, list[TracedCall]], parents: dict[str, str], child: str, parent: str, where: str) -> None:
    if child not in calls:
        raise graph_error(f"{where}: it starts session {child!r}, which the file does not contain; add it")
    if child in parents:
        raise graph_error(
            f"{where}: session {child!r} is started twice, here and by {parents[child]!r}; copy it under another name"
        )
    parents[child] = parent
    for call in calls[child]:
        call.parent = parent


def _spawn(
    calls: dict[str, list[TracedCall]], parents: dict[str, str], spawn: Spawn, name: str, number: int, where: str
) -> None:
    turns = calls[name]
    join = number + 1 if spawn.join_at is None else spawn.join_at
    if spawn.join_at is not None and not number < join < len(turns):
        raise graph_error(
            f"{where}: join_at is {join}; write the number of a later turn, {number + 1} to {len(turns) - 1}"
            if number + 1 < len(turns)
            else f"{where}: join_at is {join}, but this is the last turn; add a turn or remove join_at"
        )
    for child in spawn.children:
        _adopt(calls, parents, child, name, where)
        first, last = calls[child][0], calls[child][-1]
        first.after, first.wait_kind = [After(turns[number].id)], WaitKind.AGENT
        if join < len(turns):
            turns[join].after = [*turns[join].after, After(last.id)]
            turns[join].wait_kind = WaitKind.AGENT
        for call in calls[child]:
            call.background = join >= len(turns)


def _fork(
    calls: dict[str, list[TracedCall]], parents: dict[str, str], fork: Fork, name: str, number: int, where: str
) -> None:
    turns = calls[name]
    if not fork.background and number + 1 < len(turns):
        raise graph_error(
            f"{where}: the fork {fork.child!r} ends the session, but more turns follow; make it background"
        )
    _adopt(calls, parents, fork.child, name, where)
    first = calls[fork.child][0]
    first.after, first.context, first.wait_kind = [After(turns[number].id)], turns[number].id, WaitKind.AGENT
    for call in calls[fork.child]:
        call.background = fork.background
