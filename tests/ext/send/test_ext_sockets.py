"""WebSocket in the reactor, against scripted servers: upgrades, requests in turn, control frames, and what goes wrong."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from certificates import certificate, needs_openssl
from ext.reactor_drive import Outcome, Secured, drive, scripted
from ext.reference import websocket_frames as w

from fastllmload._ext.record import counters as k
from fastllmload._ext.tls.session import TlsContext
from fastllmload.engine.upgrade import accept_of, upgrade_fields

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
HEAD = f"GET /v1/responses HTTP/1.1\r\nHost: test\r\n{upgrade_fields(KEY)}".encode()
BODY = b'{"type":"response.create","model":"m","input":"hi"}'
OK = {("ok", "none"): 1}
Peer = socket.socket | Secured
CREATED = w.frame(b'{"type":"response.created","response":{"id":"resp_1"}}')
LAST = w.frame(
    b'{"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":3,"output_tokens":2}}}'
)


def word(text: str) -> bytes:
    return w.frame(b'{"type":"response.output_text.delta","delta":"%s"}' % text.encode())


ANSWER = CREATED + word("a") + word("b") + LAST


def until(peer: Peer, done: Callable[[bytes], bool]) -> bytes:
    data = b""
    while not done(data):
        more = peer.recv(1 << 16)
        if not more:
            raise OSError("closed")
        data += more
    return data


def upgraded(peer: Peer, also: bytes = b"") -> bytes:
    head = until(peer, lambda data: data.endswith(b"\r\n\r\n"))
    peer.sendall(w.accepted(head) + also)
    return head


def asked(peer: Peer, opcode: int = w.TEXT) -> bytes:
    """The payload of the next frame of that kind."""
    data = until(peer, lambda data: any(first & 15 == opcode for first, *_ in w.frames(data)))
    found = [(masked, payload) for first, masked, payload in w.frames(data) if first & 15 == opcode]
    assert all(masked for masked, _ in found)
    return found[0][1]


class Wire:
    """Clear text, or TLS with what is given."""

    def __init__(self, server: TlsContext | None = None, client: TlsContext | None = None) -> None:
        self.server_tls, self.client_tls = server, client

    def served(self, script: Callable[[Any, int], None]) -> AbstractContextManager[Any]:
        def one(connection: socket.socket, number: int) -> None:
            script(connection if self.server_tls is None else Secured(connection, self.server_tls), number)

        return scripted(one)

    def drive(self, *given: Any, **options: Any) -> Outcome:
        return drive(
            *given, tls=self.client_tls, held=self.server_tls is not None, head=HEAD, body=BODY,
            endpoint="openai-responses-ws", websocket_accept=accept_of(KEY).encode(), **options,
        )  # fmt: skip


@pytest.fixture(params=["clear", pytest.param("tls", marks=needs_openssl)])
def wire(request: pytest.FixtureRequest, tmp_path: Path) -> Wire:
    if request.param == "clear":
        return Wire()
    folder = tmp_path / "certificate"
    folder.mkdir()
    cert, key = certificate(folder, "localhost")
    return Wire(
        TlsContext(server=True, cert=str(cert), key=str(key), verify=False),
        TlsContext(cacert=str(cert), protocols=("http/1.1",)),
    )


def test_requests_follow_one_another_on_a_connection(tmp_path: Path, wire: Wire) -> None:
    """One upgrade before the first, which no time of a request contains; each request has its name and the plan's body."""
    heads, bodies = [], []

    def serve(peer: Peer, number: int) -> None:
        time.sleep(0.05)
        heads.append(upgraded(peer))
        for _ in range(3):
            bodies.append(json.loads(asked(peer)))
            peer.sendall(ANSWER)
        asked(peer, w.CLOSE)

    with wire.served(serve) as address:
        outcome = wire.drive(tmp_path, address, gaps_ms=[], slots=1, limit=3)
    assert outcome.statuses() == {("ok", "none"): 3}
    assert [body.pop("metadata") for body in bodies] == [{"request_id": f"test-0-{n}"} for n in range(3)]
    assert (
        bodies == [json.loads(BODY)] * 3 and len(heads) == 1 and heads[0].startswith(b"GET /v1/responses HTTP/1.1\r\n")
    )
    assert list(outcome.rows["completion_tokens"]) == [2] * 3 and list(outcome.rows["http_status"]) == [200] * 3
    assert list(outcome.rows["flags"] & 1) == [0, 1, 1] and list(outcome.rows["t_connected"]) == [0] * 3
    assert outcome.words[k.W_UPGRADES] == 1 and outcome.words[k.W_UPGRADE_NS] >= 40_000_000
    assert (outcome.rows["t_first"] - outcome.rows["t_submit"] < 40_000_000).all()


