"""A peer for metrics pages: each connection it accepts is handed to *behave*, which may do anything to it."""

import contextlib
import socket
import threading

from fastllmload.telemetry.http_page import PageSpec


class Peer:
    def __init__(self, behave):
        self.behave = behave
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.serve)

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection, contextlib.suppress(OSError):
                connection.settimeout(5)
                self.behave(connection)

    @property
    def spec(self):
        port = self.listener.getsockname()[1]
        head = f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        return PageSpec(f"http://127.0.0.1:{port}/metrics", "inet", "127.0.0.1", port, head)


@contextlib.contextmanager
def peer(behave):
    one = Peer(behave)
    one.thread.start()
    try:
        yield one
    finally:
        one.listener.shutdown(socket.SHUT_RDWR)
        one.listener.close()
        one.thread.join()


def request(connection):
    """The bytes of one request; b"" when the client has gone."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return b""
        data += piece
    return data


def answering(answer):
    """Sends *answer* whole to each request of a connection."""

    def behave(connection):
        while request(connection):
            connection.sendall(answer)

    return behave


def response(body, status="200 OK", *headers):
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body
