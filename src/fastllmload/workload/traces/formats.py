"""The formats of traces of agentic sessions: one entry, one file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastllmload.errors import InputError
from fastllmload.workload.graph import SCOPES, CallGraph
from fastllmload.workload.traces import (
    agentic_mooncake,
    applied_compute,
    bailian,
    call_lines,
    dag,
    dynamo,
    mooncake,
    otel,
    sglang,
    tracelab,
    weka,
)
from fastllmload.workload.traces.trace_file import TraceFile, open_trace

Entry = dict[str, Any]
READINGS = ("auto", "whole", "delta")


@dataclass(frozen=True)
class TraceFormat:
    """*is_entry*: whether the first JSON object of a file is of this format."""

    name: str
    is_entry: Callable[[Entry], bool]
    read: Callable[[TraceFile], CallGraph]


def _has(*names: str) -> Callable[[Entry], bool]:
    return lambda entry: all(name in entry for name in names)


def _is_dynamo(entry: Entry) -> bool:
    event = entry.get("event")
    return isinstance(event, dict) and str(event.get("schema", "")).startswith("dynamo.")


def _is_span(entry: Entry) -> bool:
    return any(name in entry for name in ("resourceSpans", "spans")) or {"span_id", "trace_id"} <= entry.keys()


def _is_sglang(entry: Entry) -> bool:
    conversations = entry.get("conversations")
    return isinstance(conversations, list) and isinstance(next(iter(conversations), None), list)


def _is_bare_mooncake(entry: Entry) -> bool:
    return "output_length" in entry and ("hash_ids" in entry or "input_length" in entry)


# In this order: the first whose entry it is.
FORMATS = (
    TraceFormat("graph", call_lines.is_entry, call_lines.read),
    TraceFormat("weka", _has("requests", "block_size"), weka.read),
    TraceFormat("dynamo", _is_dynamo, dynamo.read),
    TraceFormat("otel", _is_span, otel.read),
    TraceFormat("tracelab", _has("round_index", "timing_events"), tracelab.read),
    TraceFormat("bailian", _has("chat_id", "parent_chat_id"), bailian.read),
    TraceFormat("agentic-mooncake", _has("request_id", "output_length"), agentic_mooncake.read),
    TraceFormat("mooncake", _is_bare_mooncake, mooncake.read),
    TraceFormat("applied-compute", _has("input_prompt_length", "num_turns"), applied_compute.read),
    TraceFormat("dag", _has("session_id", "turns"), dag.read),
    TraceFormat("sglang-agentic", _is_sglang, sglang.read),
)
CALL_GRAPHS = tuple(one.name for one in FORMATS)


def read_call_graph(
    name: str, path: Path, *, prompts: str = "auto", scope: str | None = None, block_tokens: int | None = None
) -> CallGraph:
    """The calls of the trace in *path*. *name*: one of CALL_GRAPHS, or `auto` to tell it by the content.

    *prompts*: what rows of one session are, `whole` prompts or `delta`, additions. *scope*, *block_tokens*: where equal
    block ids mean equal text, and tokens of a block, for what the format does not say. InputError names file, line, field.
    """
    wanted = name.replace("_", "-")
    if wanted != "auto" and wanted not in CALL_GRAPHS:
        raise InputError(
            "choice-unknown", f"the format of a trace is {name!r}; choose {', '.join(CALL_GRAPHS)} or auto"
        )
    if prompts not in READINGS or not (scope is None or scope in SCOPES):
        raise ValueError(prompts if prompts not in READINGS else scope)
    file = open_trace(path, prompts, scope, block_tokens)
    if wanted == "auto":
        wanted = _detect(file)
    try:
        return next(one for one in FORMATS if one.name == wanted).read(file)
    except InputError as problem:
        if problem.code == "dataset-empty":
            raise InputError(problem.code, f"--dataset-path {path}: {problem.message}") from None
        other = _format_of(file.first_object())
        if other in (None, wanted):
            raise
        raise InputError(problem.code, f"{problem.message}. The fields are those of --workload {other}") from None


def detect_format(path: Path) -> str:
    """The format of the trace in *path*, by its first JSON object. InputError when it has none of them."""
    return _detect(open_trace(path))


def _format_of(entry: Entry) -> str | None:
    return next((one.name for one in FORMATS if one.is_entry(entry)), None)


def _detect(file: TraceFile) -> str:
    entry = file.first_object()
    found = _format_of(entry)
    if found is None:
        has = ", ".join(sorted(entry)[:12]) or "no JSON object"
        raise InputError(
            "dataset-invalid",
            f"--dataset-path {file.path} has none of the formats {', '.join(CALL_GRAPHS)}; its first entry has {has}",
        )
    return found
