"""Protocols without an endpoint, described as dialects: scan, msgspec and a plain twin agree on any events."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from ext.dialects import (
    GENERATE,
    MESSAGES,
    OTHER_NAMES,
    OTHERS,
    RESPONSES,
    SGLANG,
    TGI,
    TRITON,
    TRITON_SO_FAR,
)  # fmt: skip
from ext.reference import protocols_reference
from ext.reference.protocols_text import BODIES, EVENTS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastllmload._ext.events.calls import CallList
from fastllmload._ext.events.delta import Classifier, expand_text
from fastllmload._ext.events.dialect import Dialect
from fastllmload._ext.events.dialect import Field as F
from fastllmload._ext.plan.toolturn import ToolTurns
from fastllmload.endpoint import ENDPOINTS
from fastllmload.records.layout import EVENT_NAMES, FINISH_NAMES

TEMPLATE, SCAN, MSGSPEC = 0, 1, 2
FAST = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


def bare(meaning: dict[str, Any]) -> dict[str, Any]:
    said = {name: value for name, value in meaning.items() if name != "decoder"}
    return said | {"text": None if said["text"] is None else expand_text(said["text"])}


def agreed(events: list[bytes], protocol: int) -> list[dict[str, Any]]:
    """Meanings of one stream's events, on which scan, msgspec and twin agree."""
    quick, strict, stream = (
        Classifier(OTHERS[protocol]),
        Classifier(OTHERS[protocol], True),
        protocols_reference.Stream(),
    )
    found = []
    for data in events:
        found.append(bare(strict.classify_bytes(data)))
        assert bare(quick.classify_bytes(data)) == found[-1]
        assert protocols_reference.classify(data, protocol, stream) == found[-1]
    return found


@pytest.mark.parametrize("protocol", range(len(OTHERS)), ids=OTHER_NAMES)
def test_any_events_mean_the_same_on_every_path(protocol: int) -> None:
    """Of streams whose events have their keys in any order, of wrong types, twice, escaped, and none of them at all."""

    @FAST
    @given(events=st.lists(EVENTS[protocol], min_size=1, max_size=4))
    def all_agree(events: list[bytes]) -> None:
        agreed(events, protocol)

    all_agree()


PIECES = [b'"', b"\\", b",", b":", b"{", b"}", b"]", b"0", b"\x00", b" ", b"\xc2", b"\\u00e9", b"\\ud83d", b"null"]


@pytest.mark.parametrize("protocol", range(len(OTHERS)), ids=OTHER_NAMES)
def test_damaged_events_mean_the_same_on_every_path(protocol: int) -> None:
    """Bytes are put in or left out."""

    @FAST
    @given(
        events=st.lists(EVENTS[protocol], min_size=1, max_size=2),
        places=st.lists(
            st.tuples(st.integers(0, 400), st.integers(0, 3), st.sampled_from(PIECES)), min_size=1, max_size=2
        ),
    )
    def all_agree(events: list[bytes], places: list[tuple[int, int, bytes]]) -> None:
        damaged = bytearray(events[0])
        for at, size, piece in places:
            at %= len(damaged) + 1
            damaged[at : at + size] = piece
        agreed([events[-1], bytes(damaged), events[-1]], protocol)

    all_agree()


@pytest.mark.parametrize("protocol", [RESPONSES, MESSAGES])
def test_any_body_means_the_same_on_every_path(protocol: int) -> None:
    @FAST
    @given(data=BODIES[protocol])
    def all_agree(data: bytes) -> None:
        strict = bare(Classifier(OTHERS[protocol], True).classify_body_bytes(data))
        assert bare(Classifier(OTHERS[protocol]).classify_body_bytes(data)) == strict
        assert protocols_reference.whole(data, protocol) == strict

    all_agree()


def orders(event: dict[str, Any]) -> list[bytes]:
    """The *event* with its keys in every order."""
    return [json.dumps(dict(pairs)).encode() for pairs in itertools.permutations(event.items())]


