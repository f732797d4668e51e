"""What the simulated engine writes is declared by a protocol's file alone: other protocols' shapes, as test data."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sim_client import Response, ask, get, request

from fastllmload._ext.sim.fault import Faults
from fastllmload._ext.simbody.form import Form
from fastllmload._ext.simbody.template import filled
from fastllmload._ext.simserver.intake import Intake
from fastllmload.endpoint import ENDPOINTS
from fastllmload.simulator.profile import SimulatorOptions, load_profile
from fastllmload.simulator.serve import intake_settings
from fastllmload.simulator.truth import load

pytestmark = pytest.mark.slow

MESSAGES = ENDPOINTS["anthropic-messages"].simulated[0]
SAY = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("apis") / "truth"


@pytest.fixture(scope="module")
def port(truth: Path) -> Iterator[int]:
    script = str(Path(__file__).with_name("simulated_apis.py"))
    with subprocess.Popen([sys.executable, script, str(truth)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield int(server.stdout.readline().rsplit(":", 1)[1])
        server.send_signal(signal.SIGTERM)


def post(path: str, body: dict[str, Any], fault: str | None = None) -> bytes:
    return request(body, path, () if fault is None else (f"X-Fault: {fault}",))


def named(reply: Response) -> list[tuple[str, Any]]:
    """(name, JSON) of each server-sent event with a name; the JSON's type is the name."""
    lines = re.split(r"\r\n|\n|\r", reply.body.decode())
    found = [
        (name[7:], json.loads(data[6:])) for name, data, empty in zip(*(lines[i::3] for i in range(3)), strict=False)
    ]
    assert lines[2::3] == [""] * len(found) and all(data["type"] == name for name, data in found)
    return found


def kinds(reply: Response) -> list[str]:
    return [
        data.get("delta", data.get("content_block", {})).get("type", name) if name.startswith("content_block") else name
        for name, data in named(reply)
    ]


def messages(port: int, fault: str | None = None, n: int = 4, stream: bool = True) -> Response:
    return ask(port, post("/v1/messages", {**SAY, "max_tokens": n, "stream": stream}, fault))


@pytest.mark.parametrize("fault", [None, "crlf", "cr", "content_length", "split", "coalesce"])
def test_messages(port: int, fault: str | None) -> None:
    """Named events, blocks with their index, the word for the end and the usage in one event."""
    reply = messages(port, fault)
    assert kinds(reply) == [
        "message_start", "ping", "text", *["text_delta"] * 4, "content_block_stop", "message_delta", "message_stop",
    ]  # fmt: skip
    events = dict(named(reply))
    spent = {"input_tokens": 5, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 0}
    spent["output_tokens_details"] = {"thinking_tokens": 0}
    assert events["message_start"]["message"]["usage"] == spent
    assert events["message_delta"]["delta"]["stop_reason"] == "max_tokens"
    assert events["message_delta"]["usage"] == spent | {"output_tokens": 4}
    text = "".join(data["delta"]["text"] for name, data in named(reply) if name == "content_block_delta")
    assert len(text.split()) == 4 and text[0] != " "


def test_blocks_of_messages_follow_each_other(port: int) -> None:
    reply = messages(port, "reasoning:2")
    assert kinds(reply)[2:-2] == [
        "thinking", "thinking_delta", "thinking_delta", "signature_delta", "content_block_stop",
        "text", "text_delta", "text_delta", "content_block_stop",
    ]  # fmt: skip
    assert [data["index"] for _, data in named(reply) if "index" in data] == [0] * 5 + [1] * 4


