"""Tool calls of the server in the history: what it receives in a turn is what it sent in the turn before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recording_relay import Recorded, relayed

import fastllmload
from fastllmload.endpoint import ENDPOINTS
from fastllmload.records.layout import FLAG_TOOL, MEASURE, OK
from fastllmload.records.run import Run
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions


def events_of(answer: bytes, streamed: bool) -> list[dict[str, Any]]:
    lines = answer.decode().splitlines() if streamed else [answer.decode()]
    data = [line.removeprefix("data: ") for line in lines if line and not line.startswith("event: ")]
    return [json.loads(line) for line in data if line != "[DONE]"]


def sent_as_chat(events: list[dict[str, Any]], part: str) -> tuple[str, list[dict[str, Any]]]:
    text, calls = "", {}
    for said in events:
        if part == "message":  # Ollama, or a whole answer
            message = said["message"] if "message" in said else said["choices"][0]["message"]
        elif said["choices"]:
            message = said["choices"][0]["delta"]
        else:
            continue
        text += message.get("content") or ""
        for place, one in enumerate(message.get("tool_calls") or ()):
            if "index" not in one:
                calls[len(calls), place] = one
            elif one["index"] not in calls:
                calls[one["index"]] = {name: value for name, value in one.items() if name != "index"}
            else:
                calls[one["index"]]["function"]["arguments"] += one["function"]["arguments"]
    return text, list(calls.values())


def sent_as_responses(events: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """Of a stream the deltas, not the output that the last event repeats."""
    if "output" in events[0]:
        output = events[0]["output"]
        text = "".join(part["text"] for item in output for part in item.get("content", ()))
    else:
        text = "".join(said["delta"] for said in events if said["type"] == "response.output_text.delta")
        output = [said["item"] for said in events if said["type"] == "response.output_item.added"]
        items = {item["id"]: item for item in output}
        for said in events:
            if said["type"] == "response.function_call_arguments.delta":
                items[said["item_id"]]["arguments"] += said["delta"]
    names = ("type", "call_id", "name", "arguments")
    return text, [{name: item[name] for name in names} for item in output if item["type"] == "function_call"]


def sent_as_messages(events: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """Arguments are streamed as a text, and repeated as the object that it says."""
    blocks: list[dict[str, Any]] = events[0].get("content", [])
    pieces: dict[int, str] = {}
    for said in events:
        if said["type"] == "content_block_start":
            blocks.append(said["content_block"])
        elif said["type"] == "content_block_delta" and said["delta"]["type"] == "text_delta":
            blocks[said["index"]]["text"] += said["delta"]["text"]
        elif said["type"] == "content_block_delta" and said["delta"]["type"] == "input_json_delta":
            pieces[said["index"]] = pieces.get(said["index"], "") + said["delta"]["partial_json"]
    for index, text in pieces.items():
        blocks[index]["input"] = json.loads(text)
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    return text, [block for block in blocks if block["type"] == "tool_use"]


def sent(answer: bytes, endpoint: str, streamed: bool) -> tuple[str, list[dict[str, Any]]]:
    """Text and calls of an answer, read the plain way, each call as a history repeats it."""
    events = events_of(answer, streamed)
    if endpoint == "openai-responses":
        return sent_as_responses(events)
    if endpoint == "anthropic-messages":
        return sent_as_messages(events)
    return sent_as_chat(events, "message" if endpoint == "ollama-chat" or not streamed else "delta")


def repeated(messages: list[dict[str, Any]], endpoint: str, many: int) -> tuple[str, list[Any], list[str]]:
    """Text, calls, and what the answers to *many* of them name, of the history that begins with a reply."""
    own = messages[0]
    if endpoint == "openai-responses":
        text = str(own["content"]) if own.get("role") == "assistant" else ""
        calls = [one for one in messages if one.get("type") == "function_call"]
        return text, calls, [one["call_id"] for one in messages if one.get("type") == "function_call_output"][:many]
    assert own["role"] == "assistant"
    if endpoint == "anthropic-messages":
        blocks = own["content"] if isinstance(own["content"], list) else [{"type": "text", "text": own["content"]}]
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        answers = [block["tool_use_id"] for block in messages[1]["content"][:many]] if many else []
        return text, [block for block in blocks if block["type"] == "tool_use"], answers
    name = "tool_name" if endpoint == "ollama-chat" else "tool_call_id"
    return own["content"] or "", own.get("tool_calls", []), [one[name] for one in messages[1 : 1 + many]]


def named(call: dict[str, Any], endpoint: str) -> str:
    """By what an answer names a call."""
    return str(call["function"]["name"] if endpoint == "ollama-chat" else call.get("call_id") or call["id"])


def checked(recorded: Recorded, run: Run, endpoint: str, streamed: bool = True) -> int:
    """Each later turn's history ends with what the server sent before; returns how many turns brought calls."""
    rows = run.rows[run.rows["phase"] == MEASURE]
    number = run.manifest["phases"][-1]["number"]
    requests = {(int(row["session"]), int(row["turn"])): int(row["request"]) for row in rows}
    field = ENDPOINTS[endpoint].prompt_fields[0]
    brought = 0
    for (session, turn), request in requests.items():
        if not turn:
            continue
        asked, answer = recorded.said[number, requests[session, turn - 1]]
        text, calls = sent(answer, endpoint, streamed)
        before = json.loads(asked)[field]
        after = json.loads(recorded.said[number, request][0])[field]
        assert after[: len(before)] == before, "what was said before is there unchanged"
        said, called, answered = repeated(after[len(before) :], endpoint, len(calls))
        assert said == text
        if calls:
            brought += 1
            assert called[: len(calls)] == calls
            assert answered == [named(one, endpoint) for one in calls]
    return brought


