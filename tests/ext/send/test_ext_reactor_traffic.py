"""Classes, conversations and users in the reactor, against a scripted server."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ext.reactor_drive import ANSWER, HEAD, RESPONSE, answer_all, drive, read_request, scripted

from fastllmload._ext.bytes.carry import carried
from fastllmload._ext.plan.talk import Talks
from fastllmload._ext.send.reactor import Reactor
from fastllmload.endpoint import ENDPOINTS
from fastllmload.plan.conversations.turns import TurnPart, write_conversations
from fastllmload.plan.plan import CLIENT_ROW
from fastllmload.settings import Workload

CHAT = ENDPOINTS["openai-chat"]
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def event(text: str) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}\n\n' % text.encode()


LAST = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def test_each_class_has_its_own_head(tmp_path: Path) -> None:
    """Six requests of three classes over one connection: each carries the header of its class."""
    seen: list[bytes] = []

    def script(connection: socket.socket, number: int) -> None:
        while request := read_request(connection):
            seen.append(request)
            connection.sendall(RESPONSE)

    with scripted(script) as address:
        heads = [HEAD + b"X-Class: %d\r\n" % number for number in (1, 2)]
        found = drive(tmp_path, address, gaps_ms=[5.0] * 6, class_heads=heads)
    assert found.statuses() == {("ok", "none"): 6}
    own = {int(request.split(b"X-Fastllmload-Request: test-0-")[1].split(b"\r")[0]): request for request in seen}
    for number, request in own.items():
        wanted = b"" if number % 3 == 0 else b"X-Class: %d" % (number % 3)
        assert (wanted in request) and (number % 3 > 0 or b"X-Class" not in request)


def talk_of(turns: list[str], think_ms: float, directory: Path) -> dict[str, Any]:
    pieces = CHAT.messages_pieces("m", Workload())
    parts = [
        TurnPart(pieces.encode([{"role": "user", "content": text}], 3), pieces.skip, pieces.closing(3), 1, 3,
             think_ns=round(think_ms * 1e6) if number else 0)
        for number, text in enumerate(turns)
    ]  # fmt: skip
    bodies, _ = write_conversations(directory / "bodies", [parts], CHAT.joint, "real")
    table = bodies.turns
    raw = np.frombuffer((directory / "bodies").read_bytes(), np.uint8)
    joint = tuple(text.encode() for text in CHAT.joint.described())
    talks = Talks(table, bodies.offsets, raw, [joint], 1)
    return {"body_offset": bodies.offsets, "bodies": raw, "talks": talks, "numbers": np.zeros(1, np.uint32)}


@pytest.mark.parametrize("over_asyncio", [False, True])
def test_what_the_server_said_comes_back_to_it(tmp_path: Path, over_asyncio: bool) -> None:
    """Escapes, surrogate pairs, reasoning that is not said aloud: the history is what was said."""
    heard: list[Any] = []

    def script(connection: socket.socket, number: int) -> None:
        while request := read_request(connection):
            heard.append(json.loads(request.partition(b"\r\n\r\n")[2])["messages"])
            thought = event("").replace(b'"content":""', b'"reasoning_content":"hidden"')
            connection.sendall(STREAM + thought + event(" \\n") + event("caf\\u00e9 ") + event("\\ud83d\\ude00") + LAST)
            return

    talk = talk_of(["one", "two", "three"], 20.0, tmp_path)
    with scripted(script) as address:
        found = drive(tmp_path, address, gaps_ms=[5.0], conversations=talk, over_asyncio=over_asyncio, fresh=True)
    assert found.statuses() == {("ok", "none"): 3}
    said = " \ncafé \U0001f600"
    assert [[message["content"] for message in messages] for messages in heard] == [
        ["one"], ["one", said, "two"], ["one", said, "two", said, "three"]
    ]  # fmt: skip
    rows = np.sort(found.rows, order="turn")
    assert rows["turn"].tolist() == [0, 1, 2] and rows["session"].tolist() == [0, 0, 0]
    assert (rows["t_sched"][1:] - rows["t_end"][:-1] == 20_000_000).all()
    assert talk["talks"].alive == 0


def test_a_drain_ends_conversations(tmp_path: Path) -> None:
    """What would follow is not sent, and nothing stays behind."""
    talk = talk_of(["one", "two"], 60_000.0, tmp_path)

    def stop(reactor: Any) -> None:
        if talk["talks"].alive and not reactor.in_flight:
            assert not reactor.sending_over and not reactor.finished
            reactor.drain()

    with scripted(answer_all) as address:
        found = drive(tmp_path, address, gaps_ms=[5.0], conversations=talk, during=stop)
    assert len(found.rows) == 1 and talk["talks"].alive == 0


def users(count: int, **fields: Any) -> np.ndarray:
    rows = np.zeros(count, CLIENT_ROW)
    for name, value in fields.items():
        rows[name] = value
    return rows


def test_who_leaves_closes_the_connection(tmp_path: Path) -> None:
    """After three events with content; a user who has left is sent no more, and the next one is served."""
    gone: list[bool] = []

    def script(connection: socket.socket, number: int) -> None:
        while read_request(connection):
            connection.sendall(STREAM + event("a") + event("b"))
            connection.sendall(event("c"))
            gone.append(not connection.recv(1))

    with scripted(script) as address:
        found = drive(tmp_path, address, gaps_ms=[5.0, 30.0], client=users(2, cancel_tokens=3))
    assert found.statuses() == {("cancelled", "client_cancelled"): 2}
    assert (found.rows["content_events"] == 3).all() and (found.rows["client"] == 1).all()


def test_who_gives_up_before_the_first_token(tmp_path: Path) -> None:
    """A role event is not a token; after a token, a deadline of the first token has no effect."""

    def script(connection: socket.socket, number: int) -> None:
        while request := read_request(connection):
            first = b"test-0-0" in request
            connection.sendall(STREAM + (event("") if first else event("x")))
            connection.settimeout(1.0)
            try:
                connection.recv(1)
            except TimeoutError:
                connection.sendall(LAST)
            return

    with scripted(script) as address:
        found = drive(tmp_path, address, gaps_ms=[5.0, 5.0], client=users(2, abandon_ns=400_000_000), fresh=True)
    rows = np.sort(found.rows, order="request")
    assert found.statuses() == {("cancelled", "client_abandoned"): 1, ("ok", "none"): 1}
    assert rows["t_end"][0] - rows["t_submit"][0] >= 400_000_000 and rows["status"][1] == 2


def test_a_slow_reader_is_not_pooled_and_reads_all(tmp_path: Path) -> None:
    """Ten events at 100 tokens/s: nine gaps of 10 ms; the connection is its own and is closed after it."""

    def script(connection: socket.socket, number: int) -> None:
        while read_request(connection):
            body = b"".join(event("x" * 150) for _ in range(10)) + LAST
            connection.sendall(STREAM.replace(b"\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n" % len(body)) + body)

    with scripted(script) as address:
        found = drive(tmp_path, address, gaps_ms=[5.0, 5.0], client=users(2, read_rate=100.0))
    assert found.statuses() == {("ok", "none"): 2}
    assert (found.rows["content_events"] == 10).all() and (found.rows["client"] == 4).all()
    assert ((found.rows["t_last"] - found.rows["t_first"]) >= 70_000_000).all()
    assert not (found.rows["flags"] & 1).any(), "no connection was used again"


def test_a_slow_reader_released_by_the_end_of_another_is_read(tmp_path: Path) -> None:
    """At a cap of one each request is released inside the reading of the one before it: none is forgotten."""

    def script(connection: socket.socket, number: int) -> None:
        while read_request(connection):
            body = event("x") + event("y") + LAST
            connection.sendall(STREAM.replace(b"\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n" % len(body)) + body)

    with scripted(script) as address:
        found = drive(tmp_path, address, gaps_ms=[5.0, 0.0, 0.0, 0.0], cap=1, client=users(4, read_rate=200.0))
    assert found.statuses() == {("ok", "none"): 4}


@pytest.mark.parametrize("over_asyncio", [False, True])
def test_bodies_share_a_budget(tmp_path: Path, over_asyncio: bool) -> None:
    """Ten bodies of 4 MB are half there at once, 16 MiB may be held: some fail as too large, the rest come, and what they
    took is given back, to the kernel too: a body of 1 MiB and more lies in a mapping of its own.
    """
    body = ANSWER.ljust(4_000_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    halves = (
        head + body[:2_000_000],
        body[2_000_000:],
    )  # made once: what a server's thread allocates would be counted below
    all_half = threading.Barrier(10, timeout=20)
    nearly_full = threading.Event()
    most = [0, 0]
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what earlier tests left free on the heap would be used before a mapping is made
    before, mapped_before = carried(), mapped_bytes()

    def script(connection: socket.socket, number: int) -> None:
        while read_request(connection):
            with contextlib.suppress(OSError):  # the client has closed
                connection.sendall(halves[0])
            all_half.wait()
            nearly_full.wait(20)  # what was sent may still lie in the kernel
            connection.sendall(halves[1])

    def watch(reactor: Reactor) -> None:
        most[:] = max(most[0], carried() - before), max(most[1], mapped_bytes() - mapped_before)
        if most[0] > 15 << 20:
            nearly_full.set()

    with scripted(script) as address:
        outcome = drive(
            tmp_path, address, gaps_ms=[0.0] * 10, preconnect=0, over_asyncio=over_asyncio, max_held=16 << 20,
            during=watch, patience_s=60, timeout_s=30,
        )  # fmt: skip
    found = outcome.statuses()
    del outcome  # its rows
    gc.collect()
    assert set(found) == {("ok", "none"), ("connection_error", "body_too_large")}
    assert min(found.values()) >= 1  # how many depends on how fast the client reads
    assert most[0] < 24 << 20
    assert carried() - before < 1 << 20
    assert most[1] > 8 << 20, most
    assert mapped_bytes() - mapped_before < 1 << 20, most


class MallocState(ctypes.Structure):
    """``struct mallinfo`` of glibc: ten ints."""

    _fields_ = [(name, ctypes.c_int) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")] + [
        ("rest", ctypes.c_int * 5)
    ]


def mapped_bytes() -> int:
    """What malloc() of this process holds in mappings of their own, in bytes: free() gives them back to the kernel."""
    mallinfo = ctypes.CDLL(None).mallinfo
    mallinfo.restype = MallocState
    return int(mallinfo().hblkhd)


def test_one_body_above_its_own_limit_is_too_large(tmp_path: Path) -> None:
    body = ANSWER.ljust(5000)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)

    def script(connection: socket.socket, number: int) -> None:
        while read_request(connection):
            connection.sendall(head + body)

    with scripted(script) as address:
        outcome = drive(tmp_path, address, gaps_ms=[0.0] * 3, max_event=1000)
    assert outcome.statuses() == {("protocol_error", "body_too_large"): 3}


def test_each_of_many_connections_has_memory_of_its_own(tmp_path: Path) -> None:
    """More than one block of them holds (pool.pyx): each carries one stream, and says of it what its server sent."""
    streams = 1_300
    sent: list[int] = []

    def script(connection: socket.socket, number: int) -> None:
        if read_request(connection):
            sent.append(len(f"number {number}") + 2 * (number % 700))
            body = event(f"number {number}") + event("x" * (number % 700)) * 2 + LAST
            connection.sendall(STREAM + body)
            connection.shutdown(socket.SHUT_WR)

    with scripted(script) as address:
        found = drive(tmp_path, address, gaps_ms=[0.5] * streams, preconnect=streams, timeout_s=30.0)
    assert found.statuses() == {("ok", "none"): streams}
    assert sorted(found.rows["text_bytes"].tolist()) == sorted(sent)
    assert len(np.unique(found.rows["local_port"])) == streams
