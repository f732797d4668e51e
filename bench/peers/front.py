"""A front between a client and a plain server on this host, with TLS or one that corks, which notes what it sent when.

python front.py --to PORT [--every-ms 40] [--certificate PEM --key PEM] [--log FILE]     prints the port that it listens on

With --every-ms it passes on what the server sends at most once in that time after the first of it came, as a gateway does
that corks its connections. At SIGTERM FILE gets an array of `PASSED`: by the client's port, how many bytes it had been
given by the send between `begin_ns` and `end_ns` (CLOCK_MONOTONIC).
"""

from __future__ import annotations

import argparse
import os
import queue
import select
import signal
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

PASSED = np.dtype([("port", "<u4"), ("bytes", "<u4"), ("begin_ns", "<i8"), ("end_ns", "<i8")])
ENTRY = 1 << 16


class Pair:
    """One connection of a client, and the one to the server that belongs to it."""

    def __init__(self, client: socket.socket, port: int, to: int) -> None:
        self.client, self.port = client, port
        self.server = socket.create_connection(("127.0.0.1", to))
        for one in (client, self.server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.held = bytearray()
        self.due_ns = 0
        self.given = 0

    def close(self) -> None:
        for one in (self.client, self.server):
            one.close()


class Front:
    """Passes bytes between all pairs: one thread, so that a send takes place between the instants that are noted."""

    def __init__(self, to: int, every_s: float, context: ssl.SSLContext | None) -> None:
        self._to, self._every_ns, self._context = to, int(every_s * 1e9), context
        self._poll = select.epoll()
        self._accepted: queue.SimpleQueue[tuple[socket.socket, int]] = queue.SimpleQueue()
        self._wake = os.eventfd(0)
        self._poll.register(self._wake, select.EPOLLIN)
        self._pairs: dict[int, Pair] = {}  # by the descriptors of both sides
        self._holding: list[Pair] = []
        self._ended: list[Pair] = []  # whose descriptors are not to be used again before all of a poll's are looked at
        self.passed: list[tuple[int, int, int, int]] = []

    def accept(self, listening: socket.socket) -> None:
        """For as long as there are clients: a thread of its own, because a handshake waits for the client."""
        while True:
            plain, (_, port) = listening.accept()
            try:
                client = plain if self._context is None else self._context.wrap_socket(plain, server_side=True)
            except OSError:  # the client left
                continue
            self._accepted.put((client, port))
            os.eventfd_write(self._wake, 1)

    def serve(self) -> None:
        while True:
            now = time.monotonic_ns()
            wait = min((one.due_ns - now for one in self._holding), default=None)
            for fd, _ in self._poll.poll(None if wait is None else max(0.0, wait / 1e9)):
                if fd == self._wake:
                    self._take()
                elif fd in self._pairs:
                    self._ready(self._pairs[fd], fd)
            for pair in [one for one in self._holding if one.due_ns <= time.monotonic_ns()]:
                self._holding.remove(pair)
                self._send(pair)
            while self._ended:
                self._ended.pop().close()

    def _take(self) -> None:
        os.eventfd_read(self._wake)
        while not self._accepted.empty():
            pair = Pair(*self._accepted.get(), self._to)
            for one in (pair.client, pair.server):
                self._pairs[one.fileno()] = pair
                self._poll.register(one, select.EPOLLIN)

    def _ready(self, pair: Pair, fd: int) -> None:
        try:
            if fd == pair.client.fileno():
                data = pair.client.recv(ENTRY)
                pair.server.sendall(data)
            else:
                data = pair.server.recv(ENTRY)
                self._collect(pair, data)
        except OSError:  # one side is gone
            data = b""
        if not data:
            self._end(pair)

    def _collect(self, pair: Pair, data: bytes) -> None:
        pair.held += data
        if not self._every_ns:
            self._send(pair)
        elif data and pair not in self._holding:
            pair.due_ns = time.monotonic_ns() + self._every_ns
            self._holding.append(pair)

    def _send(self, pair: Pair) -> None:
        if not pair.held:
            return
        pair.given += len(pair.held)
        begin = time.monotonic_ns()
        try:
            pair.client.sendall(pair.held)
        except OSError:
            return self._end(pair)
        self.passed.append((pair.port, pair.given & 0xFFFFFFFF, begin, time.monotonic_ns()))
        pair.held.clear()

    def _end(self, pair: Pair) -> None:
        if pair in self._holding:
            self._holding.remove(pair)
            self._send(pair)
        for one in (pair.client, pair.server):
            self._pairs.pop(one.fileno(), None)
        self._ended.append(pair)


def ended(*_: Any) -> None:
    raise SystemExit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=int, required=True)
    parser.add_argument("--every-ms", type=float, default=0.0)
    for name in ("certificate", "key", "log"):
        parser.add_argument(f"--{name}", type=Path)
    asked = parser.parse_args()
    context = None
    if asked.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(asked.certificate, asked.key)
    front = Front(asked.to, asked.every_ms / 1e3, context)
    listening = socket.create_server(("127.0.0.1", 0), backlog=512)
    signal.signal(signal.SIGTERM, ended)
    threading.Thread(target=front.accept, args=(listening,), daemon=True).start()
    print(listening.getsockname()[1], flush=True)
    try:
        front.serve()
    finally:
        if asked.log:
            np.save(asked.log, np.array(front.passed, PASSED))


if __name__ == "__main__":
    main()
