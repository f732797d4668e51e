"""Tool calls of the server in the history: what it receives in a turn is what it sent in the turn before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recording_relay import Recorded, relayed

import fastllmload
from fastllmload.records.layout import FLAG_TOOL, MEASURE, OK
from fastllmload.records.run import Run
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions


def sent(answer: bytes, endpoint: str, streamed: bool) -> tuple[str, list[dict[str, Any]]]:
    """Text and calls of an answer, read the plain way."""
    text, calls = "", {}
    ollama = endpoint == "ollama-chat"
    lines = (
        [line.removeprefix("data: ") for line in answer.decode().splitlines() if line]
        if streamed
        else [answer.decode()]
    )
    for line in lines:
        if line == "[DONE]":
            break
        said = json.loads(line)
        if ollama:
            message = said["message"]
        elif not said["choices"]:
            continue
        else:
            message = said["choices"][0]["delta" if streamed else "message"]
        text += message.get("content") or ""
        for place, one in enumerate(message.get("tool_calls") or ()):
            if "index" not in one:
                calls[len(calls), place] = one
            elif one["index"] not in calls:
                calls[one["index"]] = {name: value for name, value in one.items() if name != "index"}
            else:
                calls[one["index"]]["function"]["arguments"] += one["function"]["arguments"]
    return text, list(calls.values())


def checked(recorded: Recorded, run: Run, endpoint: str, streamed: bool = True) -> int:
    """Each later turn's history ends with what the server sent before; returns how many turns brought calls."""
    rows = run.rows[run.rows["phase"] == MEASURE]
    number = run.manifest["phases"][-1]["number"]
    requests = {(int(row["session"]), int(row["turn"])): int(row["request"]) for row in rows}
    brought = 0
    for (session, turn), request in requests.items():
        if not turn:
            continue
        asked, answer = recorded.said[number, requests[session, turn - 1]]
        text, calls = sent(answer, endpoint, streamed)
        before = json.loads(asked)["messages"]
        after = json.loads(recorded.said[number, request][0])["messages"]
        assert after[: len(before)] == before, "what was said before is there unchanged"
        own = after[len(before)]
        assert own["role"] == "assistant" and (own["content"] or "") == text
        if calls:
            brought += 1
            assert own["tool_calls"][: len(calls)] == calls
            answers = after[len(before) + 1 :][: len(calls)]
            names = [one["tool_name"] if endpoint == "ollama-chat" else one["tool_call_id"] for one in answers]
            assert names == [one["function"]["name"] if endpoint == "ollama-chat" else one["id"] for one in calls]
    return brought


@pytest.mark.parametrize(
    ("endpoint", "streaming", "fault"),
    [
        ("openai-chat", True, "tool_calls:0.6:1"),
        ("openai-chat", True, "tool_calls:0.6:3"),
        ("openai-chat", False, "tool_calls:0.6:2"),
        ("ollama-chat", True, "tool_calls:0.6:2"),
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


def test_a_data_sets_answers_name_the_calls_of_the_server(tmp_path: Path) -> None:
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
            warmup=0, output=str(tmp_path / "run"),
        )  # fmt: skip
    rows = run.rows[run.rows["phase"] == MEASURE]
    assert (rows["status"] == OK).all() and len(rows) == 8
    assert checked(recorded, run, "openai-chat") == 4
    number = run.manifest["phases"][-1]["number"]
    messages = json.loads(recorded.said[number, 1][0])["messages"]
    assert [message.get("content") for message in messages[-2:]] == ["4 degrees", "21 degrees"]
