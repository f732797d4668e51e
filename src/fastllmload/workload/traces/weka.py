"""Weka traces (AgentX): sessions with nested sub-agents, times in seconds, ids of full blocks of 64 tokens.

The `t` of a sub-agent's requests counts from its spawn (the format's description) or from the session's start (published
sets): it is the first if its first request is earlier than the spawn. This holds for the whole sub-agent.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import msgspec

from fastllmload.errors import InputError
from fastllmload.workload.calls import TracedCall, build_graph, graph_error
from fastllmload.workload.graph import CallGraph, WaitKind
from fastllmload.workload.request import field_error
from fastllmload.workload.sharing.blocks import block_ids
from fastllmload.workload.traces.recorded import RecordedAgent, link, overlap_notes
from fastllmload.workload.traces.trace_file import SECOND, TraceFile, time_ns, tokens

EMPTY = "without a prompt or an answer"
ROUNDING = 1_000_000  # ns by which a first request may be earlier than its spawn in the same clock


class WekaRequest(msgspec.Struct):
    """A request, or (*type* `subagent`) the place at which a sub-agent was spawned, with its requests."""

    t: int | float
    type: str
    model: str | None = None
    input: int = msgspec.field(name="in", default=0)
    out: int = 0
    hash_ids: list[int] = []
    input_types: list[str] | None = None
    stop: str | None = None
    api_time: int | float | None = None
    think_time: int | float | None = None
    agent_id: str | None = None
    status: str | None = None
    requests: list[WekaRequest] = []


class WekaSession(msgspec.Struct):
    id: str | int
    block_size: int
    requests: list[WekaRequest]
    hash_id_scope: str | None = None


def read(file: TraceFile) -> CallGraph:
    found = _Sessions()
    for where, session in file.objects(WekaSession):
        found.add(where, session)
    if found.scope is None:
        raise InputError("dataset-empty", "the trace contains no session")
    scope = file.scope or found.scope
    notes = overlap_notes(found.rules, found.unended)
    if found.relative:
        notes.append(
            f"sub-agents with times that count from their spawn, not from the session's start: {found.relative}"
        )
    shared = {"chain": "only within one agent", "session": "within one session", "file": "in the whole file"}[scope]
    notes.append(f"equal block ids are equal text {shared}")
    return build_graph(
        "weka", file.sha256, found.calls, block_tokens=found.size, scope=scope, left_out=found.left_out, notes=notes
    )


class _Sessions:
    """The calls of all sessions of a file, and what was assumed."""

    def __init__(self) -> None:
        self.calls: list[TracedCall] = []
        self.size = 0
        self.scope: str | None = None
        self.rules: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.unended = self.relative = 0

    def add(self, where: str, session: WekaSession) -> None:
        if session.hash_id_scope not in (None, "local", "global"):
            raise field_error(f"{where}: hash_id_scope is {session.hash_id_scope!r}; write local or global")
        if session.block_size < 1:
            raise field_error(f"{where}: block_size is {session.block_size}; write 1 or more")
        scope = "file" if session.hash_id_scope == "global" else "session"
        if self.scope is not None and (self.size, self.scope) != (session.block_size, scope):
            name, value = ("block_size", session.block_size) if self.size != session.block_size else (
                "hash_id_scope", session.hash_id_scope)  # fmt: skip
            raise field_error(f"{where}: {name} is {value!r}, unlike that of the sessions before; split the file")
        self.size, self.scope = session.block_size, scope
        main = RecordedAgent(str(session.id))
        agents = [main]
        self._fill(main, session.requests, 0, where, agents, str(session.id))
        self.rules += link(agents)
        for agent in agents:
            for call in agent.calls:
                call.tool_ns = call.wait_ns if call.wait_kind == WaitKind.TOOL else 0
            self.unended += sum(call.end_ns is None for call in agent.calls[:-1])
            self.calls += agent.calls

    def _fill(
        self,
        agent: RecordedAgent,
        requests: list[WekaRequest],
        offset: int,
        where: str,
        agents: list[RecordedAgent],
        session: str,
    ) -> None:
        """Add *requests* to *agent*, and its sub-agents to *agents*. *offset*: ns to add to their times."""
        before: WekaRequest | None = None
        latest = 0
        for number, row in enumerate(requests, 1):
            place = f"{where} request {number}"
            at = offset + time_ns(row.t, SECOND, place, "t")
            if at < latest:
                raise InputError(
                    "trace-unsorted", f"{place}: t is {row.t:g}, earlier than the request before; sort them"
                )
            latest = at
            if row.type == "subagent":
                self._spawn(agent, row, at, place, agents, session)
            elif row.type not in ("s", "n"):
                raise field_error(f"{place}: type is {row.type!r}; write s, n or subagent")
            elif min(tokens(row.input, place, "in"), tokens(row.out, place, "out")) < 1:
                self.left_out[EMPTY] += 1
            else:
                call = self._call(agent, row, at, place, session)
                call.wait_kind = _kind(before, row)
                agent.calls.append(call)
                before = row
        self._ends(agent, requests)

    def _call(self, agent: RecordedAgent, row: WekaRequest, at: int, where: str, session: str) -> TracedCall:
        call = TracedCall(f"{agent.name}:{len(agent.calls)}", where, agent.name, row.input, row.out, session=session)
        call.start_ns, call.model = at, row.model
        if row.api_time is not None:
            call.end_ns = at + time_ns(row.api_time, SECOND, where, "api_time")
        if row.think_time is not None:
            time_ns(row.think_time, SECOND, where, "think_time")
        call.blocks = block_ids(row.hash_ids, where)
        if len(row.hash_ids) * self.size > row.input:
            raise field_error(
                f"{where}: {len(row.hash_ids)} hash_ids of {self.size} tokens are more than its {row.input} tokens fill; "
                "correct hash_ids or in"
            )
        return call

    def _ends(self, agent: RecordedAgent, requests: list[WekaRequest]) -> None:
        """Where an end is not recorded, it follows from the think time of the next request."""
        thought = [row.think_time for row in requests if row.type != "subagent" and min(row.input, row.out) > 0]
        for (before, call), think in zip(pairwise(agent.calls), thought[1:], strict=False):
            if (
                before.end_ns is None
                and think is not None
                and call.start_ns is not None
                and before.start_ns is not None
            ):
                end = call.start_ns - round(think * SECOND)
                before.end_ns = end if end >= before.start_ns else None

    def _spawn(
        self, parent: RecordedAgent, row: WekaRequest, at: int, where: str, agents: list[RecordedAgent], session: str
    ) -> None:
        name = row.agent_id or f"agent_{len(agents)}"
        if not parent.calls:
            raise graph_error(
                f"{where}: sub-agent {name!r} comes before any request of its parent; add the request that spawned it"
            )
        if not row.requests:
            self.left_out["sub-agents without requests"] += 1
            return
        taken = {one.name for one in agents}
        name = full = f"{session}/{name}"
        copies = 1
        while full in taken:
            copies += 1
            full = f"{name}~{copies}"
        child = RecordedAgent(full, parent, joined=row.status != "async_launched")
        relative = time_ns(row.requests[0].t, SECOND, f"{where} request 1", "t") + ROUNDING < at
        self.relative += relative
        agents.append(child)
        self._fill(child, row.requests, at if relative else 0, f"{where} {row.agent_id or name}", agents, session)
        if child.calls and child.first_ns() < parent.first_ns():
            raise graph_error(f"{where}: sub-agent {row.agent_id!r} begins before its parent; correct its t")


def _kind(before: WekaRequest | None, row: WekaRequest) -> WaitKind:
    """A tool ran where its result is sent, a user wrote where only text is; else as the answer before ended."""
    if before is None:
        return WaitKind.UNKNOWN
    if row.input_types:
        return WaitKind.TOOL if "tool_result" in row.input_types else WaitKind.USER
    return {"tool_use": WaitKind.TOOL, "end_turn": WaitKind.USER}.get(before.stop or "", WaitKind.UNKNOWN)
