"""Our own format of a graph of calls: JSON lines, one call each, after an optional line about the whole file.

docs/guides/traces.md describes it. `write_graph` writes what `read` reads back unchanged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from fastllmload.errors import InputError
from fastllmload.files import writing
from fastllmload.workload.calls import After, TracedCall, build_graph, graph_error
from fastllmload.workload.graph import SCOPES, UNKNOWN, CallGraph, WaitKind
from fastllmload.workload.request import field_error
from fastllmload.workload.sharing.blocks import block_ids
from fastllmload.workload.traces.trace_file import SECOND, TraceFile, time_ns, tokens

VERSION = 1
KINDS = {kind.name.lower(): kind for kind in WaitKind}


class GraphHead(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """First line. *source*: format of the trace that the graph was read from."""

    fastllmload_graph: int
    source: str = "graph"
    block_tokens: int = 0
    scope: str = "file"
    left_out: dict[str, int] = {}
    notes: list[str] = []


class Edge(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A predecessor with a wait of its own, from its `end` or its `start`, the instant at which it was due."""

    call: str
    wait_s: int | float = 0
    since: str = msgspec.field(name="from", default="end")


class Line(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One call."""

    id: str
    input_tokens: int = 0
    output_tokens: int = 0
    session: str | None = None
    chain: str | None = None
    parent: str | UnsetType | None = UNSET
    after: list[str | Edge] = []
    at_s: int | float | None = None
    wait_s: int | float = 0
    wait_kind: str = "unknown"
    tool_s: int | float = 0
    start_s: int | float | None = None
    end_s: int | float | None = None
    background: bool | None = None
    hash_ids: list[int] | None = None
    block_tokens: int | None = None
    prefix_tokens: int | None = None
    cached_tokens: int | None = None
    messages: list[dict[str, Any]] | None = None
    context: str | None = None
    kept: int = -1
    model: str | None = None
    tools: list[Any] | None = None
    body: dict[str, Any] | None = None


def is_entry(entry: dict[str, Any]) -> bool:
    return "fastllmload_graph" in entry or ("id" in entry and ("input_tokens" in entry or "messages" in entry))


def read(file: TraceFile) -> CallGraph:
    head, has_head = GraphHead(VERSION), "fastllmload_graph" in file.first_object()
    if has_head:
        where, head = file.first(GraphHead) or ("", head)
        if head.fastllmload_graph != VERSION:
            stated = head.fastllmload_graph
            raise InputError("dataset-invalid", f"{where}: fastllmload_graph is {stated}; this program reads {VERSION}")
        if head.scope not in SCOPES:
            raise field_error(f"{where}: scope is {head.scope!r}; write {', '.join(SCOPES)}")
    size = head.block_tokens or file.block_tokens or 0
    calls = []
    for where, line in file.rows(Line, skip=int(has_head)):
        call = _call(where, line)
        if line.hash_ids is not None:
            size = size or line.block_tokens or 0
            if size < 1:
                raise field_error(f"{where}: hash_ids need block_tokens, the tokens of a block; add it")
            if line.block_tokens not in (None, size):
                raise field_error(
                    f"{where}: block_tokens is {line.block_tokens}, unlike {size} before; give all one size"
                )
        calls.append(call)
    _check_sessions(calls)
    scope = file.scope or head.scope
    return build_graph(
        head.source,
        file.sha256,
        calls,
        block_tokens=size,
        scope=scope,
        left_out=head.left_out,
        notes=head.notes,
        begins="at_s or after",
    )


def _check_sessions(calls: Sequence[TracedCall]) -> None:
    """InputError where an agent, or a call and what it waits for, are in two sessions: they would become one."""
    stated = [call for call in calls if call.session is not None]
    of_chain: dict[str, TracedCall] = {}
    of_call = {call.id: call for call in stated}
    for call in stated:
        first = of_chain.setdefault(call.chain, call)
        if first.session != call.session:
            raise graph_error(
                f"{call.where}: agent {call.chain!r} is in session {call.session!r}, and in {first.session!r} at "
                f"{first.where}; give the agents of each session names of their own"
            )
        waits = (of_call[one.call] for one in call.after if one.call in of_call)
        other = next((one for one in waits if one.session != call.session), None)
        if other is not None:
            raise graph_error(
                f"{call.where}: call {call.id!r} of session {call.session!r} waits for {other.id!r} of session "
                f"{other.session!r}; give both one session"
            )


def _call(where: str, line: Line) -> TracedCall:
    chain = line.chain or line.session or line.id
    call = TracedCall(
        line.id, where, chain, tokens(line.input_tokens, where, "input_tokens"),
        tokens(line.output_tokens, where, "output_tokens"), session=line.session,
    )  # fmt: skip
    if line.wait_kind not in KINDS:
        raise field_error(f"{where}: wait_kind is {line.wait_kind!r}; write {', '.join(KINDS)}")
    call.wait_kind = KINDS[line.wait_kind]
    call.wait_ns = time_ns(line.wait_s, SECOND, where, "wait_s")
    call.tool_ns = time_ns(line.tool_s, SECOND, where, "tool_s")
    call.due_ns = None if line.at_s is None else time_ns(line.at_s, SECOND, where, "at_s")
    call.start_ns = None if line.start_s is None else time_ns(line.start_s, SECOND, where, "start_s")
    call.end_ns = None if line.end_s is None else time_ns(line.end_s, SECOND, where, "end_s")
    call.after = [After(one) if isinstance(one, str) else _after(where, one) for one in line.after]
    call.blocks = None if line.hash_ids is None else block_ids(line.hash_ids, where)
    call.parent = None if line.parent is UNSET else line.parent or ""
    call.prefix_tokens, call.cached, call.background = line.prefix_tokens, line.cached_tokens, line.background
    call.messages, call.context, call.kept = line.messages, line.context, line.kept
    call.model, call.tools, call.extra = line.model, line.tools, line.body
    return call


def _after(where: str, edge: Edge) -> After:
    if edge.since not in ("end", "start"):
        raise field_error(f"{where}: from is {edge.since!r}; write end or start")
    return After(edge.call, time_ns(edge.wait_s, SECOND, where, "wait_s"), edge.since == "start")


# -- writing -----------------------------------------------------------------------------------------------------------


def write_graph(graph: CallGraph, path: Path) -> None:
    """Write *graph* in our own format. OSError when *path* cannot be written."""
    encode = msgspec.json.Encoder().encode
    after: defaultdict[int, list[str | Edge]] = defaultdict(list)
    for of, to, wait, from_start in zip(
        graph.edge_from.tolist(), graph.edge_to.tolist(), graph.edge_wait_ns.tolist(), graph.edge_from_start.tolist(),
        strict=True,
    ):  # fmt: skip
        name = graph.call_id[of]
        after[to].append(Edge(name, wait / SECOND, "start" if from_start else "end") if wait or from_start else name)
    head = GraphHead(VERSION, graph.name, graph.block_tokens, graph.scope, dict(graph.left_out), list(graph.notes))
    with writing(path) as file:
        file.write(encode(head) + b"\n")
        for session, (low, high) in enumerate(pairwise(graph.first_call.tolist())):
            names = {int(graph.chain[call]): graph.agent[call] for call in range(low, high)}
            for call in range(low, high):
                line = _line(graph, call, names, after[call])
                line.session = graph.session_id[session]
                if call == low:
                    line.at_s = int(graph.start_ns[session]) / SECOND
                file.write(encode(line) + b"\n")


def _line(graph: CallGraph, call: int, names: dict[int, str], after: list[str | Edge]) -> Line:
    line = Line(
        graph.call_id[call], int(graph.input[call]), int(graph.output[call]), chain=graph.agent[call], after=after
    )
    if graph.chain[call]:
        line.parent = names.get(int(graph.parent_chain[call]))
    if graph.chain[call] or graph.background[call]:
        line.background = bool(graph.background[call])
    line.wait_s, line.tool_s = int(graph.wait_ns[call]) / SECOND, int(graph.tool_ns[call]) / SECOND
    line.wait_kind = WaitKind(graph.wait_kind[call]).name.lower()
    for name, values in (("start_s", graph.start_recorded_ns), ("end_s", graph.end_recorded_ns)):
        if values[call] != UNKNOWN:
            setattr(line, name, int(values[call]) / SECOND)
    if graph.block is not None and graph.first_block[call] < graph.first_block[call + 1]:
        line.hash_ids = graph.blocks_of(call).tolist()
    for name, counts in (("prefix_tokens", graph.prefix_tokens), ("cached_tokens", graph.cached_tokens)):
        if counts is not None and counts[call] != UNKNOWN:
            setattr(line, name, int(counts[call]))
    if graph.context[call] != UNKNOWN:
        line.context = graph.call_id[graph.context[call]]
    line.kept = int(graph.kept[call])
    for name, entries in (
        ("messages", graph.messages),
        ("model", graph.model),
        ("tools", graph.tools),
        ("body", graph.extra),
    ):
        if entries is not None:
            setattr(line, name, entries[call])
    return line
