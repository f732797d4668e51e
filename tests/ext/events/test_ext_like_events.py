"""Like events, read by comparison with their stream's template: the same rows, kinds and text as from the parsers."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from ext.dialects import (
    CHAT,
    DIALECTS,
    GENERATE,
    MESSAGES,
    OLLAMA_CHAT,
    RESPONSES,
    SGLANG,
    TGI,
    TRITON_SO_FAR,
)
from ext.dialects import OTHERS as UNREGISTERED
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastllmload._ext.events.delta import Classifier
from fastllmload._ext.events.dialect import Dialect
from fastllmload._ext.receive.protocol import Conversation, Protocol
from fastllmload._ext.record.recorder import Recorder, text_index
from fastllmload.records.layout import TOKENS_NONE
from fastllmload.records.shared_memory import SharedWords

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
BEFORE, BEHIND = b'{"id":"x","choices":[{"index":0,"delta":{"content":"', b'"},"finish_reason":null}]}'
SHAPES = [
    (BEFORE, BEHIND),
    (b'{"choices":[{"delta":{"reasoning":"', b'"}}]}'),
    (b'{ "choices":[{"delta":{"content":"', b'"}} ]}'),
]
COUNTED = [  # usage in every event
    b'"}}],"usage":{"prompt_tokens":7,"total_tokens":%d,"completion_tokens":%d}}',
    b'"}}],"usage":{"completion_tokens": %d , "completion_tokens_details":{"reasoning_tokens":%d}}}',
    b'"},"token_ids":[4,5]}],"usage":{"total_tokens":0%d,"completion_tokens":%d}}',
]
TEXTS = [
    b"a",
    b" the",
    b" ",
    b"",
    b"\\n",
    b"\\u00e9",
    "é".encode(),
    "中文字".encode(),
    b"\xff",
    b"\\x",
    b'\\"',
    b"\x01",
    b"\t",
]
TEXTS += [b" internationalisation", b"12345678", b"x" * 60, b"x" * 200]
ENDS = [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\n\r", b"\r\n\r", b"\n", b"\n\n\n"]
FIELDS = [
    b"data: ",
    b"data:",
    b"data:  ",
    b"data : ",
    b"event: e\ndata: ",
    b": ping\ndata: ",
    b"data: {}\ndata: ",
    b"\xef\xbb\xbfdata: ",
]
OTHERS = [
    b"data: [DONE]\n\n",
    b": ping\n\n",
    b"event: e\n",
    b"\n",
    b"\r",
    b"data: ",
    b'data: {"choices":[],"usage":{"prompt_tokens":3}}\n\n',
]
OTHERS += [b'data: {"error":{"message":"no"}}\n\n', b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n']
LIMIT = 200

plain = st.builds(
    lambda shape, text: b"data: " + shape[0] + text + shape[1] + b"\n\n",
    st.sampled_from(SHAPES),
    st.sampled_from(TEXTS[:8]),
)
counted = st.builds(
    lambda text, behind, more, count: b'data: {"choices":[{"delta":{"content":"%b' % text + behind % (more, count) + b"\n\n",
    st.sampled_from([*TEXTS[:6], b"b"]), st.sampled_from(COUNTED), st.integers(0, 12), st.integers(0, 12),
)  # fmt: skip
odd = st.builds(
    lambda field, shape, text, end: field + shape[0] + text + shape[1] + end,
    st.sampled_from(FIELDS), st.sampled_from(SHAPES), st.sampled_from(TEXTS), st.sampled_from(ENDS),
)  # fmt: skip
# A template with a line end in it: an event of two lines, and the same bytes as one line and something that is not a field.
folded = st.builds(
    lambda word, text: b'data: {\n%b"choices":[{"delta":{"content":"%b"}}]}\n\n' % (word, text),
    st.sampled_from([b"data: ", b""]), st.sampled_from(TEXTS[:4]),
)  # fmt: skip
streams = st.lists(
    st.one_of(plain, plain, plain, counted, counted, odd, folded, st.sampled_from(OTHERS)), min_size=1, max_size=24
)


def framed(payload: bytes, places: list[int], framing: str) -> bytes:
    """A whole response: *payload* in chunks cut at *places*, of a known length, or until the connection closes."""
    if framing == "close":
        return HEAD + b"\r\n" + payload
    if framing == "length":
        return HEAD + b"Content-Length: %d\r\n\r\n" % len(payload) + payload
    edges = sorted({0, len(payload), *(place % (len(payload) + 1) for place in places)})
    chunks = [payload[a:b] for a, b in itertools.pairwise(edges)]
    return (
        HEAD
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks)
        + b"0\r\n\r\n"
    )


ALIKE = ("status", "error", "events", "content_events", "reasoning_events", "leading_events", "text_bytes", "finish",
         "prompt_tokens", "completion_tokens", "reasoning_tokens", "comments", "flags", "bytes_received")  # fmt: skip
COALESCED_FIRST = 16  # the one flag that depends on reads


def outcome(
    directory: Path, reads: list[bytes], strict: bool = False, dialect: Dialect = DIALECTS[CHAT]
) -> tuple[list[int], list[tuple[int, ...]], list[bytes], bytes]:
    """Fields of the row, kinds and tokens of the events, pieces of text and the kept reply of a response fed in *reads*."""
    directory.mkdir()
    recorder, classifier = Recorder(directory, text=True), Classifier(dialect, strict)
    conversation = Conversation(Protocol(recorder, classifier, SharedWords.create().words, LIMIT, 4 * LIMIT))
    conversation.open(1, keep=True)
    for number, data in enumerate(reads):
        if conversation.ended:
            break
        conversation.feed(data, 10 + number)
    if not conversation.ended:
        conversation.eof(10 + len(reads))
    reply = conversation.kept()[0]
    recorder.close()
    row, events = np.load(directory / "requests.npy")[0], np.load(directory / "tokens.npy")
    assert (np.diff(events["t_ns"]) >= 0).all() and (events["row"] == 0).all()
    assert ((events["stamp"] & 3 == 2) == (events["bracket_ns"] > 0)).all()
    assert len(events) == row["events"]
    text = (directory / "text.bin").read_bytes()
    _, starts, sizes = text_index(text)
    fields = [int(row[name]) & ~COALESCED_FIRST if name == "flags" else int(row[name]) for name in ALIKE]
    return (
        fields,
        events[["kind", "tokens"]].tolist(),
        [text[a : a + n] for a, n in zip(starts, sizes, strict=True)],
        reply,
    )


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=streams,
    places=st.lists(st.integers(0, 4000), max_size=12),
    cuts=st.lists(st.integers(0, 4000), max_size=6),
    framing=st.sampled_from(["chunked", "close", "length"]),
)
def test_what_is_read_by_comparison_is_what_parser_and_classifier_say(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], places: list[int], cuts: list[int], framing: str
) -> None:
    """In reads that hold many events (comparison), byte by byte (never a whole event in a read), and by msgspec alone."""
    base = tmp_path_factory.mktemp("like")
    whole = framed(b"".join(pieces), places, framing)
    edges = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    compared = outcome(base / "compared", [whole[a:b] for a, b in itertools.pairwise(edges)])
    parsed = outcome(base / "parsed", [whole[at : at + 1] for at in range(len(whole))])
    decoded = outcome(base / "decoded", [whole], strict=True)
    received = ALIKE.index("bytes_received")  # a read in which the request ends counts whole
    for one in (compared, parsed, decoded):
        one[0][received] = 0
    assert compared == parsed == decoded


RESPONSE_EVENTS = [
    b'{"type":"response.output_text.delta","delta":"%b","sequence_number":%d}',
    b'{"delta":"%b","sequence_number":%d,"type":"response.output_text.delta"}',
    b'{"type":"response.reasoning_text.delta","delta":"%b","sequence_number":%d}',
]
numbered = st.builds(
    lambda event, text, number: b"event: e\ndata: " + event % (text, number) + b"\n\n",
    st.sampled_from(RESPONSE_EVENTS), st.sampled_from(TEXTS[:8]), st.integers(0, 12),
)  # fmt: skip
blocks = st.builds(
    lambda kind, text: b'data: {"type":"content_block_delta","delta":{"type":"%b","text":"%b"}}\n\n' % (kind, text),
    st.sampled_from([b"text_delta", b"text_delta", b"signature_delta"]), st.sampled_from(TEXTS[:8]),
)  # fmt: skip
said = st.sampled_from(
    [
        b'data: {"type":"response.completed","response":{"status":"completed","usage":{"output_tokens":4}}}\n\n',
        b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":4}}\n\n',
        b'data: {"type":"ping"}\n\n',
        b'data: {"type":"error","error":{}}\n\n',
    ]
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(st.one_of(numbered, numbered, blocks, blocks, said), min_size=1, max_size=24),
    protocol=st.sampled_from([RESPONSES, MESSAGES]),
    cuts=st.lists(st.integers(0, 4000), max_size=6),
)
def test_events_that_a_word_tells_apart_are_compared_rightly(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], protocol: int, cuts: list[int]
) -> None:
    """By comparison, byte by byte, and by msgspec alone."""
    base = tmp_path_factory.mktemp("typed")
    whole = framed(b"".join(pieces), [], "close")
    edges = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    compared = outcome(
        base / "compared", [whole[a:b] for a, b in itertools.pairwise(edges)], dialect=UNREGISTERED[protocol]
    )
    parsed = outcome(base / "parsed", [whole[at : at + 1] for at in range(len(whole))], dialect=UNREGISTERED[protocol])
    decoded = outcome(base / "decoded", [whole], strict=True, dialect=UNREGISTERED[protocol])
    for one in (compared, parsed, decoded):
        one[0][ALIKE.index("bytes_received")] = 0
    assert compared == parsed == decoded


PIECES = [b"a", b" the", b" ", b"", b"\\n", b"\\u00e9", "é".encode(), b"\\ud83d\\ude00", b"\xff", b'\\"']
GROWN = b'{"text":"%b","output_ids":%b,"meta_info":{"finish_reason":null,"completion_tokens":%d,"prompt_tokens":4}}'
ONE_TOKEN = b'{"index":%d,"token":{"id":%d,"text":"%b","logprob":-%d.5,"special":false},"generated_text":null}'


def grown(steps: list[tuple[bytes, int, int]], protocol: int) -> bytes:
    """A stream whose events say all of the text so far, or (a step of 0) what is new, now and then after a change in it."""
    text, ids, events = b"", [], []
    for number, (piece, step, change) in enumerate(steps, 1):
        text = text[change:] + piece
        ids += [number] * max(step, 1)
        some = text if step else piece
        if protocol == SGLANG:
            listed = ids if step else ids[-1:]
            events.append(GROWN % (some, str(listed).replace(" ", "" if change == 0 else " ").encode(), len(ids)))
        elif protocol == TRITON_SO_FAR:
            events.append(b'{"model_name":"m","text_output":"%b"}' % some)
        elif protocol == TGI:
            events.append(ONE_TOKEN % (number, len(ids), piece, change))
        else:
            said = b"" if step else b',"text":"%b"' % piece
            events.append(
                b'{"request_id":"g","choices":[{"index":0,"token_ids":%b%b}]}' % (str(ids[-step:]).encode(), said)
            )
    field = b"data:" if steps[0][1] else b"data: "
    return b"".join(field + event + b"\n\n" for event in events)


def assert_read_alike(base: Path, whole: bytes, cuts: list[int], dialect: Dialect) -> None:
    """By comparison in reads that end at *cuts*, byte by byte, and by msgspec alone."""
    edges = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    compared = outcome(base / "compared", [whole[a:b] for a, b in itertools.pairwise(edges)], dialect=dialect)
    parsed = outcome(base / "parsed", [whole[at : at + 1] for at in range(len(whole))], dialect=dialect)
    decoded = outcome(base / "decoded", [whole], strict=True, dialect=dialect)
    for one in (compared, parsed, decoded):
        one[0][ALIKE.index("bytes_received")] = 0
    assert compared == parsed == decoded


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(PIECES), st.sampled_from([1, 1, 1, 2, 0]), st.sampled_from([0, 0, 0, 0, 1])),
        min_size=1, max_size=16,
    ),
    protocol=st.sampled_from([SGLANG, TRITON_SO_FAR, TGI, GENERATE]),
    cuts=st.lists(st.integers(0, 4000), max_size=6),
)  # fmt: skip
def test_events_that_repeat_or_count_are_compared_rightly(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bytes, int, int]], protocol: int, cuts: list[int]
) -> None:
    """By comparison, byte by byte, and by msgspec alone."""
    base = tmp_path_factory.mktemp("grown")
    whole = framed(grown(steps, protocol), [], "close")
    assert_read_alike(base, whole, cuts, UNREGISTERED[protocol])


LINE = b'{"model":"m","created_at":"%b","message":{"role":"assistant","%b":"%b"},"done":false}'
lines = st.builds(
    lambda when, key, text, end: LINE % (when, key, text) + end,
    st.sampled_from([b"2026-11-27T06:26:57.920250567Z", b"2026-11-27T06:26:58Z", b"", b"\\u00e9", b'"', b"\xff"]),
    st.sampled_from([b"content", b"content", b"content", b"thinking"]),
    st.sampled_from(TEXTS),
    st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r\r\n", b" \n", b"\n\n", b"\r", b"x\n", b""]),
)
spoken = st.sampled_from(
    [b"\n", b'{"error":"no"}\n', LINE.replace(b"false", b"true") % (b"2026", b"content", b"") + b"\n"]
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(st.one_of(lines, lines, lines, lines, spoken), min_size=1, max_size=20),
    cuts=st.lists(st.integers(0, 4000), max_size=6),
)
def test_lines_that_are_alike_are_compared_rightly(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], cuts: list[int]
) -> None:
    """By comparison, byte by byte, and by msgspec alone; some lines pass the limit."""
    base = tmp_path_factory.mktemp("lines")
    whole = framed(b"".join(pieces), [], "close").replace(b"text/event-stream", b"application/x-ndjson")
    assert_read_alike(base, whole, cuts, DIALECTS[OLLAMA_CHAT])


def test_lines_are_read_by_comparison(tmp_path: Path) -> None:
    """All but the first, and one that a read cuts."""
    recorder, classifier = Recorder(tmp_path), Classifier(DIALECTS[OLLAMA_CHAT])
    conversation = Conversation(Protocol(recorder, classifier, SharedWords.create().words, 1 << 20, 1 << 22))
    conversation.open(1)
    whole = b"".join(LINE % (b"2026-11-27T06:26:%02d.5Z" % n, b"content", b"%d" % n) + b"\n" for n in range(20))
    head = framed(b"", [], "close").replace(b"text/event-stream", b"application/x-ndjson")
    conversation.feed(head + whole[:1000], 10)
    conversation.feed(whole[1000:], 11)
    assert (classifier.by_scan, classifier.by_template, classifier.by_msgspec) == (1, 19, 0)
    conversation.eof(13)
    recorder.close()
    events = np.load(tmp_path / "tokens.npy")
    first = whole[:1000].count(b"\n")
    assert events["t_ns"].tolist() == [10] * first + [11] * (20 - first)
    assert (events["stamp"] & 3).tolist() == [2] * first + [2] * (19 - first) + [1]  # more came in the first read


def test_events_with_usage_are_read_by_comparison(tmp_path: Path) -> None:
    """An event with another count is not parsed again; it carries the growth of the count."""
    recorder, classifier = Recorder(tmp_path), Classifier(DIALECTS[CHAT])
    conversation = Conversation(Protocol(recorder, classifier, SharedWords.create().words, 1 << 20, 1 << 22))
    conversation.open(1)
    counts = [1, 2, 9, 10, 10, 99, 100, 103]
    behind = b'"}}],"usage":{"prompt_tokens":7,"completion_tokens":%d,"total_tokens":%d}}\n\n'
    head = b'data: {"choices":[{"delta":{"content":"a'
    conversation.feed(framed(b"".join(head + behind % (n, 7 + n) for n in counts), [], "close"), 10)
    assert (classifier.by_scan, classifier.by_template, classifier.by_msgspec) == (1, 7, 0)
    conversation.eof(13)
    recorder.close()
    assert np.load(tmp_path / "tokens.npy")["tokens"].tolist() == [1, 1, 7, 1, TOKENS_NONE, 89, 1, 3]
    row = np.load(tmp_path / "requests.npy")[0]
    assert (row["prompt_tokens"], row["completion_tokens"]) == (7, 103)


def test_like_events_are_read_by_comparison(tmp_path: Path) -> None:
    """The way of the test above is the one taken: all but the first two of like events are not parsed."""
    recorder, classifier = Recorder(tmp_path), Classifier(DIALECTS[CHAT])
    conversation = Conversation(Protocol(recorder, classifier, SharedWords.create().words, 1 << 20, 1 << 22))
    conversation.open(1)
    events = [b"data: " + BEFORE + b"%d" % number + BEHIND + b"\n\n" for number in range(20)]
    conversation.feed(framed(b"".join(events[:10]), [], "close"), 10)
    conversation.feed(b"".join(events[10:15]) + events[15][:30], 11)
    conversation.feed(events[15][30:] + b"".join(events[16:]), 12)
    assert (classifier.by_scan, classifier.by_template) == (1, 19)
    conversation.eof(13)
    recorder.close()
    stamps = np.load(tmp_path / "tokens.npy")
    assert stamps["t_ns"].tolist() == [10] * 10 + [11] * 5 + [12] * 5
    assert (stamps["stamp"] & 3).tolist() == [2] * 9 + [1] + [2] * 9 + [1]  # with the 15th came more
    assert (stamps["stamp"] >> 2).tolist() == [0] + [1] * 9 + [0] + [1] * 4 + [0] + [1] * 4
