"""Response heads and body framing: against httptools, against the plain twins, under any split, under hostile input."""

from __future__ import annotations

import os
import re
from itertools import product
from pathlib import Path

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.http1_reference import ReferenceFramer, reference_head

from fastllmload._ext.http1 import BodyFramer, HeadReader, find_head_end, parse_head

ROOT = Path(__file__).parents[2]
CASES = Path(os.environ.get("FASTLLMLOAD_CORPORA", ROOT.parent / "shared" / "corpora")) / "http/test/response"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Oracle:
    """httptools fed whole: accepted or not, and what it says."""

    def __init__(self, data: bytes) -> None:
        self.body = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.complete = self.head_complete = self.keep_alive = False
        self.accepted = True
        self.parser = httptools.HttpResponseParser(self)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError as error:
            self.accepted = False
            self.reason = str(error)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.head_complete:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.head_complete = True
        self.keep_alive = self.parser.should_keep_alive()      # forgotten once the message is complete

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True


def head(*fields: bytes, line: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return b"\r\n".join([line, *fields, b"", b""])


def frame(framer: BodyFramer | ReferenceFramer, reads: list[bytes]) -> tuple[bytes, str, bytes]:
    """(payload, last state, unused bytes) after all reads; the framer is not fed behind its end."""
    payload, state, unused = b"", "need", b""
    for i, data in enumerate(reads):
        spans, state, unused = framer.feed(data)
        payload += b"".join(spans)
        if state != "need":
            return payload, state, unused + b"".join(reads[i + 1 :])
    return payload, state, unused


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in zip(at, at[1:], strict=False)]


def drip(data: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in data]


# ---- heads -----------------------------------------------------------------------------------------------------------


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
    ],
)
def test_status_and_version_decide_framing(line: bytes, fields: list[bytes], keep_alive: bool, framing: str) -> None:
    """1xx, 204 and 304 have no body whatever the fields say; HTTP/1.0 persists only when it says so."""
    said = parse_head(head(*fields, line=line))
    assert (said["error"], said["keep_alive"], said["framing"]) == ("ok", keep_alive, framing)
    assert said["minor_version"] == int(line[7:8]) and said["status"] == int(line[9:12])


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
        (head(b"A: b", b" folded"), "malformed"),
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
    reader.read_bytes(head(b"Retry-After: 1", b"Content-Encoding: br", b"Connection: close", b"Content-Type: application/json",
                           b"Content-Length: 9"))
    assert reader.read_bytes(head(b"Transfer-Encoding: chunked")) == 0
    assert (reader.retry_after_ms, reader.encoded, reader.content, reader.length) == (-1, False, 0, 0)
    assert reader.keep_alive and reader.framing == 2
    assert reader.read_bytes(b"nonsense\r\n\r\n") == 1 and reader.status == 0 and reader.message


FIELDS = [b"Content-Length: 5", b"Content-Length: 05", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"A:", b"A: b",
          b"Connection: close", b"Connection: keep-alive, x", b"Connection: upgrade", b"Upgrade: h2c", b"Proxy-Connection: close",
          b"content-type: text/event-stream", b"Content-Type: application/json ;x", b"Retry-After: 3", b"A\x00: b", b" a: b",
          b"Content-Encoding: gzip", b"X-\xff: y", b"a:\xff\x80", b"a: \x7f", b"a: b\nc: d", b"a: b\rc: d", b":", b"Set-Cookie: a=b"]
LINES = [b"HTTP/1.1 200 OK", b"HTTP/1.0 200 OK", b"HTTP/1.1 204 No", b"HTTP/1.1 100 C", b"HTTP/1.1 500", b"\r\nHTTP/1.1 429 x",
         b"HTTP/1.2 200 OK", b"HTTP/1.1 2xx OK", b"HTTP/1.1 304 "]


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(LINES), st.lists(st.sampled_from(FIELDS), max_size=5))
def test_heads_agree_with_twin_and_oracle(line: bytes, fields: list[bytes]) -> None:
    """Accepted by httptools and HTTP/1 with chunked at most: accepted; and every derived value equals the twin's."""
    data = head(*fields, line=line)
    said = parse_head(data)
    twin = reference_head(data)
    oracle = Oracle(data)
    assert (said["error"] in ("ok", "bad_coding")) == oracle.accepted
    if not oracle.accepted:
        assert said["error"] != "ok" and twin["error"] != "ok"
        return
    assert {name: said[name] for name in twin} == twin  # type: ignore[literal-required]
    if said["error"] == "ok":
        assert said["status"] == oracle.parser.get_status_code()
        if b"close" in data and b"keep-alive" in data:
            assert not said["keep_alive"]      # close wins (RFC 9112 9.3); llhttp lets keep-alive win in HTTP/1.0
        elif not said["upgrade"]:
            assert said["keep_alive"] == oracle.keep_alive


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=120), st.booleans())
def test_no_bytes_make_the_reader_raise(noise: bytes, prefixed: bool) -> None:
    """Garbage, with or without a status line in front, is a named error or a head."""
    data = (b"HTTP/1.1 200 OK\r\n" if prefixed else b"") + noise + b"\r\n\r\n"
    assert parse_head(data)["error"] in ("ok", "malformed", "bad_length", "bad_coding")


