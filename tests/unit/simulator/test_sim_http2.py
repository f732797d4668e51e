"""HTTP/2 of the simulated engine: streams, windows, limits and faults, as the library h2 and raw frames see them."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import h2.exceptions
import hpack
import pytest
from ext.reference import http2_frames as frames
from http2_client import Http2Client
from sim_client import TIMEOUT_S, Client, ask, get, request

from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.truth import FLAGS, load

pytestmark = pytest.mark.slow

NO_ERROR, PROTOCOL, INTERNAL, FLOW_CONTROL, FRAME_SIZE, REFUSED, COMPRESSION, CALM = 0, 1, 2, 3, 6, 7, 9, 11
HEAD = ((":method", "GET"), (":path", "/health"), (":scheme", "http"), (":authority", "a"))


def fault(name: str, **fields: object) -> bytes:
    return request(headers=(f"X-Fault: {name}",), **({"max_tokens": 8} | fields))


def test_a_reply_is_that_of_http1(simulator: Callable[..., SimulatorProcess]) -> None:
    """The same events, the last one of which ends the stream; documents, pages and refusals as well."""
    bodies = []
    for client in (Client, Http2Client):
        process = simulator(ttft_ms=1.0, itl_ms=1.0)
        with client(process.port) as one:
            replies = [one.ask(request(max_tokens=5)), one.ask(request(max_tokens=5, stream=False))]
            replies += [one.ask(get("/v1/models")), one.ask(get("/none")), one.ask(get("/v1/chat/completions"))]
            replies.append(one.ask(request(model="other")))
        assert [reply.status for reply in replies] == [200, 200, 200, 404, 405, 404]
        types = [reply.headers["content-type"] for reply in replies]
        bodies.append((types, [reply.body.partition(b'"created":')[0] for reply in replies]))
    assert bodies[0] == bodies[1]
    assert replies[0].events[-1] == "[DONE]" and replies[0].pieces == 7, "one frame for each write, as with HTTP/1.1"
    assert json.loads(replies[1].body)["usage"]["completion_tokens"] == 5


def test_streams_share_a_connection(simulator: Callable[..., SimulatorProcess], tmp_path: Path) -> None:
    """Replies are mixed on the wire and apart in the log, which has the connection's number for each."""
    path = str(tmp_path / "t.truth")
    process = simulator(ttft_ms=5.0, itl_ms=2.0, truth=path)
    with Http2Client(process.port) as client:
        sent = [client.send(request(max_tokens=10, headers=(f"X-Request-Id: r-0-{i}",))) for i in range(50)]
        texts = {client.wait(stream).text for stream in sent}
        assert len(texts) == 50 and client.chat().ended
    process.stop()
    log = load(path)
    assert len(log.requests) == 51 and set(log.requests["connection"]) == {0}
    assert list(log.requests["key"][:50]) == list(range(50)) and (log.requests["output_tokens"][:50] == 10).all()
    assert (log.requests["t_end"] > log.requests["t_first"]).all() and not log.events["queued"].any()
    assert (log.requests["flags"] & FLAGS["reused"] > 0)[[0, 50]].tolist() == [False, True]


@pytest.mark.parametrize("window", [1, 100, 5_000])
def test_the_clients_windows_are_obeyed(
    simulator: Callable[..., SimulatorProcess], tmp_path: Path, window: int
) -> None:
    """h2 refuses a byte too much; what waits is sent when the window is opened, and is marked as queued."""
    path = str(tmp_path / "t.truth")
    process = simulator(ttft_ms=1.0, itl_ms=0.0, truth=path)
    with Http2Client(process.port, window) as client:
        stream = client.send(request(max_tokens=30))
        assert window == 1 or client.ask(get("/health")).ended
        reply = client.replies[stream]
        opened = window
        while not reply.ended:
            if len(reply.body) == opened:
                opened += 1_000
                client.open(stream, 1_000)
            client.read()
        assert reply.events[-1] == "[DONE]" and len(reply.events) > 30
    process.stop()
    assert load(path).events["queued"].any()


def test_a_flood_waits_for_the_window(simulator: Callable[..., SimulatorProcess]) -> None:
    process = simulator(null=True)
    with Http2Client(process.port, 1_000) as client:
        stream = client.send(request(max_tokens=2_000))
        reply = client.replies[stream]
        opened = 1_000
        while not reply.ended:
            if len(reply.body) == opened:
                opened += 100_000
                client.open(stream, 100_000)
            client.read()
        assert len(reply.events) > 2_000


