"""TraceLab: rounds of coding agents with the time of each event, no block ids; children are found by containment.

A round begins at its latest input event (a user's message, a tool's result) and ends at its last output event. A session
that lies within a call of `Task` or `Agent` of another one is its child.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import msgspec
import numpy as np

from fastllmload.workload.calls import TracedCall, build_graph
from fastllmload.workload.graph import CallGraph, WaitKind
from fastllmload.workload.request import field_error
from fastllmload.workload.traces.recorded import RecordedAgent, RecordedSpans, link, overlap_notes
from fastllmload.workload.traces.trace_file import TraceFile, moment_ns, tokens

INPUT, OUTPUT = ("user_message", "tool_result"), ("reasoning", "text", "tool_call")
SPAWNS = ("Task", "Agent")
Owner = tuple[str | None, ...]  # provider, user and project, which parent and child have in common


class TimedEvent(msgspec.Struct):
    event_type: str
    timestamp: str


class RoundTool(msgspec.Struct):
    tool_name: str
    emitted_at: str | None = None
    result_at: str | None = None


class TraceLabRound(msgspec.Struct):
    session_id: str
    input_tokens_total: int
    output_tokens: int
    timing_events: list[TimedEvent]
    tools: list[RoundTool]
    prefix_tokens: int = 0
    model: str | None = None
    provider: str | None = None
    project: str | None = None
    user: str | None = None
    trace_key: str | None = None


@dataclass
class _Spawner:
    """A tool call that may have run an agent, in session *of*."""

    start: int
    end: int
    of: RecordedAgent


def read(file: TraceFile) -> CallGraph:
    agents: dict[str, RecordedAgent] = {}
    tools: defaultdict[str, RecordedSpans] = defaultdict(RecordedSpans)
    spawners: defaultdict[Owner, list[_Spawner]] = defaultdict(list)
    owners: dict[str, Owner] = {}
    seen: set[str] = set()
    left_out: Counter[str] = Counter()
    for where, row in file.rows(TraceLabRound):
        if row.trace_key is not None and row.trace_key in seen:
            left_out["duplicates of a trace_key"] += 1
            continue
        seen.add(row.trace_key or "")
        call = _call(where, row)
        if call is None or min(row.input_tokens_total, row.output_tokens) < 1:
            left_out["without input event" if call is None else "without a prompt or an answer"] += 1
            continue
        agent = agents.setdefault(row.session_id, RecordedAgent(row.session_id))
        owners[row.session_id] = owner = row.provider, row.user, row.project
        call.id = f"{row.session_id}:{len(agent.calls)}"
        agent.calls.append(call)
        for tool in row.tools:
            if tool.emitted_at is not None and tool.result_at is not None:
                span = moment_ns(tool.emitted_at, where, "emitted_at"), moment_ns(tool.result_at, where, "result_at")
                if span[1] < span[0]:
                    left_out["tools whose result is earlier than their call"] += 1
                    continue
                tools[row.session_id].append(span)
                if tool.tool_name in SPAWNS:
                    spawners[owner].append(_Spawner(*span, agent))
    children = _find_parents(agents, spawners, owners)
    rules = link(list(agents.values()))
    calls = [call for agent in agents.values() for call in agent.calls]
    for call in calls:
        if call.after and call.start_ns is not None:
            call.tool_ns = tools[call.chain].inside(call.start_ns - call.wait_ns, call.start_ns)
    notes = ["a service time is that from the latest input event to the last output event; nothing checks it",
             "prefix_tokens, what the recorded cache had, are taken as shared text",
             f"sessions within a {' or '.join(SPAWNS)} call of another one, as its children: {children}"]  # fmt: skip
    notes += overlap_notes(rules, sum(call.end_ns is None for call in calls))
    return build_graph("tracelab", file.sha256, calls, left_out=left_out, notes=notes)


def _call(where: str, row: TraceLabRound) -> TracedCall | None:
    """None where no input event is recorded."""
    given = [(moment_ns(one.timestamp, where, "timestamp"), one.event_type) for one in row.timing_events]
    inputs = [one for one in given if one[1] in INPUT]
    if not inputs:
        return None
    start, kind = max(inputs)
    prompt = tokens(row.input_tokens_total, where, "input_tokens_total")
    if not 0 <= row.prefix_tokens <= prompt:
        raise field_error(f"{where}: prefix_tokens is {row.prefix_tokens}; write 0 to input_tokens_total, {prompt}")
    answer = tokens(row.output_tokens, where, "output_tokens")
    call = TracedCall("", where, row.session_id, prompt, answer, model=row.model, prefix_tokens=row.prefix_tokens)
    call.start_ns = start
    call.end_ns = max((at for at, event in given if event in OUTPUT and at >= start), default=None)
    call.wait_kind = WaitKind.USER if kind == "user_message" else WaitKind.TOOL
    return call


def _find_parents(
    agents: dict[str, RecordedAgent], spawners: dict[Owner, list[_Spawner]],
    owners: dict[str, Owner],
) -> int:  # fmt: skip
    """Set the parent of each agent within a tool call of another one, the shortest such call; returns how many."""
    tables = {}
    for owner, calls in spawners.items():
        calls.sort(key=lambda one: one.start)
        tables[owner] = calls, np.array([one.start for one in calls]), np.array([one.end for one in calls])
    children = 0
    for agent in agents.values():
        if owners[agent.name] not in tables:
            continue
        calls, starts, ends = tables[owners[agent.name]]
        low, high = agent.first_ns(), agent.last_ns()
        around = [calls[at] for at in np.flatnonzero((starts <= low) & (ends >= high)) if calls[at].of is not agent]
        if around:
            agent.parent = min(around, key=lambda one: one.end - one.start).of
            children += 1
    return children