# ---- where a head ends -----------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([b"a", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"bc"]), max_size=14).map(b"".join))
def test_head_end_is_found_under_one_byte_reads(data: bytes) -> None:
    """Growing data searched with *seen* gives what one search over all of it gives: the first empty line's end."""
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
    """With *seen* the search starts at most three bytes back: an end planted earlier is not looked at again."""
    data = b"a: b\n\n" + b"a: b\r\n" * 50_000
    assert find_head_end(data) == 6
    assert find_head_end(data, 9) == 0
    assert find_head_end(data + b"\r\n", len(data)) == len(data) + 2


# ---- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framer_type", [BodyFramer, ReferenceFramer])
@pytest.mark.parametrize(
    ("framing", "length", "data", "expected", "at_close"),
    [
        ("none", 0, b"next", (b"", "end", b"next"), "end"),
        ("length", 0, b"next", (b"", "end", b"next"), "end"),
        ("length", 3, b"abcdef", (b"abc", "end", b"def"), "end"),
        ("length", 3, b"ab", (b"ab", "need", b""), "cut"),
        ("close", 0, b"abc", (b"abc", "need", b""), "end"),
        ("chunked", 0, b"3\r\nabc\r\n0\r\n\r\nnext", (b"abc", "end", b"next"), "end"),
        ("chunked", 0, b"3;a=b;c\r\nabc\r\nA\r\n0123456789\r\n0;x\r\nt: v\r\nu:\r\n\r\n", (b"abc0123456789", "end", b""), "end"),
        ("chunked", 0, b'1;a="\\";\\"";b\r\nx\r\n00\r\n\r\n', (b"x", "end", b""), "end"),
        ("chunked", 0, b"3\r\nabc", (b"abc", "need", b""), "cut"),
        ("chunked", 0, b"3\r\nabc\r\n0\r\n", (b"abc", "need", b""), "cut"),
        ("chunked", 0, b"3\nabc", (b"", "bad_chunk_size", b"abc"), "bad_chunk_size"),
        ("chunked", 0, b"\r\n", (b"", "bad_chunk_size", b"\n"), "bad_chunk_size"),
        ("chunked", 0, b"-1\r\n", (b"", "bad_chunk_size", b"1\r\n"), "bad_chunk_size"),
        ("chunked", 0, b"1000000000000000\r\nab", (b"ab", "need", b""), "cut"),
        ("chunked", 0, b"1000000000000001\r\n", (b"", "bad_chunk_size", b"\r\n"), "bad_chunk_size"),
        ("chunked", 0, b"1\r\nxy", (b"x", "bad_chunk_end", b""), "bad_chunk_end"),
        ("chunked", 0, b"1\r\nx\n", (b"x", "bad_chunk_end", b""), "bad_chunk_end"),
        ("chunked", 0, b"1;\r\n", (b"", "bad_extension", b"\n"), "bad_extension"),
        ("chunked", 0, b'1;a="b\r', (b"", "bad_extension", b""), "bad_extension"),
        ("chunked", 0, b"0\r\nbad trailer", (b"", "bad_trailer", b"trailer"), "bad_trailer"),
        ("chunked", 0, b"0\r\na: b\n", (b"", "bad_trailer", b""), "bad_trailer"),
        ("chunked", 0, b"0\r\na: b\r\n c\r\n", (b"", "bad_trailer", b"c\r\n"), "bad_trailer"),
    ],
)
def test_framing_whole_and_byte_by_byte(
    framer_type: type[BodyFramer], framing: str, length: int, data: bytes, expected: tuple[bytes, str, bytes], at_close: str
) -> None:
    """Payload, verdict, rest, and what the peer's close would mean."""
    for reads in ([data], drip(data)):
        framer = framer_type(framing, length)  # type: ignore[arg-type]
        assert frame(framer, reads) == expected
        assert framer.eof() == at_close


