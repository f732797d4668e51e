"""Requests over TLS through the reactor, and servers that fail at it: each failure is one definite status."""

from __future__ import annotations

import socket
import ssl
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from certificates import certificate, needs_openssl
from ext.reactor_drive import RESPONSE, Outcome, Secured, drive, read_request, scripted
from openssl_side import UpdatingSide, needs_libssl

from fastllmload._ext.record import counters as k
from fastllmload._ext.tls.session import TlsContext
from fastllmload.plan.plan import CLIENT_ROW

pytestmark = needs_openssl
REQUESTS = 4
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n'
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

Answer = Callable[[Secured], None]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def made(directory: Path, name: str = "server", days: int = 2) -> tuple[str, str]:
    """Certificate and key, the same for each call with this *name*."""
    cert, key = directory / f"{name}.pem", directory / f"{name}.key"
    if not cert.exists():
        certificate(directory, name, days=days)
    return str(cert), str(key)


def driven(directory: Path, address: object, tls: TlsContext, **options: object) -> Outcome:
    """In a folder of its own."""
    return drive(Path(tempfile.mkdtemp(dir=directory)), address, tls=tls, **options)


def run(
    directory: Path, answer: Answer, *, server: dict[str, object] | None = None, mine: dict[str, object] | None = None,
    **options: object,
) -> Outcome:  # fmt: skip
    """REQUESTS one after the other; *server*, *mine*: settings in addition to a certificate and trust in it."""
    cert, key = made(directory)
    context = TlsContext(**{"server": True, "cert": cert, "key": key, "verify": False, **(server or {})})  # type: ignore[arg-type]

    def script(connection: socket.socket, number: int) -> None:
        answer(Secured(connection, context))

    with scripted(script) as address:
        tls = TlsContext(**{"cacert": cert, **(mine or {})})  # type: ignore[arg-type]
        return driven(directory, address, tls, **{"gaps_ms": [20.0] * REQUESTS, **options})


def answer_all(side: Secured) -> None:
    while read_request(side):
        side.sendall(RESPONSE)


def stream(side: Secured, *, ends: bytes = b"0\r\n\r\n") -> None:
    while read_request(side):
        side.sendall(HEAD)
        for _ in range(5):
            side.sendall(chunk(EVENT))
        side.sendall(chunk(FINISH) + ends)


def test_requests_and_their_times(tmp_path: Path) -> None:
    """One handshake before the first request; a request that waits for its own says how long it took."""
    outcome = run(tmp_path, stream)
    assert outcome.statuses() == {("ok", "none"): REQUESTS}
    assert (outcome.rows["content_events"] == 5).all()
    assert outcome.words[k.W_HANDSHAKES] >= 1 and outcome.words[k.W_HANDSHAKES_RESUMED] == 0
    assert outcome.words[k.W_HANDSHAKE_NS] > 0 and outcome.words[k.W_HANDSHAKE_CPU_NS] > 0
    fresh = run(tmp_path, stream, fresh=True)
    assert fresh.statuses() == {("ok", "none"): REQUESTS}
    assert (fresh.rows["tls_us"] > 0).all() and fresh.words[k.W_HANDSHAKES] == REQUESTS
    secured = fresh.rows["t_connected"] + fresh.rows["tls_us"].astype("i8") * 1000
    assert (secured <= fresh.rows["t_submit_start"] + 1000).all()


def test_a_session_continues_only_where_both_sides_want_it(tmp_path: Path) -> None:
    for client in (True, False):
        outcome = run(tmp_path, stream, server={"resume": True}, mine={"resume": client}, fresh=True)
        assert outcome.statuses() == {("ok", "none"): REQUESTS}
        resumed = outcome.words[k.W_HANDSHAKES_RESUMED]
        assert resumed >= REQUESTS // 2 if client else resumed == 0  # not before the first ticket has come


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions(tmp_path: Path, version: int) -> None:
    outcome = run(tmp_path, stream, server={"versions": (int(version), int(version))}, fresh=True)
    assert outcome.statuses() == {("ok", "none"): REQUESTS}


def test_a_long_body_goes_out_in_parts(tmp_path: Path) -> None:
    """8 MB to a server that reads late: more than the socket takes at once, in records of 16 KB."""
    got = []

    def slowly(side: Secured) -> None:
        time.sleep(0.3)
        while request := read_request(side):
            got.append(len(request.partition(b"\r\n\r\n")[2]))
            side.sendall(RESPONSE)

    body = b'{"prompt":"' + b"x" * (8 << 20) + b'"}'
    outcome = run(tmp_path, slowly, body=body, gaps_ms=[1.0])
    assert outcome.statuses() == {("ok", "none"): 1} and got == [len(body)]
    row = outcome.rows[0]
    assert row["t_submit"] - row["t_submit_start"] > 100_000_000 and row["bytes_sent"] > len(body)


def test_records_that_come_byte_by_byte(tmp_path: Path) -> None:
    def drop_by_drop(side: Secured) -> None:
        while read_request(side):
            for byte in side.seal(HEAD) + side.seal(chunk(EVENT)) + side.seal(chunk(FINISH) + b"0\r\n\r\n"):
                side.connection.sendall(bytes([byte]))

    outcome = run(tmp_path, drop_by_drop)
    assert outcome.statuses() == {("ok", "none"): REQUESTS}


