"""Body framing: against httptools fed whole, against the plain twin, under any split, and hostile ones."""

from __future__ import annotations

import pytest
from ext.reference.http1_oracle import Oracle, cut, drip, frame
from ext.reference.http1_reference import ReferenceFramer
from hypothesis import given, settings
from hypothesis import strategies as st

from fastllmload._ext.http.response import BodyFramer

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


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
        (
            "chunked",
            0,
            b"3;a=b;c\r\nabc\r\nA\r\n0123456789\r\n0;x\r\nt: v\r\nu:\r\n\r\n",
            (b"abc0123456789", "end", b""),
            "end",
        ),
        ("chunked", 0, b'1;a="\\";\\"";b\r\nx\r\n00\r\n\r\n', (b"x", "end", b""), "end"),
        ("chunked", 0, b"3 \t\r\nabc\r\n0 \r\n\r\n", (b"abc", "end", b""), "end"),
        ("chunked", 0, b'3 ; a = "b" \t; c\t; d= e \r\nabc\r\n0\r\n\r\n', (b"abc", "end", b""), "end"),
        ("chunked", 0, b" 3\r\n", (b"", "bad_chunk_size", b"3\r\n"), "bad_chunk_size"),
        ("chunked", 0, b"3 3\r\n", (b"", "bad_chunk_size", b"\r\n"), "bad_chunk_size"),
        ("chunked", 0, b"1; \r\n", (b"", "bad_extension", b"\n"), "bad_extension"),
        ("chunked", 0, b"1;a b\r\n", (b"", "bad_extension", b"\r\n"), "bad_extension"),
        ("chunked", 0, b"1;a=b c\r\n", (b"", "bad_extension", b"\r\n"), "bad_extension"),
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
    framer_type: type[BodyFramer],
    framing: str,
    length: int,
    data: bytes,
    expected: tuple[bytes, str, bytes],
    at_close: str,
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


PARTS = [
    b"0",
    b"1",
    b"a",
    b"\r\n",
    b"\r",
    b"\n",
    b"1\r\nx\r\n",
    b"3\r\nabc\r\n",
    b"0\r\n",
    b"0\r\n\r\n",
    b";",
    b"a=",
    b'"',
    b"\\",
    b" ",
    b"t: v",
    b":",
    b"x",
    b"\xff",
    b"\x01",
    b"10\r\n0123456789abcdef\r\n",
]
bodies = st.lists(st.sampled_from(PARTS), max_size=25).map(b"".join)


@settings(max_examples=800, deadline=None)
@given(bodies, st.lists(st.integers(0, 1000), max_size=10))
def test_any_split_gives_the_same_body_and_twin_and_oracle_agree(data: bytes, places: list[int]) -> None:
    """Payload, verdict and rest are a function of the bytes alone; httptools fed whole says the same."""
    whole = frame(BodyFramer("chunked"), [data])
    assert frame(BodyFramer("chunked"), cut(data, places)) == whole
    twin = ReferenceFramer("chunked")
    assert frame(twin, cut(data, places)) == whole
    if twin.blanks:
        return  # llhttp bears none in these lines; the twin is the judge
    if whole[1] == "end":
        data = data[: len(data) - len(whole[2])]  # what follows belongs to a next response
    oracle = Oracle(CHUNKED + data)
    assert oracle.body == whole[0]
    assert oracle.accepted == (whole[1] in ("need", "end"))
    assert oracle.complete == (whole[1] == "end")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (b"1", b"\r\n"),
        (b"1;", b"\r\nx\r\n0\r\n\r\n"),
        (b"1;", b"a\r\nx\r\n0\r\n\r\n"),
        (b"1;a", b"\r\nx\r\n0\r\n\r\n"),
        (b"1 ", b"\r\nx\r\n0\r\n\r\n"),
        (b"1; ", b"\r\nx\r\n0\r\n\r\n"),
        (b"1;a ", b"\r\nx\r\n0\r\n\r\n"),
        (b"1;a= ", b"\r\nx\r\n0\r\n\r\n"),
        (b"1;a=b ", b"\r\nx\r\n0\r\n\r\n"),
        (b'1;a="b" ', b"\r\nx\r\n0\r\n\r\n"),
        (b"1;a=", b"\r\nx\r\n0\r\n\r\n"),
        (b'1;a="', b'"\r\nx\r\n0\r\n\r\n'),
        (b'1;a="\\', b'"\r\nx\r\n0\r\n\r\n'),
        (b'1;a=""', b"\r\nx\r\n0\r\n\r\n"),
        (b"1\r", b"x\r\n0\r\n\r\n"),
        (b"1\r\nx", b"\n0\r\n\r\n"),
        (b"1\r\nx\r", b"0\r\n\r\n"),
        (b"0\r\n", b""),
        (b"0\r\na", b": b\r\n\r\n"),
        (b"0\r\na:", b"\r\n\r\n"),
        (b"0\r\na: b\r", b"\r\n"),
        (b"0\r\na: b\r\n", b"x: y\r\n\r\n"),
        (b"0\r\n\r", b""),
    ],
)
def test_every_byte_at_every_place_of_the_framing(before: bytes, after: bytes) -> None:
    """One byte of each value in each state: httptools, twin and compiled framer give one verdict."""
    for byte in range(256):
        data = before + bytes([byte]) + after
        payload, state, unused = frame(BodyFramer("chunked"), [data])
        twin = ReferenceFramer("chunked")
        assert frame(twin, [data]) == (payload, state, unused), data
        if twin.blanks:
            continue
        oracle = Oracle(CHUNKED + data[: len(data) - len(unused)] if state == "end" else CHUNKED + data)
        assert oracle.accepted == (state in ("need", "end")), (data, state)
        assert oracle.body == payload, data


@pytest.mark.parametrize(
    ("start", "block"),
    [(b"1;", b"a" * 1000), (b"", b"0" * 1000), (b"0\r\na:", b"v" * 1000), (b"0\r\n", b"a: b\r\n" * 200)],
)
def test_endless_framing_lines_end_in_an_error(start: bytes, block: bytes) -> None:
    """Extensions, zeros before a size, trailers: refused after 16 KiB of line or 64 KiB of trailers."""
    framer, state, fed = BodyFramer("chunked"), "need", len(start)
    framer.feed(start)
    while state == "need":
        _, state, _ = framer.feed(block)
        fed += len(block)
        assert fed < 70_000
    assert state == "line_too_long" and framer.eof() == "line_too_long"
