"""Drive a reactor against a scripted server in a thread, without a supervisor, and read what it wrote."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import uvloop
from openssl_side import UpdatingSide

from fastllmload._ext.events.delta import Classifier
from fastllmload._ext.plan.pacer import Pacer
from fastllmload._ext.receive.protocol import Protocol
from fastllmload._ext.record import counters as k
from fastllmload._ext.record.recorder import Recorder
from fastllmload._ext.send.identity import Identity
from fastllmload._ext.send.loop import LoopConnection
from fastllmload._ext.send.reactor import Reactor
from fastllmload._ext.system.life import lives
from fastllmload._ext.tls.session import Channel, TlsContext, TlsState
from fastllmload.endpoint import ENDPOINTS
from fastllmload.records.layout import ERROR_NAMES, STATUS_NAMES
from fastllmload.records.shared_memory import SharedWords

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
ANSWER = (
    b'{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}'
)
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)

Script = Callable[[socket.socket, int], None]  # one connection, its number


class Secured:
    """A server's socket with TLS: what it sends at once is one record."""

    def __init__(self, connection: socket.socket, side: TlsContext | UpdatingSide) -> None:
        self.connection = connection
        self.channel = Channel(side) if isinstance(side, TlsContext) else side
        self.plain = b""
        while self.channel.state == TlsState.TLS_HANDSHAKE:
            self.recv_record()

    def recv_record(self) -> bytes:
        """The bytes of one read, as they came; the plaintext in them is kept for `recv`."""
        data = self.connection.recv(65536)
        if data:
            self.plain += self.channel.feed(data)
        self.flush()
        if not data or self.channel.problem:
            raise OSError(self.channel.problem or "closed")
        return data

    def flush(self) -> None:
        if out := self.channel.taken():
            self.connection.sendall(out)

    def recv(self, size: int) -> bytes:
        while not self.plain and self.channel.state == TlsState.TLS_OPEN:
            try:
                self.recv_record()
            except OSError:
                return b""
        taken, self.plain = self.plain[:size], self.plain[size:]
        return taken

    def seal(self, data: bytes) -> bytes:
        """The records of *data*, to be sent as they are."""
        self.channel.write(data)
        return self.channel.taken()

    def sendall(self, data: bytes) -> None:
        self.connection.sendall(self.seal(data))

    def shutdown(self, how: int) -> None:
        self.connection.shutdown(how)


@contextmanager
def scripted(script: Script, family: int = socket.AF_INET, address: Any = ("127.0.0.1", 0)) -> Iterator[Any]:
    """A server that runs *script* in a thread per connection; yields its address."""
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen(512)
    threads: list[threading.Thread] = []
    open_sockets: list[socket.socket] = []

    def one(connection: socket.socket, number: int) -> None:
        try:
            script(connection, number)
        except OSError:
            return  # the client went away: every script may see that
        finally:
            connection.close()

    def accept() -> None:
        number = 0
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            open_sockets.append(connection)
            thread = threading.Thread(target=one, args=(connection, number), daemon=True)
            thread.start()
            threads.append(thread)
            number += 1

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield listener.getsockname()
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join(5)
        for connection in open_sockets:
            connection.close()