@needs_libssl
@pytest.mark.parametrize("asked", [False, True])
def test_keys_that_the_server_changes_in_a_stream(tmp_path: Path, asked: bool) -> None:
    """Before each event, and once while the client waits: all events are read, and requests follow on the connection."""
    sides: list[UpdatingSide] = []

    def changing(connection: socket.socket, number: int) -> None:
        updating = UpdatingSide(*made(tmp_path))
        sides.append(updating)
        side = Secured(connection, updating)
        while read_request(side):
            side.sendall(HEAD)
            for place in range(5):
                updating.update(asked)
                side.flush()
                time.sleep(0.02 * (place == 2))
                side.sendall(chunk(EVENT))
            side.sendall(chunk(FINISH) + b"0\r\n\r\n")

    cert, _ = made(tmp_path)
    with scripted(changing) as address:
        outcome = driven(tmp_path, address, TlsContext(cacert=cert), gaps_ms=[], slots=1, limit=REQUESTS)
    assert outcome.statuses() == {("ok", "none"): REQUESTS} and len(sides) == 1
    assert (outcome.rows["content_events"] == 5).all()
    assert (outcome.rows["t_submit"] < outcome.rows["t_first"]).all(), "the request was sent before its own new keys"
    assert (sum(side.peers for side in sides) > 0) is asked


FAILS = ("connection_error", "tls")


def test_certificates_that_are_not_trusted(tmp_path: Path) -> None:
    expired = dict(zip(("cert", "key"), made(tmp_path, "expired", days=-1), strict=True))
    foreign = dict(zip(("cert", "key"), made(tmp_path, "foreign"), strict=True))
    for server, client, options in (
        (expired, {"cacert": expired["cert"]}, {}),
        (foreign, {}, {}),
        ({}, {}, {"server_name": b"elsewhere"}),
    ):
        outcome = run(tmp_path, answer_all, server=server, mine=client, **options)
        assert outcome.statuses() == {FAILS: REQUESTS}
        careless = run(tmp_path, answer_all, server=server, mine={**client, "verify": False}, **options)
        assert careless.statuses() == {("ok", "none"): REQUESTS}


def test_client_certificates(tmp_path: Path) -> None:
    cert, key = made(tmp_path, "client")
    server = {"verify": True, "cacert": cert}
    with_it = run(tmp_path, answer_all, server=server, mine={"cert": cert, "key": key})
    assert with_it.statuses() == {("ok", "none"): REQUESTS}
    without = run(tmp_path, answer_all, server=server)
    assert without.statuses() == {FAILS: REQUESTS}


def test_a_server_without_the_protocol(tmp_path: Path) -> None:
    client = {"protocols": ("http/1.1",)}
    assert run(tmp_path, answer_all, server={"protocols": ("h2",)}, mine=client).statuses() == {FAILS: REQUESTS}
    agreed = run(tmp_path, answer_all, server={"protocols": ("h2", "http/1.1")}, mine=client)
    assert agreed.statuses() == {("ok", "none"): REQUESTS}


def test_a_handshake_that_hangs_and_one_that_is_none(tmp_path: Path) -> None:
    """The first has the request's time-out, the other fails at once."""
    tls = TlsContext(verify=False)
    with scripted(lambda connection, number: time.sleep(3)) as address:
        outcome = driven(tmp_path, address, tls, gaps_ms=[5.0] * REQUESTS, timeout_s=0.5, preconnect=0)
    assert outcome.statuses() == {("timeout", "tls"): REQUESTS}

    def plain(connection: socket.socket, number: int) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with scripted(plain) as address:
        outcome = driven(tmp_path, address, tls, gaps_ms=[5.0] * REQUESTS, preconnect=0)
    assert outcome.statuses() == {FAILS: REQUESTS}
    with scripted(lambda connection, number: None) as address:
        outcome = driven(tmp_path, address, tls, gaps_ms=[5.0] * REQUESTS, preconnect=0)
    assert outcome.statuses() == {FAILS: REQUESTS}


def cut(side: Secured, last: Answer, finished: bool) -> None:
    """A stream that ends in *last* after two events, or after its finish_reason."""
    if read_request(side):
        side.sendall(HEAD + chunk(EVENT) + chunk(EVENT) + (chunk(FINISH) if finished else b""))
        last(side)


def notify(side: Secured) -> None:
    side.channel.end()
    side.flush()


def garbage(side: Secured) -> None:
    side.connection.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))


def close(side: Secured) -> None:
    side.connection.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(
    ("last", "status"),
    [(notify, ("truncated", "closed_in_body")), (close, ("truncated", "closed_in_body")), (garbage, FAILS)],
)
def test_streams_that_are_cut(tmp_path: Path, last: Answer, status: tuple[str, str]) -> None:
    """What came before is kept; where the answer had said why it ends, it is whole."""
    outcome = run(tmp_path, lambda side: cut(side, last, False))
    assert outcome.statuses() == {status: REQUESTS}
    assert (outcome.rows["content_events"] == 2).all()
    outcome = run(tmp_path, lambda side: cut(side, last, True))
    assert outcome.statuses() == {("ok", "cut_after_end"): REQUESTS}


def test_a_slow_reader_reads_record_by_record(tmp_path: Path) -> None:
    """Ten events at 100 tokens/s, a record each: nine gaps of 10 ms, though the server sent all of them at once."""

    def ten(side: Secured) -> None:
        while read_request(side):
            side.connection.sendall(
                b"".join(side.seal(part) for part in (HEAD, *[chunk(EVENT)] * 10, chunk(FINISH) + b"0\r\n\r\n"))
            )

    client = np.zeros(2, CLIENT_ROW)
    client["read_rate"] = 100.0
    outcome = run(tmp_path, ten, gaps_ms=[5.0, 5.0], client=client)
    assert outcome.statuses() == {("ok", "none"): 2}
    assert (outcome.rows["content_events"] == 10).all()
    assert (outcome.rows["t_last"] - outcome.rows["t_first"] >= 70_000_000).all()
