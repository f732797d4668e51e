"""Tool turns in the forms of other protocols: their templates are all that the plan and the worker know of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ext.dialects import CHAT, DIALECTS, OTHERS
from ext.dialects import MESSAGES as OF_MESSAGES
from ext.dialects import RESPONSES as OF_RESPONSES
from hypothesis import given
from hypothesis import strategies as st
from support.plan_builder import asked

from fastllmload._ext.events.calls import CallList
from fastllmload._ext.plan.talk import Talks
from fastllmload._ext.plan.toolturn import ToolTurns
from fastllmload.endpoint import ENDPOINTS
from fastllmload.endpoint.turns import Part, TurnTemplate
from fastllmload.plan.build import build_plan
from fastllmload.plan.conversations.synthetic import tool_turn
from fastllmload.plan.conversations.turns import TurnPart, escaped, write_conversations
from fastllmload.settings import Workload

MESSAGES = ENDPOINTS["anthropic-messages"].joint
RESPONSES = ENDPOINTS["openai-responses"].joint
ENDPOINT = replace(ENDPOINTS["openai-responses"], name="made-up")
PIECES = ENDPOINT.messages_pieces("m", Workload())
TAIL = PIECES.closing(5)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
OBJECTS = st.dictionaries(TEXT, st.one_of(TEXT, st.integers(), st.lists(st.none())), max_size=3)
CALLS = st.lists(
    st.tuples(TEXT.filter(bool), TEXT.filter(bool), OBJECTS), min_size=1, max_size=4, unique_by=lambda one: one[0]
)


def call_list(calls: list[tuple[str, str, dict[str, Any]]]) -> CallList:
    """As a chat server streams them: arguments are a text."""
    found = CallList(DIALECTS[CHAT], whole=True)
    listed = [{"id": ident, "function": {"name": name, "arguments": json.dumps(more)}} for ident, name, more in calls]
    found.read(json.dumps({"choices": [{"index": 0, "message": {"tool_calls": listed}}]}).encode())
    return found


def second(
    path: Path, joint: TurnTemplate, body: bytes, reply_at: int, reply: str, calls: CallList | None, kind: str = "real"
) -> Any:
    """Items after the first of the request with *body*, stitched after *reply* and *calls*; the body, if that is stored."""
    first = PIECES.encode([{"role": "user", "content": "Hi"}], 5)
    parts = [TurnPart(each, PIECES.skip, TAIL, 1, 5, b"", at) for each, at in ((first, 0), (body, reply_at))]
    found, _ = write_conversations(path, [parts], joint, kind)
    joints = [tuple(text.encode() for text in joint.described())]
    assert joint.tools is not None
    tools = [ToolTurns(*joint.tools)]
    talks = Talks(found.turns, found.offsets, np.frombuffer(path.read_bytes(), np.uint8), joints, 1, tools=tools)
    later = json.loads(talks.joined(0, [escaped(reply)], [calls])[1])
    return later if kind == "stored" else later["input"][1:]


def in_messages(said: str, calls: list[Any], answers: list[tuple[str, str]]) -> list[Any]:
    blocks = [{"type": "text", "text": said}] if said else []
    blocks += [{"type": "tool_use", "id": ident, "name": name, "input": more} for ident, name, more in calls]
    results = [{"type": "tool_result", "tool_use_id": ident, "content": text} for ident, text in answers]
    return [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]


def in_responses(said: str, calls: list[Any], answers: list[tuple[str, str]]) -> list[Any]:
    items = [{"role": "assistant", "content": said}] if said else []
    items += [
        {"type": "function_call", "call_id": ident, "name": name, "arguments": json.dumps(more)}
        for ident, name, more in calls
    ]
    return items + [{"type": "function_call_output", "call_id": ident, "output": text} for ident, text in answers]


BOTH = pytest.mark.parametrize(("joint", "form"), [(MESSAGES, in_messages), (RESPONSES, in_responses)])


@BOTH
@given(CALLS, TEXT, TEXT)
def test_a_tool_turn_answers_the_first_call(tmp_path_factory, joint, form, calls, said, result):
    """As a plan holds it, after a reply with calls: the others get answers without content."""
    body = PIECES.encode([{"role": "user", "content": result}], 5)
    later, reply_at = tool_turn(body, PIECES.skip, TAIL, escaped(result), 1, joint)
    path = Path(tmp_path_factory.mktemp("turns")) / "bodies"
    answers = [(ident, "" if place else result) for place, (ident, _, _) in enumerate(calls)]
    assert second(path, joint, later, reply_at, said, call_list(calls)) == form(said, calls, answers)
    if said:
        stand_in = [("call00001", "lookup", {})]
        assert second(path, joint, later, reply_at, said, None) == form(said, stand_in, [("call00001", result)])


@BOTH
@given(CALLS, TEXT)
def test_a_users_turn_after_calls(tmp_path_factory, joint, form, calls, said):
    question = {"role": "user", "content": "And?"}
    path = Path(tmp_path_factory.mktemp("turns")) / "bodies"
    found = second(path, joint, PIECES.encode([question], 5), 0, said, call_list(calls))
    assert found == [*form(said, calls, [(ident, "") for ident, _, _ in calls]), question]


@BOTH
def test_planned_answers_follow_their_calls(tmp_path, joint, form):
    """Two planned calls, answered in the other order, and what comes after them."""
    planned, more = form("#", [("p1", "x", {}), ("p2", "y", {})], [("p2", "two"), ("p1", "one")]), {"role": "user"}
    body = PIECES.encode([*planned, more], 5)
    reply_at = body.index(b"#")
    body = body[:reply_at] + body[reply_at + 1 :]
    real = [("r1", "f", {"a": 1}), ("r2", "g", {})]
    found = second(tmp_path / "bodies", joint, body, reply_at, "", call_list(real))
    assert found == [*form("", real, [("r2", "two"), ("r1", "one")]), more]
    found = second(tmp_path / "bodies", joint, body, reply_at, "So", call_list(real[:1]))
    assert found == [*form("So", [real[0], ("p2", "y", {})], [("p2", "two"), ("r1", "one")]), more]


@pytest.mark.parametrize("cut", ["tool_use", "tool_result", '"text":"'])
def test_a_turn_in_another_form_carries_the_text_alone(tmp_path, cut):
    body = PIECES.encode(in_messages("#", [("p1", "x", {})], [("p1", "one")]), 5).replace(
        cut.encode(), cut[:-1].encode() + b"_"
    )
    if cut == '"text":"':
        body = PIECES.encode([{"role": "assistant", "content": "#"}], 5)
    reply_at = body.index(b"#")
    found = second(
        tmp_path / "b", MESSAGES, body[:reply_at] + body[reply_at + 1 :], reply_at, "So", call_list([("r", "f", {})])
    )
    assert "So" in json.dumps(found) and '"r"' not in json.dumps(found)


def streamed(blocks: list[dict[str, Any]], pieces: int) -> list[dict[str, Any]]:
    """Events of *blocks* as Anthropic's API sends them, each text in *pieces*."""
    events = []
    for index, block in enumerate(blocks):
        empty = {"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}, "tool_use": {"input": {}}}
        begun = block | empty.get(block["type"], {})
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        name, text = {
            "thinking": ("thinking", block.get("thinking")), "text": ("text", block.get("text")),
            "tool_use": ("partial_json", json.dumps(block.get("input"))), "redacted_thinking": ("", ""),
        }[block["type"]]  # fmt: skip
        size = len(text) // pieces + 1
        of_delta = "input_json" if name == "partial_json" else name
        deltas = [{"type": f"{of_delta}_delta", name: text[at : at + size]} for at in range(0, len(text), size) if name]
        if block["type"] == "thinking":
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    return events


THOUGHT = st.builds(
    lambda text, signature: {"type": "thinking", "thinking": text, "signature": signature}, TEXT, TEXT.filter(bool)
)
REDACTED = st.builds(lambda data: {"type": "redacted_thinking", "data": data}, TEXT)


@given(
    st.lists(st.one_of(THOUGHT, REDACTED), min_size=1, max_size=4), TEXT, st.one_of(st.just([]), CALLS),
    st.integers(1, 3), st.booleans(), st.booleans(),
)  # fmt: skip
def test_thoughts_come_back_as_they_were_sent(tmp_path_factory, thoughts, said, calls, pieces, whole, tool):
    """In front of text and calls, with their signatures; after a reply with and without calls, streamed and whole, in a
    user's turn and in one with a tool's answer.
    """
    text = [{"type": "text", "text": said}] if said else []
    uses = [{"type": "tool_use", "id": ident, "name": name, "input": more} for ident, name, more in calls]
    blocks = [*thoughts, *text, *uses]
    found = CallList(OTHERS[OF_MESSAGES], whole)
    for event in [{"type": "message", "content": blocks}] if whole else streamed(blocks, pieces):
        found.read(json.dumps(event).encode())
    question = {"role": "user", "content": "And?"}
    body, reply_at = PIECES.encode([question], 5), 0
    if tool:
        body, reply_at = tool_turn(body, PIECES.skip, TAIL, escaped("Sun"), 1, MESSAGES)
    path = Path(tmp_path_factory.mktemp("turns")) / "bodies"
    answered = in_messages("", calls, [(ident, "") for ident, _, _ in calls])[1:] if calls else []
    later = [{"role": "assistant", "content": blocks}, *answered, question]
    if tool:
        uses = uses or [{"type": "tool_use", "id": "call00001", "name": "lookup", "input": {}}]
        results = [("" if place else "Sun", one["id"]) for place, one in enumerate(uses)]
        blocks = [*thoughts, *text, *uses]
        answers = [{"type": "tool_result", "tool_use_id": ident, "content": text} for text, ident in results]
        later = [{"role": "assistant", "content": blocks}, {"role": "user", "content": answers}]
    assert second(path, MESSAGES, body, reply_at, said, found) == later


@given(TEXT, st.one_of(st.just([]), CALLS), TEXT, st.booleans(), st.booleans())
def test_a_stored_reply_is_named(tmp_path_factory, said, calls, ident, whole, tool):
    """A turn has its own items alone, answers to the calls of the reply, and the reply's id."""
    found = CallList(OTHERS[OF_RESPONSES], whole)
    output = [
        {"type": "function_call", "id": f"fc_{each}", "call_id": each, "name": name, "arguments": json.dumps(more)}
        for each, name, more in calls
    ]
    response = {"object": "response", "id": ident, "status": "completed", "output": output}
    events = [{"type": "response.output_item.added", "item": item} for item in output]
    events.append({"type": "response.completed", "response": response})
    for event in [response] if whole else events:
        found.read(json.dumps(event).encode())
    question = {"role": "user", "content": "And?"}
    body, reply_at = PIECES.encode([question], 5), 0
    expected = [{"type": "function_call_output", "call_id": each, "output": ""} for each, _, _ in calls]
    if tool:
        body, reply_at = tool_turn(body, PIECES.skip, TAIL, escaped("Sun"), 1, RESPONSES)
        if calls:
            expected[0]["output"] = "Sun"
        else:
            expected = in_responses("", [("call00001", "lookup", {})], [("call00001", "Sun")])
    else:
        expected.append(question)
    path = Path(tmp_path_factory.mktemp("turns")) / "bodies"
    sent = second(path, RESPONSES, body, reply_at, said, found, "stored")
    assert sent == json.loads(PIECES.encode([], 5)) | {"input": expected, "previous_response_id": ident}


def test_a_stored_reply_with_more_planned_calls(tmp_path):
    """Those that the reply did not make are sent with their answers."""
    planned, more = (
        in_responses("#", [("p1", "x", {}), ("p2", "y", {})], [("p2", "two"), ("p1", "one")]),
        {"role": "user"},
    )
    body = PIECES.encode([*planned, more], 5)
    reply_at = body.index(b"#")
    body = body[:reply_at] + body[reply_at + 1 :]
    real = [("r1", "f", {"a": 1}), ("r2", "g", {})]
    found = second(tmp_path / "bodies", RESPONSES, body, reply_at, "", call_list(real), "stored")
    assert found["input"] == [*in_responses("", [], [("r2", "two"), ("r1", "one")]), more]
    found = second(tmp_path / "bodies", RESPONSES, body, reply_at, "So", call_list(real[:1]), "stored")
    assert found["input"] == [*in_responses("", [("p2", "y", {})], [("p2", "two"), ("r1", "one")]), more]
    assert found["previous_response_id"] == ""  # a server that gave no id refuses this


@pytest.mark.parametrize("joint", [MESSAGES, RESPONSES])
def test_a_plan_has_its_turns(tmp_path, monkeypatch, joint):
    """A drawn conversation of an endpoint with these templates, with the history planned and as it goes."""
    endpoint = replace(ENDPOINT, joint=joint)
    monkeypatch.setitem(ENDPOINTS, endpoint.name, endpoint)
    changes = {"load__duration": None, "load__num_requests": 3, "workload__turns": "3", "workload__tool_turns": 1.0}
    settings = asked(**changes, workload__isl="9", target__endpoint_type=endpoint.name)
    plan = build_plan(settings, phase="measure", endpoint=endpoint, model="m", out_dir=tmp_path)
    talks = Talks(plan.turns, plan.body_offset, plan.bodies, plan.joints, len(plan.starts), tools=plan.tools)
    bodies = talks.joined(0, [b"one", b"two"], [call_list([("r1", "f", {})]), None])
    items = json.loads(bodies[2])["input"]
    text = json.dumps(items)
    assert [text.count(each) for each in ('"one"', '"two"', '"r1"', '"call00002"')] == [1, 1, 2, 2]
    assert items[0]["role"] == "user" and items[-1] != items[0]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"json": "$said$what"}, "unknown slot, $what"), ({"said": "no slot"}, "one slot"),
        ({"json": "$said" * 6}, "enlarge PIECES_MOST"),
        ({"answer": Part("$id", "id", names=("a", "b", "c"))}, "enlarge NAMES_MOST"),
    ],
)  # fmt: skip
def test_templates_that_cannot_be_followed(changes, problem):
    with pytest.raises(ValueError, match=re.escape(problem)):
        ToolTurns(*RESPONSES.tools._replace(**changes))
