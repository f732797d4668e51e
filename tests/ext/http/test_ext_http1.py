"""Response heads: against httptools, against the plain twin, and hostile ones."""

from __future__ import annotations

import re

import pytest
from ext.reference.http1_oracle import Oracle
from ext.reference.http1_reference import for_llhttp, reference_head
from hypothesis import given, settings
from hypothesis import strategies as st

from fastllmload._ext.http.response import HeadReader, find_head_end, parse_head


def head(*fields: bytes, line: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return b"\r\n".join([line, *fields, b"", b""])


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([b"Content-Length: 5"], {"framing": "length", "length": 5, "keep_alive": True}),
        ([b"content-length:\t5 "], {"framing": "length", "length": 5}),
        ([b"Content-Length: 18446744073709551615"], {"length": 2**64 - 1}),
        ([b"Transfer-Encoding: Chunked"], {"framing": "chunked", "keep_alive": True}),
        ([], {"framing": "close", "keep_alive": False}),
        ([b"Content-Length: 0", b"Connection: close"], {"framing": "length", "keep_alive": False}),
        ([b"Content-Length: 0", b"Connection: foo, CLOSE"], {"keep_alive": False}),
        ([b"Content-Length: 0", b"Connection: closed"], {"keep_alive": True}),
        ([b"Content-Type: text/event-stream"], {"content": "sse"}),
        ([b"CONTENT-TYPE: Text/Event-Stream ; charset=utf-8"], {"content": "sse"}),
        ([b"Content-Type: application/json; charset=utf-8"], {"content": "json"}),
        ([b"Content-Type: application/problem+json"], {"content": "json"}),
        ([b"Content-Type: application/x-ndjson"], {"content": "ndjson"}),
        ([b"Content-Type: application/jsonl"], {"content": "ndjson"}),
        ([b"Content-Type: application/json-seq"], {"content": "other"}),
        ([b"Content-Type:"], {"content": "other"}),
        ([b"Content-Encoding: gzip"], {"encoded": True}),
        ([b"Content-Encoding: Identity"], {"encoded": False}),
        ([b"Content-Encoding: identity", b"Content-Encoding: br"], {"encoded": True}),
        ([b"Retry-After: 2"], {"retry_after_ms": 2000}),
        ([b"Retry-After: 0"], {"retry_after_ms": 0}),
        ([b"Retry-After: 999999999999999"], {"retry_after_ms": 999_999_999_999_999_000}),
        ([b"Retry-After: 1000000000000000"], {"retry_after_ms": -1}),
        ([b"Retry-After: Fri, 31 Dec 1999 23:59:59 GMT"], {"retry_after_ms": -1}),
        ([b"Retry-After: -1"], {"retry_after_ms": -1}),
        ([b"Empty:", b"Connection: close", b"Empty2:"], {"keep_alive": False}),
        # folded lines are one (RFC 9112 5.2)
        ([b"Content-Length:", b" 5"], {"framing": "length", "length": 5}),
        ([b"Content-Type: text/event-stream;", b"\t charset=utf-8", b" "], {"content": "sse"}),
        ([b"Transfer-Encoding:", b"\tchunked", b"A: b", b" c", b" d"], {"framing": "chunked"}),
        ([b"Connection: a,", b" close"], {"keep_alive": False}),
    ],
)
def test_what_a_head_says(fields: list[bytes], expected: dict[str, object]) -> None:
    """One field at a time; the twin says the same."""
    said = parse_head(head(*fields))
    assert said["error"] == "ok" and said["status"] == 200 and said["message"] is None
    assert {name: said[name] for name in expected} == expected  # type: ignore[literal-required]
    assert {name: reference_head(head(*fields))[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("line", "fields", "keep_alive", "framing"),
    [
        (b"HTTP/1.0 200 OK", [b"Content-Length: 1"], False, "length"),
        (b"HTTP/1.0 200 OK", [b"Content-Length: 1", b"Connection: keep-alive"], True, "length"),
        (b"HTTP/1.0 200 OK", [b"Connection: keep-alive"], False, "close"),
        (b"HTTP/1.1 100 Continue", [], True, "none"),
        (b"HTTP/1.1 103 Early Hints", [b"Link: x"], True, "none"),
        (b"HTTP/1.1 204 No Content", [], True, "none"),
        (b"HTTP/1.1 304 Not Modified", [b"Content-Length: 10"], True, "none"),
        (b"HTTP/1.1 304 Not Modified", [b"Transfer-Encoding: chunked"], True, "none"),
        (b"HTTP/1.1 503", [b"Content-Length: 1"], True, "length"),
        (b"HTTP/1.2 200 OK", [b"Content-Length: 1"], True, "length"),
        (b"HTTP/1.9 200 OK", [b"Content-Length: 1", b"Connection: close"], False, "length"),
    ],
)
def test_status_and_version_decide_framing(line: bytes, fields: list[bytes], keep_alive: bool, framing: str) -> None:
    """1xx, 204 and 304 have no body whatever the fields say; HTTP/1.0 persists only when it says so."""
    said = parse_head(head(*fields, line=line))
    assert (said["error"], said["keep_alive"], said["framing"]) == ("ok", keep_alive, framing)
    assert said["minor_version"] == min(1, int(line[7:8])) and said["status"] == int(line[9:12])


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (head(b"Content-Length: 5", b"Content-Length: 6"), "bad_length"),
        (head(b"Content-Length: 5", b"Content-Length: 5"), "bad_length"),
        (head(b"Content-Length: 5, 5"), "bad_length"),
        (head(b"Content-Length: +5"), "bad_length"),
        (head(b"Content-Length: 0x5"), "bad_length"),
        (head(b"Content-Length:"), "bad_length"),
        (head(b"Content-Length: 18446744073709551616"), "bad_length"),
        (head(b"Content-Length: 5", b"Transfer-Encoding: chunked"), "bad_length"),
        (head(b"Transfer-Encoding: chunked", b"Content-Length: 5"), "bad_length"),
        (head(b"Transfer-Encoding: gzip", b"Content-Length: 5"), "bad_length"),
        (head(b"Transfer-Encoding: gzip"), "bad_coding"),
        (head(b"Transfer-Encoding: gzip, chunked"), "bad_coding"),
        (head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"), "bad_coding"),
        (head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), "bad_coding"),
        (head(line=b"HTTP/2.0 200 OK"), "malformed"),
        (head(line=b"HTTP/0.9 200 OK"), "malformed"),
        (head(line=b"RTSP/1.1 200 OK"), "malformed"),
        (head(line=b"HTTP/1.1 099 OK"), "malformed"),
        (head(line=b"HTTP/1.1 20 OK"), "malformed"),
        (head(b"A : b"), "malformed"),
        (head(b" A: b"), "malformed"),
        (head(b"Content-Length: 5", b" 6"), "bad_length"),
        (head(b"Transfer-Encoding: chun", b" ked"), "bad_coding"),
        (head(b"A: b", b" folded\0"), "malformed"),
        (head(line=b"HTTP/1.10 200 OK"), "malformed"),
        (head(line=b"HTTP/1.x 200 OK"), "malformed"),
        (head(b"A: b\0"), "malformed"),
        (b"HTTP/1.1 200 OK\nA: b\n\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\n", "malformed"),
        (b"\r\n\r\n", "malformed"),
        (b"", "malformed"),
        (head() + b"x", "malformed"),
    ],
)
def test_refused_heads_are_named(data: bytes, error: str) -> None:
    """Every refusal has its class and a reason in words."""
    said = parse_head(data)
    assert said["error"] == error and said["message"]
    assert said["framing"] == "none" and not said["keep_alive"]