def test_spans_are_the_readers_own_bytes_one_per_chunk() -> None:
    """A chunk that lies whole in a read is one span; an empty read gives none."""
    framer = BodyFramer("chunked")
    assert framer.feed(b"") == ([], "need", b"")
    assert framer.feed(b"2\r\nab\r\n3\r\ncd")[0] == [b"ab", b"cd"]
    assert framer.feed(b"e\r\n")[0] == [b"e"]


def test_end_and_error_are_final() -> None:
    """Fed again after its end or its error, a body consumes nothing."""
    for body, state in ((b"0\r\n\r\n", "end"), (b"z", "bad_chunk_size")):
        framer = BodyFramer("chunked")
        framer.feed(body)
        assert framer.feed(b"1\r\nx\r\n") == ([], state, b"1\r\nx\r\n")


PARTS = [b"0", b"1", b"a", b"\r\n", b"\r", b"\n", b"1\r\nx\r\n", b"3\r\nabc\r\n", b"0\r\n", b"0\r\n\r\n", b";", b"a=", b'"', b"\\", b" ",
         b"t: v", b":", b"x", b"\xff", b"\x01", b"10\r\n0123456789abcdef\r\n"]
bodies = st.lists(st.sampled_from(PARTS), max_size=25).map(b"".join)


@settings(max_examples=800, deadline=None)
@given(bodies, st.lists(st.integers(0, 1000), max_size=10))
def test_any_split_gives_the_same_body_and_twin_and_oracle_agree(data: bytes, places: list[int]) -> None:
    """Payload, verdict and rest are a function of the bytes alone; httptools fed whole says the same."""
    whole = frame(BodyFramer("chunked"), [data])
    assert frame(BodyFramer("chunked"), cut(data, places)) == whole
    assert frame(ReferenceFramer("chunked"), cut(data, places)) == whole
    if whole[1] == "end":
        data = data[: len(data) - len(whole[2])]        # what follows belongs to a next response
    oracle = Oracle(CHUNKED + data)
    assert oracle.body == whole[0]
    assert oracle.accepted == (whole[1] in ("need", "end"))
    assert oracle.complete == (whole[1] == "end")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""), (b"1", b"\r\n"), (b"1;", b"\r\nx\r\n0\r\n\r\n"), (b"1;", b"a\r\nx\r\n0\r\n\r\n"),
        (b"1;a", b"\r\nx\r\n0\r\n\r\n"), (b"1;a=", b"\r\nx\r\n0\r\n\r\n"),
        (b'1;a="', b'"\r\nx\r\n0\r\n\r\n'), (b'1;a="\\', b'"\r\nx\r\n0\r\n\r\n'), (b'1;a=""', b"\r\nx\r\n0\r\n\r\n"),
        (b"1\r", b"x\r\n0\r\n\r\n"), (b"1\r\nx", b"\n0\r\n\r\n"), (b"1\r\nx\r", b"0\r\n\r\n"), (b"0\r\n", b""), (b"0\r\na", b": b\r\n\r\n"),
        (b"0\r\na:", b"\r\n\r\n"), (b"0\r\na: b\r", b"\r\n"), (b"0\r\na: b\r\n", b"x: y\r\n\r\n"), (b"0\r\n\r", b""),
    ],
)
def test_every_byte_at_every_place_of_the_framing(before: bytes, after: bytes) -> None:
    """Exhaustive over one byte in each state: httptools, the twin and the compiled framer give one verdict."""
    for byte in range(256):
        data = before + bytes([byte]) + after
        payload, state, unused = frame(BodyFramer("chunked"), [data])
        assert frame(ReferenceFramer("chunked"), [data]) == (payload, state, unused), data
        oracle = Oracle(CHUNKED + data[: len(data) - len(unused)] if state == "end" else CHUNKED + data)
        assert oracle.accepted == (state in ("need", "end")), (data, state)
        assert oracle.body == payload, data


