"""A server that is well until the run has looked at it, and bad from then on."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator

EVENT = 'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}\n\n'
USAGE = 'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}\n\n'
GOOD = (EVENT + USAGE + "data: [DONE]\n\n").encode()
PAGE = b"<!doctype html><html><body><h1>Sign in</h1></body></html>"
STREAM, HTML, JSON = "text/event-stream", "text/html", "application/json"


class Turning(http.server.BaseHTTPRequestHandler):
    """*bad*: what every request after the first few gets: a status, "page" (200), or "silence"."""

    protocol_version = "HTTP/1.1"
    good: int
    bad: int | str
    over: threading.Event

    def do_GET(self) -> None:
        self.give(200, JSON, b'{"object":"list","data":[{"id":"one","object":"model"}]}')

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        kind = type(self)
        if kind.good > 0:
            kind.good -= 1
            self.give(200, STREAM, GOOD)
        elif self.bad == "silence":
            self.over.wait()
            self.close_connection = True
        elif self.bad == "page":
            self.give(200, HTML, PAGE)
        else:
            said = {
                "error": {
                    "message": f"no, {self.headers['Authorization']} with {body} is too much",
                    "type": "overloaded",
                }
            }
            self.give(int(self.bad), JSON, json.dumps(said).encode())

    def give(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """It keeps its peace: the run's own words are what is read."""


class Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up early is what these tests are about."""


@contextlib.contextmanager
def turning(bad: int | str, good: int = 1, kind: type[Quiet] = Quiet) -> Iterator[str]:
    """Yields the base URL of a server whose first *good* POSTs are answered well. *kind*: how it takes connections."""
    over = threading.Event()
    handler = type("Handler", (Turning,), {"bad": bad, "good": good, "over": over})
    server = kind(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()