@pytest.mark.parametrize(
    ("endpoint", "streaming", "fault"),
    [
        ("openai-chat", True, "tool_calls:0.6:1"),
        ("openai-chat", True, "tool_calls:0.6:3"),
        ("openai-chat", False, "tool_calls:0.6:2"),
        ("ollama-chat", True, "tool_calls:0.6:2"),
        ("openai-responses", True, "tool_calls:0.6:2"),
        ("openai-responses", False, "tool_calls:0.6:2"),
        ("anthropic-messages", True, "tool_calls:0.6:2"),
        ("anthropic-messages", False, "tool_calls:0.6:2"),
    ],
)
@pytest.mark.parametrize("tool_turns", [0.0, 0.5])
def test_what_was_called_comes_back(
    tmp_path: Path, endpoint: str, streaming: bool, fault: str, tool_turns: float
) -> None:
    """Users' turns and turns with a tool's result, behind replies of text and of calls. The engine is strict: it refuses
    a call without an answer, and an answer without a call.
    """
    with (
        SimulatorProcess(SimulatorOptions(seed=5, faults=(fault,), overrides=(("step_ms", "1"),))) as server,
        relayed(server.url) as recorded,
    ):
        run = fastllmload.run(
            url=recorded.url, endpoint_type=endpoint, rate=40, num_requests=10, turns=4, isl=12, osl=17, warmup=0,
            tool_turns=tool_turns, stream=streaming, ignore_eos=True, output=str(tmp_path / "run"), seed=2,
        )  # fmt: skip
    rows = run.rows[run.rows["phase"] == MEASURE]
    assert (rows["status"] == OK).all() and len(rows) == 40
    brought = checked(recorded, run, endpoint, streaming)
    assert 5 < brought < 30
    assert run.manifest["conversations"]["tool_call_replies"] == brought
    called = (rows["flags"] & FLAG_TOOL) > 0
    assert brought == (called & (rows["turn"] < 3)).sum()


@pytest.mark.parametrize("endpoint", ["openai-chat", "openai-responses", "anthropic-messages"])
def test_a_data_sets_answers_name_the_calls_of_the_server(tmp_path: Path, endpoint: str) -> None:
    """Messages of role tool are written without an id; the server finds the id that it gave."""
    path = tmp_path / "talks.jsonl"
    lines = [
        {"session": "s", "prompt": "What is the weather in Oslo and in Rome?", "output_tokens": 20},
        {"session": "s", "output_tokens": 20,
         "messages": [{"role": "tool", "content": "4 degrees"}, {"role": "tool", "content": "21 degrees"}]},
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with (
        SimulatorProcess(SimulatorOptions(faults=("tool_calls:1:2",), overrides=(("step_ms", "1"),))) as server,
        relayed(server.url) as recorded,
    ):
        run = fastllmload.run(
            url=recorded.url, rate=20, num_requests=4, workload="custom", dataset_path=str(path), turns="all",
            endpoint_type=endpoint, warmup=0, output=str(tmp_path / "run"),
        )  # fmt: skip
    rows = run.rows[run.rows["phase"] == MEASURE]
    assert (rows["status"] == OK).all() and len(rows) == 8
    assert checked(recorded, run, endpoint) == 4
    number = run.manifest["phases"][-1]["number"]
    said = recorded.said[number, 1][0].decode()
    assert 0 < said.index('"4 degrees"') < said.index('"21 degrees"')