@pytest.mark.parametrize(
    ("protocol", "event", "kind", "text"),
    [
        (RESPONSES, {"type": "response.output_text.delta", "item_id": "a", "delta": "Two", "n": 4}, "content", "Two"),
        (RESPONSES, {"type": "response.reasoning_text.delta", "item_id": "a", "delta": "Hm"}, "reasoning", "Hm"),
        (RESPONSES, {"type": "response.output_text.done", "item_id": "a", "text": "Two"}, "other", None),
        (RESPONSES, {"type": "response.new", "delta": {"x": 1}}, "other", None),
        (RESPONSES, {"type": "error", "message": "no"}, "error", None),
        (RESPONSES, {"type": "response.failed", "response": {"error": {}}}, "error", None),
        (MESSAGES, {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Two"}}, "content", "Two"),
        (MESSAGES, {"type": "content_block_delta", "delta": {"text": "Two", "type": "signature_delta"}}, "other", None),
        (MESSAGES, {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, "finish", None),
        (MESSAGES, {"type": "message_stop"}, "done", None),
        (MESSAGES, {"type": "ping"}, "other", None),
        (GENERATE, {"choices": [{"index": 0, "token_ids": [5, 6]}], "usage": None}, "content", None),
        (GENERATE, {"choices": [{"index": 0, "text": "", "token_ids": [5, 6]}], "usage": None}, "empty", None),
        (TGI, {"token": {"id": 3, "text": "</s>", "special": True}, "generated_text": None}, "empty", None),
        (TGI, {"token": {"id": 3, "text": "a", "special": False}, "generated_text": "aa"}, "content", "a"),
        (TRITON, {"model_name": "m", "text_output": "a", "finish_reason": "None"}, "content", "a"),
    ],
)  # fmt: skip
def test_the_order_of_keys_says_nothing(protocol: int, event: dict[str, Any], kind: str, text: str | None) -> None:
    """A word tells what comes before it as well; the scan reads all of them."""
    for data in orders(event):
        (said,) = agreed([data], protocol)
        assert (EVENT_NAMES[said["kind"]], said["text"]) == (kind, text)
        assert Classifier(OTHERS[protocol]).classify_bytes(data)["decoder"] == SCAN


def test_a_repeated_or_escaped_type_is_left_to_msgspec() -> None:
    """Of equal keys the last one counts, however a word or its key is written."""
    two = b'{"type":"response.output_text.delta","delta":"a","type":"response.refusal.delta"}'
    escaped = b'{"delta":"a","typ\\u0065":"response.refusal.delta"}'
    word = b'{"type":"response.refus\\u0061l.delta","delta":"a"}'
    for data in (two, escaped, word):
        (said,) = agreed([data], RESPONSES)
        assert EVENT_NAMES[said["kind"]] == "refusal"
        assert Classifier(OTHERS[RESPONSES]).classify_bytes(data)["decoder"] == MSGSPEC


def test_the_text_so_far_counts_once() -> None:
    """What comes after the characters that were there is new; also where these change, or the text gets shorter."""
    said = [
        "Gr\ufffd",
        "Gr\u00fcn",
        "Gr\u00fcn \U0001f600\\",
        "Gr",
        "Gr\u00fcn \U0001f600\\ ja",
        "Gr\u00fcn \U0001f600\\ ja",
    ]
    for ascii_only in (False, True):
        events = [json.dumps({"text_output": text}, ensure_ascii=ascii_only).encode() for text in said]
        found = [meaning["text"] for meaning in agreed(events, TRITON_SO_FAR)]
        assert found == ["Gr\ufffd", "n", " \U0001f600\\", None, " ja", None]


def test_a_server_that_sends_new_text_only_is_recognised_by_its_ids() -> None:
    def event(text: str, ids: int, count: int) -> bytes:
        info = {"completion_tokens": count, "finish_reason": None}
        return json.dumps({"text": text, "output_ids": [7] * ids, "meta_info": info}).encode()

    whole = agreed([event("Two", 1, 1), event("Two b", 2, 2), event("Two birds", 4, 4)], SGLANG)
    pieces = agreed([event("Two", 1, 1), event(" b", 1, 2), event("irds", 2, 4)], SGLANG)
    assert [each["text"] for each in whole] == [each["text"] for each in pieces] == ["Two", " b", "irds"]


def test_prompt_tokens_include_those_of_a_cache() -> None:
    """The last statement of each count holds, in whichever event it came."""

    def event(**usage: int) -> bytes:
        return json.dumps({"type": "message_delta", "delta": {}, "usage": usage}).encode()

    found = agreed(
        [event(input_tokens=4, cache_read_input_tokens=6), event(output_tokens=3), event(input_tokens=5),
         event(cache_creation_input_tokens=2, cache_read_input_tokens=0)], MESSAGES,
    )  # fmt: skip
    assert [each["prompt_tokens"] for each in found] == [10, -1, 11, 7]


@pytest.mark.parametrize(
    ("protocol", "before", "behind"),
    [
        (MESSAGES, '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"', '"}}'),
        (RESPONSES, '{"type":"response.output_text.delta","delta":"', '","logprobs":[],"sequence_number":%d}'),
        (RESPONSES, '{"content_index":0,"delta":"', '","sequence_number":%d,"type":"response.output_text.delta"}'),
    ],
)
def test_equal_frames_are_compared(protocol: int, before: str, behind: str) -> None:
    """But for their text, and a number that counts them: such events cost what those of chat completions do."""
    stream, strict = Classifier(OTHERS[protocol]), Classifier(OTHERS[protocol], True)
    for number, text in enumerate(["a", " b", " ", "c"], 9):
        event = (before + text + (behind % number if "%" in behind else behind)).encode()
        assert bare(stream.classify_bytes(event)) == bare(strict.classify_bytes(event))
    assert (stream.by_template, stream.by_scan) == (3, 1)


def tgi(text: str, number: int, logprob: str) -> str:
    token = f'{{"id":{number * 37},"text":"{text}","logprob":{logprob},"special":false}}'
    return f'{{"index":{number},"token":{token},"generated_text":null,"details":null}}'


def sglang(text: str, ids: list[int], count: int, reasoning: int = 0) -> str:
    info = f'"prompt_tokens":4,"reasoning_tokens":{reasoning},"completion_tokens":{count},"cached_tokens":0'
    return f'{{"text":"{text}","output_ids":{json.dumps(ids)},"meta_info":{{"id":"r","finish_reason":null,{info}}}}}'


def triton(text: str, count: str = "") -> str:
    return f'{{"model_name":"m","text_output":"{text}"{count},"finish_reason":"None"}}'


def generate(ids: str, text: str = "") -> str:
    return f'{{"request_id":"g","choices":[{{"index":0,"finish_reason":null,"token_ids":[{ids}]{text}}}]}}'


@pytest.mark.parametrize(
    ("protocol", "events", "scanned"),
    [
        (TGI, [tgi("a", 1, "-0.5"), tgi(" b", 2, "-1.5e-05"), tgi("c", 10, "0"), tgi(" ", 11, "-0.0")], [0]),
        (TGI, [tgi("a", 1, "-0.5"), tgi(" b", 2, "null"), tgi("c", 3, "-.5"), tgi("d", 4, "01")], [0, 1, 2, 3]),
        (SGLANG, [sglang("a", [1], 1), sglang("a b", [1, 22], 2), sglang("a b\\u00e9", [1, 22, 3], 3)], [0]),
        (SGLANG, [sglang("a", [1], 1), sglang(" b", [22], 2), sglang("c", [3, 4], 4, 2), sglang(" ", [5], 10)], [0, 1]),
        (SGLANG, [sglang("a", [1], 1), sglang("a b", [1, 2], 2), sglang("a b", [1, 2, 3], 3),
                  sglang("a bc", [1, 2, 3, 4], 4)], [0, 2]),
        (SGLANG, [sglang("a", [1], 1), sglang("a b", [1, 2], 2), sglang("c", [3], 3),
                  sglang("a bcd", [1, 2, 3, 4], 4)], [0, 2, 3]),
        (SGLANG, [sglang("ab", [1], 1), sglang("axc", [1, 2], 2), sglang("axcd", [1, 23, 3], 3),
                  sglang("axcde", [1, 23, 3, 4], 4)], [0, 1, 2]),
        (TRITON, [triton("a", ',"num_output_tokens":1'), triton(" b", ',"num_output_tokens":12')], [0]),
        (TRITON_SO_FAR, [triton("Gr\ufffd"), triton("Gr\u00fcn"), triton("Gr\u00fcn \\n"), triton("Gr"),
                         triton("Gr\u00fcn \\n x")], [0, 1, 3]),
        (TRITON_SO_FAR, [triton("\\ud83d\\ude00"), triton("\\ud83d\\ude00 a"), triton("\\ud83d\\ude00 ab\\\\")], [0]),
        (GENERATE, [generate("5"), generate("6, 70"), generate("8"), generate(""), generate("9")], [0, 3]),
        (GENERATE, [generate("5", ',"text":"a"'), generate("6", ',"text":" b"'), generate("7", ',"text":""')], [0, 2]),
    ],
)  # fmt: skip
def test_events_are_compared_but_for_what_differs(protocol: int, events: list[str], scanned: list[int]) -> None:
    """Numbers on both sides of the text, lists of ids, and a text that says again what came before."""
    data = [event.encode() for event in events]
    agreed(data, protocol)
    stream = Classifier(OTHERS[protocol])
    decoders = [stream.classify_bytes(event)["decoder"] for event in data]
    assert [place for place, decoder in enumerate(decoders) if decoder != TEMPLATE] == scanned


def test_a_template_does_not_say_prompt_tokens_that_later_events_change() -> None:
    """Of a protocol whose prompt tokens are a sum, events that say a part of it are not compared."""
    keys = {"text": F.CONTENT, "usage": (F.OBJECT, {"in": F.UNCACHED_TOKENS, "read": F.CACHED_TOKENS})}
    events = [b'{"text":"a","usage":{"read":2}}', b'{"usage":{"in":3}}', b'{"text":"b","usage":{"read":2}}']
    for strict in (False, True):
        stream = Classifier(Dialect(keys, {}), strict)
        assert [stream.classify_bytes(event)["prompt_tokens"] for event in events] == [-1, 5, 5]


# -- tool calls -------------------------------------------------------------------------------------------------------


def written(events: list[dict[str, Any]], protocol: int, whole: bool = False) -> list[dict[str, Any]]:
    calls = CallList(OTHERS[protocol], whole)
    for event in events:
        calls.read(json.dumps(event).encode())
    as_chat = ToolTurns(*ENDPOINTS["openai-chat"].joint.tools)
    found: list[dict[str, Any]] = json.loads(b"[" + as_chat.written(calls, 1) + b"]")
    return found


def whole_call(ident: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def added(key: str | None, ident: str, name: str) -> dict[str, Any]:
    return {
        "type": "response.output_item.added",
        "item": {"type": "function_call", "id": key, "call_id": ident, "name": name},
    }


def piece(key: str | None, text: str) -> dict[str, Any]:
    return {"type": "response.function_call_arguments.delta", "item_id": key, "delta": text}


def test_calls_of_responses_differ_by_the_key_of_their_item() -> None:
    done = {"type": "response.function_call_arguments.done", "item_id": "fc_0", "arguments": "{}"}
    both = [whole_call("c0", "f", '{"a":1}'), whole_call("c1", "g", "[2]")]
    events = [
        added("fc_0", "c0", "f"), piece("fc_0", '{"a"'), added("fc_1", "c1", "g"), piece("fc_1", "[2"),
        piece("fc_0", ":1}"), piece("fc_1", "]"), done,
    ]  # fmt: skip
    assert written(events, RESPONSES) == both
    events = [added(None, "c0", "f"), piece(None, '{"a":1}'), added(None, "c1", "g"), piece(None, "[2]")]
    assert written(events, RESPONSES) == both  # without keys, one after the other
    message = {"type": "message", "content": [{"type": "output_text", "text": "Let me see."}]}
    items = [{"type": "function_call", "id": "fc", "call_id": one["id"], **one["function"]} for one in both]
    assert written([{"object": "response", "output": [message, *items]}], RESPONSES, whole=True) == both


def test_calls_of_messages_differ_by_the_index_of_their_block() -> None:
    def begun(index: int, ident: str, name: str) -> dict[str, Any]:
        block = {"type": "tool_use", "id": ident, "name": name, "input": {}}
        return {"type": "content_block_start", "index": index, "content_block": block}

    def more(index: int, text: str) -> dict[str, Any]:
        return {
            "type": "content_block_delta",
            "index": index,
            "delta": {"type": "input_json_delta", "partial_json": text},
        }

    both = [whole_call("t1", "f", '{"a":1}'), whole_call("t2", "g", "{}")]
    events = [begun(1, "t1", "f"), more(1, ""), more(1, '{"a"'), begun(3, "t2", "g"), more(1, ":1}"), more(3, "{}")]
    for order in (1, -1):
        said = [dict(list(event.items())[::order]) for event in events]
        assert written(said, MESSAGES) == both
    blocks = [{"type": "text", "text": "Ok"}] + [
        {
            "type": "tool_use",
            "id": one["id"],
            "name": one["function"]["name"],
            "input": json.loads(one["function"]["arguments"]),
        }
        for one in both
    ]
    found = written([{"type": "message", "content": blocks}], MESSAGES, whole=True)
    assert [(one["id"], json.loads(one["function"]["arguments"])) for one in found] == [("t1", {"a": 1}), ("t2", {})]


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"a": (F.OBJECT, {"error": F.ERROR})}, "error .*ERROR"),
        ({"index": F.INDEX}, "index .*INDEX"),
        ({"a": (F.CHOICES, {"done": F.DONE})}, "done .*DONE"),
        ({"a": (F.PARTS, {"n": F.PROMPT_TOKENS})}, "n .*PROMPT_TOKENS"),
        ({"a": (F.PARTS, {"b": (F.TYPE, {"x": F.LAST})})}, "b .*LAST"),
        ({"a": (F.OBJECT, {"b": (F.TYPE, {"x": F.ERROR})})}, "b .*ERROR"),
        ({"a": (F.TYPE, {"x": F.CONTENT})}, "a .*CONTENT"),
        ({"a": (F.TYPE, {}), "b": (F.TYPE, {})}, "one TYPE"),
        ({"a": (F.TYPE, {"x": {"b": (F.TYPE, {})}})}, "b .*TYPE"),
        ({"a": F.OBJECT}, "a .*OBJECT"),
        ({"a": (F.CONTENT, {"b": F.ANY})}, "a .*CONTENT"),
        ({"a": (F.DURATION, 4)}, "a .*duration 4"),
        ({"a": F.DURATION}, "a .*DURATION"),
        ({"a": 99}, "a .*99"),
        ({"x" * 256: F.ANY}, "256 bytes; at most 255"),
    ],
)  # fmt: skip
def test_a_description_that_no_reader_could_follow_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Dialect(keys, {})


def test_limits_of_the_tables_are_refused_when_a_dialect_is_made() -> None:
    with pytest.raises(OverflowError, match="VARIANTS_MOST"):
        Dialect({"type": (F.TYPE, {f"word{number}": F.LAST for number in range(65)})}, {})
    deep: dict[str, Any] = {}
    for _ in range(96):
        deep = {"a": (F.OBJECT, deep)}
    with pytest.raises(OverflowError, match="too many keys"):
        Dialect(deep, {})
    with pytest.raises(ValueError, match="99.*FinishReason"):
        Dialect({}, {}, words={"enough": 99})


def test_finish_details_come_before_a_status() -> None:
    for data in orders({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}):
        event = b'{"type":"response.incomplete","response":%s}' % data
        (said,) = agreed([event], RESPONSES)
        assert (FINISH_NAMES[said["finish"]], said["done"]) == ("length", True)
