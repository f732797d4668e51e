"""A TCP proxy of known delay: holds what a client sends for --delay-ms, and notes how long it really held everything.

    python delay_proxy.py --to PORT [--delay-ms 1] [--log FILE]          prints the port that it listens on

Answers are passed on at once. At SIGTERM FILE gets an array of `PASSED`: when the last byte of a read arrived in the kernel
(SO_TIMESTAMPNS), and the instants around the send that passed it on; all in CLOCK_MONOTONIC.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

PASSED = np.dtype(
    [("pair", "<u4"), ("up", "?"), ("text", "?"), ("rx_ns", "<i8"), ("begin_ns", "<i8"), ("end_ns", "<i8")]
)
SO_TIMESTAMPNS = 35
TEXT = re.compile(rb'"(?:text|content)":\s*"[^"]')  # of an event with a token
ENTRY = 1 << 18
UNINTERRUPTED_NS = 5_000
# A send on one host has reached the other side's kernel so long after it began, by that kernel's stamp: 4 us at P50, 6 us on
# average. The rest of it wakes the receiver, which may then run first.
REACHED_NS = 5_000


def monotonic_less_real_ns() -> int:
    """The two clocks' difference, read without being interrupted."""
    while True:
        before, real, after = time.monotonic_ns(), time.clock_gettime_ns(time.CLOCK_REALTIME), time.monotonic_ns()
        if after - before < UNINTERRUPTED_NS:
            return (before + after) // 2 - real


class Proxy:
    def __init__(self, to: int, delay_ms: float) -> None:
        self._to, self._delay_ns = to, round(delay_ms * 1e6)
        self.passed: list[tuple[int, bool, bool, int, int, int]] = []

    def serve(self, listening: socket.socket) -> None:
        number = 0
        while True:
            client, _ = listening.accept()
            server = socket.create_connection(("127.0.0.1", self._to))
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                one.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            for source, sink, up in ((client, server, True), (server, client, False)):
                threading.Thread(target=self.copy, args=(number, source, sink, up), daemon=True).start()
            number += 1

    def copy(self, pair: int, source: socket.socket, sink: socket.socket, up: bool) -> None:
        """Until the source ends, which ends the sink."""
        with contextlib.suppress(OSError):  # one side is gone
            while self.pass_on(pair, source, sink, up):
                pass
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def pass_on(self, pair: int, source: socket.socket, sink: socket.socket, up: bool) -> bool:
        data, about, _, _ = source.recvmsg(ENTRY, 64)
        if not data:
            return False
        [stamp] = [value for level, kind, value in about if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS)]
        seconds, rest = struct.unpack("qq", stamp[:16])
        rx = seconds * 1_000_000_000 + rest + monotonic_less_real_ns()
        if up:
            while (left := rx + self._delay_ns - time.monotonic_ns()) > 0:
                time.sleep(max(left - 60_000, 0) / 1e9)  # a timer is about 60 us late
        begin = time.monotonic_ns()
        sink.sendall(data)
        self.passed.append((pair, up, TEXT.search(data) is not None, rx, begin, time.monotonic_ns()))
        return True


def added_ns(passed: np.ndarray) -> np.ndarray:
    """int64[n, 3], by arrival: when each request arrived, and what the proxy added to its TTFT and end-to-end latency."""
    sent = np.minimum(passed["begin_ns"] + REACHED_NS, passed["end_ns"])
    held = sent - passed["rx_ns"]
    found = []
    for pair in np.unique(passed["pair"]):
        rows = np.flatnonzero(passed["pair"] == pair)
        asked = first = last = None
        for row in [*rows[np.argsort(sent[rows], kind="stable")].tolist(), None]:
            if row is not None and not passed["up"][row]:
                first = row if first is None and passed["text"][row] else first
                last = row
                continue
            if first is not None:
                found.append((passed["rx_ns"][asked], held[asked] + held[first], held[asked] + held[last]))
            asked, first = row, None
    return np.array(sorted(found), np.int64).reshape(-1, 3)


def ended(*_: Any) -> None:
    raise SystemExit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=int, required=True)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--log", type=Path)
    asked = parser.parse_args()
    proxy = Proxy(asked.to, asked.delay_ms)
    listening = socket.create_server(("127.0.0.1", 0), backlog=512)
    signal.signal(signal.SIGTERM, ended)
    print(listening.getsockname()[1], flush=True)
    try:
        proxy.serve(listening)
    finally:
        if asked.log:
            np.save(asked.log, np.array(proxy.passed, PASSED))


if __name__ == "__main__":
    main()
