"""HTTP/2 in the reactor, against a server on the library h2 and against peers that break the protocol."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from certificates import certificate, needs_openssl
from ext.http2_server import Answer, Http2Peer, http2_server
from ext.reactor_drive import ANSWER, Outcome, Secured, drive, scripted
from ext.reference import http2_frames as f
from openssl_side import UpdatingSide, needs_libssl

from fastllmload._ext.record import counters as k
from fastllmload._ext.tls.session import TlsContext
from fastllmload.plan.plan import CLIENT_ROW

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nX-Key: s3cret\r\n"
OK = {("ok", "none"): 1}


def event(text: str) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}\n\n' % text.encode()


LAST = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


def whole(peer: Http2Peer, stream: int) -> None:
    peer.answer(stream, ANSWER, "application/json")


def stream_of_five(peer: Http2Peer, stream: int) -> None:
    peer.head(stream)
    for word in "abcde":
        peer.data(stream, event(word))
    peer.data(stream, LAST + DONE, end=True)


class Wire:
    """Clear text, or TLS with what is given."""

    def __init__(self, server: TlsContext | None, client: TlsContext | None) -> None:
        self.server_tls, self.client_tls = server, client

    def server(self, answer: Answer, **options: int) -> AbstractContextManager[tuple[Any, list[Http2Peer]]]:
        return http2_server(answer, tls=self.server_tls, **options)  # type: ignore[arg-type]

    def drive(self, *given: Any, **options: Any) -> Outcome:
        return drive(*given, tls=self.client_tls, held=self.server_tls is not None, **options)


@pytest.fixture(params=["clear", pytest.param("tls", marks=needs_openssl)])
def wire(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Wire:
    if request.param == "clear":
        return Wire(None, None)
    cert, key = (str(file) for file in certificate(tmp_path_factory.mktemp("tls"), "server"))
    server = TlsContext(server=True, cert=cert, key=key, verify=False, protocols=("h2",))
    return Wire(server, TlsContext(cacert=cert, protocols=("h2",)))


def test_requests_arrive_as_they_are_planned(tmp_path: Path, wire: Wire) -> None:
    """Head, own fields and body; all on one connection, one after the other."""
    with wire.server(whole) as (address, peers):
        found = wire.drive(tmp_path, address, gaps_ms=[20.0] * 5, http2=10, head=HEAD, settle_s=0.1)
    assert found.statuses() == {("ok", "none"): 5}
    (peer,) = peers
    for number, stream in enumerate(sorted(peer.heads)):
        assert peer.heads[stream] == {
            ":method": "POST",
            ":scheme": "http" if wire.server_tls is None else "https",
            ":path": "/v1/chat/completions",
            ":authority": "test",
            "content-type": "application/json",
            "x-key": "s3cret",
            "x-fastllmload-request": f"test-0-{number}",
            "content-length": "13",
        }
        assert peer.bodies[stream] == b'{"model":"m"}'
    assert peer.left == 0, "the client leaves with GOAWAY"
    rows = found.rows
    assert (rows["t_submit"] >= rows["t_submit_start"]).all() and (rows["t_headers"] >= rows["t_submit"]).all()
    assert (rows["t_end"] >= rows["t_headers"]).all() and (rows["bytes_received"] > len(ANSWER)).all()
    assert not (rows["flags"] & 128).any(), "the connection was there before"
    assert len(set(rows["local_port"])) == 1 and rows["local_port"][0]
    assert list(np.sort(rows, order="request")["flags"] & 1) == [0, 1, 1, 1, 1]


def test_a_closed_loop_fills_its_connections(tmp_path: Path, wire: Wire) -> None:
    """Twelve slots at five streams a connection: three connections."""
    with wire.server(stream_of_five) as (address, peers):
        found = wire.drive(tmp_path, address, gaps_ms=[], slots=12, limit=120, http2=5, preconnect=12)
    assert found.statuses() == {("ok", "none"): 120}
    assert (found.rows["content_events"] == 5).all() and (found.rows["events"] == 7).all()
    assert sum(len(peer.heads) for peer in peers) == 120
    assert max(peer.most_open for peer in peers) <= 5
    assert 3 <= len([peer for peer in peers if peer.heads]) <= 4
    assert found.words[k.W_CONTENT_EVENTS] == 600


def test_events_of_several_streams_in_one_read(tmp_path: Path, wire: Wire) -> None:
    """One segment has an event of each of ten streams: all have its stamp, which is exact for each of them."""
    ready: list[int] = []

    def answer(peer: Http2Peer, stream: int) -> None:
        ready.append(stream)
        peer.head(stream)
        peer.flush()
        if len(ready) < 10:
            return
        time.sleep(0.03)
        for word in "abc":
            for each in ready:
                peer.h2.send_data(each, event(word))
            peer.flush()
            time.sleep(0.03)
        for each in ready:
            peer.data(each, LAST + DONE, end=True)

    with wire.server(answer) as (address, _):
        found = wire.drive(tmp_path, address, gaps_ms=[1.0] * 10, http2=10)
    assert found.statuses() == {("ok", "none"): 10}
    contents = found.tokens[found.tokens["kind"] == found.tokens["kind"][0]]
    stamps, counts = np.unique(contents["t_ns"], return_counts=True)
    assert list(counts) == [10, 10, 10] and (np.diff(stamps) > 20_000_000).all()
    later = contents[contents["t_ns"] > stamps[0]]  # before these, heads may have come in more segments than reads
    assert (later["stamp"] & 3 == 1).all() and (later["bracket_ns"] == 0).all()
    assert not (contents["stamp"] & 4).any(), "none is of the read of its own request's event before"


def test_more_streams_than_the_server_takes_wait_for_no_place(tmp_path: Path, wire: Wire) -> None:
    """Its SETTINGS say three: a fourth goes to another connection, also if it was released before they came."""

    def slow(peer: Http2Peer, stream: int) -> None:
        if len(peer.heads) % 3 == 0:
            for each in sorted(peer.open):
                whole(peer, each)

    with wire.server(slow, max_concurrent_streams=3) as (address, peers):
        found = wire.drive(tmp_path, address, gaps_ms=[0.0] * 12, http2=100, preconnect=0)
    assert found.statuses() == {("ok", "none"): 12}
    assert [peer.most_open for peer in peers] == [3, 3, 3, 3]


def test_a_server_that_takes_no_stream(tmp_path: Path, wire: Wire) -> None:
    with wire.server(whole, max_concurrent_streams=0) as (address, _):
        found = wire.drive(tmp_path, address, gaps_ms=[0.0, 0.0], http2=100, preconnect=0)
    assert found.statuses() == {("connection_error", "stream_refused"): 2}


def test_a_long_body_waits_for_windows(tmp_path: Path, wire: Wire) -> None:
    """1 MB through windows of 64 KiB, four at once: every byte arrives, t_submit is when the last one has gone."""
    body = b'{"p":"%s"}' % (b"x" * 1_000_000)
    with wire.server(whole) as (address, peers):
        found = wire.drive(tmp_path, address, gaps_ms=[0.0] * 4, http2=4, body=body)
    assert found.statuses() == {("ok", "none"): 4}
    assert sorted(len(sent) for peer in peers for sent in peer.bodies.values()) == [len(body)] * 4
    assert found.words[k.W_WINDOW_WAITS] == 4
    assert (found.rows["bytes_sent"] > len(body)).all() and (
        found.rows["t_submit"] > found.rows["t_submit_start"]
    ).all()


def test_a_window_that_is_never_opened(tmp_path: Path, wire: Wire) -> None:
    """The request ends at its time-out, with the reason; a short one on the same connection is served."""
    with wire.server(whole, opens_windows=False, initial_window_size=1000) as (address, peers):
        found = wire.drive(tmp_path, address, gaps_ms=[0.0, 0.0], http2=4, body=b"x" * 5000, timeout_s=0.3)
    assert found.statuses() == {("timeout", "window_closed"): 2}
    assert {code for peer in peers for code in peer.resets.values()} == {8}


def test_one_stream_fails_and_the_others_go_on(tmp_path: Path, wire: Wire) -> None:
    """Refused, reset before the head, within the answer, after its finish_reason; HTTP errors; the connection stays."""

    def answer(peer: Http2Peer, stream: int) -> None:
        number = int(peer.heads[stream]["x-fastllmload-request"].rsplit("-", 1)[1])
        if number == 0:
            peer.reset(stream, 7)
        elif number == 1:
            peer.reset(stream, 2)
        elif number in (2, 3):
            peer.head(stream)
            peer.data(stream, event("a") + (LAST if number == 3 else b""))
            peer.reset(stream, 2)
        elif number == 4:
            peer.answer(stream, b'{"error":"busy"}', "application/json", 429)
        else:
            whole(peer, stream)

    with wire.server(answer) as (address, peers):
        found = wire.drive(tmp_path, address, gaps_ms=[10.0] * 7, http2=10)
    rows = np.sort(found.rows, order="request")
    assert found.statuses() == {
        ("connection_error", "stream_refused"): 1,
        ("connection_error", "stream_reset"): 1,
        ("truncated", "stream_reset"): 1,
        ("ok", "cut_after_end"): 1,
        ("rate_limited", "http_status"): 1,
        ("ok", "none"): 2,
    }
    assert list(rows["error_number"][:3]) == [7, 2, 2]
    assert len(peers) == 1


def test_goaway(tmp_path: Path, wire: Wire) -> None:
    """What the server still answers is ok, what it leaves has failed, and the next request opens a connection."""
    begun = threading.Event()

    def answer(peer: Http2Peer, stream: int) -> None:
        if len(peers) > 1:
            return whole(peer, stream)
        if stream == 5:
            begun.set()
            peer.socket.sendall(f.goaway(3, 0))
            whole(peer, 1)
            whole(peer, 3)
        return None

    with wire.server(answer) as (address, peers):
        found = wire.drive(tmp_path, address, gaps_ms=[1.0, 1.0, 1.0, 200.0], http2=10)
    assert found.statuses() == {("ok", "none"): 3, ("connection_error", "goaway"): 1}
    assert [len(peer.heads) for peer in peers if peer.heads] == [3, 1]


def test_a_connection_that_is_cut(tmp_path: Path, wire: Wire) -> None:
    """All of its streams end, each by how far its answer was."""

    def answer(peer: Http2Peer, stream: int) -> None:
        if stream > 1:
            peer.head(stream)
            peer.data(stream, event("a"))
        if stream == 5:
            peer.socket.shutdown(socket.SHUT_RDWR)

    with wire.server(answer) as (address, _):
        found = wire.drive(tmp_path, address, gaps_ms=[5.0, 5.0, 5.0], http2=10)
    assert found.statuses() == {
        ("connection_error", "closed_before_response"): 1,
        ("truncated", "closed_in_body"): 2,
    }


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", ("protocol_error", "not_http2")),
        (b"", ("protocol_error", "not_http2")),
        (f.settings() + f.data(99, b"x"), ("protocol_error", "bad_frame")),
        (f.settings((5, 1)), ("protocol_error", "bad_frame")),
    ],
)
def test_what_is_no_http2(tmp_path: Path, says: bytes, expected: tuple[str, str]) -> None:
    """An HTTP/1.1 answer, a close, frames that break the protocol: every request has the same definite end."""

    def script(connection: socket.socket, number: int) -> None:
        connection.recv(1000)
        connection.sendall(says)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1000):
            pass

    with scripted(script) as address:
        found = drive(tmp_path, address, gaps_ms=[5.0, 30.0], http2=10, preconnect=0)
    assert found.statuses() == {expected: 2}


def test_a_server_that_says_nothing(tmp_path: Path) -> None:
    """Requests wait for its SETTINGS until their time-out; the connection is not kept for others."""

    def script(connection: socket.socket, number: int) -> None:
        while connection.recv(1000):
            pass

    with scripted(script) as address:
        found = drive(tmp_path, address, gaps_ms=[5.0, 5.0], http2=10, preconnect=0, timeout_s=0.3)
    assert found.statuses() == {("timeout", "connect_timeout"): 2}


def test_no_server(tmp_path: Path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        found = drive(tmp_path, bound.getsockname(), gaps_ms=[5.0, 5.0], http2=10, preconnect=0)
    assert found.statuses() == {("connection_error", "connect_refused"): 2}


def test_who_leaves_resets_the_stream_alone(tmp_path: Path, wire: Wire) -> None:
    """After three events; the server gets RST_STREAM, and the connection serves the next request."""
    client = np.zeros(2, CLIENT_ROW)
    client["cancel_tokens"] = 3

    def answer(peer: Http2Peer, stream: int) -> None:
        peer.head(stream)
        peer.data(stream, event("a") + event("b"))
        peer.data(stream, event("c"))

    with wire.server(answer) as (address, peers):
        found = wire.drive(tmp_path, address, gaps_ms=[5.0, 50.0], http2=10, client=client)
    assert found.statuses() == {("cancelled", "client_cancelled"): 2}
    assert [peer.resets for peer in peers] == [{1: 8, 3: 8}]


def test_who_gives_up_at_an_instant(tmp_path: Path, wire: Wire) -> None:
    client = np.zeros(3, CLIENT_ROW)
    client["abandon_ns"] = 100_000_000
    with wire.server(lambda peer, stream: None) as (address, peers):
        found = wire.drive(tmp_path, address, gaps_ms=[5.0] * 3, http2=10, client=client)
    assert found.statuses() == {("cancelled", "client_abandoned"): 3}
    assert [peer.resets for peer in peers] == [{1: 8, 3: 8, 5: 8}]


def test_deadlines_reset_streams(tmp_path: Path, wire: Wire) -> None:
    with wire.server(lambda peer, stream: None) as (address, peers):
        found = wire.drive(tmp_path, address, gaps_ms=[5.0] * 3, http2=10, timeout_s=0.2)
    assert found.statuses() == {("timeout", "deadline"): 3}
    assert [peer.resets for peer in peers] == [{1: 8, 3: 8, 5: 8}]


def test_a_message_that_does_not_end_after_its_answer(tmp_path: Path, wire: Wire) -> None:
    """[DONE] ends the request; the stream is reset a while later, and the connection stays."""

    def answer(peer: Http2Peer, stream: int) -> None:
        peer.head(stream)
        peer.data(stream, event("a") + LAST + DONE)

    with wire.server(answer) as (address, peers):
        found = wire.drive(tmp_path, address, gaps_ms=[5.0, 3000.0], http2=10)
    assert found.statuses() == {("ok", "none"): 2}
    assert [peer.resets for peer in peers] == [{1: 8}]


def test_fresh_connections(tmp_path: Path, wire: Wire) -> None:
    with wire.server(whole) as (address, peers):
        found = wire.drive(tmp_path, address, gaps_ms=[5.0] * 4, http2=10, fresh=True)
    assert found.statuses() == {("ok", "none"): 4}
    assert [len(peer.heads) for peer in peers] == [1, 1, 1, 1]


def test_a_settings_change_within_the_run(tmp_path: Path, wire: Wire) -> None:
    """Fewer streams and a smaller window from now on: obeyed for what is sent after."""

    def answer(peer: Http2Peer, stream: int) -> None:
        if stream == 1 and len(peers) == 1:
            peer.socket.sendall(f.frame(f.SETTINGS, payload=struct.pack(">HIHI", 3, 1, 4, 50)))
        peer.answer(stream, ANSWER, "application/json")

    with wire.server(answer) as (address, peers):
        found = wire.drive(tmp_path, address, gaps_ms=[5.0, 50.0, 50.0], http2=10)
    assert found.statuses() == {("ok", "none"): 3}


def test_thousands_of_requests_over_few_connections(tmp_path: Path, wire: Wire) -> None:
    with wire.server(stream_of_five) as (address, peers):
        found = wire.drive(tmp_path, address, gaps_ms=[], slots=60, limit=3000, http2=20, preconnect=60)
    assert found.statuses() == {("ok", "none"): 3000}
    assert (found.rows["content_events"] == 5).all()
    assert sum(len(peer.heads) for peer in peers) == 3000


@needs_openssl
@needs_libssl
@pytest.mark.parametrize("asked", [False, True])
def test_keys_that_the_server_changes_between_events(tmp_path: Path, asked: bool) -> None:
    """Of requests that share a connection; what the client sends has new keys, too, where they were asked for."""
    cert, key = (str(file) for file in certificate(tmp_path, "server"))
    side = UpdatingSide(cert, key, http2=True)

    def changing(peer: Http2Peer, stream: int) -> None:
        assert isinstance(peer.socket, Secured)
        peer.head(stream)
        for word in "abcde":
            side.update(asked)
            peer.socket.flush()
            peer.data(stream, event(word))
        peer.data(stream, LAST + DONE, end=True)

    with http2_server(changing, tls=side) as (address, _):
        client = TlsContext(cacert=cert, protocols=("h2",))
        found = drive(tmp_path, address, gaps_ms=[], slots=3, limit=12, http2=10, tls=client)
    assert found.statuses() == {("ok", "none"): 12} and (found.rows["content_events"] == 5).all()
    assert (found.rows["t_submit"] < found.rows["t_first"]).all() and (side.peers > 0) is asked


@needs_openssl
def test_a_server_that_does_not_agree_to_it_and_one_that_fails_midway(tmp_path: Path) -> None:
    """Without ALPN nothing is sent; garbage in place of a record fails what is in flight."""
    cert, key = (str(file) for file in certificate(tmp_path, "server"))
    client = TlsContext(cacert=cert, protocols=("h2",))
    silent = TlsContext(server=True, cert=cert, key=key, verify=False)
    (tmp_path / "silent").mkdir()
    (tmp_path / "garbage").mkdir()
    with http2_server(whole, tls=silent) as (address, _):
        found = drive(tmp_path / "silent", address, gaps_ms=[5.0] * 3, http2=10, tls=client, held=True)
    assert found.statuses() == {("connection_error", "tls"): 3}

    def garbage(peer: Http2Peer, stream: int) -> None:
        peer.head(stream)
        peer.data(stream, event("a"))
        if stream == 5:  # the third, and the last to be answered
            assert isinstance(peer.socket, Secured)
            peer.socket.connection.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))

    agrees = TlsContext(server=True, cert=cert, key=key, verify=False, protocols=("h2",))
    with http2_server(garbage, tls=agrees) as (address, _):
        found = drive(tmp_path / "garbage", address, gaps_ms=[5.0] * 3, http2=10, tls=client, held=True)
    assert found.statuses() == {("connection_error", "tls"): 3}
    assert (found.rows["content_events"] == 1).all()
