"""Bailian traces (Qwen): chats that continue others, instants in seconds, ids of blocks of 16 tokens."""

from __future__ import annotations

from collections import Counter

import msgspec

from fastllmload.errors import InputError
from fastllmload.workload.calls import After, TracedCall, build_graph, graph_error
from fastllmload.workload.graph import CallGraph
from fastllmload.workload.sharing.blocks import block_ids
from fastllmload.workload.traces.recorded import overlap_notes
from fastllmload.workload.traces.trace_file import SECOND, TraceFile, time_ns, tokens

BLOCK = 16


class BailianRow(msgspec.Struct):
    chat_id: int | str
    parent_chat_id: int | str
    timestamp: int | float
    input_length: int
    output_length: int
    hash_ids: list[int]


def read(file: TraceFile) -> CallGraph:
    """The first chat that continues another one is of the same agent; each further one is a fork, an agent of its own."""
    calls: dict[str, TracedCall] = {}
    continued: set[str] = set()
    for where, row in file.rows(BailianRow):
        name, parent = str(row.chat_id), str(row.parent_chat_id)
        call = TracedCall(
            name, where, name, tokens(row.input_length, where, "input_length"),
            tokens(row.output_length, where, "output_length"), background=False,
        )  # fmt: skip
        call.start_ns = time_ns(row.timestamp, SECOND, where, "timestamp")
        call.blocks = block_ids(row.hash_ids, where)
        if row.parent_chat_id not in (-1, "-1"):
            before = calls.get(parent)
            if before is None:
                raise graph_error(
                    f"{where}: parent_chat_id {parent} is not a chat of an earlier line; add it, or write -1"
                )
            assert before.start_ns is not None
            if call.start_ns < before.start_ns:
                raise InputError(
                    "trace-unsorted",
                    f"{where}: timestamp {row.timestamp:g} is earlier than {before.start_ns / SECOND:g} of chat {parent}, "
                    "which it continues; correct one of them",
                )
            call.after, call.wait_ns = [After(parent)], call.start_ns - before.start_ns
            if parent in continued:
                call.parent = before.chain
            else:
                call.chain, call.parent = before.chain, before.parent
            continued.add(parent)
        if name in calls:
            raise graph_error(f"{where}: chat_id {name} is also that of {calls[name].where}; give each chat its own")
        calls[name] = call
    followed = len(continued)
    notes = overlap_notes(Counter(), followed)
    return build_graph(
        "bailian", file.sha256, list(calls.values()), block_tokens=file.block_tokens or BLOCK,
        scope=file.scope or "file", notes=notes,
    )  # fmt: skip
