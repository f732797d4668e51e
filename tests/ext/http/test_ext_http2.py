"""HTTP/2 as a client reads it: the library h2 as server, every split, and peers that break the protocol."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest
from ext.reference import http2_frames as f
from hypothesis import given, settings
from hypothesis import strategies as st

from fastllmload._ext.receive.http2 import StreamReader
from fastllmload.records.layout import ERROR_NAMES

SSE, JSON = 1, 3
# :method POST, :scheme http, :path /, :authority t
REQUEST = b"\x20\x83\x86\x84\x01\x01t"
SETTINGS = f.settings((3, 100), (4, 65535))


def reader(streams: int = 0, first: bytes = SETTINGS) -> StreamReader:
    """One whose server has said *first*, with that many requests sent."""
    made = StreamReader()
    assert made.feed(first) == []
    for _ in range(streams):
        made.send(made.open(), REQUEST, b"")
    made.out()
    return made


def merged(steps: list[tuple[int, str, Any]]) -> dict[int, list[tuple[str, Any]]]:
    """Steps by exchange, payloads that follow each other joined, names of errors."""
    found: dict[int, list[tuple[str, Any]]] = {}
    for number, word, what in steps:
        happened = found.setdefault(number, [])
        if word == "payload" and happened and happened[-1][0] == "payload":
            happened[-1] = word, happened[-1][1] + what
        elif word == "error":
            happened.append((word, ERROR_NAMES[what]))
        elif word == "failed":
            happened.append((word, (ERROR_NAMES[what[0]], what[1])))
        else:
            happened.append((word, what))
    return found


def fed(made: StreamReader, data: bytes, cuts: list[int]) -> dict[int, list[tuple[str, Any]]]:
    edges = [0, *sorted(cut for cut in cuts if 0 < cut < len(data)), len(data)]
    steps: list[tuple[int, str, Any]] = []
    for a, b in itertools.pairwise(edges):
        steps += made.feed(data[a:b])
        if steps and steps[-1][1] == "error":
            break  # a caller closes the connection
    return merged(steps)


def test_what_a_client_says_first() -> None:
    """No table of fields, no pushes, windows as far open as they go."""
    sent = StreamReader().out()
    assert sent.startswith(f.PREFACE)
    first, second = f.frames_of(sent)
    pairs = dict(struct.iter_unpack(">HI", first[3]))
    assert first[:3] == (f.SETTINGS, 0, 0) and pairs == {1: 0, 2: 0, 4: 2**31 - 1}
    assert second == (f.WINDOW_UPDATE, 0, 0, struct.pack(">I", 2**31 - 1 - 65535))


MIXED = b"".join((
    f.settings((3, 7)),
    f.head(1),
    f.head(3, 429, "application/json", ("retry-after", "2"), ("content-length", "2")),
    f.data(1, b"data: a\n\n"),
    f.frame(f.PING, 0, 0, b"12345678"),
    f.data(3, b"{}", end=True, padding=3),
    f.frame(0x20, 0xFF, 5, b"an extension"),
    f.data(1, b"data: b\n\n", padding=0),
    f.frame(f.PRIORITY, 0, 1, b"\0\0\0\0\x10"),
    f.code(f.WINDOW_UPDATE, 0, 1000),
    f.frame(f.HEADERS, f.PADDED | f.PRIORITIZED, 5, b"\x02" + b"\0\0\0\0\x10" + f.block(200, "text/plain")[:3] + b"\0\0"),
    f.frame(f.CONTINUATION, 0, 5, f.block(200, "text/plain")[3:5]),
    f.frame(f.CONTINUATION, f.END_HEADERS, 5, f.block(200, "text/plain")[5:]),
    f.code(f.RST_STREAM, 5, 2),
    f.data(1, b"", end=True),
    f.head(7, 103, "x"),
    f.head(7, 200, "application/json"),
    f.head(7, 200, "trailers", flags=f.END_STREAM),
))  # fmt: skip
EXPECTED = {
    0: [("head", (200, SSE, False, -1)), ("payload", b"data: a\n\ndata: b\n\n"), ("end", True)],
    1: [("head", (429, JSON, False, 2000)), ("payload", b"{}"), ("end", True)],
    2: [("head", (200, 0, False, -1)), ("failed", ("stream_reset", 2))],
    3: [("head", (200, JSON, False, -1)), ("end", True)],
}


def test_every_split_in_two_and_single_bytes() -> None:
    for cuts in [[], list(range(len(MIXED))), *([cut] for cut in range(len(MIXED)))]:
        made = reader(4)
        assert fed(made, MIXED, cuts) == EXPECTED, cuts
        assert made.streams == 0 and made.most == 7
        assert f.frames_of(made.out()) == [(f.SETTINGS, f.ACK, 0, b""), (f.PING, f.ACK, 0, b"12345678")]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, len(MIXED)), max_size=20))
def test_any_split_gives_the_same(cuts: list[int]) -> None:
    assert fed(reader(4), MIXED, cuts) == EXPECTED


class Server:
    """The library h2 as the other side."""

    def __init__(self, made: StreamReader) -> None:
        self.made = made
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
        self.h2.initiate_connection()
        self.bodies: dict[int, bytes] = {}
        self.events: list[h2.events.Event] = []
        self.steps: list[tuple[int, str, Any]] = []
        self.exchange()

    def exchange(self) -> None:
        """What both have to say, until neither has more."""
        while True:
            sent, answered = self.made.out(), self.h2.data_to_send()
            if not sent and not answered:
                return
            if answered:
                self.steps += self.made.feed(answered)
            for event in self.h2.receive_data(sent) if sent else []:
                self.events.append(event)
                if isinstance(event, h2.events.DataReceived):
                    self.bodies[event.stream_id] = self.bodies.get(event.stream_id, b"") + event.data


actions = st.lists(
    st.tuples(st.sampled_from(["head", "data", "padded", "end", "reset", "ping", "trailers"]), st.integers(0, 9)),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(actions, st.integers(1, 10))
def test_the_library_h2_as_server(drawn: list[tuple[str, int]], streams: int) -> None:
    """Whatever a server of the library says of any stream in any order arrives as it was said."""
    made = StreamReader()
    server = Server(made)
    for _ in range(streams):
        made.send(made.open(), REQUEST, b"")
    server.exchange()
    requests = [event for event in server.events if isinstance(event, h2.events.RequestReceived)]
    assert len(requests) == streams
    expected: dict[int, list[tuple[str, Any]]] = {}
    for word, at in drawn:
        number = at % streams
        stream = 2 * number + 1
        happened = expected.setdefault(number, [])
        over = bool(happened) and happened[-1][0] in ("end", "failed")
        headed = bool(happened)
        if over:
            continue
        if word == "head" and not headed:
            server.h2.send_headers(stream, [(":status", "200"), ("content-type", "text/event-stream"), ("n", str(at))])
            happened.append(("head", (200, SSE, False, -1)))
        elif word == "ping":
            server.h2.ping(b"12345678")
        elif word == "reset":
            server.h2.reset_stream(stream, 8)
            happened.append(("failed", ("stream_reset", 8)))
        elif headed and word in ("data", "padded"):
            server.h2.send_data(stream, b"%d" % at, pad_length=at if word == "padded" else None)
            if happened[-1][0] == "payload":
                happened[-1] = "payload", happened[-1][1] + b"%d" % at
            else:
                happened.append(("payload", b"%d" % at))
        elif headed and word == "end":
            server.h2.end_stream(stream)
            happened.append(("end", True))
        elif headed and word == "trailers":
            server.h2.send_headers(stream, [("x", "y")], end_stream=True)
            happened.append(("end", True))
    server.exchange()
    assert merged(server.steps) == {number: happened for number, happened in expected.items() if happened}


def test_a_body_waits_for_the_servers_windows() -> None:
    """As much as they let through, in frames that the server takes; the rest when they are opened."""
    made = StreamReader()
    server = Server(made)
    body = bytes(range(256)) * 1000
    number = made.open()
    done = made.send(number, REQUEST, body)
    assert done == 65535 and made.waits(number)
    server.exchange()
    while done < len(body):
        server.h2.increment_flow_control_window(10_000)
        server.h2.increment_flow_control_window(10_000, stream_id=1)
        server.exchange()
        before, done = done, done + made.send(number, b"", body[done:])
        assert done - before == min(10_000, len(body) - before)
        server.exchange()
    assert server.bodies == {1: body} and not made.waits(number)
    assert any(isinstance(event, h2.events.StreamEnded) for event in server.events)


def test_bodies_fill_no_more_than_what_waits_to_be_sent() -> None:
    made = reader(first=f.settings((4, 2**31 - 1)) + f.code(f.WINDOW_UPDATE, 0, 2**31 - 65536))
    done = made.send(made.open(), REQUEST, b"x" * 1_000_000)
    assert 65536 <= done <= 65536 + 16384
    made.out(40_000)
    more = made.send(0, b"", b"x" * (1_000_000 - done))
    assert 0 < more <= 65536


def test_a_smaller_first_window_takes_back_what_streams_had() -> None:
    """RFC 9113 6.9.2: a window may become negative, and is waited for."""
    made = reader(first=f.settings((4, 100)))
    number = made.open()
    assert made.send(number, REQUEST, b"x" * 150) == 100
    made.feed(f.settings((4, 20)))
    made.feed(f.code(f.WINDOW_UPDATE, 1, 80))
    assert made.waits(number) and made.send(number, b"", b"x" * 50) == 0
    made.feed(f.code(f.WINDOW_UPDATE, 1, 10))
    assert made.send(number, b"", b"x" * 50) == 10


def test_a_long_head_is_sent_in_several_frames() -> None:
    made = reader()
    made.send(made.open(), b"h" * 40_000, b"")
    frames = f.frames_of(made.out())
    assert [(kind, flags, len(payload)) for kind, flags, _, payload in frames] == [
        (f.HEADERS, f.END_STREAM, 16384),
        (f.CONTINUATION, 0, 16384),
        (f.CONTINUATION, f.END_HEADERS, 40_000 - 2 * 16384),
    ]
    assert b"".join(frame[3] for frame in frames) == b"h" * 40_000


def test_a_gib_later_the_windows_are_opened_again() -> None:
    made = reader(1)
    made.feed(f.head(1))
    piece = f.data(1, b"x" * 16384) * 64
    for _ in range(1024):
        made.feed(piece)
    assert f.frames_of(made.out()) == [
        (f.WINDOW_UPDATE, 0, 0, struct.pack(">I", 2**30)),
        (f.WINDOW_UPDATE, 0, 1, struct.pack(">I", 2**30)),
    ]


def test_equal_heads_are_decoded_once() -> None:
    made = reader(100)
    for number in range(100):
        made.feed(f.head(2 * number + 1, flags=f.END_STREAM))
    assert made.heads_known == 99 and made.streams == 0


def test_a_stream_that_is_reset_is_closed_and_what_comes_late_is_dropped() -> None:
    made = reader(2)
    made.reset(0)
    assert f.frames_of(made.out()) == [(f.RST_STREAM, 0, 1, struct.pack(">I", 8))]
    late = f.head(1) + f.data(1, b"late") + f.code(f.WINDOW_UPDATE, 1, 5) + f.code(f.RST_STREAM, 1, 8)
    assert merged(made.feed(late + f.head(3) + f.data(3, b"x", end=True))) == {
        1: [("head", (200, SSE, False, -1)), ("payload", b"x"), ("end", True)]
    }


def test_a_message_without_a_request_ends_or_is_reset() -> None:
    made = reader(2)
    made.feed(f.head(1) + f.head(3))
    made.leave(0)
    made.leave(1)
    made.end_tails()
    assert made.feed(f.data(1, b"rest", end=True)) == [] and made.streams == 1 and made.out() == b""
    made.end_tails()
    assert made.streams == 0 and f.frames_of(made.out()) == [(f.RST_STREAM, 0, 3, struct.pack(">I", 8))]


def test_an_answer_to_half_a_request_ends_it() -> None:
    """RFC 9113 8.1: what is left of the body is not sent."""
    made = reader(first=f.settings((4, 10)))
    made.send(made.open(), REQUEST, b"x" * 100)
    made.out()
    steps = made.feed(f.head(1, 413, "text/plain", flags=f.END_STREAM))
    assert [step[1] for step in steps] == ["head", "end"]
    assert f.frames_of(made.out()) == [(f.RST_STREAM, 0, 1, struct.pack(">I", 8))]
    assert made.send(0, b"", b"x" * 90) == 0


def test_goaway_fails_what_it_leaves_and_nothing_else() -> None:
    made = reader(3)
    assert merged(made.feed(f.goaway(1, 0, b"bye") + f.head(1) + f.data(1, b"x", end=True))) == {
        1: [("failed", ("goaway", 0))],
        2: [("failed", ("goaway", 0))],
        0: [("head", (200, SSE, False, -1)), ("payload", b"x"), ("end", False)],
    }
    assert made.streams == 0


def test_a_connection_that_ends_fails_every_stream() -> None:
    made = reader(3)
    made.feed(f.head(1))
    assert merged(made.eof()) == {
        **{number: [("failed", ("closed_in_body", 0))] for number in range(3)},
        -1: [("error", "closed_in_body")],
    }
    left = reader(2)
    left.feed(f.goaway(3, 11))
    assert merged(left.eof())[0] == [("failed", ("goaway", 11))]
    assert merged(StreamReader().eof()) == {-1: [("error", "not_http2")]}


BAD: list[tuple[str, bytes, str]] = [
    ("an HTTP/1.1 answer", b"HTTP/1.1 400 Bad Request\r\n\r\n", "not_http2"),
    ("TLS", b"\x15\x03\x01\x00\x02\x02\x46\0\0\0\0\0", "not_http2"),
    ("no settings first", f.head(1), "not_http2"),
    ("an acknowledgment first", f.frame(f.SETTINGS, f.ACK), "not_http2"),
    ("a frame above the limit", SETTINGS + f.frame(f.DATA, 0, 1, b"", length=16385), "bad_frame"),
    ("data on stream 0", SETTINGS + f.data(0, b"x"), "bad_frame"),
    ("data on an idle stream", SETTINGS + f.data(99, b"x"), "bad_frame"),
    ("data on a stream of the server", SETTINGS + f.data(2, b"x"), "bad_frame"),
    ("more padding than payload", SETTINGS + f.frame(f.DATA, f.PADDED, 1, b"\x05xxxx"), "bad_frame"),
    ("no room for padding", SETTINGS + f.frame(f.DATA, f.PADDED, 1) + f.settings(), "bad_frame"),
    ("headers on an idle stream", SETTINGS + f.head(99), "bad_frame"),
    ("padding above a head", SETTINGS + f.frame(f.HEADERS, f.PADDED | f.END_HEADERS, 1, b"\x09abc"), "bad_frame"),
    ("priority without room", SETTINGS + f.frame(f.HEADERS, f.PRIORITIZED | f.END_HEADERS, 1, b"abc"), "bad_frame"),
    ("a continuation of nothing", SETTINGS + f.frame(f.CONTINUATION, f.END_HEADERS, 1), "bad_frame"),
    ("data within a head", SETTINGS + f.frame(f.HEADERS, 0, 1, b"\x88") + f.data(1, b"x"), "bad_frame"),
    ("another's continuation", SETTINGS + f.frame(f.HEADERS, 0, 1) + f.frame(f.CONTINUATION, 4, 3), "bad_frame"),
    ("a push", SETTINGS + f.frame(f.PUSH_PROMISE, 4, 1, b"\0\0\0\x02\x88"), "bad_frame"),
    ("pushes turned on", f.settings((2, 1)), "bad_frame"),
    ("settings of a stream", SETTINGS + f.frame(f.SETTINGS, 0, 1), "bad_frame"),
    ("half a setting", SETTINGS + f.frame(f.SETTINGS, 0, 0, b"\0\x03\0"), "bad_frame"),
    ("an acknowledgment with settings", SETTINGS + f.frame(f.SETTINGS, f.ACK, 0, b"123456"), "bad_frame"),
    ("a window above 2^31", f.settings((4, 2**31)), "bad_frame"),
    ("frames below the least limit", f.settings((5, 100)), "bad_frame"),
    ("frames above the most", f.settings((5, 1 << 24)), "bad_frame"),
    ("a short ping", SETTINGS + f.frame(f.PING, 0, 0, b"1234"), "bad_frame"),
    ("a ping of a stream", SETTINGS + f.frame(f.PING, 0, 1, b"12345678"), "bad_frame"),
    ("a short goaway", SETTINGS + f.frame(f.GOAWAY, 0, 0, b"1234"), "bad_frame"),
    ("a reset of the connection", SETTINGS + f.code(f.RST_STREAM, 0, 8), "bad_frame"),
    ("a reset of an idle stream", SETTINGS + f.code(f.RST_STREAM, 99, 8), "bad_frame"),
    ("a long reset", SETTINGS + f.frame(f.RST_STREAM, 0, 1, b"12345"), "bad_frame"),
    ("a window of an idle stream", SETTINGS + f.code(f.WINDOW_UPDATE, 99, 8), "bad_frame"),
    ("a window opened by 0", SETTINGS + f.code(f.WINDOW_UPDATE, 0, 0), "bad_frame"),
    ("a window opened too far", SETTINGS + f.code(f.WINDOW_UPDATE, 0, 2**31 - 1), "bad_frame"),
    ("first windows that overflow", SETTINGS + f.code(f.WINDOW_UPDATE, 1, 2**31 - 65536) + f.settings((4, 65536)),
     "bad_frame"),
    ("a head that refers to the table", SETTINGS + f.frame(f.HEADERS, 4, 1, b"\x88\xbe"), "header_table"),
    ("a table that was refused", SETTINGS + f.frame(f.HEADERS, 4, 1, b"\x3f\xe1\x1f\x88"), "header_table"),
    ("continuations without end", SETTINGS + f.frame(f.HEADERS, 0, 1) + f.frame(f.CONTINUATION, 0, 1, b"x" * 9000) * 9,
     "head_too_large"),
    ("empty continuations", SETTINGS + f.frame(f.HEADERS, 0, 1) + f.frame(f.CONTINUATION, 0, 1) * 100, "head_too_large"),
    ("a head that grows", SETTINGS + f.frame(f.HEADERS, 4, 1, b"\x88" + b"\x90" * 15000), "head_too_large"),
    ("pings without end", SETTINGS + f.frame(f.PING, 0, 0, b"12345678") * 1000, "bad_frame"),
    ("settings without end", SETTINGS * 2000, "bad_frame"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "error"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
@pytest.mark.parametrize("one_by_one", [False, True])
def test_what_breaks_the_protocol_ends_the_connection(data: bytes, error: str, one_by_one: bool) -> None:
    """Each exchange fails with the same error, once; GOAWAY is said; nothing more is read."""
    made = StreamReader()
    for _ in range(3):
        made.send(made.open(), REQUEST, b"")
    made.out()
    happened = fed(made, data, list(range(len(data))) if one_by_one else [])
    assert happened.pop(-1)[-1] == ("error", error)
    assert {number: steps[-1] for number, steps in happened.items()} == dict.fromkeys(range(3), ("failed", (error, 0)))
    assert f.frames_of(made.out())[-1][0] == f.GOAWAY and made.streams == 0
    assert merged(made.feed(b"more")) == {-1: [("error", error)]}


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (f.data(1, b"x"), "bad_frame"),
        (f.data(1, b"", end=True), "bad_frame"),
        (f.head(1) + f.head(1), "bad_frame"),
        (f.code(f.WINDOW_UPDATE, 1, 0), "bad_frame"),
        (f.code(f.WINDOW_UPDATE, 1, 2**31 - 1), "bad_frame"),
        (f.frame(f.HEADERS, 4, 1, b""), "bad_head"),
        (f.frame(f.HEADERS, 4, 1, b"\x00\x01a\x01b"), "bad_head"),
        (f.frame(f.HEADERS, 4, 1, b"\x88\x88"), "bad_head"),
        (f.frame(f.HEADERS, 4, 1, b"\x88\x00\x01A\x01b"), "bad_head"),
        (f.frame(f.HEADERS, 4, 1, b"\x08\x0299"), "bad_head"),
        (f.frame(f.HEADERS, 4, 1, b"\x00\x05"), "bad_head"),
        (f.head(1, 200, "x", ("transfer-encoding", "chunked")), "bad_head"),
        (f.head(1, 200, "x", ("content-length", "1"), ("content-length", "2")), "bad_head"),
        (f.head(1, 101, "x"), "bad_head"),
        (f.head(1, 100, "x", flags=f.END_STREAM), "bad_head"),
        (f.head(1, 200, "x", ("content-length", "5")) + f.data(1, b"four", end=True), "closed_in_body"),
        (f.code(f.RST_STREAM, 1, 7), "stream_refused"),
        (f.code(f.RST_STREAM, 1, 11), "stream_reset"),
    ],
)
def test_what_breaks_a_stream_leaves_the_others(data: bytes, error: str) -> None:
    for cuts in ([], list(range(len(data)))):
        made = reader(2)
        happened = fed(made, data, cuts)
        assert [step[1][0] for step in happened[0] if step[0] == "failed"] == [error] and 1 not in happened
        assert fed(made, f.head(3) + f.data(3, b"x", end=True), cuts)[1][-1] == ("end", True)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.builds(
                f.frame,
                st.integers(0, 10),
                st.integers(0, 255),
                st.sampled_from([0, 1, 2, 3, 5, 99]),
                st.one_of(st.binary(max_size=30), st.sampled_from([f.block(), b"\0\0\0\x07", b"\0\0\0\0\0\0\0\0"])),
            ),
        ),
        max_size=20,
    ),
    st.lists(st.integers(0, 400), max_size=8),
)
def test_whatever_comes_any_split_gives_the_same(pieces: list[bytes], cuts: list[int]) -> None:
    """Garbage ends in a named error or is passed over; each exchange ends at most once."""
    data = SETTINGS + b"".join(pieces)
    whole, cut = StreamReader(), StreamReader()
    for made in (whole, cut):
        for _ in range(3):
            made.send(made.open(), REQUEST, b"")
    happened = fed(whole, data, [])
    assert fed(cut, data, cuts) == happened and cut.out() == whole.out()
    for number, steps in happened.items():
        assert sum(word in ("end", "failed") for word, _ in steps) <= (number >= 0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 250), st.booleans()), max_size=250))
def test_streams_of_any_life_are_found(drawn: list[tuple[int, bool]]) -> None:
    """The table of streams: opened and closed in any order, none is lost, none is left."""
    made = reader()
    alive: list[int] = []
    for at, opens in drawn:
        if opens or not alive:
            number = made.open()
            made.send(number, REQUEST, b"")
            alive.append(number)
        else:
            number = alive.pop(at % len(alive))
            assert [step[:2] for step in made.feed(f.head(2 * number + 1, flags=f.END_STREAM))] == [
                (number, "head"),
                (number, "end"),
            ]
    assert made.streams == len(alive)
    for number in alive:
        assert made.feed(f.code(f.RST_STREAM, 2 * number + 1, 8))[0][:2] == (number, "failed")
    assert made.streams == 0
