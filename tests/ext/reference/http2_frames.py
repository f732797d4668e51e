"""Frames of HTTP/2 as a server writes them, for tests."""

from __future__ import annotations

import struct

import hpack

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITIZED = 1, 1, 4, 8, 32
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"", length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    return struct.pack(">I", size)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(SETTINGS, payload=b"".join(struct.pack(">HI", *pair) for pair in pairs))


def block(status: int = 200, content: str = "text/event-stream", *more: tuple[str, str]) -> bytes:
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    return encoder.encode([(":status", str(status)), ("content-type", content), *more])[
        1:
    ]  # without the size of the table


def head(stream: int, *said: object, flags: int = 0) -> bytes:
    return frame(HEADERS, END_HEADERS | flags, stream, block(*said))  # type: ignore[arg-type]


def data(stream: int, payload: bytes, end: bool = False, padding: int | None = None) -> bytes:
    flags = END_STREAM if end else 0
    if padding is None:
        return frame(DATA, flags, stream, payload)
    return frame(DATA, flags | PADDED, stream, bytes([padding]) + payload + b"\0" * padding)


def code(kind: int, stream: int, value: int) -> bytes:
    return frame(kind, 0, stream, struct.pack(">I", value))


def goaway(last: int, value: int, words: bytes = b"") -> bytes:
    return frame(GOAWAY, payload=struct.pack(">II", last, value) + words)


def frames_of(sent: bytes) -> list[tuple[int, int, int, bytes]]:
    """(type, flags, stream, payload) of whole frames, after a preface if there is one."""
    found = []
    sent = sent.removeprefix(PREFACE)
    while sent:
        size = int.from_bytes(sent[:3], "big")
        assert len(sent) >= 9 + size, "half a frame"
        found.append((sent[3], sent[4], int.from_bytes(sent[5:9], "big"), sent[9 : 9 + size]))
        sent = sent[9 + size :]
    return found
