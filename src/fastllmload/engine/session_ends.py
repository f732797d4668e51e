"""Requests that end sessions at the server (--session-end): a process of its own sends them, and nothing measures them.

Workers write a line for each session that has ended to one pipe: number of the target, a blank, URL. The process ends
when all workers have closed the pipe and what was in it was sent; it then prints what became of the requests.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from fastllmload.documents.run_parts.control import SessionEnds
from fastllmload.engine.preflight.addresses import BaseUrl, addresses, parse_base
from fastllmload.engine.preflight.client import HTTP1, reason
from fastllmload.engine.preflight.tls import tls_context
from fastllmload.engine.workers.spec import TargetSpec
from fastllmload.errors import FastLLMLoadError
from fastllmload.settings import Target

AT_ONCE = 16
TIMEOUT_S = 10.0
PATIENCE_S = 60.0  # after the run


class EndsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """*headers* and *key* go to targets of the run only."""

    pipe: int
    method: str
    target: Target
    targets: tuple[TargetSpec, ...]
    headers: tuple[tuple[str, str], ...]
    key: str | None


class EndsProcess:
    """The supervisor's side. *descriptor*: for workers to write to."""

    def __init__(self, config: EndsConfig, environment: dict[str, str]) -> None:
        reading, self.descriptor = os.pipe()
        os.set_blocking(self.descriptor, False)
        self.process = subprocess.Popen(
            (sys.executable, "-m", "fastllmload.engine.session_ends"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(reading,), process_group=0, env=environment,
        )  # fmt: skip
        os.close(reading)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(msgspec.json.encode(msgspec.structs.replace(config, pipe=reading)) + b"\n")
            self.process.stdin.close()

    def finish(self) -> SessionEnds | None:
        """Wait until all are sent, after the workers' end; None where the process died or took too long."""
        os.close(self.descriptor)
        assert self.process.stdout is not None
        timer = threading.Timer(PATIENCE_S, self.process.kill)
        timer.start()
        said = self.process.stdout.read()
        self.process.wait()
        timer.cancel()
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(said, type=SessionEnds)
        return None


class Connection(http.client.HTTPConnection):
    """To a *base*, or to the address that the run chose for its target."""

    def __init__(self, base: BaseUrl, address: tuple[str, str, int], context: ssl.SSLContext | None) -> None:
        super().__init__(base.host, base.port, timeout=TIMEOUT_S)
        self.base, self.address, self.context = base, address, context

    def connect(self) -> None:
        family, name, port = self.address
        kinds = {"inet": socket.AF_INET, "inet6": socket.AF_INET6, "unix": socket.AF_UNIX}
        self.sock = socket.socket(kinds[family], socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(name if family == "unix" else (name, port))
        if self.context is not None:
            self.sock = self.context.wrap_socket(self.sock, server_hostname=self.base.host)


class EndsSender:
    """Sends the requests, some at once, each thread over connections of its own."""

    def __init__(self, config: EndsConfig) -> None:
        self.config = config
        self.own = threading.local()
        self.lock = threading.Lock()
        self.sent = self.failed = 0
        self.failure: str | None = None

    def end(self, line: str) -> None:
        number, _, url = line.partition(" ")
        try:
            status = self._answered(int(number), url)
            failure = None if status < 400 else f"HTTP {status}"
        except (OSError, http.client.HTTPException, FastLLMLoadError) as problem:
            failure = str(problem) if isinstance(problem, FastLLMLoadError) else reason(problem)
        with self.lock:
            self.sent += 1
            self.failed += failure is not None
            self.failure = self.failure or failure

    def _answered(self, number: int, url: str) -> int:
        target = self.config.targets[number]
        ours = url.startswith("/")
        base = parse_base(target.url if ours else url.partition("?")[0])
        path = url if ours else "/" + url.split("//", 1)[1].partition("/")[2]
        fields = dict(self.config.headers) if ours else {}
        if ours and self.config.key is not None:
            fields["Authorization"] = f"Bearer {self.config.key}"
        fields |= {"Host": base.host_header, "Content-Length": "0"}
        connections = self.own.__dict__.setdefault("connections", {})
        key = number if ours else base.public_url.removesuffix(base.path)
        for fresh in (key not in connections, True):
            if fresh:
                connections[key] = self._connection(base, target if ours else None)
            try:
                connections[key].request(self.config.method, path, headers=fields)
                answer = connections[key].getresponse()
                answer.read()
                return int(answer.status)
            except (OSError, http.client.HTTPException):
                connections.pop(key).close()
                if fresh:  # a kept connection may have been closed meanwhile
                    raise
        raise AssertionError

    def _connection(self, base: BaseUrl, target: TargetSpec | None) -> Connection:
        context = tls_context(self.config.target, HTTP1) if base.tls else None
        if target is None:
            return Connection(base, addresses(base)[0], context)
        return Connection(base, (target.family, target.address, target.port), context)


def send_all(config: EndsConfig, lines: Sequence[str] | Any) -> SessionEnds:
    sender = EndsSender(config)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for line in lines:
            pool.submit(sender.end, line.rstrip("\n"))
    return SessionEnds(sent=sender.sent, failed=sender.failed, failure=sender.failure)


def main() -> None:
    config = msgspec.json.decode(sys.stdin.buffer.readline(), type=EndsConfig)
    with open(config.pipe, encoding="latin-1") as lines:
        sys.stdout.buffer.write(msgspec.json.encode(send_all(config, lines)))


if __name__ == "__main__":
    main()