def test_nothing_of_one_head_reaches_the_next() -> None:
    """The reader is reused for every response of a worker."""
    reader = HeadReader()
    reader.read_bytes(
        head(
            b"Retry-After: 1",
            b"Content-Encoding: br",
            b"Connection: close",
            b"Content-Type: application/json",
            b"Content-Length: 9",
        )
    )
    assert reader.read_bytes(head(b"Transfer-Encoding: chunked")) == 0
    assert (reader.retry_after_ms, reader.encoded, reader.content, reader.length) == (-1, False, 0, 0)
    assert reader.keep_alive and reader.framing == 2
    assert reader.read_bytes(b"nonsense\r\n\r\n") == 1 and reader.status == 0 and reader.message


FIELDS = [
    b"Content-Length: 5",
    b"Content-Length: 05",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip",
    b"A:",
    b"A: b",
    b"Connection: close",
    b"Connection: keep-alive, x",
    b"Connection: upgrade",
    b"Upgrade: h2c",
    b"Proxy-Connection: close",
    b"content-type: text/event-stream",
    b"Content-Type: application/json ;x",
    b"Retry-After: 3",
    b"A\x00: b",
    b" a: b",
    b"Content-Encoding: gzip",
    b"X-\xff: y",
    b"a:\xff\x80",
    b"a: \x7f",
    b"a: b\nc: d",
    b"a: b\rc: d",
    b":",
    b"Set-Cookie: a=b",
    b" folded",
    b"\tchunked",
    b" 5",
]
LINES = [
    b"HTTP/1.1 200 OK",
    b"HTTP/1.0 200 OK",
    b"HTTP/1.1 204 No",
    b"HTTP/1.1 100 C",
    b"HTTP/1.1 500",
    b"\r\nHTTP/1.1 429 x",
    b"HTTP/1.2 200 OK",
    b"HTTP/1.1 2xx OK",
    b"HTTP/1.1 304 ",
]


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(LINES), st.lists(st.sampled_from(FIELDS), max_size=5))
def test_heads_agree_with_twin_and_oracle(line: bytes, fields: list[bytes]) -> None:
    """httptools' verdict, chunked at most; and every derived value equals the twin's."""
    data = head(*fields, line=line)
    said = parse_head(data)
    twin = reference_head(data)
    oracle = Oracle(for_llhttp(data))
    assert (said["error"] in ("ok", "bad_coding")) == oracle.accepted
    if not oracle.accepted:
        assert said["error"] != "ok" and twin["error"] != "ok"
        return
    assert {name: said[name] for name in twin} == twin  # type: ignore[literal-required]
    if said["error"] == "ok":
        assert said["status"] == oracle.parser.get_status_code()
        if b"close" in data and b"keep-alive" in data:
            assert not said["keep_alive"]  # close wins (RFC 9112 9.3); llhttp lets keep-alive win in HTTP/1.0
        elif not said["upgrade"]:
            assert said["keep_alive"] == oracle.keep_alive


