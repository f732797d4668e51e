"""One request over HTTP/2 with prior knowledge, on a blocking socket; its answer is read by what reads those of a run."""

from __future__ import annotations

import http.client
import socket
from typing import Any, NamedTuple

import hpack

from fastllmload._ext.http.block import request_block, sized
from fastllmload._ext.receive.http2 import StreamReader
from fastllmload.records.layout import ERROR_NAMES

READ = 1 << 16
LENGTH = b"\x0f\x0d"  # the name content-length, by its number in the static table


class NotSpoken(Exception):
    """The server answered the first frames of a client with something else."""


class NoHead(http.client.HTTPException):
    """The stream of a request ended without an answer."""


class Http2Answer(NamedTuple):
    status: int
    fields: http.client.HTTPMessage
    head: bytes  # as HTTP/1.1 would have it
    content: bytes
    cut: bool  # the connection or the stream ended within the body


def ask(connection: socket.socket, head: bytes, body: bytes | None, most: int) -> Http2Answer:
    """*head*: request line and fields, each ended by CRLF. At most *most* bytes of the answer's body are kept."""
    reader = StreamReader()
    connection.sendall(reader.out())
    steps = read(connection, reader)
    while not reader.settled:
        steps = read(connection, reader)
    length = b"" if body is None else LENGTH + sized(b"%d" % len(body))
    stream, unsent = reader.open(), body or b""
    unsent = unsent[reader.send(stream, request_block(head) + length, unsent) :]
    found: Http2Answer | None = None
    content, ended = bytearray(), ""
    while not ended and len(content) < most:
        connection.sendall(reader.out())
        if unsent:
            unsent = unsent[reader.send(stream, b"", unsent) :]
            if out := reader.out():
                connection.sendall(out)
                continue
        steps = read(connection, reader)
        for number, word, what in steps:
            if number == stream and word == "head":
                found = answer_of(what[0], reader.block)
            elif number == stream and word == "payload":
                content += what
            elif number == stream and word == "trailers" and found is not None:
                found.fields["grpc-status"], found.fields["grpc-message"] = status_fields(*what)
            elif word != "head":
                ended = "end" if word == "end" else ERROR_NAMES[what[0] if word == "failed" else what]
                break
    if found is None:
        raise NoHead(f"its stream of HTTP/2 ended without an answer ({ended})")
    return found._replace(content=bytes(content[:most]), cut=ended not in ("", "end"))


def read(connection: socket.socket, reader: StreamReader) -> list[tuple[int, str, Any]]:
    data = connection.recv(READ)
    steps = reader.feed(data) if data else reader.eof()
    if not reader.settled and any(word == "error" for _, word, _ in steps):
        begins = data[:60].decode("latin-1")
        raise NotSpoken(f"its answer begins with '{begins}'" if data else "it closes the connection")
    return steps


def status_fields(status: int, message: bytes) -> tuple[str, str]:
    """Values of fields. A status that was not said is empty."""
    return "" if status < 0 else str(status), " ".join(message.decode(errors="replace").split())


def answer_of(status: int, block: bytes) -> Http2Answer:
    decoder = hpack.Decoder()
    decoder.header_table_size = decoder.max_allowed_table_size = 0
    fields = http.client.HTTPMessage()
    lines = [b"HTTP/1.1 %d " % status]
    for name, value in decoder.decode(block, raw=True):
        if not name.startswith((b":", b"grpc-")):
            fields.add_header(name.decode("latin-1"), value.decode("latin-1"))
            lines.append(name + b": " + value)
    return Http2Answer(status, fields, b"\r\n".join(lines) + b"\r\n\r\n", b"", False)
