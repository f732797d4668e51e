"""Between a run and a server: hands requests on and answers back, and keeps the bytes of both by X-Fastllmload-Request."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Recorded:
    """*url* of the relay; *said*: request body and answer's body by the last two numbers of X-Fastllmload-Request."""

    url: str = ""
    said: dict[tuple[int, int], tuple[bytes, bytes]] = field(default_factory=dict)
    paths: dict[tuple[int, int], str] = field(default_factory=dict)


class Relay(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    recorded: Recorded
    target: str
    change: tuple[bytes, bytes]

    def do_GET(self) -> None:
        self.hand_on(b"")

    def do_POST(self) -> None:
        self.hand_on(self.rfile.read(int(self.headers["Content-Length"])))

    def hand_on(self, body: bytes) -> None:
        behind = http.client.HTTPConnection(self.target, timeout=60)
        kept = {name: text for name, text in self.headers.items() if name.lower() not in ("host", "connection")}
        sent = body.replace(*self.change)
        behind.request(self.command, self.path, sent, kept | {"Content-Length": str(len(sent))} if body else kept)
        answer = behind.getresponse()
        said = answer.read()
        behind.close()
        number = self.headers.get("X-Fastllmload-Request", "").rsplit("-", 2)[1:]
        if len(number) == 2 and all(part.isdigit() for part in number):
            self.recorded.said[int(number[0]), int(number[1])] = (body, said)
            self.recorded.paths[int(number[0]), int(number[1])] = self.path
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers["Content-Type"])
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        """What matters is kept in *recorded*."""


class Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextlib.contextmanager
def relayed(target: str, change: tuple[bytes, bytes] = (b"\0", b"")) -> Iterator[Recorded]:
    """A relay in front of the server at URL *target*, which gets the bodies of requests with this *change*."""
    recorded = Recorded()
    handler = type("Handler", (Relay,), {"recorded": recorded, "target": urlsplit(target).netloc, "change": change})
    server = Quiet(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    recorded.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield recorded
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