def test_a_folded_head_that_came_again_is_read_again() -> None:
    """It is not among the heads that are judged by likeness; one of a later minor version is."""
    reader = HeadReader()
    for length in (5, 6):
        folded = head(b"Content-Type: application/json;", b" charset=utf-8", b"Content-Length:", b"  %d" % length)
        assert reader.read_bytes(folded) == 0 and reader.length == length
    assert reader.by_likeness == 0
    for length in (7, 8):
        assert reader.read_bytes(head(b"Content-Length: %d" % length, line=b"HTTP/1.3 200 OK")) == 0
        assert (reader.length, reader.minor_version) == (length, 1)
    assert reader.by_likeness == 1


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=120), st.booleans())
def test_no_bytes_make_the_reader_raise(noise: bytes, prefixed: bool) -> None:
    """Garbage, with or without a status line in front, is a named error or a head."""
    data = (b"HTTP/1.1 200 OK\r\n" if prefixed else b"") + noise + b"\r\n\r\n"
    assert parse_head(data)["error"] in ("ok", "malformed", "bad_length", "bad_coding")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([b"a", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"bc"]), max_size=14).map(b"".join))
def test_head_end_is_found_under_one_byte_reads(data: bytes) -> None:
    """Growing data searched with *seen* gives what one search gives: the first empty line's end."""
    match = re.search(rb"\n\r?\n", data)
    expected = match.end() if match else 0
    assert find_head_end(data) == expected
    found = 0
    for size in range(1, len(data) + 1):
        found = find_head_end(data[:size], size - 1)
        if found:
            break
    assert found == expected


def test_an_endless_head_is_searched_once() -> None:
    """The search starts at most three bytes before *seen*: an end planted earlier is not found again."""
    data = b"a: b\n\n" + b"a: b\r\n" * 50_000
    assert find_head_end(data) == 6
    assert find_head_end(data, 9) == 0
    assert find_head_end(data + b"\r\n", len(data)) == len(data) + 2
