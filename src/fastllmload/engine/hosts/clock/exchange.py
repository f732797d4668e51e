"""Compares the clock of a host with the driver's clock: the agent asks by UDP, a process of the driver answers.

    request  FLLq  host (4 bytes)  number (8)                    MAC (16)
    reply    FLLr  host (4 bytes)  number (8)  t2 (8)  t3 (8)    MAC (16)

Numbers are little-endian, times are ns of CLOCK_MONOTONIC. The MAC is BLAKE2b with the run's key. A datagram of
another length or type is *foreign*, one with a wrong MAC *forged*. A request whose number is not above all earlier
ones of its host is *replayed*, and so is a reply that nothing waits for. They are counted and get no answer.

Every stamp errs to the same side: t1 and t3 are taken before a datagram is handed to the kernel, t2 and t4 not before
it arrived. So a process that is delayed makes the interval of an exchange wider and never wrong
(`records/host_clock.py`). t2 and t4 are the kernel's receive stamps, so that a late wake-up does not count as delay.
The kernel takes them from the wall clock: the age of a stamp is subtracted from the time now. If the wall clock was
set meanwhile, the time now is used.

The responder starts while agents do, so this imports little; `exchanger.py` is the side of the agent.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from fastllmload.host.probe import LARGEST_RATE, SO_TIMESTAMPNS

Clock = Callable[[], int]

REQUEST = struct.Struct("<4sIQ")
REPLY = struct.Struct("<4sIQqq")
TIMESPEC = struct.Struct("@qq")
ASKS, ANSWERS = b"FLLq", b"FLLr"
MAC_BYTES = 16
SAME_WALL_NS = 20_000  # realtime minus monotonic is constant but for readings that were interrupted
OLDEST_STAMP_NS = 1_000_000_000
GATHER_S = 0.01
RESPONDER = (sys.executable, "-m", "fastllmload.engine.hosts.clock.exchange")


class ExchangeCounts(msgspec.Struct):
    """Datagrams of one side. *answered*: by the responder, or exchanges of the host; *unsent*: refused by the network."""

    answered: int = 0
    foreign: int = 0
    forged: int = 0
    replayed: int = 0
    unsent: int = 0


def mac(key: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=MAC_BYTES, key=key, person=b"fastllmload clk").digest()


def signed(key: bytes, content: bytes) -> bytes:
    return content + mac(key, content)


def content_of(
    datagram: bytes, key: bytes, layout: struct.Struct, kind: bytes, counts: ExchangeCounts
) -> tuple[int, ...] | None:
    """The numbers of a datagram; None, counted, if it is not one of *kind* or was not made with *key*."""
    if len(datagram) != layout.size + MAC_BYTES or not datagram.startswith(kind):
        counts.foreign += 1
        return None
    content = datagram[: layout.size]
    if not hmac.compare_digest(datagram[layout.size :], mac(key, content)):
        counts.forged += 1
        return None
    numbers: tuple[int, ...] = layout.unpack(content)[1:]
    return numbers


class StampedReceiver:
    """Receives from *sock*, with the time of *clock* at which each datagram had arrived."""

    def __init__(self, sock: socket.socket, clock: Clock) -> None:
        self._receive = sock.recvmsg
        self._clock = clock
        self._wall: int | None = None  # realtime minus monotonic
        self.stamped = False  # whether the last time was the kernel's
        sock.setblocking(False)  # a datagram with a wrong checksum makes it ready and is not there
        with contextlib.suppress(OSError):  # a sandbox without receive stamps: the time now is used
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)

    def receive(self) -> tuple[bytes, Any, int]:
        """Datagram, sender, and when it arrived: as the kernel says, or now. Never too early."""
        datagram, messages, _, sender = self._receive(REPLY.size + MAC_BYTES + 1, 64)
        real = time.time_ns()
        wall = real - time.monotonic_ns()
        now = self._clock()
        self.stamped = False
        if self._wall is None or abs(wall - self._wall) > SAME_WALL_NS:
            self._wall = wall
            return datagram, sender, now
        for level, kind, value in messages:
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS) and len(value) == TIMESPEC.size:
                seconds, ns = TIMESPEC.unpack(value)
                age = real - (seconds * 1_000_000_000 + ns)
                if 0 <= age <= OLDEST_STAMP_NS:
                    now -= int(age * (1 - LARGEST_RATE))  # *clock* may be slower than the wall clock
                    self.stamped = True
        return datagram, sender, now


def respond(sock: socket.socket, key: bytes, life: int, clock: Clock = time.monotonic_ns) -> ExchangeCounts:
    """Answer what comes to *sock* until the descriptor *life* can be read or is closed at its other end.

    Where the kernel stamps datagrams, those of GATHER_S are answered together, as a wake-up costs more than an
    answer. The time that they wait is between t2 and t3, so it does not count as time that an exchange took.
    """
    counts = ExchangeCounts()
    receiver = StampedReceiver(sock, clock)
    newest: dict[int, int] = {}  # number of the latest request of each host
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    poll.register(life, select.POLLIN)
    while all(descriptor != life for descriptor, _ in poll.poll()):
        if receiver.stamped:
            time.sleep(GATHER_S)
        while answer(sock, key, receiver, newest, counts, clock) and receiver.stamped:
            pass
    return counts


def answer(
    sock: socket.socket,
    key: bytes,
    receiver: StampedReceiver,
    newest: dict[int, int],
    counts: ExchangeCounts,
    clock: Clock,
) -> bool:
    """Answer one datagram if it is a request; whether there was one."""
    try:
        datagram, sender, t2 = receiver.receive()
    except BlockingIOError:
        return False
    except OSError:  # an earlier answer could not be delivered
        counts.unsent += 1
        return True
    found = content_of(datagram, key, REQUEST, ASKS, counts)
    if found is None:
        return True
    host, number = found
    if number <= newest.get(host, -1):
        counts.replayed += 1
        return True
    newest[host] = number
    try:
        sock.sendto(signed(key, REPLY.pack(ANSWERS, host, number, t2, clock())), sender)
    except OSError:
        counts.unsent += 1
    else:
        counts.answered += 1
    return True


class ResponderSpec(msgspec.Struct):
    """What the responder's process gets on stdin, as a line of JSON."""

    socket: int
    key: bytes


