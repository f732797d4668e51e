"""Tool calls of the server in the history: what it receives in a turn is what it sent in the turn before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recording_relay import Recorded, relayed

import fastllmload
from fastllmload.endpoint import ENDPOINTS
from fastllmload.records.layout import FLAG_TOOL, HTTP_ERROR, MEASURE, OK
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


def blocks_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
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
        elif said["type"] == "content_block_delta" and said["delta"]["type"] == "thinking_delta":
            blocks[said["index"]]["thinking"] += said["delta"]["thinking"]
        elif said["type"] == "content_block_delta" and said["delta"]["type"] == "signature_delta":
            blocks[said["index"]]["signature"] = said["delta"]["signature"]
    for index, text in pieces.items():
        blocks[index]["input"] = json.loads(text)
    return blocks


def sent(answer: bytes, endpoint: str, streamed: bool) -> tuple[str, list[dict[str, Any]]]:
    """Text and calls of an answer, read the plain way, each call as a history repeats it."""
    events = events_of(answer, streamed)
    if endpoint == "openai-responses":
        return sent_as_responses(events)
    if endpoint == "anthropic-messages":
        blocks = blocks_of(events)
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        return text, [block for block in blocks if block["type"] == "tool_use"]
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


@pytest.mark.parametrize("tool_turns", [0.0, 0.5])
def test_thoughts_come_back_as_the_server_signed_them(tmp_path: Path, tool_turns: float) -> None:
    """The blocks of a reply are the next turn's history, in their order; the engine refuses thoughts that were changed."""
    faults = ("reasoning:0.4:9", "reasoning:0.2:17", "tool_calls:0.3:2")
    with (
        SimulatorProcess(SimulatorOptions(seed=5, faults=faults, overrides=(("step_ms", "1"),))) as server,
        relayed(server.url) as recorded,
    ):
        run = fastllmload.run(
            url=recorded.url, endpoint_type="anthropic-messages", rate=40, num_requests=12, turns=4, isl=12, osl=17,
            tool_turns=tool_turns, warmup=0, ignore_eos=True, output=str(tmp_path / "run"), seed=2,
        )  # fmt: skip
    rows = run.rows[run.rows["phase"] == MEASURE]
    assert (rows["status"] == OK).all() and len(rows) == 48
    requests = {(int(row["session"]), int(row["turn"])): int(row["request"]) for row in rows}
    number = run.manifest["phases"][-1]["number"]
    signed = alone = 0
    for (session, turn), request in requests.items():
        if not turn:
            continue
        asked, answer = recorded.said[number, requests[session, turn - 1]]
        blocks = blocks_of(events_of(answer, True))
        own = json.loads(recorded.said[number, request][0])["messages"][len(json.loads(asked)["messages"])]["content"]
        thoughts = [block for block in blocks if block["type"] == "thinking"]
        signed += bool(thoughts)
        alone += thoughts == blocks
        if thoughts:
            assert own[: len(blocks)] == blocks and all(block["signature"] for block in thoughts)
        else:
            assert all(block["type"] != "thinking" for block in own if isinstance(block, dict))
    assert signed > 10 and alone > 2


def stored_run(path: Path, url: str, history: str, endpoint: str, tool_turns: float) -> Run:
    return fastllmload.run(
        url=url, endpoint_type=endpoint, rate=40, num_requests=10, turns=4, isl=12, osl=17, tool_turns=tool_turns,
        warmup=0, ignore_eos=True, history=history, output=str(path / history), seed=2,
    )  # fmt: skip


@pytest.mark.parametrize("endpoint", ["openai-responses", "openai-responses-ws"])
def test_the_prompt_of_a_stored_conversation_is_all_of_it(tmp_path: Path, endpoint: str) -> None:
    """What the engine counts as prompt is what it counts where the history is sent again; less is sent."""
    found = {}
    with SimulatorProcess(SimulatorOptions(seed=5, overrides=(("step_ms", "1"),))) as server:
        for history in ("real", "stored"):
            run = stored_run(tmp_path, server.url, history, endpoint, 0.0)
            rows = run.rows[run.rows["phase"] == MEASURE]
            assert (rows["status"] == OK).all() and len(rows) == 40
            found[history] = np.sort(rows, order=["session", "turn"])
            assert run.manifest["plan"]["description"]["conversations"]["history"] == history
    real, stored = found["real"], found["stored"]
    assert (real["prompt_tokens"] == stored["prompt_tokens"]).all()
    assert (stored["prompt_tokens"][1:] - stored["prompt_tokens"][:-1])[stored["turn"][1:] > 0].min() > 17
    assert stored["bytes_sent"][stored["turn"] == 3].max() < real["bytes_sent"][real["turn"] == 3].min()


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("tool_turns", [0.0, 0.5])
def test_a_turn_names_the_stored_reply(tmp_path: Path, tool_turns: float, streaming: bool) -> None:
    """Its items are its own, and answers to the calls that the reply made; the engine refuses others."""
    faults = ("tool_calls:0.6:2",)
    with (
        SimulatorProcess(SimulatorOptions(seed=5, faults=faults, overrides=(("step_ms", "1"),))) as server,
        relayed(server.url) as recorded,
    ):
        run = fastllmload.run(
            url=recorded.url, endpoint_type="openai-responses", rate=40, num_requests=10, turns=4, isl=12, osl=17,
            tool_turns=tool_turns, warmup=0, history="stored", stream=streaming, output=str(tmp_path / "run"), seed=2,
        )  # fmt: skip
    rows = run.rows[run.rows["phase"] == MEASURE]
    assert (rows["status"] == OK).all() and len(rows) == 40
    requests = {(int(row["session"]), int(row["turn"])): int(row["request"]) for row in rows}
    number = run.manifest["phases"][-1]["number"]
    called = 0
    for (session, turn), request in requests.items():
        asked = json.loads(recorded.said[number, request][0])
        assert asked["store"] is True and ("previous_response_id" in asked) == (turn > 0)
        if not turn:
            continue
        events = events_of(recorded.said[number, requests[session, turn - 1]][1], streaming)
        reply = events[-1]["response"] if streaming else events[0]
        assert asked["previous_response_id"] == reply["id"]
        calls = [item["call_id"] for item in reply["output"] if item["type"] == "function_call"]
        answers = [item["call_id"] for item in asked["input"] if item.get("type") == "function_call_output"]
        own = [item for item in asked["input"] if item.get("type") == "function_call"]
        assert all(item.get("role") != "assistant" for item in asked["input"])
        assert answers == calls if calls else len(answers) == len(own)
        called += bool(calls)
    assert 5 < called < 30


def test_an_unknown_reply_is_refused(tmp_path: Path) -> None:
    """A server that stores nothing: the later turns fail, and the report says why."""
    change = b'"store":true', b'"store":false'
    with (
        SimulatorProcess(SimulatorOptions(overrides=(("step_ms", "1"),))) as server,
        relayed(server.url, change) as recorded,
    ):
        run = stored_run(tmp_path, recorded.url, "stored", "openai-responses", 0.0)
    rows = run.rows[run.rows["phase"] == MEASURE]
    assert (rows["status"] == np.where(rows["turn"] == 0, OK, HTTP_ERROR)).all() and rows["turn"].max() == 1
    assert "previous_response_not_found" in json.dumps(run.manifest["error_texts"])


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
