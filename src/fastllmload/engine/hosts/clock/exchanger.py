"""The side of an agent: exchanges of datagrams with the driver's responder (`exchange.py`), from a thread."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time

import numpy as np

from fastllmload.arrays import Numbers
from fastllmload.engine.hosts.clock.exchange import (
    ANSWERS,
    ASKS,
    REPLY,
    REQUEST,
    Clock,
    ExchangeCounts,
    StampedReceiver,
    content_of,
    signed,
)

ROW = struct.Struct("=4q")
BURST, BURST_GAP_S = 32, 0.004
RATE, KNOWN_RATE = 8.0, 2.0  # per second; once the clock is known
RECENT = 100  # exchanges that `recent` gives: those of twelve seconds, or of fifty
WAITING = 64  # requests whose replies are waited for


class ClockExchanger:
    """Exchanges with the responder at *address*, from a thread: BURST of them at once, then RATE per second, or KNOWN_RATE
    while *known* is set.

    *host*: its number, *key*: of the run. *clock* is the host's, in ns.
    """

    def __init__(self, address: tuple[str, int], key: bytes, host: int, clock: Clock = time.monotonic_ns) -> None:
        self.counts = ExchangeCounts()
        self.known = False
        self._key, self._host, self._clock = key, host, clock
        self._socket = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect(address)
        self._receiver = StampedReceiver(self._socket, clock)
        self._number = time.time_ns()  # above those of an earlier agent of this host
        self._waiting: dict[int, int] = {}  # number of a request: t1
        self._rows = bytearray()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="clock", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> Numbers:
        """End the thread. Returns all exchanges."""
        self._over = True
        self._thread.join()
        self._socket.close()
        return self.exchanges()

    def exchanges(self) -> Numbers:
        """All exchanges so far, int64[n, 4]: t1 t2 t3 t4."""
        return np.frombuffer(bytes(self._rows), np.int64).reshape(-1, 4)

    def recent(self) -> Numbers:
        """The newest RECENT exchanges: enough to fit the present."""
        return np.frombuffer(bytes(self._rows[-RECENT * ROW.size :]), np.int64).reshape(-1, 4)

    def _run(self) -> None:
        due, asked = time.monotonic(), 0
        while not self._over:
            if time.monotonic() >= due:
                self._ask()
                asked += 1
                gap_s = BURST_GAP_S if asked < BURST else 1 / (KNOWN_RATE if self.known else RATE)
                due = max(due, time.monotonic()) + gap_s
            if select.select((self._socket,), (), (), max(0.0, due - time.monotonic()))[0]:
                self._read()

    def _ask(self) -> None:
        self._number += 1
        datagram = signed(self._key, REQUEST.pack(ASKS, self._host, self._number))
        t1 = self._clock()
        try:
            self._socket.send(datagram)
        except OSError:  # the network or the responder is away: a later exchange may succeed
            self.counts.unsent += 1
            return
        self._waiting[self._number] = t1
        if len(self._waiting) > WAITING:
            del self._waiting[next(iter(self._waiting))]

    def _read(self) -> None:
        try:
            datagram, _, t4 = self._receiver.receive()
        except BlockingIOError:
            return
        except OSError:  # the network says that an earlier request was not delivered
            self.counts.unsent += 1
            return
        found = content_of(datagram, self._key, REPLY, ANSWERS, self.counts)
        if found is None:
            return
        host, number, t2, t3 = found
        t1 = self._waiting.pop(number, None) if host == self._host else None
        if t1 is None:
            self.counts.replayed += 1
            return
        self._rows += ROW.pack(t1, t2, t3, t4 if t4 >= t1 else self._clock())
        self.counts.answered += 1