def read_request(connection: socket.socket | Secured) -> bytes:
    """One whole request; empty when the client closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    sizes = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
    length = sum(sizes)
    while len(body) < length:
        body += connection.recv(1 << 20)
    return head + b"\r\n\r\n" + body


def answer_all(connection: socket.socket, number: int) -> None:
    while read_request(connection):
        connection.sendall(RESPONSE)


@dataclass
class Outcome:
    rows: np.ndarray
    tokens: np.ndarray
    words: np.ndarray
    lags_us: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.lags_us = (self.rows["t_dispatch"] - self.rows["t_sched"]) / 1e3

    def statuses(self) -> dict[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = {}
        for row in self.rows:
            key = STATUS_NAMES[row["status"]], ERROR_NAMES[row["error"]]
            found[key] = found.get(key, 0) + 1
        return found


def drive(directory: Path, address: Any, *, over_asyncio: bool = False, held: bool = False, **options: Any) -> Outcome:
    """As `run_reactor`; and whatever was begun in the meantime has ended (`system.life`). *held*: but for
    buffers of the test's own.
    """
    gc.collect()
    earlier = lives()
    outcome = run_reactor(directory, address, over_asyncio=over_asyncio, **options)
    gc.collect()  # frees the buffers of connections, but for those of the event loop that the test still holds
    for name, (begun, ended) in lives().items():
        if name != "buffer" or not (over_asyncio or held):
            assert begun - earlier[name][0] == ended - earlier[name][1], name
    return outcome


def run_reactor(
    directory: Path,
    address: Any,
    *,
    gaps_ms: list[float],
    family: str = "inet",
    slots: int = 0,
    limit: int = 0,
    body: bytes = b'{"model":"m"}',
    timeout_s: float = 20.0,
    preconnect: int = 1,
    fresh: bool = False,
    over_asyncio: bool = False,
    streams: Callable[[LoopConnection], LoopConnection] = lambda stream: stream,
    tls: TlsContext | None = None,
    server_name: bytes = b"localhost",
    sources: list[tuple[str, str]] | None = None,
    settle_s: float = 0.0,
    cap: int = 0,
    before: Callable[[Reactor], None] | None = None,
    during: Callable[[Reactor], None] | None = None,
    stamps: bool = True,
    head: bytes = HEAD,
    max_event: int = 1 << 20,
    max_held: int = 1 << 40,
    patience_s: float = 60.0,
    endpoint: str = "openai-chat",
    class_heads: list[bytes] | None = None,
    client: np.ndarray | None = None,
    stop_ns: int = 0,
    http2: int = 0,
    websocket_accept: bytes | None = None,
    conversations: dict[str, Any] | None = None,
    identity: Identity | None = None,
    token_path: list[bytes] | None = None,
) -> Outcome:
    """Open loop with *gaps_ms* between releases, or a closed loop of *slots* for *limit* requests; both where
    *conversations* has `pools`.

    *class_heads*: of classes 1 and up, which the requests are dealt to in turn. *conversations*: a plan's arrays
    instead of *body*, with `numbers` and `talks`, or another `schedule`. *http2*: streams on a connection.
    *websocket_accept*: connections are upgraded. *stop_ns*: a closed loop sends nothing from this time after its start
    on. *identity*: names sessions; tokens are in X-Token.
    """
    shared = SharedWords.create()
    recorder = Recorder(directory)
    protocol = Protocol(
        recorder, Classifier(ENDPOINTS[endpoint].dialect), shared.words, max_event, 4 * max_event, max_held
    )
    reactor = Reactor(
        protocol,
        Pacer(),
        run_id=b"test",
        worker=0,
        workers=1,
        timeout_ns=int(timeout_s * 1e9),
        kernel_stamps=stamps,
        fresh_connections=fresh,
        sources=sources or [],
    )
    path_or_host, port = (address, 0) if family == "unix" else address[:2]
    if tls is not None:
        reactor.use_tls(tls)
    name = None if tls is None else server_name
    reactor.add_target(
        family, path_or_host, port, head, over_asyncio, server_name=name, http2_streams=http2,
        websocket_accept=websocket_accept,
    )  # fmt: skip
    for own in class_heads or ():
        reactor.add_class([own])
    if identity is not None:
        reactor.use_identity(identity)
        protocol.want(token=None if token_path else b"x-token", path=token_path)
    count = max(len(gaps_ms), limit, 1)
    schedule = np.concatenate([np.zeros(slots, np.int64), np.cumsum(np.array(gaps_ms) * 1e6).astype(np.int64)])
    plan: dict[str, Any] = {
        "body_offset": np.arange(count + 1, dtype=np.uint64) * len(body),
        "bodies": np.frombuffer(body * count, np.uint8),
        "schedule": schedule,
        **(conversations or {}),
    }
    count = len(plan["body_offset"]) - 1
    reactor.load(
        phase=1,
        phase_number=0,
        input_tokens=np.ones(count, np.int32),
        output_tokens=np.ones(count, np.int32),
        request_class=(np.arange(count) % (1 + len(class_heads or ()))).astype(np.uint16),
        closed=slots > 0,
        limit=limit,
        cap=cap,
        reserve=1,
        client=client,
        **plan,
    )
    loop = uvloop.new_event_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def connect(stream: LoopConnection) -> None:
        try:
            if family == "unix":
                await loop.create_unix_connection(lambda: stream, address)  # type: ignore[arg-type,return-value]
            else:
                await loop.create_connection(lambda: stream, *address[:2])  # type: ignore[arg-type,return-value]
        except OSError as error:
            stream.connect_failed(error.errno or 0)

    def connector(target: int, number: int, generation: int) -> LoopConnection:
        stream = streams(LoopConnection(reactor, number, generation))
        tasks.add(task := loop.create_task(connect(stream)))
        task.add_done_callback(tasks.discard)
        return stream

    reactor.set_connector(connector, loop.call_soon)

    async def run() -> None:
        loop.add_reader(reactor.fileno(), reactor.on_ready)
        reactor.preconnect(preconnect)
        while reactor.connecting:
            await asyncio.sleep(0.002)
        await asyncio.sleep(settle_s)
        if before is not None:
            before(reactor)
        reactor.start_at(time.monotonic_ns() + 5_000_000, stop_ns)
        give_up = time.monotonic() + patience_s
        while not reactor.finished:
            await asyncio.sleep(0.005)
            if reactor.failure is not None:
                raise reactor.failure
            reactor.tick()
            if during is not None:
                during(reactor)
            assert time.monotonic() < give_up, f"{reactor.in_flight} still in flight"
        reactor.rest()
        reactor.close_connections()
        await asyncio.sleep(0)
        loop.remove_reader(reactor.fileno())

    loop.run_until_complete(run())
    loop.close()
    recorder.close()
    assert shared.words[k.W_CONNECTIONS] == 0 and shared.words[k.W_IDLE] == 0
    return Outcome(np.load(directory / "requests.npy"), np.load(directory / "tokens.npy"), np.array(shared.words))
