"""Stitched bodies of conversations, and the heap of instants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fastllmload._ext.plan.talk import Talks, edge_dtype, in_order, leaving_dtype, piece_dtype, turn_dtype
from fastllmload.endpoint import ENDPOINTS
from fastllmload.plan.conversations.synthetic import tool_turn
from fastllmload.plan.conversations.turns import TurnPart, escaped, joined, write_conversations
from fastllmload.plan.plan import CLIENT_ROW, EDGE, PIECE, TURN
from fastllmload.settings import Workload

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TURNS = st.lists(st.tuples(TEXT, TEXT, st.integers(1, 2000), st.booleans()), min_size=1, max_size=6)


def test_layouts_are_those_of_the_plan():
    assert turn_dtype() == TURN
    assert leaving_dtype() == CLIENT_ROW
    assert edge_dtype() == EDGE
    assert piece_dtype() == PIECE


@given(st.lists(st.integers(0, 1 << 62), max_size=200))
def test_dues_come_in_order(instants):
    """All of them, each with its own number, the earliest first."""
    found = in_order(instants)
    assert [instant for instant, _ in found] == sorted(instants)
    assert sorted(number for _, number in found) == list(range(len(instants)))
    assert all(instants[number] == instant for instant, number in found)


def parts_of(endpoint, turns):
    """Turns that stand alone, as a plan has them."""
    chat = endpoint.takes("messages")
    pieces = (endpoint.messages_pieces if chat else endpoint.body_pieces)("m", Workload())
    found = []
    for number, (text, reply, tokens, tool) in enumerate(turns):
        body = pieces.encode([{"role": "user", "content": text}] if chat else text, tokens)
        skip, tail, reply_at = pieces.skip, pieces.closing(tokens), 0
        if tool and number and chat:
            body, reply_at = tool_turn(body, skip, tail, escaped(text), number, endpoint.joint)
        found.append(TurnPart(body, skip, tail, 1, tokens, escaped(reply), reply_at))
    return found


def text_of(said: dict[str, Any]) -> str:
    """What a message, or an item of Responses, says or answers a call with; it may be in parts."""
    content = said.get("content", said.get("output", ""))
    if isinstance(content, str):
        return content
    return "".join(part["text"] if part["type"] == "text" else part.get("content", "") for part in content)


OF_TEXT = [name for name, one in ENDPOINTS.items() if one.tokens and one.takes("text") and one.call is None]


@given(TURNS, st.sampled_from(sorted(OF_TEXT)))
def test_a_stitched_body_is_the_planned_one(tmp_path_factory, turns, name):
    """With the same replies, what the worker stitches is what a plan with planned history holds, and it is JSON."""
    endpoint = ENDPOINTS[name]
    parts = parts_of(endpoint, turns)
    path = Path(tmp_path_factory.mktemp("talk")) / "bodies"
    whole, _ = write_conversations(path, [parts], endpoint.joint, "planned")
    planned = path.read_bytes()
    real, _ = write_conversations(path, [parts], endpoint.joint, "real")
    table = real.turns
    alone = np.frombuffer(path.read_bytes(), np.uint8)
    joint = tuple(text.encode() for text in endpoint.joint.described())
    talks = Talks(table, real.offsets, alone, [joint], 1)
    found = talks.joined(0, [escaped(reply) for _, reply, _, _ in turns[:-1]])
    assert talks.alive == 0
    assert found == [planned[begin:end] for begin, end in zip(whole.offsets[:-1], whole.offsets[1:], strict=True)]
    last = json.loads(found[-1])
    if endpoint.takes("messages"):
        said = [text_of(one) for one in last["input" if "input" in last else "messages"]]
        assert (
            "".join(said)
            == "".join(text for asks, answers, _, _ in turns for text in (asks, answers))[: -len(turns[-1][1]) or None]
        )
    else:
        assert (
            last[endpoint.prompt_fields[0]]
            == "\n".join(text for asks, answers, _, _ in turns for text in (asks, answers))[: -len(turns[-1][1]) - 1]
        )
    assert b":%d" % turns[-1][2] in found[-1]


def test_a_message_of_the_assistants_own_takes_no_reply():
    part = TurnPart(b'{"messages":[{"role":"assistant"}]}', 13, 2, 1, 1, takes_reply=False)
    assert joined(b"X", b"never", part, ENDPOINTS["openai-chat"].joint) == b'X,{"role":"assistant"}]}'
