"""Dynamo's request traces (`dynamo.request.trace.v1`): ends of requests and of tools, absolute times, 64-bit hashes.

A `session_id` is one agent. Which call waits for which is not recorded: it follows from the times.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import msgspec

from fastllmload.workload.calls import TracedCall, build_graph
from fastllmload.workload.graph import CallGraph, WaitKind
from fastllmload.workload.request import field_error
from fastllmload.workload.sharing.blocks import block_ids
from fastllmload.workload.traces.recorded import RecordedAgent, RecordedSpans, link, overlap_notes
from fastllmload.workload.traces.trace_file import MILLISECOND, TraceFile, time_ns, tokens

SCHEMA = "dynamo.request.trace.v1"


class ReplayFacts(msgspec.Struct):
    trace_block_size: int
    input_length: int
    input_sequence_hashes: list[int]


class Request(msgspec.Struct):
    request_id: str
    request_received_ms: int | float
    output_tokens: int
    input_tokens: int | None = None
    cached_tokens: int | None = None
    total_time_ms: int | float | None = None
    model: str | None = None
    replay: ReplayFacts | None = None


class ToolEvent(msgspec.Struct):
    started_at_unix_ms: int | float
    ended_at_unix_ms: int | float


class Context(msgspec.Struct):
    session_id: str | None = None
    parent_session_id: str | None = None
    trajectory_id: str | None = None


class TraceEvent(msgspec.Struct):
    """Its payloads of other kinds are skipped unread."""

    event_type: str
    schema: str = ""
    agent_context: Context | None = None
    request: Request | None = None
    tool: ToolEvent | None = None


class Envelope(msgspec.Struct):
    event: TraceEvent


def read(file: TraceFile) -> CallGraph:
    agents: dict[str, RecordedAgent] = {}
    parents: dict[str, str] = {}
    tools: defaultdict[str, RecordedSpans] = defaultdict(RecordedSpans)
    left_out: Counter[str] = Counter()
    size = 0
    for where, row in file.rows(Envelope):
        event = row.event
        context = event.agent_context or Context()
        if event.schema != SCHEMA or context.trajectory_id is not None:
            form = f"schema is {event.schema!r}" if event.schema != SCHEMA else "agent_context has a trajectory_id"
            raise field_error(
                f"{where}: {form}, another form of the trace; record it as {SCHEMA} with parent_session_id"
            )
        if event.tool is not None and context.session_id is not None:
            span = (
                time_ns(event.tool.started_at_unix_ms, MILLISECOND, where, "started_at_unix_ms"),
                time_ns(event.tool.ended_at_unix_ms, MILLISECOND, where, "ended_at_unix_ms"),
            )
            tools[context.session_id].append(span)
        if event.request is None or event.event_type != "request_end":
            continue
        found = event.request
        if found.replay is not None:
            if size and found.replay.trace_block_size != size:
                raise field_error(
                    f"{where}: trace_block_size is {found.replay.trace_block_size}, unlike {size} before; split the file"
                )
            size = found.replay.trace_block_size
            if size < 1:
                raise field_error(f"{where}: trace_block_size is {size}; write 1 or more")
        name = found.request_id if context.session_id is None else context.session_id
        agent = agents.setdefault(name, RecordedAgent(name))
        if context.parent_session_id is not None:
            parents[name] = context.parent_session_id
        call = _call(where, name, found)
        if min(call.input, call.output) < 1:
            left_out["without a prompt or an answer"] += 1
        else:
            agent.calls.append(call)
    agents = {name: agent for name, agent in agents.items() if agent.calls}
    notes = _parents(agents, parents)
    rules = link(list(agents.values()))
    calls = [call for agent in agents.values() for call in agent.calls]
    for call in calls:
        if call.after and call.start_ns is not None:
            call.tool_ns = tools[call.chain].inside(call.start_ns - call.wait_ns, call.start_ns)
            if call.tool_ns * 2 >= call.wait_ns > 0:
                call.wait_kind = WaitKind.TOOL
    notes += overlap_notes(rules, sum(call.end_ns is None for call in calls))
    notes.append(f"what waits for what follows from the times: {_counts(rules)}")
    return build_graph(
        "dynamo", file.sha256, calls, block_tokens=size, scope=file.scope or "file", left_out=left_out, notes=notes
    )


def _call(where: str, name: str, found: Request) -> TracedCall:
    prompt = found.input_tokens if found.replay is None else found.replay.input_length
    if prompt is None:
        raise field_error(f"{where}: request {found.request_id!r} has no input_tokens; add it")
    answer = tokens(found.output_tokens, where, "output_tokens")
    call = TracedCall(found.request_id, where, name, tokens(prompt, where, "input_tokens"), answer, model=found.model)
    call.cached = found.cached_tokens
    call.start_ns = time_ns(found.request_received_ms, MILLISECOND, where, "request_received_ms")
    if found.total_time_ms is not None:
        call.end_ns = call.start_ns + time_ns(found.total_time_ms, MILLISECOND, where, "total_time_ms")
    if found.replay is not None:
        call.blocks = block_ids(found.replay.input_sequence_hashes, where)
    return call


def _parents(agents: dict[str, RecordedAgent], parents: dict[str, str]) -> list[str]:
    """Set the parents that the file contains and that had begun; a sentence on the others."""
    lost = 0
    for name, parent in parents.items():
        if name not in agents:
            continue
        known = agents.get(parent)
        if known is None or known is agents[name] or known.first_ns() > agents[name].first_ns():
            lost += 1
        else:
            agents[name].parent = known
    return [f"agents whose parent has no earlier call in the file: {lost}; they start sessions of their own"] * bool(
        lost
    )


def _counts(rules: dict[str, int]) -> str:
    return ", ".join(f"{count} by {rule}" for rule, count in sorted(rules.items())) or "no call waits for another"
