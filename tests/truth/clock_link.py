"""Clocks of two network namespaces, compared over a veth pair: `python clock_link.py RUNS SECONDS DELAY_MS JITTER_MS`.

The responder is in one namespace, the exchangers are in the other, and a relay between them holds every datagram for
the delay give or take the jitter, each way; without a delay there is no relay. The machine has one CLOCK_MONOTONIC,
to which each run adds an offset and a drift on the host's side. Prints a line for each run: exchanges, the most by
which the error exceeds the bound, the median bound, and the largest error, in ns. Exit code 77 where namespaces are
not permitted.
"""

from __future__ import annotations

import ctypes
import heapq
import os
import random
import secrets
import select
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

import numpy as np

from fastllmload.engine.hosts.clock.exchange import ClockResponder
from fastllmload.engine.hosts.clock.exchanger import ClockExchanger
from fastllmload.records.host_clock import fit

CLONE_NEWNET = 0x40000000
DRIVER, HOST = "10.98.0.1", "10.98.0.2"
AT_ONCE = 10
PPM = (50.0, -50.0, 0.0, 300.0)
libc = ctypes.CDLL(None, use_errno=True)


def namespace() -> None:
    if libc.unshare(CLONE_NEWNET):
        raise PermissionError(ctypes.get_errno(), "unshare")


def ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True)


@dataclass
class HostClock:
    """CLOCK_MONOTONIC with another origin, and slower by *ppm*."""

    ppm: float
    zero: int = field(default_factory=time.monotonic_ns)

    def __call__(self) -> int:
        return self.at(time.monotonic_ns())

    def at(self, driver: int) -> int:
        since = driver - self.zero
        return 1_000_000_000_000 + since - since * int(self.ppm * 1000) // 1_000_000_000


def relay(here: socket.socket, target: tuple[str, int], delay_s: float, jitter_s: float, over: threading.Event) -> None:
    """Datagrams of each host to *target* and back, each of them later; a socket to the target for each host."""
    draw = random.Random(11)
    away: dict[object, socket.socket] = {}
    home: dict[socket.socket, object] = {}
    waiting: list[tuple[float, int, socket.socket, object, bytes]] = []
    number = 0
    while not over.is_set():
        wait = 0.05 if not waiting else max(0.0, min(0.05, waiting[0][0] - time.monotonic()))
        for ready in select.select((here, *home), (), (), wait)[0]:
            datagram, sender = ready.recvfrom(200)
            due = time.monotonic() + delay_s + draw.uniform(-jitter_s, jitter_s)
            if ready is here and sender not in away:
                away[sender] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                home[away[sender]] = sender
            out, to = (away[sender], target) if ready is here else (here, home[ready])
            number += 1
            heapq.heappush(waiting, (due, number, out, to, datagram))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, out, to, datagram = heapq.heappop(waiting)
            out.sendto(datagram, to)  # type: ignore[arg-type]
    for each in home:
        each.close()


def exchange(port: int, key: bytes, runs: int, seconds: float) -> None:
    """Runs of exchangers, AT_ONCE at a time; prints what came of each."""
    for first in range(0, runs, AT_ONCE):
        clocks = [HostClock(PPM[number % len(PPM)]) for number in range(first, min(first + AT_ONCE, runs))]
        exchangers = [ClockExchanger((DRIVER, port), key, first + n, clock) for n, clock in enumerate(clocks)]
        begin = time.monotonic_ns()
        for exchanger in exchangers:
            exchanger.start()
        time.sleep(seconds)
        end = time.monotonic_ns()
        for clock, exchanger in zip(clocks, exchangers, strict=True):
            report(clock, exchanger.stop(), begin, end)


def report(clock: HostClock, rows: np.ndarray, begin: int, end: int) -> None:
    found = fit(rows)
    driver = np.linspace(begin, end, 500).astype(np.int64)
    host = np.array([clock.at(int(t)) for t in driver])
    error = np.abs(found.to_driver(host) - driver)
    bound = found.bound_ns(host)
    print(len(rows), int((error - bound).max()), int(np.median(bound)), int(error.max()), flush=True)


def main() -> int:
    if sys.argv[1] == "exchange":
        namespace()
        print("ready", flush=True)
        port, key = int(sys.stdin.readline()), bytes.fromhex(sys.stdin.readline())
        for command in ("link set lo up", f"addr add {HOST}/24 dev far", "link set far up"):
            ip(command)
        exchange(port, key, int(sys.argv[2]), float(sys.argv[3]))
        return 0
    runs, seconds, delay_ms, jitter_ms = sys.argv[1:]
    try:
        namespace()
        child = subprocess.Popen(
            [sys.executable, __file__, "exchange", runs, seconds],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdin is not None and child.stdout is not None
        if child.stdout.readline() != "ready\n":
            raise PermissionError("no second namespace")
        ip(f"link add near type veth peer name far netns {child.pid}")
        for command in ("link set lo up", f"addr add {DRIVER}/24 dev near", "link set near up"):
            ip(command)
    except (OSError, subprocess.CalledProcessError) as problem:
        print(f"no network namespaces or veth pairs here: {problem}")
        return 77
    key, over = secrets.token_bytes(32), threading.Event()
    responder = ClockResponder(key, os.environ, DRIVER)
    port, threads = responder.port, []
    if float(delay_ms):
        here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        here.bind((DRIVER, 0))
        port = here.getsockname()[1]
        arguments = (here, (DRIVER, responder.port), float(delay_ms) / 1e3, float(jitter_ms) / 1e3, over)
        threads.append(threading.Thread(target=relay, args=arguments))
    for thread in threads:
        thread.start()
    print(child.communicate(f"{port}\n{key.hex()}\n", timeout=120)[0], end="")
    over.set()
    for thread in threads:
        thread.join()
    counts = responder.stop()
    print(f"answered {counts.answered}")
    return child.returncode


if __name__ == "__main__":
    sys.exit(main())
