"""Server-sent events: grammar, any split of the bytes, stamps, bounds; compiled parser and twin alike."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from ext.reference.sse_reference import ReferenceSse
from hypothesis import given, settings
from hypothesis import strategies as st

from fastllmload._ext.events.sse import SseParser

Event = tuple[bytes | None, bytes, int, int]
PARSERS = [SseParser, ReferenceSse]
both = pytest.mark.parametrize("parser_type", PARSERS)

# Streams are built from every line end, every kind of line, and bytes that look like a mark or a line end.
PIECES = [
    b"data",
    b"data:",
    b"data: ",
    b"event:",
    b"event: name",
    b"id: 1",
    b"retry: 5",
    b":",
    b": ping",
    b" ",
    b"x",
    b"{}",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\r\r",
    b"\r\n\r\n",
    b"\xef",
    b"\xbb",
    b"\xbf",
    b"\xef\xbb\xbf",
    b"\0",
    b"data: one",
    b"data:two",
    b"event",
    b"dat",
]
streams = st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """*data* in pieces, cut at *places* modulo its length; pieces may be empty."""
    at = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(at)]


def run(parser: SseParser | ReferenceSse, reads: list[bytes]) -> list[Event]:
    """All events; read number i has stamp 1000 + i."""
    return [event for i, data in enumerate(reads) for event in parser.feed(data, 1000 + i, i)]


def contents(events: list[Event]) -> list[tuple[bytes | None, bytes]]:
    return [event[:2] for event in events]


@both
@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\n", [(None, b"a")]),
        (b"data: a\r\n\r\n", [(None, b"a")]),
        (b"data: a\r\r", [(None, b"a")]),
        (b"data:a\n\n", [(None, b"a")]),
        (b"data:  a \n\n", [(None, b" a ")]),
        (b"data: a\ndata: b\n\n", [(None, b"a\nb")]),
        (b"data\n\ndata\ndata\n\ndata:", [(None, b""), (None, b"\n")]),
        (b"data: a\n", []),
        (b"data: a", []),
        (b": note\n\ndata: a\n\n", [(None, b"a")]),
        (b"event: e\ndata: a\n\ndata: b\n\n", [(b"e", b"a"), (None, b"b")]),
        (b"event: e\n\ndata: b\n\n", [(None, b"b")]),
        (b"event: e\nevent\ndata: b\n\n", [(None, b"b")]),
        (b"data: b\nevent: late\n\n", [(b"late", b"b")]),
        (b"\xef\xbb\xbfdata: a\n\n", [(None, b"a")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
        (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [(None, b"a")]),
        (b"\xef\xbbdata: a\n\ndata: b\n\n", [(None, b"b")]),
        (b"id: 4\nretry: 10\nDATA: a\ndata : b\n\n", []),
        (b"\n\n\n\rdata:x\r\n\n", [(None, b"x")]),
        (b"data: \0\xff\n\n", [(None, b"\0\xff")]),
    ],
)
def test_the_standards_grammar_whole_and_byte_by_byte(
    parser_type: type[SseParser], stream: bytes, expected: list[tuple[bytes | None, bytes]]
) -> None:
    """Each line of the standard's interpretation, fed whole, then one byte per read."""
    assert contents(run(parser_type(), [stream])) == expected
    assert contents(run(parser_type(), [bytes([byte]) for byte in stream])) == expected


@both
def test_a_blank_line_that_ends_with_cr_delivers_at_once(parser_type: type[SseParser]) -> None:
    """The parser does not wait for the LF that may follow; that LF is then not a second blank line."""
    parser = parser_type()
    assert contents(parser.feed(b"data: a\r\n\r")) == [(None, b"a")]
    assert parser.feed(b"\n") == []
    assert contents(parser.feed(b"data: b\n\n")) == [(None, b"b")]


@both
@pytest.mark.parametrize(
    ("reads", "stamp"),
    [
        ([b"data: a\n\n"], 0),
        ([b"data: a\n", b"\n"], 0),
        ([b"data: a", b"\n\n"], 1),
        ([b"data: a\r", b"\n", b"\r\n"], 0),
        ([b"data: a\n", b"data: b\n", b"\n"], 1),
        ([b"data: a\n", b": comment\n", b"event: e\n", b"\n"], 0),
        ([b"data: a\n", b"data", b"\n", b"\n"], 2),
    ],
)
def test_the_stamp_is_that_of_the_last_data_lines_newline(
    parser_type: type[SseParser], reads: list[bytes], stamp: int
) -> None:
    """Not the blank line's read, and not the read of the first data line."""
    (event,) = run(parser_type(), reads)
    assert event[2:] == (1000 + stamp, stamp)


