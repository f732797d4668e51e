"""A small HTTP/2 server on the library h2, for tests. It notes what a client does that the library refuses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from ext.reactor_drive import Secured, scripted
from openssl_side import UpdatingSide

from fastllmload._ext.tls.session import TlsContext

Settings = dict[int, int]


class Http2Peer:
    """One connection of a client. `requests()` yields the numbers of streams whose request is there whole."""

    def __init__(
        self,
        connection: socket.socket,
        settings: Settings,
        opens_windows: bool = True,
        tls: TlsContext | UpdatingSide | None = None,
    ) -> None:
        self.socket = connection if tls is None else Secured(connection, tls)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.opens_windows = opens_windows
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self.heads: dict[int, dict[str, str]] = {}
        self.bodies: dict[int, bytes] = {}
        self.open: set[int] = set()  # requests that are not answered yet, or not whole yet
        self.most_open = 0
        self.resets: dict[int, int] = {}  # stream -> code
        self.ended = threading.Event()  # all that the client sent has been read
        self.left: int | None = None  # code of the client's GOAWAY
        self.error: Exception | None = None
        self.h2.local_settings = h2.settings.Settings(client=False, initial_values=settings)
        self.h2.initiate_connection()
        self.flush()

    def flush(self) -> None:
        if data := self.h2.data_to_send():
            self.socket.sendall(data)

    def answer(self, stream: int, payload: bytes, content: str = "text/event-stream", status: int = 200) -> None:
        self.head(stream, status, content)
        self.data(stream, payload, end=True)

    def head(self, stream: int, status: int = 200, content: str = "text/event-stream") -> None:
        self.h2.send_headers(stream, [(":status", str(status)), ("content-type", content)])

    def data(self, stream: int, payload: bytes, end: bool = False) -> None:
        self.h2.send_data(stream, payload, end_stream=end)
        self.flush()
        if end:
            self.open.discard(stream)

    def reset(self, stream: int, code: int) -> None:
        self.h2.reset_stream(stream, code)
        self.open.discard(stream)
        self.flush()

    def requests(self) -> Iterator[int]:
        while data := self.socket.recv(1 << 16):
            try:
                events = self.h2.receive_data(data)
            except h2.exceptions.ProtocolError as error:
                self.error = error
                self.flush()
                return
            for event in events:
                if isinstance(event, h2.events.RequestReceived):
                    self.heads[event.stream_id] = dict(event.headers)  # type: ignore[arg-type]
                    self.bodies[event.stream_id] = b""
                    self.open.add(event.stream_id)
                    self.most_open = max(self.most_open, len(self.open))
                elif isinstance(event, h2.events.DataReceived):
                    self.bodies[event.stream_id] += event.data
                    if self.opens_windows:
                        self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamReset):
                    self.resets[event.stream_id] = int(event.error_code)
                    self.open.discard(event.stream_id)
                elif isinstance(event, h2.events.ConnectionTerminated):
                    self.left = int(event.error_code or 0)
            self.flush()
            yield from [event.stream_id for event in events if isinstance(event, h2.events.StreamEnded)]


Answer = Callable[[Http2Peer, int], None]


@contextmanager
def http2_server(
    answer: Answer, opens_windows: bool = True, tls: TlsContext | UpdatingSide | None = None, **settings: int
) -> Iterator[tuple[Any, list[Http2Peer]]]:
    """Yields its address and the peers. *answer* is called with each request; *settings*: names of h2's SettingCodes.

    Clients leave first; afterwards what they sent last has been read, and no client has broken the protocol.
    """
    codes = {h2.settings.SettingCodes[name.upper()]: value for name, value in settings.items()}
    peers: list[Http2Peer] = []

    def script(connection: socket.socket, number: int) -> None:
        peer = Http2Peer(connection, codes, opens_windows, tls)
        peers.append(peer)
        try:
            for stream in peer.requests():
                answer(peer, stream)
        finally:
            peer.ended.set()

    with scripted(script) as address:
        yield address, peers
        assert all(peer.ended.wait(60) for peer in peers)
    assert [peer.error for peer in peers if peer.error] == []
