"""Applied Compute's traces: an agent a line, with lengths of prompt, answers and tool results, and seconds of its tools."""

from __future__ import annotations

import msgspec

from fastllmload.workload.calls import After, TracedCall, build_graph
from fastllmload.workload.graph import CallGraph, WaitKind
from fastllmload.workload.request import field_error
from fastllmload.workload.traces.trace_file import SECOND, TraceFile, time_ns, tokens


class Trajectory(msgspec.Struct):
    num_turns: int
    input_prompt_length: int
    assistant_response_length: list[int]
    tool_call_output_length: list[int]
    tool_call_latency: list[int | float]
    final_assistant_response_length: int


def read(file: TraceFile) -> CallGraph:
    calls: list[TracedCall] = []
    for number, (where, row) in enumerate(file.rows(Trajectory), 1):
        per_turn = ("assistant_response_length", "tool_call_output_length", "tool_call_latency")
        odd = next((name for name in per_turn if len(getattr(row, name)) != row.num_turns), None)
        if odd is not None:
            raise field_error(
                f"{where}: {odd} has {len(getattr(row, odd))} values, but num_turns is {row.num_turns}; they must agree"
            )
        calls += _calls(where, str(number), row)
    notes = ["the file has no instants: each session begins when the load starts it",
             "prompts begin with the whole prompt before them; answers before them are new text"]  # fmt: skip
    return build_graph("applied-compute", file.sha256, calls, notes=notes)


def _calls(where: str, session: str, row: Trajectory) -> list[TracedCall]:
    prompt, shared = tokens(row.input_prompt_length, where, "input_prompt_length"), 0
    answers = [*row.assistant_response_length, row.final_assistant_response_length]
    calls: list[TracedCall] = []
    for turn, answer in enumerate(answers):
        call = TracedCall(
            f"{session}:{turn}", where, session, prompt, tokens(answer, where, "assistant_response_length")
        )
        call.prefix_tokens = shared
        if turn:
            call.after = [After(calls[-1].id)]
            call.wait_ns = call.tool_ns = time_ns(row.tool_call_latency[turn - 1], SECOND, where, "tool_call_latency")
            call.wait_kind = WaitKind.TOOL
        else:
            call.due_ns = 0
        calls.append(call)
        shared = prompt
        if turn < row.num_turns:
            prompt += answer + tokens(row.tool_call_output_length[turn], where, "tool_call_output_length")
    return calls
