"""Tool calls of replies: put together out of fragments as servers stream them, and carried into the next turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ext.dialects import CHAT, COMPLETIONS, DIALECTS, OLLAMA_CHAT
from ext.test_ext_exchange import DONE, HEAD, Bench, chunk
from hypothesis import given
from hypothesis import strategies as st
from refusals import raises_code

from fastllmload._ext.events.calls import CallList
from fastllmload._ext.plan.talk import Talks
from fastllmload._ext.plan.toolturn import ToolTurns
from fastllmload._ext.receive.protocol import Conversation
from fastllmload.endpoint import ENDPOINTS
from fastllmload.plan.conversations.scripted import place_reply, with_open_reply, with_planned_calls
from fastllmload.plan.conversations.synthetic import tool_turn
from fastllmload.plan.conversations.turns import TurnPart, escaped, write_conversations
from fastllmload.plan.prompts.encoder import RequestEncoder
from fastllmload.settings import Workload
from fastllmload.workload.request import DatasetRequest

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
FILLED = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
CALLS = st.lists(
    st.tuples(FILLED, FILLED, st.lists(TEXT, max_size=5)), min_size=1, max_size=5, unique_by=lambda one: one[0]
)

TOOLS = {
    dialect: ToolTurns(*ENDPOINTS[name].joint.tools)
    for dialect, name in ((CHAT, "openai-chat"), (OLLAMA_CHAT, "ollama-chat"))
}


def entry(
    index: int | None, ident: str | None = None, name: str | None = None, arguments: Any = None
) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    said = {"index": index, "id": ident, "type": "function" if ident else None, "function": function or None}
    return {key: value for key, value in said.items() if value is not None}


def event(*entries: dict[str, Any], ascii_only: bool = True, **more: Any) -> bytes:
    choice = {"index": 0, "delta": {"tool_calls": list(entries), **more}, "finish_reason": None}
    return json.dumps({"id": "x", "choices": [choice]}, ensure_ascii=ascii_only).encode()


def written(events: list[bytes], dialect: int = CHAT, whole: bool = False) -> list[dict[str, Any]]:
    calls = CallList(DIALECTS[dialect], whole)
    for each in events:
        calls.read(each)
    found: list[dict[str, Any]] = json.loads(b"[" + TOOLS[dialect].written(calls, 7) + b"]")
    return found


def whole(ident: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


@given(CALLS, st.randoms(use_true_random=False), st.booleans())
def test_fragments_of_parallel_calls_are_put_together(calls, order, ascii_only):
    """In any order of the calls' fragments, each call's own in order; quotes, escapes and foreign letters included."""
    waiting = [
        [entry(at, ident, name, ""), *(entry(at, arguments=piece) for piece in pieces)]
        for at, (ident, name, pieces) in enumerate(calls)
    ]
    events = []
    while any(waiting):
        many = order.randint(1, 3)
        chosen = [order.choice([each for each in waiting if each]).pop(0) for _ in range(many) if any(waiting)]
        events.append(event(*chosen, ascii_only=ascii_only))
    assert written(events) == [whole(ident, name, "".join(pieces)) for ident, name, pieces in calls]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([event(entry(0, "a")), event(entry(0, None, "f")), event(entry(0, arguments="{}"))], [whole("a", "f", "{}")]),
        ([event(entry(0, "a", "f", "{")), event(entry(0, "a", "f", "}"))], [whole("a", "f", "{}")]),  # all said again
        ([event(entry(0, "a", "f", "{}")), event(entry(0, "b", "g", "[]"))], [whole("a", "f", "{}"), whole("b", "g", "[]")]),
        ([event(entry(None, "a", "f", "{")), event(entry(None, arguments="}")), event(entry(None, "b", "g", "{}"))],
         [whole("a", "f", "{}"), whole("b", "g", "{}")]),
        ([event(entry(None, None, "f", "{}")), event(entry(None, None, "f", "[]"))],
         [whole("c0007p000", "f", "{}"), whole("c0007p001", "f", "[]")]),  # no ids: made up, by turn and place
        ([event(entry(2, "c", "h", "3")), event(entry(0, "a", "f", "1"))], [whole("a", "f", "1"), whole("c", "h", "3")]),
        ([event(entry(0, "a", "f", {"x": ' "\n\\'}))], [whole("a", "f", '{"x": " \\"\\n\\\\"}')]),  # an object becomes text
        ([event(entry(0, "a", "get_"), entry(0, None, "it", "{}"))], [whole("a", "get_it", "{}")]),
        ([event(entry(0, "a", "f", "{}"), content="and text")], [whole("a", "f", "{}")]),
        ([b'{"choices":[{"index":0,"delta":{"tool\\u005fcalls":[{"index":0,"id":"a","function":{"name":"f"}}]}}]}'],
         [whole("a", "f", "")]),
        ([b'{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"\\ud83d"}}]}}]}'],
         [whole("a", "f", "\ufffd")]),
        ([b'{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"\xff"}}]}}]}'],
         [whole("a", "f", "\ufffd")]),
        ([b'{"choices":[{"index":1,"delta":{"tool_calls":[{"id":"z"}]}},{"index":0,"delta":{"tool_calls":[{"id":"a"}]}}]}'],
         [whole("a", "", "")]),
        ([b"not json", b"{}", b'{"choices":[{"delta":{}}]}', b'{"choices":[{"delta":{"tool_calls":null}}]}'], []),
    ],
)  # fmt: skip
def test_calls_of_servers_that_break_the_rule(events, expected):
    """Ids that come alone, again or never, calls that share an index or have none, objects for texts."""
    assert written(events) == expected


def test_calls_of_whole_messages_and_of_ollama():
    """Each entry is a call of its own; Ollama's arguments stay an object, and no id is invented for it."""
    message = {"content": None, "tool_calls": [whole("a", "f", "{}"), whole("b", "f", '{"q":"é"}')]}
    document = json.dumps({"choices": [{"index": 0, "message": message}]}).encode()
    assert written([document], whole=True) == message["tool_calls"]
    said = [
        {"function": {"name": "f", "arguments": {"a": [1, "x"]}}},
        {"id": "i", "function": {"name": "g", "arguments": {}}},
    ]
    events = [
        json.dumps({"message": {"role": "assistant", "content": "", "tool_calls": [one]}}).encode() for one in said
    ]
    assert written(events, OLLAMA_CHAT) == said
    with pytest.raises(ValueError, match="no tool calls"):
        CallList(DIALECTS[COMPLETIONS])