def test_a_request_waits_for_the_upgrade_of_its_connection(tmp_path: Path, wire: Wire) -> None:
    """Without a connection in advance; what comes with the 101 is a ping, which is answered first."""

    def serve(peer: Peer, number: int) -> None:
        upgraded(peer, w.frame(b"early", w.PING))
        data = until(peer, lambda data: len(list(w.frames(data))) > 1)
        assert [first & 15 for first, *_ in w.frames(data)] == [w.PONG, w.TEXT]
        peer.sendall(ANSWER)
        asked(peer, w.CLOSE)

    with wire.served(serve) as address:
        outcome = wire.drive(tmp_path, address, gaps_ms=[0], preconnect=0)
    assert outcome.statuses() == OK
    row = outcome.rows[0]
    assert 0 < row["t_connected"] < row["t_submit_start"] < row["t_first"] and row["reads"] >= 1
    assert row["bytes_received"] == len(ANSWER)


def test_pings_are_answered_at_once(tmp_path: Path, wire: Wire) -> None:
    """Before a request, inside one, and between the frames of a message."""
    seen: list[bytes] = []

    def serve(peer: Peer, number: int) -> None:
        upgraded(peer)
        peer.sendall(w.frame(b"idle", w.PING))
        seen.append(asked(peer, w.PONG))
        asked(peer)
        peer.sendall(CREATED + w.frame(b"{", first=0) + w.frame(b"between", w.PING))
        seen.append(asked(peer, w.PONG))
        peer.sendall(w.frame(b'"type":"response.in_progress"}', 0) + word("a") + LAST + w.frame(b"last", w.PING))
        seen.append(asked(peer, w.PONG))
        asked(peer, w.CLOSE)

    with wire.served(serve) as address:
        outcome = wire.drive(tmp_path, address, gaps_ms=[], slots=1, limit=1, settle_s=0.2)
    assert seen == [b"idle", b"between", b"last"]
    assert outcome.statuses() == OK and outcome.rows["events"][0] == 4