def test_a_reader_that_stops(simulator: Callable[..., SimulatorProcess]) -> None:
    """The socket is full with open windows: what comes later is whole, of all streams."""
    process = simulator(null=True)
    with Http2Client(process.port) as client:
        sent = [client.send(request(max_tokens=20_000, headers=("X-Fault: coalesce:50",))) for _ in range(4)]
        assert all(len(client.wait(stream).events) > 20_000 for stream in sent)


@pytest.mark.parametrize("size", [1, 500, 70_000])
def test_the_servers_windows(simulator: Callable[..., SimulatorProcess], size: int) -> None:
    """A body beyond the window is taken as it is opened; h2 sends no byte more."""
    process = simulator(null=True, http2_window=size)
    text = "a" * (10_000 if size > 1 else 10)
    with Http2Client(process.port) as client:
        client.chat()  # its SETTINGS are there
        assert client.chat(messages=[{"role": "user", "content": text}]).ended


def test_a_window_that_is_never_opened(simulator: Callable[..., SimulatorProcess]) -> None:
    process = simulator(null=True, http2_window=0)
    with Http2Client(process.port) as client:
        assert client.ask(get("/health")).status == 200, "it has no body"
        stream = client.h2.get_next_available_stream_id()
        client.h2.send_headers(stream, [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "a")])
        client.flush()
        assert client.ask(get("/health")).status == 200
        assert client.h2.local_flow_control_window(stream) == 0


def test_more_streams_than_it_takes(simulator: Callable[..., SimulatorProcess]) -> None:
    """The setting is said, and one more stream is refused: the library believes that it may."""
    process = simulator(ttft_ms=100.0, itl_ms=1.0, http2_streams=3)
    with Http2Client(process.port) as client:
        client.ask(get("/health"))
        assert client.h2.remote_settings.max_concurrent_streams == 3
        client.h2.remote_settings[3] = 100
        client.h2.remote_settings.acknowledge()
        sent = [client.send(request()) for _ in range(5)]
        outcomes = [client.wait(stream) for stream in sent]
        assert [one.reset for one in outcomes] == [None, None, None, REFUSED, REFUSED]
        assert all(one.events[-1] == "[DONE]" for one in outcomes[:3]) and client.chat().ended


def test_a_stream_that_is_reset_gives_up_its_request(
    simulator: Callable[..., SimulatorProcess], tmp_path: Path
) -> None:
    path = str(tmp_path / "t.truth")
    process = simulator(ttft_ms=1.0, itl_ms=5.0, truth=path)
    with Http2Client(process.port) as client:
        stream = client.send(request(max_tokens=10_000))
        while client.replies[stream].pieces < 3:
            client.read()
        client.h2.reset_stream(stream)
        client.flush()
        assert client.chat().ended
    process.stop()
    first, second = load(path).requests
    assert first["flags"] & FLAGS["aborted"] and 2 <= first["output_tokens"] < 10_000
    assert not second["flags"] & FLAGS["aborted"]


def test_a_client_that_goes_away_gives_up_all(simulator: Callable[..., SimulatorProcess], tmp_path: Path) -> None:
    path = str(tmp_path / "t.truth")
    process = simulator(ttft_ms=1.0, itl_ms=5.0, truth=path)
    with Http2Client(process.port) as client:
        sent = [client.send(request(max_tokens=10_000)) for _ in range(5)]
        while not all(client.replies[stream].pieces for stream in sent):
            client.read()
    assert ask(process.port, request()).status == 200
    process.stop()
    flags = load(path).requests["flags"] & FLAGS["aborted"] > 0
    assert sorted(flags.tolist()) == [False] + [True] * 5


def test_the_end_of_the_server_is_said(simulator: Callable[..., SimulatorProcess]) -> None:
    process = simulator(ttft_ms=1.0, itl_ms=5.0)
    with Http2Client(process.port) as client:
        stream = client.send(request(max_tokens=10_000))
        while client.replies[stream].pieces < 3:
            client.read()
        os.kill(process.pid, signal.SIGTERM)
        while not client.closed:
            client.read()
        assert client.goaway == (stream, NO_ERROR)


