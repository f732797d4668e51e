"""A plain blocking HTTP/1.1 client for tests: bytes out, bytes in, each read stamped. Shares no code with the
package.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any, Self

TIMEOUT_S = 20.0
DATA_SEGS_IN = 152  # where struct tcp_info has it


@dataclass
class Response:
    status: int
    headers: dict[str, str]
    body: bytes = b""
    raw: bytes = b""
    reads: list[tuple[int, bytes]] = field(default_factory=list)  # (CLOCK_MONOTONIC ns after the read, bytes)

    @property
    def events(self) -> list[str]:
        """Payloads of `data:` lines, whatever the line ends."""
        lines = re.split(r"\r\n|\r|\n", self.body.decode())
        return [line[6:] for line in lines if line.startswith("data: ")]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self.events if text != "[DONE]"]

    @property
    def text(self) -> str:
        choices = [choice for chunk in self.chunks for choice in chunk.get("choices", [])]
        return "".join(one.get("text") or one.get("delta", {}).get("content") or "" for one in choices)

    @property
    def usage(self) -> dict[str, Any]:
        (found,) = [chunk["usage"] for chunk in self.chunks if "usage" in chunk]
        return found


def request(
    body: dict[str, Any] | None = None,
    path: str = "/v1/chat/completions",
    headers: tuple[str, ...] = (),
    **fields: Any,
) -> bytes:
    """One POST. *fields* are added to a small streamed chat request unless *body* is given."""
    if body is None:
        prompt = (
            {"prompt": [1, 2, 3]} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "hi"}]}
        )
        body = {
            "model": "simulated",
            "stream": True,
            "max_tokens": 4,
            "stream_options": {"include_usage": True},
        }
        body |= prompt | fields
    payload = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: simulator", f"Content-Length: {len(payload)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + payload


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: simulator", *headers, "", ""]).encode()


class Client:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.reads: list[tuple[int, bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> bytes:
        """The next bytes; b"" at the end of the stream."""
        data = self.socket.recv(1 << 16)
        self.reads.append((time.monotonic_ns(), data))
        self.buffer += data
        return data

    def until(self, mark: bytes) -> bytes:
        """Everything up to and with *mark*; EOFError when the stream ends before."""
        while mark not in self.buffer:
            if not self.read():
                raise EOFError(f"the connection ended before {mark!r}: {self.buffer[-200:]!r}")
        at = self.buffer.index(mark) + len(mark)
        found, self.buffer = self.buffer[:at], self.buffer[at:]
        return found

    def segments(self) -> int:
        """Segments with data that the kernel has received here, however late they were read (`tcpi_data_segs_in`)."""
        info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, DATA_SEGS_IN + 4)
        return int(struct.unpack_from("I", info, DATA_SEGS_IN)[0])

    def exactly(self, size: int) -> bytes:
        while len(self.buffer) < size:
            if not self.read():
                raise EOFError(f"the connection ended {size - len(self.buffer)} bytes too early")
        found, self.buffer = self.buffer[:size], self.buffer[size:]
        return found

    def rest(self) -> bytes:
        """Everything until the peer closes."""
        while self.read():
            pass
        found, self.buffer = self.buffer, b""
        return found

    def ask(self, data: bytes) -> Response:
        self.send(data)
        return self.response()

    def response(self) -> Response:
        self.reads = []
        head = self.until(b"\r\n\r\n")
        first, *lines = head[:-4].decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        found = Response(int(first.split(" ")[1]), headers, raw=head)
        if headers.get("transfer-encoding") == "chunked":
            pieces = []
            while size := int(self.until(b"\r\n"), 16):
                pieces.append(self.exactly(size + 2)[:-2])
            found.body = b"".join(pieces)
            assert self.until(b"\r\n") == b"\r\n"
        elif "content-length" in headers:
            found.body = self.exactly(int(headers["content-length"]))
        else:
            found.body = self.rest()
        found.reads = self.reads
        return found


def ask(port: int, data: bytes) -> Response:
    with Client(port) as client:
        return client.ask(data)
