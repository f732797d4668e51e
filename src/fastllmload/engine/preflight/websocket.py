"""One request over WebSocket on a blocking socket, after its upgrade; its answer is read by what reads those of a run."""

from __future__ import annotations

import http.client
import io
import socket

from fastllmload._ext.events.delta import Classifier
from fastllmload._ext.receive.messages import text_frame
from fastllmload._ext.receive.websocket import MessageReader
from fastllmload.endpoint.endpoint import Endpoint
from fastllmload.records.layout import ERROR_NAMES, EVENT_NAMES

LINES = "application/x-ndjson"  # a message a line
HEAD = f"HTTP/1.1 200 OK\r\nContent-Type: {LINES}\r\n\r\n".encode()  # as HTTP would have it
LAST = (EVENT_NAMES.index("error"), EVENT_NAMES.index("done"))


def ask(
    connection: socket.socket, receive: io.BufferedReader, endpoint: Endpoint, body: bytes, most: int
) -> tuple[bytes, bool]:
    """(messages of the answer, one a line; whether the connection ended within it)."""
    reader, classifier, messages = MessageReader(most), Classifier(endpoint.dialect), bytearray()
    connection.sendall(text_frame(body))
    while len(messages) < most:
        data = receive.read1(most)
        for message in reader.feed(data):
            messages += b" ".join(message.splitlines()) + b"\n"
            meaning = classifier.classify_bytes(message)
            if meaning["finish"] or meaning["kind"] in LAST:
                reader.close()
                connection.sendall(reader.out())
                return bytes(messages), False
        if out := reader.out():
            connection.sendall(out)
        if reader.error:
            closed = f"the server closed it with code {reader.code}" if reader.code else ERROR_NAMES[reader.error]
            raise http.client.HTTPException(f"its WebSocket ended: {closed}")
        if not data:
            break
    return bytes(messages), True