# -- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "events"),
    [("split:3", 12), ("coalesce:4", 12), ("slow_head:50", 12), ("stall:50", 12), ("drip:0", 12), ("error_event", 7),
     ("bad_json", 13), ("no_done", 9), ("empty", 4), ("content_length", 12), ("until_close", 12), ("huge_event:50000", 13),
     ("no_body", 0), ("crlf", 12)],
)  # fmt: skip
def test_faults_of_http1(quick: int, name: str, events: int) -> None:
    """What a fault does to a reply's events it does here, too, and the connection serves the next request."""
    with Http2Client(quick) as client:
        reply = client.ask(fault(name, max_tokens=8 if name != "drip:0" else 1))
        events = 5 if name == "drip:0" else events
        assert reply.ended and reply.status == 200 and len(reply.events) == events
        assert client.chat().ended


@pytest.mark.parametrize(("name", "status"), [("status:503", 503), ("status:429", 429), ("html", 200), ("gzip", 200)])
def test_other_answers(quick: int, name: str, status: int) -> None:
    with Http2Client(quick) as client:
        reply = client.ask(fault(name))
        assert reply.ended and reply.status == status
        assert reply.headers.get("retry-after") == ("1" if status == 429 else None)
        assert (reply.headers["content-type"] == "text/html") == (name == "html")


@pytest.mark.parametrize("name", ["close", "reset"])
def test_ends_of_the_connection(quick: int, name: str) -> None:
    with Http2Client(quick) as client:
        stream = client.send(fault(name))
        try:
            reply = client.wait(stream)
        except ConnectionResetError:
            reply = client.replies[stream]
        assert not reply.ended and reply.pieces >= 1 and client.goaway is None


def test_reset_stream(simulator: Callable[..., SimulatorProcess], tmp_path: Path) -> None:
    """One stream ends, its neighbours do not."""
    path = str(tmp_path / "t.truth")
    process = simulator(ttft_ms=1.0, itl_ms=2.0, truth=path)
    with Http2Client(process.port) as client:
        sent = [client.send(fault(name)) for name in ("reset_stream:3", "coalesce:1")]
        broken, fine = (client.wait(stream) for stream in sent)
        assert broken.reset == INTERNAL and len(broken.events) == 4
        assert fine.events[-1] == "[DONE]"
    process.stop()
    assert sorted(load(path).requests["output_tokens"].tolist()) == [3, 8]


def test_goaway(simulator: Callable[..., SimulatorProcess], tmp_path: Path) -> None:
    """Streams before go on, those after are left out, then the connection ends."""
    path = str(tmp_path / "t.truth")
    process = simulator(ttft_ms=1.0, itl_ms=5.0, truth=path)
    with Http2Client(process.port) as client:
        sent = [client.send(one) for one in (request(max_tokens=20), fault("goaway"), request(max_tokens=100))]
        received = b""
        while more := client.socket.recv(65536):  # the library reads nothing after GOAWAY
            received += more
        left = [payload for kind, _, _, payload in frames.frames_of(received) if kind == frames.GOAWAY]
        assert left == [frames.goaway(sent[0], NO_ERROR)[9:]]
    process.stop()
    rows = load(path).requests
    assert rows["output_tokens"].tolist()[:2] == [20, 4] and not (rows["flags"] & FLAGS["aborted"]).any()


@pytest.mark.parametrize("name", ["large_frame", "stray_frame"])
def test_frames_that_a_client_must_refuse(quick: int, name: str) -> None:
    with Http2Client(quick) as client, pytest.raises(h2.exceptions.ProtocolError):
        client.ask(fault(name))


def test_a_head_without_an_end(quick: int) -> None:
    """CONTINUATION after CONTINUATION, until the library has enough."""
    with Http2Client(quick) as client, pytest.raises(h2.exceptions.ProtocolError):
        client.ask(fault("endless_head"))


def test_no_http2(simulator: Callable[..., SimulatorProcess]) -> None:
    process = simulator(faults=("no_http2:1",))
    with Client(process.port) as client:
        client.send(frames.PREFACE + frames.settings())
        assert client.rest().startswith(b"HTTP/1.1 505")
    assert ask(process.port, request()).status == 200


def test_faults_of_streams_are_for_http2(quick: int) -> None:
    assert ask(quick, fault("goaway")).status == 400


# -- raw frames -------------------------------------------------------------------------------------------------------


