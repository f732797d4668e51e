"""Blocking connections to a server before the clock starts: one request at a time, one clear sentence per failure."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator

from fastllmload.endpoint import ENDPOINTS, resolve_endpoint
from fastllmload.engine.preflight import http2, websocket
from fastllmload.engine.preflight.addresses import BaseUrl, addresses, request_head
from fastllmload.engine.preflight.tls import describe, no_protocol, tls_advice, tls_context, trust_advice
from fastllmload.engine.upgrade import accept_of, new_key, upgrade_fields
from fastllmload.engine.workers.affinity import reachable_from
from fastllmload.errors import TargetError
from fastllmload.host.limits import port_capacity
from fastllmload.records.error_texts import printable
from fastllmload.report.terminal.outlet import Redact
from fastllmload.settings import RunSettings

ReportProgress = Callable[[str], None]

REPORT_AFTER_S = 3.0
LIST_S = 10.0  # a list of models needs no model
ANSWER_S = 30.0  # the first answer may load one


def no_report(_: str) -> None:
    """Report nothing."""


@contextlib.contextmanager
def reporting_wait(report_progress: ReportProgress, what: str, limit_s: float) -> Iterator[None]:
    """Call *report_progress* with one line, in another thread, when the block takes longer than 3 s of its *limit_s*."""
    line = f"waiting for {what}, at most {limit_s:g} s (--preflight-timeout)"
    timer = threading.Timer(REPORT_AFTER_S, report_progress, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


CONNECT_TIMEOUT_S = 5.0
LARGEST_ANSWER = 4 << 20
CUT = "the connection ended within the body"
MOST_INTERIM = 100  # responses before the final one
RTT_CONNECTS, RTT_LEAST = 20, 5  # connects for the round trip before a run, and after it
PORTS_EACH = 50  # at most one such connect per this many local ports: a run needs them where they are few
RTT_PAUSE_S = 0.005  # for a server with a short backlog of connections to accept
RTT_S = 1.0  # after this time, a distant target gets no more than RTT_LEAST connects


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # with empty SETTINGS
FRAME_HEAD, SETTINGS, GOAWAY = 9, 4, 7  # RFC 9113, 4.1 and 6
LEAVE_OUT = "leave --http-version 1.1 out, or give a port that takes HTTP/1.1"
H2, HTTP1 = "h2", "http/1.1"
ONLY_H2 = "it speaks HTTP/2 {0}, and HTTP/1.1 is spoken here; {1}"


class NoAnswer(TargetError):
    """A server accepted a connection and did not answer in time. It is not asked again, which would double the wait."""


class ServerConnection:
    def __init__(
        self,
        settings: RunSettings,
        base: BaseUrl,
        key: str | None,
        redact: Redact,
        report_progress: ReportProgress = no_report,
    ) -> None:
        self.settings = settings
        self.base = base
        self.endpoint = resolve_endpoint(settings.target.endpoint_type)
        self.key = key
        self.redact = redact
        self.report_progress = report_progress
        target = settings.target
        self.asked_s = target.preflight_timeout
        self.path = target.endpoint_path or self.endpoint.path(base.path, settings.workload.streaming)
        self.headers = (*self.endpoint.own_headers(key), *target.headers)
        request_head(base, self.path, self.headers, key)  # invalid headers raise before anything is sent
        self.address: tuple[str, str, int] | None = None
        self.asked_body = b""  # of the latest request of a probe
        self.answered = False  # with a valid HTTP response
        self.fields = http.client.HTTPMessage()  # of the latest answer's head
        self.head = b""  # the same as received
        self.cut = False  # the connection ended within the latest answer's body
        self.protocol = H2 if settings.client.http_version == "2" else HTTP1  # ALPN's name of what is spoken
        self.context = tls_context(target, self.protocol) if base.tls else None

    def reach(self, connect_ms: list[float], connects: int = RTT_CONNECTS) -> tuple[str, str, int]:
        """The first address that accepts a connection (with TLS, one with a trusted certificate), tried *connects* times."""
        with reporting_wait(
            self.report_progress, f"{self.base.public_url} to take a connection", self._patience_s(CONNECT_TIMEOUT_S)
        ):
            return self._reach(connect_ms, connects)

    def _reach(self, connect_ms: list[float], connects: int) -> tuple[str, str, int]:
        failures: list[str] = []
        sources = self.settings.target.source_addresses
        for address in reachable_from(addresses(self.base), sources, self.base.public_url):
            try:
                started = time.perf_counter()
                connection = self._connect(address)
                connect_ms.append((time.perf_counter() - started) * 1e3)
                connection.close()
            except OSError as problem:
                failures.append(f"{address[1]} ({reason(problem)})")
                continue
            self.address = address
            if self.context is not None:
                self._secure(self._connection()).close()
            self.round_trips(connect_ms, connects - 1)
            return address
        raise TargetError(
            "target-unreachable",
            f"{self.base.public_url} cannot be reached at {', '.join(failures)}; is the server up and --url right?",
        )

    def round_trips(self, connect_ms: list[float], most: int = RTT_CONNECTS) -> None:
        """Measure *most* more connects in ms; fewer when they take long. TargetError when one is refused."""
        begun = time.perf_counter()
        spare = port_capacity(len(self.settings.target.source_addresses)) // PORTS_EACH  # each waits in TIME_WAIT
        for number in range(min(most, max(RTT_LEAST - 1, spare))):
            started = time.perf_counter()
            if number >= RTT_LEAST and started - begun > RTT_S:
                return
            self._connection().close()
            connect_ms.append((time.perf_counter() - started) * 1e3)
            time.sleep(RTT_PAUSE_S)

    def _patience_s(self, usual_s: float) -> float:
        return min(usual_s, self.settings.load.timeout) if self.asked_s is None else self.asked_s

    def _connection(self) -> socket.socket:
        """A new connection to the address that accepted the first."""
        assert self.address is not None
        try:
            return self._connect(self.address)
        except OSError as problem:
            raise TargetError(
                "target-unreachable", f"{self.base.public_url} no longer accepts connections: {reason(problem)}"
            ) from None

    def _connect(self, address: tuple[str, str, int]) -> socket.socket:
        family, numeric, port = address
        kinds = {"inet": socket.AF_INET, "inet6": socket.AF_INET6, "unix": socket.AF_UNIX}
        connection = socket.socket(kinds[family], socket.SOCK_STREAM)
        connection.settimeout(min(CONNECT_TIMEOUT_S, self._patience_s(CONNECT_TIMEOUT_S)))
        try:
            if family != "unix" and self.settings.target.source_addresses:
                connection.bind((self.settings.target.source_addresses[0], 0))
            connection.connect(numeric if family == "unix" else (numeric, port))
        except OSError:
            connection.close()
            raise
        return connection

    def _secure(self, connection: socket.socket) -> socket.socket:
        assert self.context is not None
        try:
            secured = self.context.wrap_socket(
                connection, server_hostname=self.settings.target.server_name or self.base.host
            )
        except ssl.SSLCertVerificationError as problem:
            connection.close()
            raise TargetError(
                "tls-certificate-untrusted",
                f"the certificate of {self.base.public_url} is not trusted: {problem.verify_message.rstrip('.')}; "
                f"{trust_advice(problem.verify_code)}, or --insecure to disable verification",
            ) from None
        except (ssl.SSLError, OSError) as problem:
            connection.close()
            if no_protocol(problem):
                if self._turns_to_http2():
                    return self._secure(self._connection())
                raise self._not_agreed() from None
            advice = tls_advice(problem, self.settings.target) or "is the server running properly?"
            raise TargetError(
                "tls-failed", f"TLS with {self.base.public_url} failed: {reason(problem)}; {advice}"
            ) from None
        if self.protocol == H2 and secured.selected_alpn_protocol() != H2:
            secured.close()
            raise self._not_agreed()
        return secured

    def _without_http2(self, otherwise: str = "") -> str:
        if self.endpoint.call is not None:
            return f"{self.endpoint.name} needs it: give its port for gRPC, or an --endpoint-type over HTTP"
        return "leave --http-version out" + (otherwise and f", {otherwise}")

    def _not_agreed(self) -> TargetError:
        if self.protocol == H2:
            code, asked, advice = "http2-not-spoken", "HTTP/2", self._without_http2()
        else:
            code, asked, advice = "http2-only", "HTTP/1.1", LEAVE_OUT
        return TargetError(
            code, f"{self.base.public_url} does not agree to {asked} in the TLS handshake (ALPN); {advice}"
        )

    def exchange(
        self, method: str, path: str, body: bytes | None, most_s: float | None = None
    ) -> tuple[int, str, bytes]:
        """(status, content type, body) of one request on a new connection, within *most_s*."""
        patience_s = self._patience_s(LIST_S if body is None else ANSWER_S) if most_s is None else most_s
        with reporting_wait(self.report_progress, f"{self.base.public_url} to answer {method} {path}", patience_s):
            return self._asked(method, path, body, patience_s)

    def _asked(self, method: str, path: str, body: bytes | None, patience_s: float) -> tuple[int, str, bytes]:
        connection = self._connection()
        if self.context is not None:
            connection = self._secure(connection)
        connection.settimeout(patience_s)
        end = Deadline(connection, patience_s)
        head = request_head(self.base, path, self.headers, self.key, method=method)
        length = "" if body is None else f"Content-Length: {len(body)}\r\n"
        try:
            end.start()
            if self.protocol == H2:
                return self._over_http2(connection, head, body, end)
            if body is not None and self.endpoint.websocket:
                return self._over_websocket(connection, path, body, end)
            connection.sendall((head + length + "Connection: close\r\n\r\n").encode("latin-1") + (body or b""))
            response, self.head = final_response(connection, method)
            with contextlib.closing(response):
                content = self._content(response, body is not None)
                self.answered = True
                self.fields = response.headers
                if end.passed:  # of a body that ends with the connection
                    raise TimeoutError
                return response.status, response.headers.get("Content-Type", ""), content
        except (OSError, http.client.HTTPException, ValueError) as problem:
            if end.passed or isinstance(problem, TimeoutError):
                raise NoAnswer(
                    "answer-timeout",
                    f"{self.base.public_url} accepted a connection but did not answer {method} {path} within {patience_s:g} "
                    "s; is it running properly? --preflight-timeout allows more time",
                ) from None
            if self._only_h2(problem):
                if self._turns_to_http2():
                    return self._asked(method, path, body, patience_s)
                spoken = ONLY_H2.format(
                    "without TLS (h2c)" if self.context is None else "only",
                    LEAVE_OUT,
                )
                raise TargetError(
                    "http2-only", f"{self.base.public_url} did not answer {method} {path} properly: {spoken}"
                ) from None
            why = reason(problem, self.redact) + self._advice(problem)
            raise TargetError(
                "answer-broken", f"{self.base.public_url} did not answer {method} {path} properly: {why}"
            ) from None
        finally:
            end.cancel()
            connection.close()

    def _over_http2(
        self, connection: socket.socket, head: str, body: bytes | None, end: Deadline
    ) -> tuple[int, str, bytes]:
        try:
            answer = http2.ask(connection, head.encode("latin-1"), body, LARGEST_ANSWER)
        except http2.NotSpoken as problem:
            raise TargetError(
                "http2-not-spoken",
                f"{self.base.public_url} does not speak HTTP/2{'' if self.base.tls else ' without TLS'}: "
                f"{one_line(self.redact(str(problem)))}; {self._without_http2('or give the port where it does')}",
            ) from None
        if end.passed:
            raise TimeoutError
        self.answered = True
        self.fields, self.head, self.cut = answer.fields, answer.head, answer.cut
        return answer.status, answer.fields.get("Content-Type", ""), answer.content

    def _over_websocket(
        self, connection: socket.socket, path: str, body: bytes, end: Deadline
    ) -> tuple[int, str, bytes]:
        key = new_key()
        head = request_head(self.base, path, self.headers, self.key, method=self.endpoint.method)
        connection.sendall((head + upgrade_fields(key) + "\r\n").encode("latin-1"))
        response, self.head = final_response(connection, self.endpoint.method)
        with contextlib.closing(response.fp):
            self.answered, self.fields = True, response.headers
            status = response.status
            if status >= 300:
                return status, response.headers.get("Content-Type", ""), self._content(response, True)
            if status != 101 or self.fields.get("Sec-WebSocket-Accept", "") != accept_of(key):
                raise TargetError(
                    "websocket-not-spoken",
                    f"{self.base.public_url} does not upgrade GET {path} to WebSocket but answers {status}"
                    f"{', with the answer to another key' if status == 101 else ''}; is --endpoint-type right?",
                )
            content, self.cut = websocket.ask(connection, response.fp, self.endpoint, body, LARGEST_ANSWER)
        self.head, self.fields = websocket.HEAD, http.client.HTTPMessage()
        if end.passed:
            raise TimeoutError
        return 200, websocket.LINES, content

    def _content(self, response: http.client.HTTPResponse, partly: bool) -> bytes:
        """The body. If the connection ended within it, by FIN or RST: the part received if *partly*, else the exception."""
        length, content = response.length, bytearray()
        most = LARGEST_ANSWER if length is None else min(length, LARGEST_ANSWER)
        try:
            while len(content) < most and (more := response.read1(most - len(content))):
                content += more
        except (http.client.IncompleteRead, ConnectionError):
            if not partly:
                raise
            self.cut = True
        else:
            self.cut = length is not None and len(content) < most
        return bytes(content)

    def header(self, field: str) -> str:
        """A header field of the latest answer, for a message; empty without it."""
        return one_line(self.redact(str(self.fields.get(field, ""))))

    def _turns_to_http2(self) -> bool:
        """Speak HTTP/2 from now on, as the server speaks nothing else. False: --http-version says what to speak."""
        if self.protocol == H2 or self.settings.client.http_version != "auto":
            return False
        self.protocol = H2
        if self.context is not None:
            self.context.set_alpn_protocols([H2])
        return True

    def _only_h2(self, problem: BaseException) -> bool:
        """Whether a server that answered HTTP/1.1 with frames, or not at all, accepts the HTTP/2 preface."""
        if self.answered:
            return False
        if isinstance(problem, http.client.BadStatusLine) and not isinstance(problem, ConnectionError):
            return begins_with_frame(str(problem).encode("latin-1", "replace"))
        if not isinstance(problem, ConnectionError) or self.context is not None:
            return False
        try:
            with self._connection() as connection:
                connection.sendall(PREFACE)
                return begins_with_frame(connection.recv(FRAME_HEAD, socket.MSG_WAITALL))
        except (OSError, TargetError):
            return False

    def _advice(self, problem: BaseException) -> str:
        """What to check when a server accepted a connection and did not answer, or not in HTTP."""
        if self.answered:
            return ""
        if isinstance(problem, http2.NoHead) and self.endpoint.call is None:
            types = " or ".join(one.name for one in ENDPOINTS.values() if one.call is not None)
            return f"; does it speak gRPC only? give --endpoint-type {types}"
        if self.context is not None:
            advice = tls_advice(problem, self.settings.target)
            return "" if advice is None else f"; {advice}"
        no_http = isinstance(problem, (ConnectionError, http.client.BadStatusLine))
        return "; does this port speak http, or rather https?" if no_http else ""


class OpenConnection:
    """One buffered reader of a socket for several response heads. *head*: the lines of the latest one."""

    def __init__(self, connection: socket.socket) -> None:
        self.reader = connection.makefile("rb")
        self.head = b""

    def makefile(self, *_: object) -> OpenConnection:
        self.head = b""
        return self

    def readline(self, size: int = -1) -> bytes:
        line = self.reader.readline(size)
        self.head += line
        return line

    def close(self) -> None:
        self.reader.close()


def final_response(connection: socket.socket, method: str) -> tuple[http.client.HTTPResponse, bytes]:
    """The final response (RFC 9110, 15.2), and its head as received, after those of 100 responses."""
    opened = OpenConnection(connection)
    with contextlib.ExitStack() as failed:
        failed.callback(opened.reader.close)
        for _ in range(MOST_INTERIM + 1):
            response = http.client.HTTPResponse(opened, method=method)  # type: ignore[arg-type]
            response.begin()
            if not 102 <= response.status <= 199:
                failed.pop_all()
                response.fp = opened.reader
                return response, opened.head
            response.fp = None  # type: ignore[assignment]  # the reader outlives it
    raise http.client.HTTPException(f"more than {MOST_INTERIM} interim responses and no final one")


def begins_with_frame(data: bytes) -> bool:
    """Whether *data* begins with an HTTP/2 SETTINGS frame (sent first by a server) or GOAWAY frame."""
    return len(data) >= 4 and data[:2] == b"\0\0" and data[3] in (SETTINGS, GOAWAY)


def reason(problem: BaseException, redact: Redact = str) -> str:
    if isinstance(problem, TimeoutError):
        return "it timed out"
    if isinstance(problem, http.client.IncompleteRead):
        return CUT
    if isinstance(problem, http.client.BadStatusLine) and not isinstance(problem, ConnectionError):
        return f"its answer does not begin with an HTTP status line but with '{one_line(redact(str(problem)))}'"
    return describe(problem)


def one_line(text: str, size: int = 200) -> str:
    """*text* of a server for a message: no line breaks, no terminal control characters, at most *size* long."""
    line = printable(" ".join(text.split()))
    return line[:size] + ("…" if len(line) > size else "")


class Deadline:
    """Limits the total time of an exchange; a socket's own time-out restarts with every byte received."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self.passed = False
        self._connection = connection
        self._timer = threading.Timer(seconds, self._pass)
        self._timer.daemon = True

    def start(self) -> None:
        self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()

    def _pass(self) -> None:
        self.passed = True
        with contextlib.suppress(OSError):  # it is over already
            self._connection.shutdown(socket.SHUT_RDWR)
