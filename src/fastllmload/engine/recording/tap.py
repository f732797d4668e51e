"""The tap of a run as the supervisor sees it: whether there is one, its packet ring, and the process that reads that.

The ring is made here, before the workers connect, so that it has every handshake; its reader inherits it and starts beside
the workers, in its own time: until it is there the ring keeps what comes.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from fastllmload._ext.tap import Ring
from fastllmload.engine.recording.packet_filter import on_wire, packet_filter
from fastllmload.engine.workers.sizing import Demand
from fastllmload.engine.workers.spec import TargetSpec
from fastllmload.errors import HostLimitError
from fastllmload.records.tap_times import SEGMENTS, Watched, write_watched
from fastllmload.settings import RunSettings

PROCESS = (sys.executable, "-m", "fastllmload.engine.recording.tap_reader")
ENDING_S = 20.0  # for the reader to write what the ring holds
GRANT = "run as root, or give Python the capability: sudo setcap cap_net_raw+ep $(readlink -f $(which python3))"
NEEDS = "CAP_NET_RAW is missing"
SMALLEST, LARGEST = 8 << 20, 64 << 20  # bytes of a ring
FRAME_BYTES = 136  # that a segment takes in it
HELD_S = 4.0  # of the expected load that the ring holds
MOST_EVENTS_PER_S = 200_000.0  # `auto` uses no tap above: docs/decisions/110-the-tap.md


class NoTap(Exception):
    """Why a run has no tap, as a clause."""


def permitted() -> bool:
    """Whether this process may open a packet socket. OSError where this kernel has none."""
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0).close()
    except PermissionError:
        return False
    return True


def obstacle(targets: Sequence[TargetSpec]) -> NoTap | None:
    """What is in the way of a tap on these targets, before anything is opened."""
    if all(target.family == "unix" for target in targets):
        return NoTap("the targets are Unix sockets, which have no packets")
    try:
        if not permitted():
            return NoTap(f"{NEEDS}: {GRANT}")
    except OSError as problem:
        return NoTap(f"this kernel has no packet sockets ({problem.strerror})")
    return None


def worth_it(settings: RunSettings, targets: Sequence[TargetSpec], wanted: Demand, workers: int, cores: int) -> bool:
    """The rule of `auto`: where the kernel stamps no reads (TLS, connections of the event loop), and where no core is left
    beside those of the workers, so that they will read late; up to a load that the ring holds.
    """
    over_loop = settings.client.transport == "asyncio"
    packets = [target for target in targets if target.family != "unix"]
    unstamped = any(over_loop or target.tls for target in packets)
    crowded = workers >= cores and not settings.client.pin
    fits = wanted.events_per_s <= MOST_EVENTS_PER_S or math.isinf(wanted.events_per_s)
    return bool(packets) and (unstamped or crowded) and fits


def ring_bytes(wanted: Demand) -> int:
    """For HELD_S of the expected events, each with a segment, and as much again for requests and handshakes."""
    if math.isinf(wanted.events_per_s):
        return LARGEST
    return min(LARGEST, max(SMALLEST, round(2 * HELD_S * wanted.events_per_s * FRAME_BYTES)))


def loopback(sides: Sequence[tuple[str, int]]) -> int:
    """The number of the loopback interface where it carries everything to and from *sides*; 0 where it does not."""
    try:
        return socket.if_nametoindex("lo") if all(is_own(address) for address, _ in sides) else 0
    except OSError:
        return 0


def is_own(address: str) -> bool:
    """Whether *address* is one of this host, which the kernel never sends out: it is then where packets to it come from."""
    there = ipaddress.ip_address(address)
    family = socket.AF_INET if there.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asked:
            asked.connect((address, 9))  # nothing is sent: only the route is looked up
            return there.is_loopback or ipaddress.ip_address(asked.getsockname()[0]) == there
    except OSError:
        return False


def open_ring(sides: Sequence[tuple[str, int]], size: int) -> Ring:
    """On the loopback interface alone where that is enough. OSError, HostLimitError: there is none."""
    interface = loopback(sides)
    if interface:
        try:
            return Ring.open(packet_filter(sides, looped=True), size, sides, loopback=interface)
        except HostLimitError:  # it asks for each address twice: the other filter may do
            pass
        except OSError as refused:
            if refused.errno != errno.ENOPROTOOPT:  # Linux before 4.20
                raise
    return Ring.open(packet_filter(sides), size, sides)


class Tap:
    """A packet ring on *targets*, which is filled from now on. NoTap says why there is none."""

    def __init__(self, targets: Sequence[TargetSpec], size: int) -> None:
        begun = time.perf_counter()
        problem = obstacle(targets)
        if problem is not None:
            raise problem
        sides = [(str(on_wire(target.address)), target.port) for target in targets if target.family != "unix"]
        self._sides = list(dict.fromkeys(sides))
        places = {side: number for number, side in enumerate(self._sides)}
        found = iter(sides)
        self._watched = Watched(
            remote=tuple(-1 if target.family == "unix" else places[next(found)] for target in targets),
            tls=tuple(target.tls for target in targets),
        )
        try:
            self._ring = open_ring(self._sides, size)
        except OSError as refused:
            if refused.errno in (errno.EPERM, errno.EACCES):
                raise NoTap(f"{NEEDS}: {GRANT}") from refused
            raise NoTap(f"{refused.args[-1]}") from refused
        except HostLimitError as refused:
            raise NoTap(str(refused)) from refused
        self._reader: subprocess.Popen[bytes] | None = None
        self._open_s = time.perf_counter() - begun
        self.facts: dict[str, Any] = {}

    def start(self, workers: Path) -> int:
        """Let a process read the ring into the folder *workers*; its number."""
        begun = time.perf_counter()
        workers.mkdir(parents=True, exist_ok=True)
        write_watched(workers, self._watched)
        fd = self._ring.fileno()
        self._reader = subprocess.Popen(
            PROCESS,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            process_group=0, pass_fds=(fd,),
            env={name: text for name, text in os.environ.items() if name != "OPENAI_API_KEY"},
        )  # fmt: skip
        told = {
            "fd": fd,
            "block_bytes": self._ring.block_bytes,
            "blocks": self._ring.block_count,
            "watched": self._sides,
            "looped": self._ring.looped,
            "path": str((workers / SEGMENTS).absolute()),
        }
        assert self._reader.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once: stop() says so
            self._reader.stdin.write(msgspec.json.encode(told) + b"\n")
            self._reader.stdin.flush()
        self.facts = {
            "interface": "lo" if self._ring.looped else None,
            "ring_bytes": self._ring.size,
            "start_ms": round((time.perf_counter() - begun + self._open_s) * 1e3, 3),
        }
        return self._reader.pid

    def stop(self) -> str | None:
        """Let the reader write what the ring holds and end; *facts* then have what it says. A sentence when it failed."""
        reader, self._reader = self._reader, None
        begun = time.perf_counter()
        try:
            if reader is None:
                return None
            try:
                said, wrong = reader.communicate(timeout=ENDING_S)
            except subprocess.TimeoutExpired:
                reader.kill()
                reader.communicate()
                return f"the reader of the packet ring did not end within {ENDING_S:g} s; its last segments are missing"
            if reader.returncode:
                last = (wrong.decode(errors="replace").strip().splitlines() or ["it left no message"])[-1]
                return f"the reader of the packet ring ended with exit code {reader.returncode}: {last[:200]}"
            self.facts.update(msgspec.json.decode(said))
            self.facts["stop_ms"] = round((time.perf_counter() - begun) * 1e3, 3)
            return None
        finally:
            self._ring.close()

    def close(self) -> None:
        """Of a run that came to nothing."""
        if self._reader is not None:
            self.stop()
        self._ring.close()


def open_tap(
    settings: RunSettings, targets: Sequence[TargetSpec], wanted: Demand, workers: int, cores: int
) -> Tap | None:
    """The tap that *settings* ask for; `auto` goes without where it cannot be. HostLimitError: it was asked for."""
    asked = settings.client.timestamps
    if asked != "tap" and not (asked == "auto" and worth_it(settings, targets, wanted, workers, cores)):
        return None
    try:
        return Tap(targets, ring_bytes(wanted))
    except NoTap as problem:
        if asked == "tap":
            raise HostLimitError(f"--timestamps tap: {problem}") from problem
        return None
