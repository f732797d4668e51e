"""The preflight over HTTP/2 without TLS finds what it finds over HTTP/1.1, and names an answer that is not HTTP/2."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from pathlib import Path

import pytest
from certificates import certificate, needs_openssl
from ext.http2_server import Http2Peer, http2_server
from ext.reactor_drive import Script, scripted
from ext.reference import http2_frames as f
from refusals import raises_code
from support.canned_server import canned

from fastllmload._ext.tls.session import TlsContext
from fastllmload.engine.preflight.addresses import parse_base
from fastllmload.engine.preflight.check import preflight
from fastllmload.engine.preflight.client import ServerConnection
from fastllmload.redact import Redactor
from fastllmload.settings import Client, Load, RunSettings, Target, Workload

MODELS = b'{"object":"list","data":[{"id":"m"}]}'


def connection(address: tuple[str, int], version: str = "2", scheme: str = "http") -> ServerConnection:
    url = f"{scheme}://127.0.0.1:{address[1]}/v1"
    settings = RunSettings(
        target=Target(urls=(url,), insecure=True, preflight_timeout=5.0),
        load=Load(rate=1.0),
        workload=Workload(),
        client=Client(http_version=version),
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


def only_http2(tls: TlsContext | None = None) -> Script:
    """Lists models over HTTP/2; answers anything else with SETTINGS and closes."""

    def script(connection: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError, ssl.SSLError):
            peer = Http2Peer(connection, {}, tls=tls)
            for stream in peer.requests():
                peer.answer(stream, MODELS, "application/json")

    return script


@pytest.mark.parametrize(("version", "spoken"), [("auto", "h2"), ("1.1", None)])
def test_http2_is_spoken_with_a_server_that_speaks_nothing_else(version: str, spoken: str | None) -> None:
    with scripted(only_http2()) as address:
        made = connection(address, version)
        if spoken is None:
            with raises_code("http2-only", "leave --http-version 1.1 out"):
                made.exchange("GET", "/v1/models", None)
            return
        assert made.exchange("GET", "/v1/models", None) == (200, "application/json", MODELS)
        assert made.protocol == spoken


@needs_openssl
@pytest.mark.parametrize("version", ["auto", "2"])
def test_over_tls_too(tmp_path: Path, version: str) -> None:
    """It refuses HTTP/1.1 in the handshake (ALPN)."""
    cert, key = (str(file) for file in certificate(tmp_path, "localhost", ["DNS:localhost"]))
    with scripted(only_http2(TlsContext(server=True, cert=cert, key=key, verify=False, protocols=("h2",)))) as address:
        made = connection(address, version, "https")
        assert made.exchange("GET", "/v1/models", None) == (200, "application/json", MODELS)
        assert made.protocol == "h2"


def test_targets_that_speak_different_versions_are_refused() -> None:
    with (
        scripted(only_http2()) as address,
        canned({"/v1/models": (200, "application/json", MODELS)}) as other,
        raises_code("http-versions-differ", "HTTP/2 only", "--http-version"),
    ):
        urls = (f"{other.url}/v1", f"http://127.0.0.1:{address[1]}/v1")
        preflight(RunSettings(target=Target(urls=urls)), urls, None, Redactor([]), cold=True)


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
