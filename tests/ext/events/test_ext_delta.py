"""Events mean what spec/metrics 3.2 says; template, scan, msgspec and a plain twin agree on any bytes."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest
from ext.dialects import CHAT, COMPLETIONS, DIALECTS, OLLAMA_CHAT, OLLAMA_GENERATE
from ext.reference import delta_reference
from ext.reference.event_text import spelled
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastllmload._ext.events.delta import Classifier, expand_text
from fastllmload._ext.events.dialect import Dialect, Field, FinishReason
from fastllmload.endpoint import ENDPOINTS
from fastllmload.records.layout import EVENT_NAMES, FINISH_NAMES

TEMPLATE, SCAN, MSGSPEC = 0, 1, 2
CORPUS = (
    Path(os.environ.get("FASTLLMLOAD_CORPORA", Path(__file__).parents[3] / "../shared/corpora")) / "json/test_parsing"
)
NO_CORPUS = f"JSON corpus not found at {CORPUS}; set FASTLLMLOAD_CORPORA to the folder that holds json/"
PLAIN = b'{"id":"x","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}'
PARTS = [b'"', b"\\", b",", b":", b"{", b"}", b"]", b"0", b"e", b"\x00", b" ", b"\xc2", b"\\u00e9", b"-"]
FAST = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


def bare(meaning: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in meaning.items() if name != "decoder"}


def named(meaning: dict[str, Any]) -> str:
    return EVENT_NAMES[meaning["kind"]]


def expanded(meaning: dict[str, Any]) -> dict[str, Any]:
    return {**meaning, "text": None if meaning["text"] is None else expand_text(meaning["text"])}


def agreed(data: bytes, dialect: int = CHAT, after: bytes = b"") -> dict[str, Any]:
    """The meaning of *data*, on which scan, msgspec, twin and a stream that has just read *after* agree."""
    strict = bare(Classifier(DIALECTS[dialect], strict=True).classify_bytes(data))
    stream = Classifier(DIALECTS[dialect])
    stream.classify_bytes(after)
    assert bare(Classifier(DIALECTS[dialect]).classify_bytes(data)) == strict
    assert bare(stream.classify_bytes(data)) == strict
    assert bare(stream.classify_bytes(data)) == strict, "a second time, by what the first one taught"
    assert expanded(strict) == delta_reference.classify(data, dialect)
    return strict


def agreed_whole(data: bytes, dialect: int = CHAT) -> dict[str, Any]:
    strict = bare(Classifier(DIALECTS[dialect], strict=True).classify_body_bytes(data))
    assert bare(Classifier(DIALECTS[dialect]).classify_body_bytes(data)) == strict
    assert expanded(strict) == delta_reference.classify(data, dialect, whole=True)
    return strict


def chunk(delta: Any = None, finish: Any = None, **top: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return json.dumps(
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **top}
    ).encode()


USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
SEEN = [
    line.split(" | ")
    for line in (Path(__file__).parents[1] / "reference/server_events.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize(("protocol", "expected", "text"), [case[1:] for case in SEEN], ids=[case[0] for case in SEEN])
def test_events_of_real_servers(protocol: str, expected: str, text: str) -> None:
    """Each is understood by the scan, without msgspec, and means what its server meant."""
    dialect = ("chat", "completions").index(protocol)
    kind, *rest = expected.split()
    finish = rest[0] if rest and not rest[0].lstrip("-").isdigit() else "none"
    counts = [int(word) for word in rest if word.lstrip("-").isdigit()] or [-1] * 4
    meaning = agreed(text.encode(), dialect)
    names = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens")
    assert (EVENT_NAMES[meaning["kind"]], FINISH_NAMES[meaning["finish"]]) == (kind, finish)
    assert [meaning[name] for name in names] == counts and meaning["has_usage"] == (max(counts) >= 0)
    assert Classifier(DIALECTS[dialect]).classify_bytes(text.encode())["decoder"] == SCAN


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (chunk({"role": "assistant"}), "role", None),
        (chunk({"role": "assistant", "content": None}), "role", None),
        (chunk({"role": "", "content": ""}), "empty", None),
        (chunk({"content": None}), "empty", None),
        (chunk({}), "empty", None),
        (chunk(None), "empty", None),
        (chunk({"content": " \n"}), "whitespace", " \n"),
        (chunk({"content": " \n", "reasoning": "r"}), "whitespace", " \n"),
        (chunk({"content": "c", "reasoning_content": "r"}), "content", "c"),
        (chunk({"reasoning": "b", "reasoning_content": "a"}), "reasoning", "a"),
        (chunk({"reasoning": " "}), "reasoning", " "),
        (chunk({"content": " ", "tool_calls": [{"function": {"name": "f"}}]}), "tool", "f"),
        (chunk({"content": "c", "tool_calls": [{"function": {"name": "f"}}]}), "content", "c"),
        (
            chunk(
                {
                    "tool_calls": [
                        {"function": {"name": "f", "arguments": "{}"}},
                        {"function": {"arguments": "2"}},
                    ]
                }
            ),
            "tool",
            "{}",
        ),
        (chunk({"tool_calls": [{"function": {"arguments": {"a": 1}}}]}), "tool", None),
        (chunk({"tool_calls": [{"id": "x", "function": {"name": "", "arguments": ""}}]}), "empty", None),
        (chunk({"function_call": {"arguments": "{"}}), "tool", "{"),
        (chunk({"refusal": "no"}, "stop"), "refusal", "no"),
        (chunk({}, ""), "empty", None),
        (chunk({}, "stop", usage=USAGE), "finish", None),
        (chunk({"role": "assistant"}, usage=USAGE), "role", None),
        (chunk({"content": ""}, usage=USAGE), "empty", None),
        (b'{"choices":[],"usage":{"completion_tokens":3}}', "usage", None),
        (chunk({}, usage={"total_tokens": 3}), "empty", None),
        (chunk({"content": "x"}, error={"message": "late"}), "error", None),
        (chunk({"content": 5}, error="late"), "error", None),
        (chunk({"content": "x"}, error=None), "content", "x"),
        (chunk({"content": "x"}, error=""), "content", "x"),
        (chunk({"content": 5}), "bad", None),
        (chunk({"content": [{"type": "text", "text": "x"}]}), "bad", None),
        (chunk("x"), "bad", None),
        (chunk({}, 3), "bad", None),
        (b'{"choices":{}}', "bad", None),
        (b'{"choices":[{"index":1,"delta":{"content":"x"},"finish_reason":"stop"}]}', "other", None),
        (
            b'{"choices":[{"index":1,"delta":{"content":"x"}},{"index":0,"delta":{"content":"y"}}]}',
            "content",
            "y",
        ),
        (b'{"choices":[{"delta":{"content":"x","content":"y"}}]}', "content", "y"),
        (b'{"choices":[{"delta":{"cont\\u0065nt":"x"}}]}', "content", "x"),
        (b'{"choices":null,"usage":null}', "other", None),
        (b'{"object":"error"}', "error", None),
        (b'{"error":{}}', "error", None),
        (b'{"error":false}', "other", None),
        (b'{"error":500}', "error", None),
        (b"{}", "bad", None),
        (b'{"token":{"text":"x"}}', "bad", None),
        (b"[]", "bad", None),
        (b"null", "bad", None),
        (b'"x"', "bad", None),
        (b"", "other", None),
        (b" \t\r\n", "other", None),
        (b" \x0b", "bad", None),
        (b" [DONE]\r", "done", None),
        (b"[DONE] x", "bad", None),
        (b"[done]", "bad", None),
        (b"\xef\xbb\xbf" + chunk({"content": "x"}), "bad", None),
        (chunk({"content": "x"})[:-1] + b',"x":NaN}', "bad", None),
        (chunk({"content": "x"})[:-1] + b',"x":1e999}', "content", "x"),
        (chunk({"content": "x"})[:-1] + b',"x":' + b"9" * 5000 + b"}", "bad", None),
        (chunk({"content": "x"})[:-1] + b',"x":"\xff"}', "content", "x"),
        (chunk({"content": "x"}) + b" \n", "content", "x"),
        (chunk({"content": "x"}) + b"x", "bad", None),
        (PLAIN % b"\xff ", "content", "\ufffd "),
        (PLAIN % b"\xe2\x80", "content", "\ufffd"),
        (PLAIN % b"\xed\xa0\x80", "content", "\ufffd" * 3),
        (PLAIN % b"a\\ud83d", "content", "a\ufffd"),
        (PLAIN % b"\\ud83d\\ude00", "content", "\U0001f600"),
        (PLAIN % b"\\\\ud83d", "content", "\\ud83d"),
        (PLAIN % b"\\ud83d\xff", "content", "\ufffd\ufffd"),
        (PLAIN % b"a\x1fb", "bad", None),
        (PLAIN % b"\\x", "bad", None),
        (PLAIN % b"\\u12g4", "bad", None),
        (PLAIN % b"\x7f", "content", "\x7f"),
        (chunk({"tool_calls": [{"function": {"arguments": "0"}}, {"function": {"arguments": False}}]}), "bad", None),
    ],
)
def test_the_table_of_kinds(data: bytes, kind: str, text: str | None) -> None:
    meaning = agreed(data)
    assert EVENT_NAMES[meaning["kind"]] == kind
    assert expanded(meaning)["text"] == text
    assert agreed(data, after=PLAIN % b"x") == meaning


CALL = {"function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("dialect", "choice", "kind", "text"),
    [
        (CHAT, {"message": {"role": "assistant", "content": "Hi"}}, "content", "Hi"),
        (CHAT, {"message": {"role": "assistant", "content": ""}}, "other", None),
        (CHAT, {"message": {"role": "assistant", "content": None, "refusal": "no"}}, "refusal", "no"),
        (CHAT, {"message": {"content": "\n", "reasoning_content": None}}, "whitespace", "\n"),
        (CHAT, {"message": {"content": None, "tool_calls": [CALL]}}, "tool", "{}"),
        (CHAT, {"delta": {"content": "Hi"}}, "other", None),
        (COMPLETIONS, {"text": " Hi", "index": 0}, "content", " Hi"),
        (COMPLETIONS, {"message": {"content": "Hi"}}, "other", None),
    ],
)
def test_whole_bodies(dialect: int, choice: dict[str, Any], kind: str, text: str | None) -> None:
    """Text, finish and usage of one document; one without text is OTHER, as it is not an event of a stream."""
    body = {"id": "c", "choices": [{**choice, "finish_reason": "stop"}], "usage": USAGE}
    meaning = agreed_whole(json.dumps(body).encode(), dialect)
    assert (EVENT_NAMES[meaning["kind"]], FINISH_NAMES[meaning["finish"]]) == (kind, "stop")
    assert expanded(meaning)["text"] == text and meaning["completion_tokens"] == 7


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b'{"error":{"message":"no"}}', "error"), (b"[DONE]", "bad"), (b"<html>", "bad"), (b"", "bad")],
)
def test_bodies_without_an_answer(body: bytes, kind: str) -> None:
    assert EVENT_NAMES[agreed_whole(body)["kind"]] == kind


@FAST
@given(data=spelled, after=spelled, dialect=st.sampled_from([CHAT, COMPLETIONS]))
def test_any_event_means_the_same_on_every_path(data: bytes, after: bytes, dialect: int) -> None:
    agreed(data, dialect, after)
    agreed_whole(data, dialect)


@FAST
@given(text=st.binary(max_size=6), before=st.sampled_from([b"x", b" ", b"\\n"]))
def test_a_template_reads_any_text_as_the_others_do(text: bytes, before: bytes) -> None:
    """Whatever bytes stand between prefix and suffix: quotes, escapes, half characters, an early end."""
    agreed(PLAIN % text, after=PLAIN % before)


USED = b'{"choices":[{"delta":{"content":"%b"}}],"usage":{"prompt_tokens":3,"completion_tokens":%b,"total_tokens":%b}}'
NUMBERS = st.one_of(
    st.integers(0, 10**10).map(lambda number: b"%d" % number),
    st.sampled_from([b"", b"-1", b"007", b"1.0", b"1e3", b"null", b" 5", b"5 ", b'"5"', b"999999999", b"2147483648"]),
)


@FAST
@given(
    first=st.tuples(NUMBERS, NUMBERS), then=st.tuples(NUMBERS, NUMBERS), text=st.sampled_from([b"x", b" ", b"", b'\\"'])
)
def test_a_template_reads_any_count_as_the_others_do(
    first: tuple[bytes, bytes], then: tuple[bytes, bytes], text: bytes
) -> None:
    agreed(USED % (text, *then), after=USED % (b"a", *first))


def test_tokens_that_an_event_lists() -> None:
    """Its token_ids, else its logprobs; anything but a list counts as absent."""
    logprobs = {"content": [{"token": "a"}, {"token": "b"}]}
    for dialect, choice, tokens in (
        (CHAT, {"delta": {"content": "ab"}, "token_ids": [7, 8, 9], "logprobs": logprobs}, 3),
        (CHAT, {"delta": {"content": ""}, "logprobs": logprobs}, 2),
        (CHAT, {"delta": {"content": "ab"}, "token_ids": None, "logprobs": None}, -1),
        (CHAT, {"delta": {"content": "ab"}, "token_ids": 5, "logprobs": {"content": {}}}, -1),
        (CHAT, {"index": 1, "delta": {"content": "ab"}, "token_ids": [7]}, -1),
        (COMPLETIONS, {"text": "ab", "logprobs": {"tokens": ["a", "b"], "token_logprobs": [0, 0]}}, 2),
        (COMPLETIONS, {"text": "ab", "token_ids": []}, 0),
    ):
        data = json.dumps({"choices": [choice]}).encode()
        assert agreed(data, dialect)["listed_tokens"] == tokens, choice
    for dialect, text in ((OLLAMA_CHAT, {"message": {"content": "ab"}}), (OLLAMA_GENERATE, {"response": "ab"})):
        for found, tokens in (([{"token": "a"}, {"token": "b"}], 2), ([], 0), (None, -1), ({}, -1)):
            data = json.dumps({"model": "m", **text, "logprobs": found}).encode()
            assert agreed(data, dialect)["listed_tokens"] == tokens, data


@st.composite
def mutated(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """An event and the same with some bytes changed, removed or put in."""
    original = draw(st.one_of(spelled, st.sampled_from([case[3].encode() for case in SEEN])))
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        what = draw(st.sampled_from(["flip", "remove", "insert", "put"]))
        if what == "remove":
            del data[at : at + draw(st.integers(1, 4))]
        elif what == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        else:
            data[at : at + (what == "put")] = draw(
                st.sampled_from(
                    [
                        b'"',
                        b"\\",
                        b",",
                        b":",
                        b"{",
                        b"}",
                        b"]",
                        b"0",
                        b"e",
                        b"\x00",
                        b" ",
                        b"\xc2",
                        b"\\u00e9",
                        b"-",
                    ]
                )
            )
    return original, bytes(data)


@settings(FAST, max_examples=600)
@given(pair=mutated(), dialect=st.sampled_from([CHAT, COMPLETIONS]))
def test_a_damaged_event_means_the_same_on_every_path(pair: tuple[bytes, bytes], dialect: int) -> None:
    original, data = pair
    agreed(data, dialect, after=original)


def test_every_truncation_of_an_event_is_bad() -> None:
    data = SEEN[1][3].encode()
    for size in range(1, len(data)):
        assert named(Classifier(DIALECTS[CHAT]).classify_bytes(data[:size])) == "bad"
        agreed(data[:size], after=data)


def test_whitespace_is_what_python_calls_whitespace() -> None:
    """Every code point up to the last whitespace one and beyond, raw and escaped, by scan and by template."""
    scan, stream = Classifier(DIALECTS[CHAT]), Classifier(DIALECTS[CHAT])
    stream.classify_bytes(PLAIN % b"x")
    for point in [*range(0xD800), *range(0x10000, 0x110000, 0x101)]:
        character = chr(point)
        kind = "whitespace" if character.isspace() else "content"
        for text in {json.dumps(character)[1:-1], json.dumps(character, ensure_ascii=False)[1:-1]}:
            data = PLAIN % text.encode()
            scan.forget()
            assert named(scan.classify_bytes(data)) == kind == named(stream.classify_bytes(data)), hex(point)
    assert stream.by_scan == 1 and scan.by_template == 0
    assert not any(chr(point).isspace() for point in range(0x10000, 0x110000))


PADDED = {
    "openai-chat": '{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"%s"}}],"obfuscation":"%s"}',
    "openai-completions": '{"object":"text_completion","choices":[{"index":0,"text":"%s"}],"obfuscation":"%s"}',
    "openai-responses": '{"type":"response.output_text.delta","delta":"%s","obfuscation":"%s","sequence_number":4}',
}


@pytest.mark.parametrize("name", PADDED)
def test_padding_of_any_length_is_not_a_text_and_leaves_the_template(name: str) -> None:
    stream = Classifier(ENDPOINTS[name].dialect)
    for size in range(1, 17):
        found = stream.classify_bytes((PADDED[name] % (f" w{size}", "k3J9"[: size % 4] * 3)).encode())
        assert (found["kind"], found["text"]) == (3, b" w%d" % size)
    assert (stream.by_scan, stream.by_template) == (1, 15)


def test_the_template_is_used_and_forgotten() -> None:
    """Equal frames with other texts need no scan; another frame, finish, usage or stream does."""
    stream = Classifier(DIALECTS[CHAT])
    other_frame = (PLAIN % b"a").replace(b'"x"', b'"y"')
    ending = (PLAIN % b"a").replace(b"null", b'"stop"')
    decoders = []
    for data in [
        PLAIN % b"a",
        PLAIN % b" b",
        PLAIN % b" ",
        PLAIN % b"\\u00e9",
        PLAIN % b"",
        PLAIN % b"c",
        other_frame,
        other_frame,
    ]:
        decoders.append(stream.classify_bytes(data)["decoder"])
    assert decoders == [SCAN, TEMPLATE, TEMPLATE, TEMPLATE, SCAN, TEMPLATE, SCAN, TEMPLATE]
    assert [stream.classify_bytes(data)["decoder"] for data in (ending, ending, other_frame)] == [
        SCAN,
        SCAN,
        TEMPLATE,
    ]
    stream.forget()
    assert stream.classify_bytes(other_frame)["decoder"] == SCAN
    assert (stream.by_template, stream.by_scan, stream.by_msgspec) == (6, 6, 0)


@pytest.mark.parametrize(("size", "decoder"), [(900, TEMPLATE), (1300, SCAN)])
def test_long_frames_are_scanned(size: int, decoder: int) -> None:
    stream = Classifier(DIALECTS[CHAT])
    before = b'{"model":"%s",' % (b"m" * size) + (PLAIN % b"a")[1:]
    assert [stream.classify_bytes(before)["decoder"] for _ in range(2)] == [SCAN, decoder]
    behind = (PLAIN % b"a")[:-1] + b',"model":"%s"}' % (b"m" * size)
    stream.forget()
    assert [stream.classify_bytes(behind)["decoder"] for _ in range(2)] == [SCAN, decoder]


def test_strict_decodes_every_event_by_msgspec() -> None:
    strict = Classifier(DIALECTS[CHAT], strict=True)
    assert [strict.classify_bytes(PLAIN % b"a")["decoder"] for _ in range(3)] == [MSGSPEC] * 3
    assert (strict.by_template, strict.by_scan, strict.by_msgspec) == (0, 0, 3)
    assert strict.text_of(PLAIN % b"\\u00e9") == "é" and strict.text_of(b"[DONE]") is None


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"choices":[', b'{"id":1,"x":['])
def test_deep_nesting_is_bad_and_costs_no_stack(opening: bytes) -> None:
    """100,000 levels, closed and not closed; the peak of memory grows by less than 64 MiB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    closing = opening.translate(bytes.maketrans(b"{[", b"}]"), b'"a:choices1,xid')[::-1]
    for data in (opening * 100_000, opening * 100_000 + b"1" + closing * 100_000):
        for classifier in (Classifier(DIALECTS[CHAT]), Classifier(DIALECTS[CHAT], strict=True)):
            assert named(classifier.classify_bytes(data)) == "bad"
            assert named(classifier.classify_body_bytes(data)) == "bad"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