def stream() -> tuple[bytes, list[dict[str, Any]]]:
    """A whole reply: text, then two calls whose arguments have every kind of character."""
    arguments = ['{"q":"a \\"b\\" \\\\ ', "é\\u00e9 \U0001f600 \\n", '"}']
    events = [
        event(content="Let me see."),
        event(entry(0, "id-1", "look", "")),
        *(event(entry(0, arguments=piece), ascii_only=False) for piece in arguments),
        event(entry(1, "id-2", "find", "{}")),
        json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}).encode(),
    ]
    body = b"".join(chunk(b"data: " + each + b"\n\n") for each in events) + chunk(DONE) + b"0\r\n\r\n"
    return HEAD + body, [whole("id-1", "look", "".join(arguments)), whole("id-2", "find", "{}")]


def test_a_reply_cut_at_any_byte_has_the_same_calls(tmp_path):
    """One connection, one reply per place of the cut; what is kept is the text and the calls of that reply alone."""
    data, expected = stream()
    bench = Bench(tmp_path)
    conversation = Conversation(bench.protocol)
    for at in range(1, len(data)):
        conversation.open(1, keep=True)
        conversation.feed(data[:at], 2)
        conversation.feed(data[at:], 3)
        assert conversation.ended
        text, calls = conversation.kept()
        said = [whole(ident.decode(), name.decode(), json.loads(b'"' + more + b'"')) for ident, name, more in calls]
        assert (text, said) == (b"Let me see.", expected), f"cut at {at}"
    conversation.open(1)  # nothing follows: nothing is kept, neither of this reply nor of the one before
    conversation.feed(data, 2)
    assert conversation.kept() == (b"", [])


# -- in the next turn -------------------------------------------------------------------------------------------------


def reply_of(calls: list[dict[str, Any]]) -> CallList:
    found = CallList(DIALECTS[CHAT], whole=True)
    found.read(json.dumps({"choices": [{"index": 0, "message": {"tool_calls": calls}}]}).encode())
    return found


def second_turn(
    tmp_path: Path, turn: list[dict[str, Any]], text: str, calls: CallList | None, name: str = "openai-chat"
) -> Any:
    """Messages of the second request of a conversation, whose own messages are *turn*."""
    endpoint = ENDPOINTS[name]
    pieces = endpoint.messages_pieces("m", Workload())
    parts = []
    for number, content in enumerate(([{"role": "user", "content": "Hi"}], turn)):
        one = with_planned_calls(DatasetRequest("line 1", content), endpoint, number)
        one = RequestEncoder(endpoint, "m", Workload()).in_form(with_open_reply(one) if number else one)
        body, skip = pieces.encode(one.content, 5), pieces.skip
        at, takes = 0, True
        if number:
            body, at, takes = place_reply(body, skip, one, endpoint.joint)
        parts.append(TurnPart(body, skip, pieces.closing(5), 1, 5, b"", at, takes))
    path = tmp_path / "bodies"
    found, _ = write_conversations(path, [parts], endpoint.joint, "real")
    table = found.turns
    joint = tuple(part.encode() for part in endpoint.joint.described())
    raw, tools = np.frombuffer(path.read_bytes(), np.uint8), ToolTurns(*endpoint.joint.tools)
    talks = Talks(table, found.offsets, raw, [joint], 1, tools=[tools])
    bodies = talks.joined(0, [escaped(text)], [calls])
    return json.loads(bodies[1])[endpoint.prompt_fields[0]]


