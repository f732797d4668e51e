"""Heads that are like one before: whatever a reader has read before, it says of a head what a new reader says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastllmload._ext.http.block import BlockReader, response_block
from fastllmload._ext.http.response import HeadReader

SAID = [
    "status", "minor_version", "keep_alive", "framing", "length", "content", "encoded", "upgrade", "retry_after_ms",
    "message",
]  # fmt: skip
UVICORN = (
    b"HTTP/1.1 200 OK",
    b"date: Sat, 01 Aug 2026 12:00:00 GMT",
    b"server: uvicorn",
    b"content-length: 326",
    b"content-type: application/json",
    b"x-request-id: 6f9c2f0e8d5b4a35b4f1",
)


def head(*lines: bytes) -> bytes:
    return b"\r\n".join(lines) + b"\r\n\r\n"


def says(reader: HeadReader, data: bytes) -> dict[str, Any]:
    return {"error": reader.read_bytes(data)} | {name: getattr(reader, name) for name in SAID}


def test_only_unread_values_may_differ() -> None:
    reader = HeadReader()
    assert reader.read_bytes(head(*UVICORN)) == 0 and reader.by_likeness == 0
    later = head(*UVICORN).replace(b":00:00", b":00:07").replace(b"326", b"41").replace(b"6f9c2f0e", b'"\t~ ')
    assert reader.read_bytes(later) == 0 and reader.by_likeness == 1
    assert (reader.length, reader.status, reader.content, reader.keep_alive) == (41, 200, 3, True)
    for name, value in ((b"x-request-id", b""), (b"date", b"x" * 1000)):
        swapped = [name + b": " + value if line.startswith(name) else line for line in UVICORN]
        assert reader.read_bytes(head(*swapped)) == 0
    assert reader.by_likeness == 3


@pytest.mark.parametrize(
    "changed",
    [
        (b"200 OK", b"503 Service Unavailable"),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"application/json", b"text/event-stream"),
        (b"content-length: 326", b"transfer-encoding: chunked"),
        (b"content-length: 326", b"content-length: 326x"),
        (b"content-length: 326", b"content-length: "),
        (b"content-length: 326", b"content-length: 3 26"),
        (b"content-length: 326", b"content-length: 99999999999999999999999"),
        (b"server: uvicorn", b"server: uvicorn\x01"),
        (b"server: uvicorn", b"server: uvicorn\r\n folded"),
        (b"server: uvicorn\r\n", b"server: uvicorn\n"),
        (b"server: uvicorn", b"server: uvicorn\xff"),
        (b"server: uvicorn", b"server: uvicorn\r\ncontent-length: 326"),
        (b"server: uvicorn", b"connection: close"),
        (b"server: uvicorn", b"server: uvicorn\r\nconnection: close"),
        (b"server: uvicorn\r\n", b""),
    ],
)
def test_what_differs_otherwise_is_the_parsers(changed: tuple[bytes, bytes]) -> None:
    other = head(*UVICORN).replace(*changed)
    assert other != head(*UVICORN)
    reader = HeadReader()
    assert reader.read_bytes(head(*UVICORN)) == 0
    assert says(reader, other) == says(HeadReader(), other) and reader.by_likeness == 0
    assert reader.read_bytes(head(*UVICORN)) == 0 and reader.by_likeness == 1
    assert (reader.status, reader.length, reader.framing, reader.message) == (200, 326, 1, None)


def test_several_kinds_of_heads_are_known_side_by_side() -> None:
    """Streams, whole answers and refusals of one server alternate."""
    busy = head(b"HTTP/1.1 429 Too Many Requests", b"retry-after: 2", b"content-length: 30")
    stream = head(b"HTTP/1.1 200 OK", b"content-type: text/event-stream", b"transfer-encoding: chunked")
    reader = HeadReader()
    for _ in range(5):
        for data in (busy, stream, head(*UVICORN)):
            assert says(reader, data) == says(HeadReader(), data)
    assert reader.by_likeness == 12


def test_a_head_that_is_not_there_whole_is_not_like() -> None:
    reader = HeadReader()
    assert reader.read_bytes(head(*UVICORN)) == 0
    for size in range(len(head(*UVICORN))):
        assert reader.read_bytes(head(*UVICORN)[:size]) != 0
    assert reader.by_likeness == 0


NAMES = [
    b"date",
    b"x-id",
    b"Content-Length",
    b"content-type",
    b"Connection",
    b"retry-after",
    b"upgrade",
    b"Transfer-Encoding",
]
VALUES = [
    b"5",
    b"71",
    b"close",
    b"keep-alive",
    b"chunked",
    b"text/event-stream",
    b"application/json",
    b"h2c",
    b"a\tb",
    b"",
]
ODD = [b"\x00", b"\x7f", b"\x80", b"\r", b"\n", b"\r\n ", b":", b" "]
lines = st.tuples(st.sampled_from(NAMES), st.sampled_from([b":", b": ", b" : "]), st.sampled_from(VALUES)).map(b"".join)
firsts = st.sampled_from(
    [b"HTTP/1.1 200 OK", b"HTTP/1.1 200 ", b"HTTP/1.0 200 OK", b"HTTP/1.1 103 E", b"\r\nHTTP/1.1 200 a:b"]
)


@st.composite
def runs_of_heads(draw: st.DrawFn) -> list[bytes]:
    """Heads of one server: each is the first one with a value, a byte or a line changed."""
    first = [draw(firsts), *draw(st.lists(lines, max_size=5))]
    found = [head(*first)]
    for _ in range(draw(st.integers(1, 6))):
        changed = list(first)
        at = draw(st.integers(0, len(changed) - 1))
        if draw(st.booleans()):
            name = changed[at].partition(b":")[0]
            changed[at] = name + b": " + draw(st.sampled_from(VALUES)) if at else draw(firsts)
        else:
            place = draw(st.integers(0, len(changed[at])))
            changed[at] = changed[at][:place] + draw(st.sampled_from([*ODD, b"1", b"z"])) + changed[at][place:]
        found.append(head(*changed))
    return found


@settings(max_examples=800, deadline=None)
@given(runs_of_heads())
def test_a_used_reader_says_what_a_new_one_says(heads: list[bytes]) -> None:
    reader = HeadReader()
    for data in heads * 2:
        assert says(reader, data) == says(HeadReader(), data), data


TOKENS = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30)


@given(st.lists(st.tuples(TOKENS, TOKENS, st.booleans(), st.booleans()), min_size=1, max_size=8))
def test_wanted_values_are_those_of_the_head(heads: list[tuple[str, str, bool, bool]]) -> None:
    """Of heads that are parsed and of those that are like others, over HTTP/1.1 and HTTP/2; empty where there is none."""
    reader, blocks = HeadReader(), BlockReader()
    for each in (reader, blocks):
        each.want_bytes([b"x-session-token", b"x-backend"])
    for token, backend, first, second in heads:
        own = [*([f"X-Session-Token: {token}"] * first), *([f"x-BACKEND:\t {backend} "] * second)]
        data = head(b"HTTP/1.1 200 OK", b"content-length: 3", *(line.encode() for line in own), b"date: now")
        expected = [token.encode() if first else b"", backend.encode() if second else b""]
        for _ in range(2):
            assert reader.read_bytes(data) == 0 and reader.wanted_bytes() == expected
            assert blocks.read_bytes(response_block(data[:-2])) == 0 and blocks.wanted_bytes() == expected
    assert reader.by_likeness and blocks.by_equality
