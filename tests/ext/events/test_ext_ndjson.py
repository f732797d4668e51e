"""JSON lines: line ends, any split of the bytes, stamps, bounds. Compiled parser and twin alike."""

from __future__ import annotations

from itertools import pairwise

import pytest
from ext.reference.ndjson_reference import ReferenceNdjson
from hypothesis import given, settings
from hypothesis import strategies as st

from fastllmload._ext.events.ndjson import NdjsonParser

Line = tuple[None, bytes, int, int]
both = pytest.mark.parametrize("parser_type", [NdjsonParser, ReferenceNdjson])
streams = st.lists(st.sampled_from([b"{}", b"\n", b"\r", b"\r\n", b'{"a":1}', b" ", b"\0", b"\n\n"]), max_size=30).map(
    b"".join
)


def run(parser: NdjsonParser | ReferenceNdjson, reads: list[bytes]) -> list[Line]:
    """All lines, the last one at the peer's close included; read number i has stamp 1000 + i."""
    lines = [line for i, data in enumerate(reads) for line in parser.feed(data, 1000 + i, i)]
    return lines + parser.eof()


@both
@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"{}\n[]\n", [b"{}", b"[]"]),
        (b"{}\r\n[]\r\n", [b"{}", b"[]"]),
        (b"\n\r\n\n{}\n", [b"{}"]),
        (b"{}\r\r\n", [b"{}\r"]),
        (b"{}", [b"{}"]),
        (b"{}\r", [b"{}"]),
        (b"\r", []),
        (b"", []),
        (b"{\r}\n", [b"{\r}"]),
    ],
)
def test_lines_whole_and_byte_by_byte(parser_type: type[NdjsonParser], stream: bytes, expected: list[bytes]) -> None:
    """CR before LF is dropped, empty lines are skipped, the last line needs no newline."""
    assert [line[1] for line in run(parser_type(), [stream])] == expected
    assert [line[1] for line in run(parser_type(), [bytes([byte]) for byte in stream])] == expected


@both
def test_the_stamp_is_that_of_the_newlines_read(parser_type: type[NdjsonParser]) -> None:
    """A line is as late as its newline; the last line without one is as late as the last read."""
    lines = run(parser_type(), [b"{", b"}", b"\n[", b"]\n7"])
    assert lines == [(None, b"{}", 1002, 2), (None, b"[]", 1003, 3), (None, b"7", 1003, 3)]


@settings(max_examples=400, deadline=None)
@given(streams, st.lists(st.integers(0, 1000), max_size=10), st.sampled_from([1, 3, 8, 1 << 20]))
def test_any_split_gives_equal_lines_and_the_twin_agrees(data: bytes, places: list[int], limit: int) -> None:
    """Lines are a function of the bytes, lines with stamps one of bytes and read boundaries."""
    at = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    reads = [data[a:b] for a, b in pairwise(at)]
    whole, split, twin = NdjsonParser(limit=limit), NdjsonParser(limit=limit), ReferenceNdjson(limit=limit)
    lines = run(split, reads)
    assert [line[1] for line in lines] == [line[1] for line in run(whole, [data])]
    assert lines == run(twin, reads)
    assert split.too_long == whole.too_long == twin.too_long


@both
def test_limit_is_exact(parser_type: type[NdjsonParser]) -> None:
    """Four bytes fit a limit of four, whole or dripped; five do not."""
    for data, fits in ((b"1234\n", True), (b"12345", False), (b"12345\n", False)):
        for reads in ([data], [bytes([byte]) for byte in data]):
            parser = parser_type(limit=4)
            run(parser, reads)
            assert parser.too_long is not fits


def test_a_line_of_a_gigabyte_costs_bounded_memory() -> None:
    """The refusal is final until reset, and memory stays near the limit."""
    parser, block = NdjsonParser(limit=4096), b"[" * 65536
    for _ in range(16384):
        assert parser.feed(block) == []
        assert parser.held_bytes <= 8192
    assert parser.too_long and parser.feed(b"\n{}\n") == [] and parser.eof() == []
    parser.reset()
    assert [line[1] for line in parser.feed(b"{}\n")] == [b"{}"]


def test_reset_forgets_the_partial_line() -> None:
    """The next stream starts with its own first byte."""
    parser = NdjsonParser()
    parser.feed(b"half")
    parser.reset()
    assert [line[1] for line in parser.feed(b"{}\n")] == [b"{}"]
