"""Dynamo's Agentic Mooncake: rows that name the requests they wait for; times in ms, ids of blocks of whole prompts."""

from __future__ import annotations

import msgspec

from fastllmload.workload.calls import After, TracedCall, build_graph
from fastllmload.workload.graph import CallGraph, WaitKind
from fastllmload.workload.request import field_error
from fastllmload.workload.traces.mooncake import MooncakeRow, blocks_of
from fastllmload.workload.traces.trace_file import MILLISECOND, TraceFile, time_ns, tokens

SIZES = [1 << power for power in range(3, 15)]


class AgenticRow(MooncakeRow, kw_only=True):
    """`branches`, `tool_events` and `prefix_reset` describe; they control nothing."""

    request_id: str | int
    wait_for: list[str | int] = msgspec.field(default_factory=list)
    tool_wait_ms: int | float = 0


def read(file: TraceFile) -> CallGraph:
    rows = list(file.rows(AgenticRow))
    size, notes = file.block_tokens, []
    if size is None:
        size = block_size(rows)
        notes.append(f"blocks have {size} tokens, the smallest power of two that all rows fit")
    calls = [_call(where, row, size) for where, row in rows]
    agents = {call.id: call.chain for call in calls}
    for call in calls:
        if not call.wait_kind and any(agents.get(one.call, call.chain) != call.chain for one in call.after):
            call.wait_kind = WaitKind.AGENT
    return build_graph(
        "agentic-mooncake",
        file.sha256,
        calls,
        block_tokens=size,
        scope=file.scope or "file",
        notes=notes,
        begins="timestamp or wait_for",
    )


def _call(where: str, row: AgenticRow, size: int) -> TracedCall:
    chain = row.request_id if row.session_id is None else row.session_id
    prompt, answer = row.prompt_tokens(size, where), tokens(row.output_length, where, "output_length")
    call = TracedCall(str(row.request_id), where, str(chain), prompt, answer, [After(str(one)) for one in row.wait_for])
    at = row.at()
    call.tool_ns = time_ns(row.tool_wait_ms, MILLISECOND, where, "tool_wait_ms")
    call.wait_ns = time_ns(row.wait() or 0, MILLISECOND, where, "delay") + call.tool_ns
    if at is not None:
        call.start_ns = time_ns(at, MILLISECOND, where, "timestamp") + (0 if call.after else call.wait_ns)
    call.wait_kind = WaitKind.TOOL if call.tool_ns * 2 >= call.wait_ns > 0 else WaitKind.UNKNOWN
    call.blocks = blocks_of(row, size, where)
    return call


def block_size(rows: list[tuple[str, AgenticRow]]) -> int:
    """The smallest power of two that gives each row as many blocks as it has ids. InputError when none does."""
    fits = SIZES
    for where, row in rows:
        if row.hash_ids and row.input_length:
            left = [size for size in fits if -(-row.input_length // size) == len(row.hash_ids)]
            if not left:
                raise field_error(
                    f"{where}: {len(row.hash_ids)} hash_ids of an input_length of {row.input_length} do not fit blocks of "
                    f"{' or '.join(map(str, fits))} tokens, which the rows before have; give all rows one block size"
                )
            fits = left
    return fits[0]