def block(*fields: tuple[str, str]) -> bytes:
    return hpack.Encoder().encode(fields)


def raw(port: int, sent: bytes, bytewise: bool = False) -> list[tuple[int, int, int, bytes]]:
    """Frames that answer *sent* until the connection ends, or the stream 1."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (sent[i : i + 1] for i in range(len(sent))) if bytewise else [sent]:
            one.sendall(piece)
        found = b""
        while True:
            more = one.recv(65536)
            found += more
            try:
                whole = frames.frames_of(found)
            except AssertionError:
                continue
            if not more or any(stream == 1 and flags & 1 for _, flags, stream, _ in whole):
                return whole


BEGIN = frames.PREFACE + frames.settings()


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frames.PREFACE + frames.frame(frames.PING, payload=b"12345678"), PROTOCOL),
        (BEGIN + frames.frame(frames.DATA, 1, 0, b"a"), PROTOCOL),
        (BEGIN + frames.frame(frames.DATA, 1, 1, b"a"), PROTOCOL),
        (BEGIN + frames.frame(frames.HEADERS, 5, 2, block(*HEAD)), PROTOCOL),
        (BEGIN + frames.frame(frames.HEADERS, 1, 1, block(*HEAD)) + frames.frame(frames.DATA, 0, 1, b"a"), PROTOCOL),
        (BEGIN + frames.frame(frames.CONTINUATION, 4, 1, block(*HEAD)), PROTOCOL),
        (BEGIN + frames.frame(frames.HEADERS, 5, 1, b"\xff\xff\xff\xff\xff"), COMPRESSION),
        (BEGIN + frames.frame(frames.HEADERS, 1, 1, b"") + 70 * frames.frame(frames.CONTINUATION, 0, 1, b""), CALM),
        (BEGIN + frames.frame(frames.PING, payload=b"1234"), FRAME_SIZE),
        (BEGIN + frames.frame(frames.DATA, 0, 1, b"", length=16385), FRAME_SIZE),
        (BEGIN + frames.settings((4, 2**31)), FLOW_CONTROL),
        (BEGIN + frames.code(frames.WINDOW_UPDATE, 0, 2**31 - 1), FLOW_CONTROL),
        (BEGIN + frames.code(frames.WINDOW_UPDATE, 0, 0), PROTOCOL),
    ],
)  # fmt: skip
def test_a_client_that_breaks_the_protocol(quick: int, sent: bytes, code: int) -> None:
    last = raw(quick, sent)[-1]
    assert last[0] == frames.GOAWAY and int.from_bytes(last[3][4:8], "big") == code


@pytest.mark.parametrize(
    "head",
    [
        (*HEAD, ("Upper", "a")), (*HEAD, ("connection", "close")), (*HEAD, (":late", "a")), (*HEAD, ("a", "b\r\nc: d")),
        (*HEAD[:1], *HEAD), (*HEAD, ("content-length", "5")),
    ],
)  # fmt: skip
def test_heads_that_are_malformed(quick: int, head: tuple[tuple[str, str], ...]) -> None:
    """The stream is reset, the connection serves others."""
    reset = frames.frame(frames.HEADERS, 5, 1, block(*head))
    found = raw(
        quick, BEGIN + reset + frames.frame(frames.PING, payload=b"12345678") + frames.goaway(0, 0) + b"\xff" * 9
    )
    assert (frames.RST_STREAM, 0, 1, PROTOCOL.to_bytes(4, "big")) in found
    assert (frames.PING, frames.ACK, 0, b"12345678") in found


def test_any_split(quick: int) -> None:
    """Preface, heads in parts and padding, byte by byte."""
    head = block(*HEAD[2:], (":method", "POST"), (":path", "/v1/chat/completions"))
    body = request().partition(b"\r\n\r\n")[2]
    sent = BEGIN + frames.frame(frames.HEADERS, frames.PADDED, 1, b"\x02" + head[:5] + b"\0\0")
    sent += frames.frame(frames.CONTINUATION, 0, 1, head[5:9]) + frames.frame(frames.CONTINUATION, 4, 1, head[9:])
    sent += frames.data(1, body[:20], padding=3) + frames.data(1, body[20:], end=True)
    found = raw(quick, sent, bytewise=True)
    assert b"".join(payload for kind, _, _, payload in found if kind == frames.DATA).endswith(b"data: [DONE]\n\n")