TWO = [whole("r1", "f", '{"a":1}'), whole("r2", "g", '{"b":"\\""}')]
HI = {"role": "user", "content": "Hi"}


def said(content: str | None, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def answer(ident: str, content: str = "") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": ident, "content": content}


def test_a_users_turn_behind_calls(tmp_path):
    """The calls are in the history, each with an answer without content: no server takes them unanswered."""
    turn = [{"role": "user", "content": "And?"}]
    assert second_turn(tmp_path, turn, "", reply_of(TWO)) == [HI, said(None, *TWO), answer("r1"), answer("r2"), *turn]
    found = second_turn(tmp_path, turn, "So.", reply_of(TWO[:1]))
    assert found == [HI, said("So.", TWO[0]), answer("r1"), *turn]
    assert second_turn(tmp_path, turn, "So.", None) == [HI, {"role": "assistant", "content": "So."}, *turn]


def test_answers_name_the_real_calls_by_place(tmp_path):
    """As many, fewer and more than the server made."""
    turn = [
        {"role": "tool", "content": "one"},
        {"role": "tool", "content": "two", "tool_call_id": "mine"},
        {"role": "user", "content": "?"},
    ]
    both = second_turn(tmp_path, turn, "", reply_of(TWO))
    assert both == [HI, said(None, *TWO), answer("r1", "one") | {}, answer("r2", "two"), turn[2]]
    fewer = second_turn(tmp_path, turn[:1], "", reply_of(TWO))
    assert fewer == [HI, said(None, *TWO), answer("r1", "one"), answer("r2")]
    stand_in = whole("mine", "lookup", "{}")
    more = second_turn(tmp_path, turn, "Hm.", reply_of(TWO[:1]))
    assert more == [HI, said("Hm.", TWO[0], stand_in), answer("r1", "one"), answer("mine", "two"), turn[2]]
    none = second_turn(tmp_path, turn, "No.", None)
    assert none == [
        HI,
        said("No.", whole("t00010000", "lookup", "{}"), stand_in),
        answer("t00010000", "one"),
        answer("mine", "two"),
        turn[2],
    ]


def test_answers_that_name_planned_calls_follow_them(tmp_path):
    """A data set's own message with calls: its answers come in another order, and say the tool's name."""
    planned = {
        "role": "assistant",
        "content": None,
        "tool_calls": [whole("p1", "x", "{}"), whole("p2", "y", "{}")],
        "name": "bot",
    }
    answers = [{"name": "y", **answer("p2", "second")}, {**answer("p1", "first"), "name": "x"}]
    found = second_turn(tmp_path, [planned, *answers], "", reply_of(TWO))
    assert found == [
        HI,
        said(None, *TWO) | {"name": "bot"},
        {"name": "g", **answer("r2", "second")},
        {**answer("r1", "first"), "name": "f"},
    ]


def test_ollamas_history(tmp_path):
    """Objects for arguments, no ids, answers by the tool's name; a text where nothing was said."""
    calls = CallList(DIALECTS[OLLAMA_CHAT])
    real = [{"function": {"name": "f", "arguments": {"a": 1}}}, {"function": {"name": "g", "arguments": {}}}]
    calls.read(json.dumps({"message": {"content": "", "tool_calls": real}}).encode())
    found = second_turn(tmp_path, [{"role": "tool", "content": "one"}], "", calls, "ollama-chat")
    assert found == [
        HI, said("", *real), {"role": "tool", "content": "one", "tool_name": "f"},
        {"role": "tool", "tool_name": "g", "content": ""},
    ]  # fmt: skip


def in_responses(text: str, calls: list[dict[str, Any]], answers: list[tuple[str, str]]) -> list[dict[str, Any]]:
    items = [HI] + ([{"role": "assistant", "content": text}] if text else [])
    for one in calls:
        items.append({"type": "function_call", "call_id": one["id"], **one["function"]})
    return items + [{"type": "function_call_output", "call_id": ident, "output": said} for ident, said in answers]


def in_messages(text: str, calls: list[dict[str, Any]], answers: list[tuple[str, str]]) -> list[dict[str, Any]]:
    if not calls:
        return [HI, {"role": "assistant", "content": text}]
    functions = [(one["id"], one["function"]) for one in calls]
    used = [
        {"type": "tool_use", "id": ident, "name": one["name"], "input": json.loads(one["arguments"])}
        for ident, one in functions
    ]
    results = [{"type": "tool_result", "tool_use_id": ident, "content": said} for ident, said in answers]
    said = [{"type": "text", "text": text}] if text else []
    return [HI, {"role": "assistant", "content": said + used}, {"role": "user", "content": results}]


OTHER_FORMS = pytest.mark.parametrize(
    ("name", "form"), [("openai-responses", in_responses), ("anthropic-messages", in_messages)]
)


@OTHER_FORMS
def test_a_data_sets_answers_in_another_protocols_form(tmp_path, name, form):
    """Data sets are written as chat is, or as the protocol is: answers alone, with planned calls, own replies."""
    turn = [{"role": "tool", "content": "one"}, {"role": "tool", "content": "two", "tool_call_id": "mine"}, HI]
    stand_ins = [whole("t00010000", "lookup", "{}"), whole("mine", "lookup", "{}")]
    assert second_turn(tmp_path, turn, "So.", None, name) == [
        *form("So.", stand_ins, [("t00010000", "one"), ("mine", "two")]), HI,
    ]  # fmt: skip
    assert second_turn(tmp_path, turn, "", reply_of(TWO), name) == [*form("", TWO, [("r1", "one"), ("r2", "two")]), HI]
    planned = [whole("p1", "x", "{}"), whole("p2", "y", "{}")]
    answers = [answer("p2", "second"), answer("p1", "first")]
    for content in (None, ""):
        found = second_turn(tmp_path, [said(content, *planned), *answers], "Hm.", reply_of(TWO), name)
        assert found == form("Hm.", TWO, [("r2", "second"), ("r1", "first")])
    own = form("", planned, [("p2", "second"), ("p1", "first")])[1:]
    found = second_turn(tmp_path, own, "Hm.", reply_of(TWO), name)
    assert found == form("Hm.", TWO, [("r2", "second"), ("r1", "first")])
    history = [{"role": "assistant", "content": "Own."}, HI]
    assert [one["role"] for one in second_turn(tmp_path, history, "Hm.", None, name)] == ["user", "assistant", "user"]
    assert "Hm." not in json.dumps(second_turn(tmp_path, history, "Hm.", reply_of(TWO), name))
    empty = [{"role": "assistant", "content": ""}, HI]
    assert second_turn(tmp_path, empty, "Hm.", None, name) == [*form("Hm.", [], []), HI]


@given(CALLS, TEXT)
def test_synthetic_tool_turns_bring_the_result_of_the_first_call(tmp_path_factory, calls, text):
    """Whatever was called: the history is one that a strict server takes."""
    from fastllmload.simulator.body import decoder

    endpoint = ENDPOINTS["openai-chat"]
    decode = decoder(endpoint.simulated[0])
    pieces = endpoint.messages_pieces("m", Workload())
    body = pieces.encode([{"role": "user", "content": text}], 9)
    skip, tail = pieces.skip, pieces.closing(9)
    later, at = tool_turn(body, skip, tail, escaped(text), 1, endpoint.joint)
    parts = [TurnPart(body, skip, tail, 1, 9), TurnPart(later, skip, tail, 1, 9, b"", at)]
    path = Path(tmp_path_factory.mktemp("calls")) / "bodies"
    found, _ = write_conversations(path, [parts], endpoint.joint, "real")
    table = found.turns
    joint = tuple(part.encode() for part in endpoint.joint.described())
    raw, tools = np.frombuffer(path.read_bytes(), np.uint8), ToolTurns(*endpoint.joint.tools)
    talks = Talks(table, found.offsets, raw, [joint], 1, tools=[tools])
    real = [whole(ident, name, "".join(pieces)) for ident, name, pieces in calls]
    stitched = talks.joined(0, [b""], [reply_of(real)])[1]
    decode(stitched)
    messages = json.loads(stitched)["messages"]
    assert messages[1] == said(None, *real)
    assert messages[2] == answer(calls[0][0], text)
    assert messages[3:] == [answer(ident) for ident, _, _ in calls[1:]]


def test_a_conversation_cannot_begin_with_an_answer():

    with raises_code("dataset-field-invalid", "line 3", "role tool"):
        with_planned_calls(DatasetRequest("line 3", [{"role": "tool", "content": "x"}]), ENDPOINTS["openai-chat"], 0)
