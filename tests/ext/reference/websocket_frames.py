"""WebSocket frames (RFC 6455 5.2): a server's, made for tests, and a reader that knows nothing of the compiled one."""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterator

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
FINAL = 0x80


def frame(payload: bytes, opcode: int = TEXT, first: int = FINAL, key: bytes | None = None) -> bytes:
    """*first*: the bits of the first byte besides *opcode*. *key*: masks the payload."""
    size, masked = len(payload), 0 if key is None else 0x80
    head = bytes((first | opcode, masked | (size if size < 126 else 126 if size < 65536 else 127)))
    head += b"" if size < 126 else struct.pack(">H" if size < 65536 else ">Q", size)
    if key is not None:
        head, payload = head + key, bytes(byte ^ key[i % 4] for i, byte in enumerate(payload))
    return head + payload


def close(code: int | None = None, text: bytes = b"") -> bytes:
    return frame(b"" if code is None else struct.pack(">H", code) + text, CLOSE)


def frames(data: bytes) -> Iterator[tuple[int, bool, bytes]]:
    """(first byte, masked, payload) of each whole frame in *data*."""
    at = 0
    while at + 2 <= len(data):
        masked, size = data[at + 1] >> 7, data[at + 1] & 127
        wide = {126: 2, 127: 8}.get(size, 0)
        start = at + 2 + wide + 4 * masked
        if start > len(data):
            return
        if wide:
            size = int.from_bytes(data[at + 2 : at + 2 + wide], "big")
        if start + size > len(data):
            return
        key = data[start - 4 : start] if masked else b"\0\0\0\0"
        payload = data[start : start + size]
        yield (
            data[at],
            bool(masked),
            bytes(byte ^ key[i % 4] for i, byte in enumerate(payload)) if any(key) else payload,
        )
        at = start + size


def read(data: bytes) -> tuple[list[bytes], list[bytes], str | int | None]:
    """What a client makes of a server's bytes: messages, payloads of pings, and the close code or `bad` that ends it."""
    messages: list[bytes] = []
    pings: list[bytes] = []
    begun: bytes | None = None
    for first, masked, payload in frames(data):
        opcode = first & 15
        if first & 0x70 or masked or (opcode >= 8 and (opcode > 10 or not first & FINAL or len(payload) > 125)):
            return messages, pings, "bad"
        if opcode == PING:
            pings.append(payload)
        elif opcode == CLOSE:
            return messages, pings, "bad" if len(payload) == 1 else int.from_bytes(payload[:2], "big") or 1005
        elif opcode < 8:
            if opcode > 2 or (opcode == 0) != (begun is not None):
                return messages, pings, "bad"
            begun = (begun or b"") + payload
            if first & FINAL:
                messages.append(begun)
                begun = None
    return messages, pings, None


def accepted(head: bytes) -> bytes:
    """The answer to the upgrade that *head* asks for."""
    key = next(
        line.partition(b":")[2].strip() for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key")
    )
    value = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %b\r\n\r\n"
        % value
    )
