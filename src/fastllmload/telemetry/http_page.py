"""GET one page again and again: one kept connection, a deadline for the whole exchange, a bound on what is read.

The peer may be anything: it may send for ever, a byte a second, garbage, or nothing. Every case ends as a
`SensorError` in our words within the deadline.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
import zlib
from dataclasses import dataclass, field

import httptools
import msgspec

from fastllmload.telemetry.sensors.sensor import SensorError

LARGEST_PAGE = 8 << 20
LARGEST_HEAD = 64 << 10
PIECE = 256 << 10
GZIP = 31  # zlib's wbits
FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6, "unix": socket.AF_UNIX}


class PageSpec(msgspec.Struct, frozen=True):
    """*head*: request line and headers, CRLF-ended each, secrets included. *origin*: the URL without credentials.

    *role* and *exporter*: what was recognised on the page (`servers.Engine`). *label*: what the user calls it. *selector*:
    of its series at a Prometheus server, whose API *head* then asks (POST).
    """

    origin: str
    family: str  # inet, inet6, unix
    address: str
    port: int
    head: str
    tls: bool = False
    server_name: str = ""
    insecure: bool = False
    cacert: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    role: str = "server"
    exporter: str | None = None
    label: str | None = None
    selector: str | None = None


@dataclass
class HttpAnswer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class HttpPage:
    """Not thread-safe: one page belongs to one thread."""

    def __init__(self, spec: PageSpec, timeout_s: float = 5.0) -> None:
        self.spec = spec
        self.timeout_s = timeout_s
        self.asked_ns = self.answered_ns = 0  # before the request was sent, and after the last byte of its answer
        self._connection: socket.socket | None = None
        self._context = tls_context(spec) if spec.tls else None

    def get(self, body: str | None = None) -> HttpAnswer:
        """The page, or the answer to *body*. SensorError when it is not there completely within the time-out."""
        deadline = time.monotonic() + self.timeout_s
        kept = self._connection is not None
        while True:
            try:
                return self._exchange(deadline, body)
            except (OSError, EOFError) as problem:
                self.close()
                if not kept or isinstance(problem, TimeoutError):
                    raise SensorError(reason(problem, self.timeout_s)) from None
                kept = False  # the server may have closed the kept connection: once more, on a new one
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _exchange(self, deadline: float, body: str | None) -> HttpAnswer:
        connection = self._connection or self._connect(deadline)
        self._connection = connection
        connection.settimeout(left(deadline))
        content = b"" if body is None else body.encode()
        length = "" if body is None else f"Content-Length: {len(content)}\r\n"
        self.asked_ns = time.monotonic_ns()
        connection.sendall(f"{self.spec.head}{length}\r\n".encode("latin-1") + content)
        response = Response()
        while not response.complete:
            connection.settimeout(left(deadline))
            data = connection.recv(PIECE)
            if not data:
                response.end_of_stream()
                break
            response.feed(data)
        self.answered_ns = time.monotonic_ns()
        if not response.keep_alive:
            self.close()
        return response.answer

    def _connect(self, deadline: float) -> socket.socket:
        spec = self.spec
        connection = socket.socket(FAMILIES[spec.family], socket.SOCK_STREAM)
        try:
            connection.settimeout(left(deadline))
            connection.connect(spec.address if spec.family == "unix" else (spec.address, spec.port))
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_hostname=spec.server_name)
        except BaseException:
            connection.close()
            raise
        return connection


class Response:
    """One response as it comes in, bounded; the callbacks are httptools'."""

    def __init__(self) -> None:
        self.answer = HttpAnswer()
        self.complete = False
        self.keep_alive = False
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._size = 0
        self._head_size = 0
        self._has_length = False

    def feed(self, data: bytes) -> None:
        if not self._pieces:
            self._head_size += len(data)
            if self._head_size > LARGEST_HEAD + PIECE:
                raise SensorError("the answer's head does not end")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as problem:
            raise problem.__context__ if isinstance(problem.__context__, SensorError) else problem from None
        except httptools.HttpParserError:
            if not self.complete:  # bytes after the end are the next exchange's trouble, and there is none
                raise SensorError("the answer is not HTTP") from None
            self.keep_alive = False

    def end_of_stream(self) -> None:
        """Without a length the end of the connection is the end of the page."""
        if self._head_size == 0:
            raise EOFError
        if self._has_length or self.answer.status == 0:
            raise SensorError("the answer ended in the middle")
        self.on_message_complete()
        self.keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.decode("latin-1").lower()
        self.answer.headers[key] = value.decode("latin-1")
        self._has_length = self._has_length or key in ("content-length", "transfer-encoding")

    def on_headers_complete(self) -> None:
        self.answer.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > LARGEST_PAGE:
            raise too_large()
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        self.complete = True
        with contextlib.suppress(httptools.HttpParserError):
            self.keep_alive = self._parser.should_keep_alive()
        self.answer.body = b"".join(self._pieces)
        if self.answer.headers.get("content-encoding", "").strip().lower() in ("gzip", "x-gzip"):
            self.answer.body = expanded(self.answer.body)
            del self.answer.headers["content-encoding"]


def expanded(content: bytes) -> bytes:
    """What a server compressed with gzip although identity was asked for. SensorError."""
    expander = zlib.decompressobj(wbits=GZIP)
    try:
        page = expander.decompress(content, LARGEST_PAGE + 1)
    except zlib.error:
        raise SensorError("the page is not the gzip that its head says") from None
    if len(page) > LARGEST_PAGE:
        raise too_large()
    if not expander.eof:
        raise SensorError("the answer ended in the middle")
    return page


def too_large() -> SensorError:
    return SensorError(f"the page is larger than {LARGEST_PAGE >> 20} MB")


def left(deadline: float) -> float:
    """Seconds to *deadline*; TimeoutError when it is over."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def reason(problem: BaseException, timeout_s: float) -> str:
    if isinstance(problem, TimeoutError):
        return f"no whole answer within {timeout_s:g} s"
    if isinstance(problem, EOFError):
        return "the connection was closed without an answer"
    if isinstance(problem, ssl.SSLError):
        return f"TLS failed: {problem.reason or 'unknown'}"
    return (problem.strerror or type(problem).__name__).lower() if isinstance(problem, OSError) else str(problem)


def tls_context(spec: PageSpec) -> ssl.SSLContext:
    """As for the target; the files were read once before the run, so one that is gone now raises OSError."""
    context = ssl.create_default_context(cafile=spec.cacert)
    if spec.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if spec.client_cert is not None:
        context.load_cert_chain(spec.client_cert, spec.client_key)
    return context
