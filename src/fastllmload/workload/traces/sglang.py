"""SGLang's agentic traces: conversations whose turns add messages to what was said before; no times, no output lengths."""

from __future__ import annotations

from typing import Any

import msgspec

from fastllmload.workload.calls import After, TracedCall, build_graph
from fastllmload.workload.graph import CallGraph
from fastllmload.workload.traces.trace_file import TraceFile

OUTPUT = 220  # tokens of each answer in SGLang's benchmark


class SglangRound(msgspec.Struct):
    messages: list[dict[str, Any]]


class SglangTrace(msgspec.Struct):
    conversations: list[list[SglangRound]]


def read(file: TraceFile) -> CallGraph:
    calls: list[TracedCall] = []
    empty = 0
    for where, document in file.objects(SglangTrace):
        for number, rounds in enumerate(document.conversations, 1):
            before: TracedCall | None = None
            for turn, one in enumerate(rounds, 1):
                if not one.messages:
                    empty += 1
                    continue
                place = f"{where} conversation {number} turn {turn}"
                call = TracedCall(f"{number}:{turn}", place, str(number), 0, OUTPUT, messages=one.messages, due_ns=0)
                if before is not None:
                    call.due_ns, call.after, call.context = None, [After(before.id)], before.id
                before = call
                calls.append(call)
    notes = ["the file has no times: turns follow each other at once",
             f"the file has no lengths of answers: {OUTPUT} tokens each"]  # fmt: skip
    left_out = {"turns without messages": empty} if empty else {}
    return build_graph("sglang-agentic", file.sha256, calls, left_out=left_out, notes=notes)