SWITCHED = b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
NOT_UPGRADED = ("protocol_error", "not_upgraded")
REFUSED = {
    "401": (b"HTTP/1.1 401 X\r\nContent-Length: 2\r\n\r\n{}", ("http_error", "http_status"), 401),
    "429": (b"HTTP/1.1 429 X\r\nContent-Length: 0\r\nRetry-After: 7\r\n\r\n", ("rate_limited", "http_status"), 429),
    "200": (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<p/>", NOT_UPGRADED, 0),
    "no key": (SWITCHED + b"\r\n", NOT_UPGRADED, 0),
    "other key": (SWITCHED + b"Sec-WebSocket-Accept: AAAA\r\n\r\n", NOT_UPGRADED, 0),
    "nothing": (b"", ("connection_error", "closed_before_response"), 0),
    "no http": (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", ("protocol_error", "bad_head"), 0),
}


@pytest.mark.parametrize("answer", REFUSED)
@pytest.mark.parametrize("preconnect", [0, 1])
def test_an_upgrade_that_is_refused(tmp_path: Path, wire: Wire, answer: str, preconnect: int) -> None:
    """A failure is that of HTTP; one of a connection opened in advance is tried again for the request."""
    data, expected, status = REFUSED[answer]

    def serve(peer: Peer, number: int) -> None:
        until(peer, lambda data: data.endswith(b"\r\n\r\n"))
        peer.sendall(data)
        time.sleep(0.02)

    with wire.served(serve) as address:
        outcome = wire.drive(tmp_path, address, gaps_ms=[5], preconnect=preconnect)
    assert outcome.statuses() == {expected: 1} and outcome.rows["http_status"][0] == status
    assert outcome.words[k.W_UPGRADES] == 0 and outcome.rows["t_submit"][0] == 0
    if answer == "429":
        assert outcome.rows["retry_after_ms"][0] == 7000


ENDS = {
    "close": (w.close(1011, b"oops"), ("truncated", "close_frame"), 1011),
    "no code": (w.close(), ("truncated", "close_frame"), 1005),
    **{
        str(code): (w.close(code, b"why"), ("truncated", "close_frame"), code)
        for code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1012, 1013, 1014, 3000, 4999)
    },
    "half a code": (w.frame(b"\x03", w.CLOSE), ("protocol_error", "bad_frame"), 0),
    "a code of nothing": (w.close(0), ("truncated", "close_frame"), 0),
    "cut": (b"", ("truncated", "closed_in_body"), 0),
    "masked": (w.frame(b"{}", key=b"abcd"), ("protocol_error", "bad_frame"), 0),
    "reserved": (w.frame(b"{}", first=0xC0), ("protocol_error", "bad_frame"), 0),
    "opcode": (w.frame(b"{}", 5), ("protocol_error", "bad_frame"), 0),
    "too large": (b"\x81\x7f" + b"\x00\x00\x00\xff" + bytes(4), ("protocol_error", "event_too_large"), 0),
    "no json": (w.frame(b"<html>") + LAST, ("protocol_error", "bad_event"), 0),
    "failed": (
        w.frame(b'{"type":"response.failed","response":{"error":{"message":"m"}}}'),
        ("stream_error", "event"),
        0,
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_response_that_fails(tmp_path: Path, wire: Wire, end: str) -> None:
    data, expected, number = ENDS[end]

    def serve(peer: Peer, _: int) -> None:
        upgraded(peer)
        asked(peer)
        peer.sendall(CREATED + word("a") + data)
        if data:
            peer.recv(1 << 16)

    with wire.served(serve) as address:
        outcome = wire.drive(tmp_path, address, gaps_ms=[0])
    assert outcome.statuses() == {expected: 1} and outcome.rows["error_number"][0] == number
    assert outcome.rows["content_events"][0] == 1


def test_a_close_before_anything_is_said(tmp_path: Path, wire: Wire) -> None:
    def serve(peer: Peer, _: int) -> None:
        upgraded(peer)
        asked(peer)
        peer.sendall(w.close(1013))
        assert asked(peer, w.CLOSE) == (1013).to_bytes(2, "big")

    with wire.served(serve) as address:
        outcome = wire.drive(tmp_path, address, gaps_ms=[0])
    assert outcome.statuses() == {("connection_error", "close_frame"): 1} and outcome.rows["error_number"][0] == 1013


@pytest.mark.parametrize("delay_s", [0, 0.01, 0.06])
def test_an_error_ends_a_request_and_its_connection(tmp_path: Path, wire: Wire, delay_s: float) -> None:
    """What the server still says of that response, soon or after the next request, is none of the next one's."""
    error = w.frame(b'{"type":"error","status":500,"error":{"code":"server_error","message":"m"}}')
    failed = w.frame(b'{"type":"response.failed","response":{"status":"failed","error":{"message":"m"}}}')

    def serve(peer: Peer, number: int) -> None:
        upgraded(peer)
        asked(peer)
        if number:
            peer.sendall(ANSWER)
            return
        peer.sendall(error)
        time.sleep(delay_s)
        with contextlib.suppress(OSError):
            peer.sendall(failed)

    with wire.served(serve) as address:
        outcome = wire.drive(tmp_path, address, gaps_ms=[0, 40])
    assert outcome.statuses() == {("stream_error", "event"): 1, ("ok", "none"): 1}
    assert list(outcome.rows["flags"] & 1) == [0, 0]


def test_a_message_that_was_not_asked_for_ends_the_connection(tmp_path: Path, wire: Wire) -> None:
    """It would be taken for the answer to the next request."""

    def serve(peer: Peer, number: int) -> None:
        upgraded(peer)
        asked(peer)
        peer.sendall(ANSWER)
        if number == 0:
            time.sleep(0.02)
            peer.sendall(CREATED)
        asked(peer, w.CLOSE)

    with wire.served(serve) as address:
        outcome = wire.drive(tmp_path, address, gaps_ms=[0, 400])
    assert outcome.statuses() == {("ok", "none"): 2} and list(outcome.rows["flags"] & 1) == [0, 0]
    assert outcome.words[k.W_IDLE_DROPPED] == 1


def test_an_upgrade_without_an_answer_is_a_time_out(tmp_path: Path, wire: Wire) -> None:
    with wire.served(lambda peer, number: time.sleep(1)) as address:
        outcome = wire.drive(tmp_path, address, gaps_ms=[0], preconnect=0, timeout_s=0.2)
    assert outcome.statuses() == {("timeout", "not_upgraded"): 1}


def test_a_large_request_is_sent_whole(tmp_path: Path, wire: Wire) -> None:
    """While its server does not read, and pings: the answer follows the request's frame."""
    body = b'{"type":"response.create","input":"%s"}' % (b"a" * 8_000_000)
    got: list[tuple[int, int]] = []

    def serve(peer: Peer, number: int) -> None:
        upgraded(peer)
        time.sleep(0.1)
        peer.sendall(w.frame(b"x", w.PING))
        time.sleep(0.1)
        data = bytearray()
        while len(data) < len(body) + 40:
            data += peer.recv(1 << 20)
        got.extend((first & 15, len(payload)) for first, _, payload in w.frames(bytes(data)))
        peer.sendall(ANSWER)
        asked(peer, w.CLOSE)

    with wire.served(serve) as address:
        options = {
            "body": body,
            "head": HEAD,
            "endpoint": "openai-responses-ws",
            "websocket_accept": accept_of(KEY).encode(),
        }
        outcome = drive(tmp_path, address, gaps_ms=[0], tls=wire.client_tls, held=True, **options)
    assert outcome.statuses() == OK
    assert got == [(w.TEXT, len(body) + len('"metadata":{"request_id":"test-0-0"},')), (w.PONG, 1)]
