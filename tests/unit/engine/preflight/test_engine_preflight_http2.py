"""The preflight over HTTP/2 without TLS finds what it finds over HTTP/1.1, and names an answer that is not HTTP/2."""

from __future__ import annotations

import json
import socket

import pytest
from ext.http2_server import Http2Peer, http2_server
from ext.reactor_drive import scripted
from ext.reference import http2_frames as f
from refusals import raises_code

from fastllmload.engine.preflight.addresses import parse_base
from fastllmload.engine.preflight.client import ServerConnection
from fastllmload.settings import Client, Load, RunSettings, Target, Workload

MODELS = b'{"object":"list","data":[{"id":"m"}]}'


def connection(address: tuple[str, int]) -> ServerConnection:
    url = f"http://127.0.0.1:{address[1]}/v1"
    settings = RunSettings(
        target=Target(urls=(url,), preflight_timeout=5.0),
        load=Load(rate=1.0),
        workload=Workload(),
        client=Client(http_version="2"),
    )
    made = ServerConnection(settings, parse_base(url), "key", str)
    made.reach([])
    return made


def test_a_list_and_an_answer() -> None:
    """Fields, a body of more than a window, an answer in pieces."""

    def answer(peer: Http2Peer, stream: int) -> None:
        fields = peer.heads[stream]
        if fields[":method"] == "GET":
            peer.answer(stream, MODELS, "application/json")
        else:
            said = {
                "auth": fields["authorization"],
                "size": len(peer.bodies[stream]),
                "length": fields["content-length"],
            }
            peer.head(stream, 201, "application/json")
            peer.data(stream, json.dumps(said).encode()[:10])
            peer.data(stream, json.dumps(said).encode()[10:], end=True)

    with http2_server(answer) as (address, _):
        made = connection(address)
        assert made.exchange("GET", "/v1/models", None) == (200, "application/json", MODELS)
        status, content, body = made.exchange("POST", "/v1/chat/completions", b"x" * 200_000)
    assert (status, content) == (201, "application/json")
    assert json.loads(body) == {"auth": "Bearer key", "size": 200_000, "length": "200000"}
    assert made.answered and not made.cut and b"content-type: application/json" in made.head


def test_an_answer_that_is_cut() -> None:
    def answer(peer: Http2Peer, stream: int) -> None:
        peer.head(stream)
        peer.data(stream, b"data: x")
        peer.reset(stream, 2)

    with http2_server(answer) as (address, _):
        made = connection(address)
        assert made.exchange("POST", "/", b"{}") == (200, "text/event-stream", b"data: x")
    assert made.cut


def test_a_stream_without_an_answer_is_named() -> None:
    with (
        http2_server(lambda peer, stream: peer.reset(stream, 7)) as (address, _),
        raises_code("answer-broken", "stream_refused"),
    ):
        connection(address).exchange("POST", "/", b"{}")


@pytest.mark.parametrize("says", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", f.head(1)])
def test_what_is_no_http2_is_named(says: bytes) -> None:
    def script(connection: socket.socket, number: int) -> None:
        connection.recv(1000)
        connection.sendall(says)

    with scripted(script) as address, raises_code("http2-not-spoken", "--http-version"):
        connection(address).exchange("GET", "/", None)