def expected_stamps(data: bytes, reads: list[bytes]) -> list[int]:
    """Read number per event, from byte positions alone: where each event's last data line ends."""
    ends, lines, at = [], data, 0
    bounds = [sum(map(len, reads[: i + 1])) for i in range(len(reads))]
    last = None
    for line in lines.replace(b"\r\n", b"\n\0").replace(b"\r", b"\n").splitlines(keepends=True):
        body = line.strip(b"\0\n") if at else line.strip(b"\0\n").removeprefix(b"\xef\xbb\xbf")
        newline = at + len(line.rstrip(b"\n")) if line.endswith(b"\n") else None
        at += len(line)
        if newline is None:
            break
        if body.partition(b":")[0] == b"data":
            last = next(i for i, bound in enumerate(bounds) if newline < bound)
        elif not body and last is not None:
            ends.append(last)
            last = None
    return ends


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.sampled_from([p for p in PIECES if b"\0" not in p]), max_size=40).map(b"".join),
    st.lists(st.integers(0, 10_000), max_size=12),
)
def test_stamps_follow_from_bytes_and_read_boundaries_alone(data: bytes, places: list[int]) -> None:
    """Against a computation from byte positions that shares nothing with either parser."""
    reads = cut(data, places)
    assert [event[3] for event in run(SseParser(), reads)] == expected_stamps(data, reads)


@settings(max_examples=600, deadline=None)
@given(streams, st.lists(st.integers(0, 10_000), max_size=12), st.sampled_from([4, 9, 30, 1 << 20]))
def test_any_split_gives_equal_events_and_the_twin_agrees(data: bytes, places: list[int], limit: int) -> None:
    """Events are a function of the bytes; events with stamps are one of bytes and read boundaries."""
    reads = cut(data, places)
    whole, split, twin = SseParser(limit=limit), SseParser(limit=limit), ReferenceSse(limit=limit)
    events = run(split, reads)
    assert contents(events) == contents(run(whole, [data]))
    assert events == run(twin, reads)
    assert split.too_long == whole.too_long == twin.too_long
    if not split.too_long:
        assert split.comments == whole.comments == twin.comments


def test_every_short_stream_in_every_split() -> None:
    """Exhaustive: all streams of up to 4 of these pieces, each cut at every place."""
    pieces = [b"data:x", b"\r", b"\n", b"\xef\xbb\xbf", b"e", b":"]
    for size in range(1, 5):
        for chosen in product(pieces, repeat=size):
            data = b"".join(chosen) + b"\n\n"
            whole = contents(run(SseParser(), [data]))
            assert whole == contents(run(ReferenceSse(), [data])), data
            for place in range(1, len(data)):
                assert contents(run(SseParser(), [data[:place], data[place:]])) == whole, (data, place)


@both
@pytest.mark.parametrize(
    ("stream", "fits"),
    [
        (b"data:1234\n\n", True),
        (b"data:12345\n\n", False),
        (b":" + b"c" * 8 + b"\n", True),
        (b":" + b"c" * 9, False),
        (b"data:1234\ndata:1234\n\n", True),
        (b"data:1234\ndata:1234\ndata:\n\n", False),
    ],
)
def test_limit_bounds_a_line_and_the_joined_data(parser_type: type[SseParser], stream: bytes, fits: bool) -> None:
    """A limit of 9 bytes, to the byte; the same under one-byte reads."""
    for reads in ([stream], [bytes([byte]) for byte in stream]):
        parser = parser_type(limit=9)
        run(parser, reads)
        assert parser.too_long is not fits


def test_after_the_limit_nothing_more_comes_until_reset() -> None:
    """The refusal is final for its stream; reset opens the next one."""
    parser = SseParser(limit=16)
    assert contents(parser.feed(b"data: a\n\n" + b"x" * 17)) == [(None, b"a")]
    assert parser.too_long and parser.feed(b"\n\ndata: b\n\n") == []
    parser.reset()
    assert not parser.too_long
    assert contents(parser.feed(b"data: b\n\n")) == [(None, b"b")]


def test_reset_forgets_the_half_event_and_its_name() -> None:
    """Partial line, data, name, mark position and CR of one stream do not reach the next."""
    parser = SseParser()
    parser.feed(b"event: e\ndata: old\ndata: ol")
    parser.reset()
    assert contents(parser.feed(b"\xef\xbb\xbfdata: new\n\n")) == [(None, b"new")]
    parser.feed(b"data: a\r")
    parser.reset()
    assert contents(parser.feed(b"\ndata: b\n\n")) == [(None, b"b")]


@pytest.mark.parametrize(
    ("block", "times", "too_long"),
    [
        (b"x" * 65536, 16384, True),
        (b"data: " + b"y" * 1000 + b"\n", 1000, True),
        (b"event: " + b"y" * 1000 + b"\n", 1000, False),
        (b"\r\n" * 30000, 20, False),
        (b": c\n" * 9000, 20, False),
    ],
)
def test_endless_input_costs_bounded_memory(block: bytes, times: int, too_long: bool) -> None:
    """A line of 1 GiB, endless data lines, endless names: never more than a few times the limit is held."""
    parser, limit = SseParser(limit=4096), 4096
    for _ in range(times):
        parser.count(block)
        assert parser.held_bytes <= 6 * limit
    assert parser.too_long is too_long


def test_large_buffers_are_given_back_between_streams() -> None:
    """A stream with a huge event does not leave its memory with the connection."""
    parser = SseParser(limit=1 << 20)
    parser.feed(b"data: " + b"x" * 500_000)
    assert parser.held_bytes >= 500_000
    parser.reset()
    assert parser.held_bytes == 0


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.lists(st.integers(0, 1000), max_size=8))
def test_any_bytes_at_all(data: bytes, places: list[int]) -> None:
    """Garbage is a stream too: compiled parser and twin agree on it."""
    reads = cut(data, places)
    assert run(SseParser(limit=64), reads) == run(ReferenceSse(limit=64), reads)
