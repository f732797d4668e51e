"""A plain blocking HTTP/2 client for tests, on the library h2, which refuses what breaks the protocol."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass, field
from typing import Any, Self

import h2.config
import h2.connection
import h2.events
import h2.settings
from sim_client import TIMEOUT_S, request

WIDE = 2**31 - 1


@dataclass
class Reply:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    pieces: int = 0  # DATA frames with content
    ended: bool = False
    reset: int | None = None  # the code of RST_STREAM

    @property
    def events(self) -> list[str]:
        return [line[6:] for line in self.body.decode().splitlines() if line.startswith("data: ")]

    @property
    def text(self) -> str:
        chunks = [json.loads(text) for text in self.events if text != "[DONE]"]
        choices = [choice for chunk in chunks for choice in chunk.get("choices", [])]
        return "".join(one["delta"].get("content") or "" for one in choices)


class Http2Client:
    """One connection. *window*: of each stream; it is opened again only by `open`, unless it is WIDE."""

    def __init__(self, port: int, window: int = WIDE) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.h2.increment_flow_control_window(WIDE - 65535)
        self.replies: dict[int, Reply] = {}
        self.goaway: tuple[int, int] | None = None  # last stream, code
        self.closed = False
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def flush(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def send(self, data: bytes, more: tuple[tuple[str, str], ...] = ()) -> int:
        """A request that is written as in HTTP/1.1, as far as the server's window lets it; the number of its stream."""
        head, _, body = data.partition(b"\r\n\r\n")
        line, *lines = head.decode().split("\r\n")
        method, path, _ = line.split(" ")
        fields = [(name.lower(), value) for name, value in (one.split(": ", 1) for one in lines)]
        host = [value for name, value in fields if name == "host"]
        pseudo = [(":method", method), (":path", path), (":scheme", "http"), (":authority", host[0])]
        stream = self.h2.get_next_available_stream_id()
        self.replies[stream] = Reply()
        fields = pseudo + [one for one in fields if one[0] != "host"] + list(more)
        self.h2.send_headers(stream, fields, end_stream=not body)
        while body:
            size = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(body))
            if size == 0:
                self.flush()
                self.read()
                continue
            self.h2.send_data(stream, body[:size], end_stream=size == len(body))
            body = body[size:]
        self.flush()
        return stream

    def ask(self, data: bytes) -> Reply:
        return self.wait(self.send(data))

    def chat(self, **fields: Any) -> Reply:
        return self.ask(request(**fields))

    def open(self, stream: int, more: int) -> None:
        self.h2.increment_flow_control_window(more, stream)
        self.flush()

    def wait(self, stream: int) -> Reply:
        """Until the reply has ended, was reset, or is left out."""
        reply = self.replies[stream]
        while not (reply.ended or reply.reset is not None or self.closed):
            if self.goaway is not None and stream > self.goaway[0]:
                break
            self.read()
        return reply

    def read(self) -> None:
        data = self.socket.recv(65536)
        self.closed = not data
        for event in self.h2.receive_data(data):
            self.take(event)
        self.flush()

    def take(self, event: h2.events.Event) -> None:
        reply = self.replies.get(getattr(event, "stream_id", 0) or 0, Reply())
        if isinstance(event, h2.events.ResponseReceived):
            reply.headers = dict(event.headers)  # type: ignore[arg-type]
            reply.status = int(reply.headers[":status"])
        elif isinstance(event, h2.events.DataReceived):
            reply.body += event.data
            reply.pieces += bool(event.data)
        elif isinstance(event, h2.events.StreamEnded):
            reply.ended = True
        elif isinstance(event, h2.events.StreamReset):
            reply.reset = int(event.error_code)
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.goaway = (int(event.last_stream_id or 0), int(event.error_code))