@pytest.mark.parametrize(
    ("start", "block"), [(b"1;", b"a" * 1000), (b"", b"0" * 1000), (b"0\r\na:", b"v" * 1000), (b"0\r\n", b"a: b\r\n" * 200)]
)
def test_endless_framing_lines_end_in_an_error(start: bytes, block: bytes) -> None:
    """Extensions, zeros in front of a size, one trailer or many: refused after 16 KiB of line or 64 KiB of trailers."""
    framer, state, fed = BodyFramer("chunked"), "need", len(start)
    framer.feed(start)
    while state == "need":
        _, state, _ = framer.feed(block)
        fed += len(block)
        assert fed < 70_000
    assert state == "line_too_long" and framer.eof() == "line_too_long"


# ---- llhttp's own cases ----------------------------------------------------------------------------------------------


def unescape(text: str) -> bytes:
    """The corpus's notation: a backslash at the end of a line joins it, a line end is CR LF, \\r \\n \\t \\f \\xHH are bytes."""
    text = text.removesuffix("\n").replace("\\\n", "").replace("\n", "\r\n")
    names = {"r": "\r", "n": "\n", "t": "\t", "f": "\f"}
    text = re.sub(r"\\(?:x([0-9a-fA-F]{2})|([rntf]))", lambda m: chr(int(m[1], 16)) if m[1] else names[m[2]], text)
    return text.encode("latin-1")


def strict_cases() -> list[tuple[str, bytes]]:
    """Every case for a strict response parser; those that ask for a lenient or a paused one are another parser's."""
    found = []
    for path in sorted(CASES.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        for title, meta, fence in re.findall(r"^#+ ([^\n]*)\n(?:(?!^#).)*?<!-- meta=(\{[^\n]*\}) -->\n```http\n(.*?)```", text, re.S | re.M):
            if '"type": "response"' in meta and "skipBody" not in meta and "pause" not in meta:
                found.append((f"{path.stem}: {title}", unescape(fence)))
    return found


def ours(data: bytes, one_byte: bool) -> list[tuple[str, int, bytes, str]]:
    """All responses in *data* as the client would take them: (head verdict, status, body, body state) each."""
    responses = []
    while data:
        size = find_head_end(data)
        said = parse_head(data[:size]) if size else None
        if said is None or said["error"] != "ok":
            responses.append(("need" if said is None else said["error"], 0, b"", ""))
            break
        framer = BodyFramer(said["framing"], said["length"])  # type: ignore[arg-type]
        rest = data[size:]
        body, state, data = frame(framer, drip(rest) if one_byte and rest else [rest])
        responses.append(("ok", said["status"], body, state))
        if state != "end" or not said["keep_alive"]:
            break
    return responses


def test_llhttps_response_cases() -> None:
    """First response of each case: our verdict, status and body are httptools' own, also under one-byte reads.

    The client is stricter in two points: it refuses transfer codings other than chunked, and protocols but HTTP/1.
    """
    if not CASES.is_dir():
        pytest.skip(f"llhttp's cases are not at {CASES}: set FASTLLMLOAD_CORPORA to the corpora to run this test")
    cases = strict_cases()
    assert len(cases) >= 50, "the corpus is there but its cases were not recognised"
    for title, data in cases:
        responses = ours(data, one_byte=False)
        assert responses == ours(data, one_byte=True), title
        check_first_response(title, data, responses[0])


def check_first_response(title: str, data: bytes, first: tuple[str, int, bytes, str]) -> None:
    verdict, status, body, state = first
    size = find_head_end(data)
    if verdict == "need":
        assert not Oracle(data).head_complete, title
        return
    alone = Oracle(data[:size])
    if verdict != "ok":
        stricter = verdict == "bad_coding" or not data.lstrip(b"\r\n").startswith(b"HTTP/1.")
        assert stricter or not alone.accepted, (title, verdict)
        return
    assert alone.accepted and alone.parser.get_status_code() == status, title
    used = len(data) if state == "need" else first_size(data, size)
    oracle = Oracle(data[:used])
    assert oracle.accepted == (state in ("need", "end")), (title, state)
    assert oracle.body == body, title


def first_size(data: bytes, size: int) -> int:
    """Bytes of the first response, head and body, as the client counts them."""
    said = parse_head(data[:size])
    _, state, unused = BodyFramer(said["framing"], said["length"]).feed(data[size:])  # type: ignore[arg-type]
    return len(data) - len(unused) if state == "end" else len(data)