class ClockResponder:
    """A process that answers the exchanges of all hosts. It ends with `stop`, and when its parent ends.

    *key*: of the run, 16 to 64 random bytes. *address*, *port*: to bind; port 0 is a free one.
    """

    def __init__(self, key: bytes, environment: Mapping[str, str], address: str = "0.0.0.0", port: int = 0) -> None:
        with bound(address, port) as sock:
            self.port: int = sock.getsockname()[1]
            # In its own process group: only the driver handles the terminal's SIGINT.
            self._process = subprocess.Popen(
                RESPONDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(sock.fileno(),), process_group=0,
                env=dict(environment),
            )  # fmt: skip
            assert self._process.stdin is not None
            self._process.stdin.write(msgspec.json.encode(ResponderSpec(sock.fileno(), key)) + b"\n")
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> ExchangeCounts:
        """End the process. Returns what it has counted; nothing of a process that was killed."""
        counted, _ = self._process.communicate()
        return msgspec.json.decode(counted, type=ExchangeCounts) if counted else ExchangeCounts()


def bound(address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.bind((address, port))
    except BaseException:
        sock.close()
        raise
    return sock


def main() -> int:
    spec = msgspec.json.decode(sys.stdin.buffer.readline(), type=ResponderSpec)
    with socket.socket(fileno=spec.socket) as sock:
        counts = respond(sock, spec.key, sys.stdin.fileno())
    with contextlib.suppress(BrokenPipeError):  # the driver was killed
        sys.stdout.buffer.write(msgspec.json.encode(counts))
        sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