def test_tool_calls_of_messages(port: int) -> None:
    """Two calls of four tokens each: their pieces join to JSON, which is what the document has."""
    reply = messages(port, "tool_calls:2", 8)
    events = named(reply)
    assert kinds(reply)[2:-2] == ["tool_use", *["input_json_delta"] * 4, "content_block_stop"] * 2
    assert events[-2][1]["delta"]["stop_reason"] == "tool_use"
    for index in range(2):
        pieces = [
            data["delta"]["partial_json"]
            for name, data in events
            if name.endswith("_delta") and data.get("index") == index
        ]
        assert len(json.loads("".join(pieces))["text"]) > 1
    document = json.loads(messages(port, "tool_calls:2", 8, stream=False).body)
    assert [(one["type"], one["name"]) for one in document["content"]] == [("tool_use", "lookup")] * 2
    assert all(one["input"]["text"] for one in document["content"]) and document["stop_reason"] == "tool_use"


def test_errors_of_messages(port: int) -> None:
    """In a stream as an event with a name, in a body without one; what is refused is said in the same words."""
    assert kinds(messages(port, "error_event:1"))[-2:] == ["error", "message_stop"]
    for status, kind in ((429, "rate_limit_error"), (500, "api_error"), (529, "overloaded_error")):
        said = json.loads(messages(port, f"status:{status}").body)["error"]
        assert said == {"type": kind, "message": "simulated failure"}
    error = json.loads(ask(port, post("/v1/messages", {**SAY, "max_tokens": 0})).body)
    assert error["type"] == "error" and "max_tokens" in error["error"]["message"]
    assert error["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(("path", "field"), [("/v1/messages", "system"), ("/v1/responses", "instructions")])
def test_a_system_prompt_in_a_field_of_its_own_is_prompt(port: int, path: str, field: str) -> None:
    said = {"messages": SAY["messages"], "input": "hi", "max_tokens": 1, "max_output_tokens": 1}
    counts = [
        json.loads(ask(port, post(path, {**said, **more})).body)["usage"]["input_tokens"]
        for more in ({}, {field: "a b c"})
    ]
    assert counts[1] - counts[0] == 3


def test_unanswered_calls_are_refused(port: int) -> None:
    """As Anthropic and OpenAI do: blocks of messages, and items."""
    call, answer = {"type": "tool_use", "id": "c"}, {"type": "tool_result", "tool_use_id": "c"}
    turns = [SAY["messages"][0], {"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}]
    items = [{"type": "function_call", "call_id": "c"}, {"type": "function_call_output", "call_id": "c"}]
    for path, field, given in (("/v1/messages", "messages", turns), ("/v1/responses", "input", [turns[0], *items])):
        found = [ask(port, post(path, {field: one})) for one in (given, given[:2], [given[0], given[2]])]
        assert [one.status for one in found] == [200, 400, 400]
        assert "must be followed" in found[1].body.decode() and "answers no call" in found[2].body.decode()


def test_changed_thoughts_are_refused(port: int) -> None:
    """As Anthropic does: the signature is that of the text."""
    events = named(messages(port, "reasoning:3", stream=True))
    text = "".join(one["delta"].get("thinking", "") for kind, one in events if kind == "content_block_delta")
    signature = next(one["delta"]["signature"] for _, one in events if "signature" in one.get("delta", {}))
    block = {"type": "thinking", "thinking": text, "signature": signature}
    said = {"type": "text", "text": "So."}

    def status(*blocks: dict[str, Any]) -> int:
        given = [SAY["messages"][0], {"role": "assistant", "content": list(blocks)}, SAY["messages"][0]]
        return ask(port, post("/v1/messages", {"messages": given, "max_tokens": 1})).status

    assert status(block, said) == status(block) == status(said) == 200
    changed = [{"thinking": text + "."}, {"thinking": text[:-1]}, {"signature": ""}, {"signature": "1-1"}]
    changed += [{"signature": f"{signature}0"}, {"signature": None}, {"thinking": 1}]
    assert [status(block | one, said) for one in changed] == [400] * len(changed)
    assert status(said, block) == 400


def test_a_stored_reply_is_continued(port: int) -> None:
    """The prompt is all that was said; a reply that is not stored, or not known, is refused with OpenAI's own error."""
    first = json.loads(ask(port, post("/v1/responses", {"input": "a b", "max_output_tokens": 3})).body)
    asked = {"input": [SAY["messages"][0]], "max_output_tokens": 2, "previous_response_id": first["id"], "store": False}
    text = first["output"][0]["content"][0]["text"]
    history = [{"role": "user", "content": "a b"}, {"role": "assistant", "content": text}, SAY["messages"][0]]
    second, whole = (
        json.loads(ask(port, post("/v1/responses", one)).body)
        for one in (asked, asked | {"previous_response_id": None, "input": history})
    )
    assert second["usage"]["input_tokens"] == whole["usage"]["input_tokens"] > first["usage"]["input_tokens"] + 3
    for ident in (second["id"], "resp_0", ""):
        reply = ask(port, post("/v1/responses", asked | {"previous_response_id": ident}))
        error = json.loads(reply.body)["error"]
        assert (reply.status, error["code"], error["param"]) == (
            400,
            "previous_response_not_found",
            "previous_response_id",
        )
    called = json.loads(ask(port, post("/v1/responses", {"input": "a", "max_output_tokens": 9}, "tool_calls:2")).body)
    answers = [{"type": "function_call_output", "call_id": one["call_id"], "output": "x"} for one in called["output"]]
    more = asked | {"previous_response_id": called["id"]}
    assert [ask(port, post("/v1/responses", more | {"input": one})).status for one in (answers, answers[:1])] == [
        200,
        400,
    ]


def test_responses(port: int) -> None:
    """Events are numbered; the text comes again when its block ends, and in the last event."""
    reply = ask(port, post("/v1/responses", {"input": "hi", "max_output_tokens": 300, "stream": True}))
    events = named(reply)
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    text = "".join(data["delta"] for name, data in events if name == "response.output_text.delta")
    by_name = dict(events)
    assert by_name["response.output_text.done"]["text"] == text and len(text.split()) == 300
    response = by_name["response.completed"]["response"]
    assert response["output"][0]["content"][0]["text"] == text
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert response["usage"]["output_tokens"] == 300
    assert [name for name, _ in events[-4:-1]] == [
        "response.output_text.done", "response.content_part.done", "response.output_item.done",
    ]  # fmt: skip


@pytest.mark.parametrize("fault", [None, "coalesce:3", "no_done"])
def test_tgi(port: int, fault: str | None) -> None:
    """The event of the last token repeats the text and says why it ended; there is no end marker."""
    reply = ask(port, post("/generate_stream", {"inputs": "hi", "parameters": {"max_new_tokens": 5}}, fault))
    texts = [one["token"]["text"] for one in reply.chunks]
    assert len(texts) == 5 and [one["index"] for one in reply.chunks] == [1, 2, 3, 4, 5]
    assert all(one["generated_text"] is None for one in reply.chunks[:-1])
    last = reply.chunks[-1]
    if fault == "no_done":
        assert last["generated_text"] is None
    else:
        assert last["generated_text"] == "".join(texts)
        assert last["details"] == {"finish_reason": "length", "generated_tokens": 5, "input_length": 1}


def test_tgi_without_stream(port: int) -> None:
    document = json.loads(ask(port, post("/generate", {"inputs": "hi", "parameters": {"max_new_tokens": 5}})).body)
    assert len(document["generated_text"].split()) == 5 and document["details"]["finish_reason"] == "length"
    assert json.loads(ask(port, get("/info")).body) == {"model_id": "simulated", "max_total_tokens": 131072}
    assert json.loads(ask(port, post("/generate_stream", {"inputs": []})).body)["error"].startswith("inputs ")


def test_sglang(port: int) -> None:
    """Each event has the whole text so far, also where several are in one write."""
    body = {"text": "hi", "sampling_params": {"max_new_tokens": 400, "ignore_eos": True}, "stream": True}
    reply = ask(port, post("/generate", body, "coalesce:100"))
    assert [len(one["text"].split()) for one in reply.chunks] == list(range(1, 401))
    assert all(
        later["text"].startswith(one["text"]) for one, later in zip(reply.chunks, reply.chunks[1:], strict=False)
    )
    assert [len(one["output_ids"]) for one in reply.chunks] == list(range(1, 401))
    last = reply.chunks[-1]["meta_info"]
    assert last["finish_reason"] == {"type": "length", "length": 400} and reply.events[-1] == "[DONE]"
    assert reply.chunks[-2]["meta_info"]["finish_reason"] is None


def test_triton(port: int) -> None:
    """The model is named in the path; the fields of a request tell which backend answers."""
    body = {"text_input": "hi", "sampling_param_max_tokens": 3, "streaming": True}
    reply = ask(port, post("/v2/models/simulated/generate_stream", body))
    texts = [one["text_output"] for one in reply.chunks]
    assert len(texts[-1].split()) == len(texts) == 3 and all(map(str.startswith, texts[1:], texts))
    body = {"text_input": "hi", "sampling_parameters": '{"max_tokens":3}', "stream": True}
    reply = ask(port, post("/v2/models/simulated/generate_stream", body))
    assert len("".join(one["text_output"] for one in reply.chunks).split()) == len(reply.events) == 3
    assert [one["finish_reason"] for one in reply.chunks] == ["None", "None", "length"]
    asked = {"text_input": "hi", "max_tokens": 3, "stream": True, "return_num_output_tokens": True}
    chunks = ask(port, post("/v2/models/simulated/generate_stream", asked)).chunks
    assert [(len(one["text_output"].split()), one["num_output_tokens"]) for one in chunks] == [(1, 1)] * 3
    chunks = ask(port, post("/v2/models/simulated/generate", {"text_input": "hi", "max_tokens": 3})).body
    assert len(json.loads(chunks)["text_output"].split()) == 3
    reply = ask(port, post("/v2/models/other/generate_stream", body))
    assert reply.status == 404 and "'other'" in json.loads(reply.body)["error"]
    assert ask(port, get("/v2/health/ready")).status == 200


def test_embeddings(port: int) -> None:
    document = json.loads(ask(port, post("/v1/embeddings", {"input": [1, 2, 3]})).body)
    assert document["usage"] == {"prompt_tokens": 3, "total_tokens": 3} and len(document["data"]) == 1


def test_the_truth_log_has_the_tokens(port: int, truth: Path) -> None:
    """Of any API: what an event is, not how it is written."""
    reply = ask(port, request({**SAY, "max_tokens": 6, "stream": True}, "/v1/messages", ("X-Request-Id: r-7-7",)))
    assert reply.status == 200
    ask(port, get("/nowhere"))
    for _ in range(100):
        if truth.stat().st_size > 16 and len(load(truth).of(7, 7)):
            break
        time.sleep(0.05)
    assert load(truth).of(7, 7)["kind"].tolist() == [1] + [3] * 6 + [8, 10]


def test_a_template_with_an_unknown_slot_is_refused() -> None:
    for text in ("$nothing", "$<nothing:x$>", "$<total_ns:x$>"):
        with pytest.raises(ValueError, match=re.escape(text)):
            Form(replace(MESSAGES, content=text), "m")


def test_more_apis_or_keys_than_the_tables_hold_are_refused() -> None:
    settings = intake_settings(SimulatorOptions(), load_profile(SimulatorOptions().profile))
    many = replace(MESSAGES, keys=replace(MESSAGES.keys, tokens=tuple("abcde")))
    for apis in ([MESSAGES] * 65, [many]):
        with pytest.raises(OverflowError, match="LENGTHS"):
            Intake(settings, Faults(1, ()), [(api, bytes) for api in apis], [])


def test_values_are_not_read_as_slots() -> None:
    assert filled('{"a":"$message","b":$code}', {"message": '$code "', "code": 5}) == b'{"a":"$code \\"","b":5}'