@pytest.mark.parametrize("depth", [1, 58, 59, 60, 61, 62, 63, 64, 65, 66, 300])
def test_moderate_nesting_is_accepted(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    assert EVENT_NAMES[agreed((PLAIN % b"a")[:-1] + b',"x":' + nested + b"}")["kind"]] == "content"
    within = (PLAIN % b"a").replace(b'"delta":{', b'"delta":{"x":' + nested + b",")
    assert EVENT_NAMES[agreed(within)["kind"]] == "content"


def corpus() -> list[Path]:
    return sorted(CORPUS.glob("*.json")) if CORPUS.is_dir() else []


@pytest.mark.skipif(not corpus(), reason=NO_CORPUS)
def test_json_corpus_is_judged_alike_on_every_path() -> None:
    """As an event, and as the value of an unknown key at three places: y_ are accepted, n_ refused.

    Blanks alone are not JSON; as an event they are a keep-alive.
    """
    for path in corpus():
        data = path.read_bytes()
        whole = EVENT_NAMES[agreed(data)["kind"]]
        assert whole == ("bad" if data.strip() else "other") or path.name.startswith("y_"), path.name
        for place in (b'"index":0', b'"content"', b'"id":"x"'):
            event = (PLAIN % b"a").replace(place, b'"unknown":' + data + b"," + place)
            kind = EVENT_NAMES[agreed(event, after=PLAIN % b"a")["kind"]]
            if not path.name.startswith("i_"):
                assert kind == ("content" if path.name.startswith("y_") else "bad"), path.name
            agreed_whole(event)


def test_tally_counts_kinds() -> None:
    events = [PLAIN % b"a", PLAIN % b"b", PLAIN % b" ", b"[DONE]", b"{"]
    found = {EVENT_NAMES[kind]: n for kind, n in enumerate(Classifier(DIALECTS[CHAT]).tally(events)) if n}
    assert found == {"content": 2, "whitespace": 1, "done": 1, "bad": 1}


def test_expand_text() -> None:
    assert expand_text(b'a\\n\\u00e9\\ud83d\\ude00\\"') == 'a\né😀"'
    for wrong in (b'"', b"\\", b"a\nb", b"\xff", b'","'):
        with pytest.raises(ValueError, match="JSON string"):
            expand_text(wrong)


def test_a_dialect_that_does_not_fit_is_refused() -> None:
    """Limits of the tables are refused when a dialect is made, not met by an event."""
    many = {f"key{number}": Field.ANY for number in range(65)}
    with pytest.raises(OverflowError, match="too many keys"):
        Dialect(many, {})
    with pytest.raises(ValueError, match="at most 16"):
        Dialect({}, {}, sentinel=b"x" * 17)
    with pytest.raises(OverflowError, match="words"):
        Dialect({}, {}, words={f"word{number}": FinishReason.FINISH_STOP for number in range(80)})


def test_dialects_of_a_classifier_are_numbered_once() -> None:
    classifier = Classifier(DIALECTS[CHAT])
    assert [classifier.add(DIALECTS[each]) for each in (CHAT, OLLAMA_CHAT, CHAT, OLLAMA_CHAT)] == [0, 1, 0, 1]
    with pytest.raises(OverflowError, match="64 dialects"):
        for _ in range(63):
            classifier.add(Dialect({}, {}))


def test_a_dialect_made_up_is_read_as_described() -> None:
    """Keys, places of text and last words are data: a protocol that does not exist yet needs no compiled code."""
    keys = {
        "answer": (Field.OBJECT, {"words": Field.CONTENT, "why": Field.FINISH}),
        "cost": (Field.TABLE, {"out": Field.COMPLETION_TOKENS}),
        "oops": Field.ERROR,
    }
    made = Dialect(keys, keys, sentinel=b"bye", words={"enough": FinishReason.FINISH_LENGTH})
    for strict in (False, True):
        classifier = Classifier(made, strict)
        for word in (b"one", b" two"):
            found = classifier.classify_bytes(b'{"answer":{"words":"%s"},"cost":{"out":3}}' % word)
            assert (named(found), found["text"], found["completion_tokens"]) == ("content", word, 3)
        found = classifier.classify_bytes(b'{"answer":{"why":"enough"}}')
        assert (named(found), FINISH_NAMES[found["finish"]]) == ("finish", "length")
        assert named(classifier.classify_bytes(b" bye ")) == "done"
        assert named(classifier.classify_bytes(b"[DONE]")) == "bad"
        assert named(classifier.classify_bytes(b'{"oops":1}')) == "error"
        assert named(classifier.classify_bytes(b'{"choices":[]}')) == "bad"
        assert named(classifier.classify_bytes(b'{"answer":3}')) == "bad"
