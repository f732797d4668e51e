"""Controls the tap of a run: the packet ring, opened before the workers connect, and the process that reads it."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from fastllmload._ext.tap.ring import Ring
from fastllmload.documents.fields import joined
from fastllmload.documents.run_parts.hosts import Tap
from fastllmload.engine.recording.packet_filter import on_wire, packet_filter
from fastllmload.engine.workers.spec import TargetSpec
from fastllmload.errors import HostLimitError
from fastllmload.host.probe import is_own
from fastllmload.records.tap_times import SEGMENTS, Watched, write_watched
from fastllmload.settings import KEY_VARIABLES, Client

PROCESS = (sys.executable, "-m", "fastllmload.engine.recording.tap_reader")
ENDING_S = 20.0  # for the reader to write what the ring holds
GRANT = "run as root, or give Python the capability: sudo setcap cap_net_raw+ep $(readlink -f $(which python3))"
NEEDS = "CAP_NET_RAW is missing"
SMALLEST, LARGEST = 8 << 20, 64 << 20  # bytes of a ring
FRAME_BYTES = 136  # that a segment takes in it
CAPACITY_S = 4.0  # seconds of the expected load that fit in the ring
MOST_EVENTS_PER_S = 200_000.0  # `auto` uses no tap above: docs/decisions/08-stamps-and-packet-ring.md


class TapUnavailable(Exception):
    """A run has no tap; the message is a clause with the reason."""


def permitted() -> bool:
    """Whether this process may open a packet socket. OSError when the kernel has none."""
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0).close()
    except PermissionError:
        return False
    return True


def refusal() -> str | None:
    """Why this process cannot open a packet socket, as a clause; None: it can."""
    try:
        return None if permitted() else f"{NEEDS}: {GRANT}"
    except OSError as problem:
        return f"this kernel has no packet sockets ({problem.strerror})"


def obstacle(targets: Sequence[TargetSpec]) -> TapUnavailable | None:
    """Why a tap on these targets is impossible, checked before anything is opened; None: nothing is known against it."""
    if all(target.family == "unix" for target in targets):
        return TapUnavailable("the targets are Unix sockets, which have no packets")
    refused = refusal()
    return None if refused is None else TapUnavailable(refused)


def auto_uses_tap(client: Client, targets: Sequence[TargetSpec], events_per_s: float, workers: int, cores: int) -> bool:
    """`auto`: where the kernel does not stamp reads, or workers use all cores and read late; for loads that fit the ring."""
    packets = [target for target in targets if target.family != "unix"]
    unstamped = client.transport == "asyncio"
    crowded = workers >= cores and not client.pin
    fits = events_per_s <= MOST_EVENTS_PER_S or math.isinf(events_per_s)
    return bool(packets) and (unstamped or crowded) and fits and client.http_version != "2"


def stamp_source(asked: str, tapped: bool) -> str:
    """The source of stamps over IP: packet ring, else the kernel or what is *asked* (--timestamps)."""
    return "tap" if tapped else "kernel" if asked == "auto" else asked


def ring_bytes(events_per_s: float) -> int:
    """Size for CAPACITY_S of the expected events, one segment each, and as much again for requests and handshakes."""
    if math.isinf(events_per_s):
        return LARGEST
    return min(LARGEST, max(SMALLEST, round(2 * CAPACITY_S * events_per_s * FRAME_BYTES)))


def loopback(sides: Sequence[tuple[str, int]]) -> int:
    """The index of the loopback interface if it carries all traffic to and from *sides*; else 0."""
    try:
        return socket.if_nametoindex("lo") if all(is_own(address) for address, _ in sides) else 0
    except OSError:
        return 0


def open_ring(sides: Sequence[tuple[str, int]], size: int) -> Ring:
    """Open a ring, on the loopback interface only if that is enough. OSError, HostLimitError: it cannot be opened."""
    interface = loopback(sides)
    if interface:
        try:
            return Ring.open(packet_filter(sides, looped=True), size, sides, loopback=interface)
        except HostLimitError:  # this filter tests each address twice; the other one may be short enough
            pass
        except OSError as refused:
            if refused.errno != errno.ENOPROTOOPT:  # Linux before 4.20
                raise
    return Ring.open(packet_filter(sides), size, sides)


class TapProcess:
    """A packet ring on *targets*, filled from now on. TapUnavailable when there is none."""

    def __init__(self, targets: Sequence[TargetSpec], size: int) -> None:
        begun = time.perf_counter()
        problem = obstacle(targets)
        if problem is not None:
            raise problem
        sides = [(str(on_wire(target.address)), target.port) for target in targets if target.family != "unix"]
        self._sides = list(dict.fromkeys(sides))
        numbers = {side: number for number, side in enumerate(self._sides)}
        found = iter(sides)
        self._watched = Watched(
            remote=tuple(-1 if target.family == "unix" else numbers[next(found)] for target in targets),
            tls=tuple(target.tls for target in targets),
        )
        try:
            self._ring = open_ring(self._sides, size)
        except OSError as refused:
            if refused.errno in (errno.EPERM, errno.EACCES):
                raise TapUnavailable(f"{NEEDS}: {GRANT}") from refused
            raise TapUnavailable(f"{refused.args[-1]}") from refused
        except HostLimitError as refused:
            raise TapUnavailable(refused.message) from refused
        self._reader: subprocess.Popen[bytes] | None = None
        self._open_s = time.perf_counter() - begun
        self.facts = Tap()

    def start(self, folder: Path) -> int:
        """Start the process that reads the ring into *folder*. Returns its process id."""
        begun = time.perf_counter()
        folder.mkdir(parents=True, exist_ok=True)
        write_watched(folder, self._watched)
        fd = self._ring.fileno()
        self._reader = subprocess.Popen(
            PROCESS,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            process_group=0, pass_fds=(fd,),
            env={name: text for name, text in os.environ.items() if name not in KEY_VARIABLES},
        )  # fmt: skip
        spec = {
            "fd": fd,
            "block_bytes": self._ring.block_bytes,
            "blocks": self._ring.block_count,
            "watched": self._sides,
            "looped": self._ring.looped,
            "path": str((folder / SEGMENTS).absolute()),
        }
        assert self._reader.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once: stop() reports that
            self._reader.stdin.write(msgspec.json.encode(spec) + b"\n")
            self._reader.stdin.flush()
        self.facts = Tap(
            interface="lo" if self._ring.looped else None,
            ring_bytes=self._ring.size,
            start_ms=round((time.perf_counter() - begun + self._open_s) * 1e3, 3),
        )
        return self._reader.pid

    def stop(self) -> str | None:
        """Let the reader write the rest of the ring and end; its figures are added to *facts*. A sentence when it failed."""
        reader, self._reader = self._reader, None
        begun = time.perf_counter()
        try:
            if reader is None:
                return None
            try:
                output, errors = reader.communicate(timeout=ENDING_S)
            except subprocess.TimeoutExpired:
                reader.kill()
                reader.communicate()
                return f"the reader of the packet ring did not end within {ENDING_S:g} s; its last segments are missing"
            if reader.returncode:
                last = (errors.decode(errors="replace").strip().splitlines() or ["nothing on stderr"])[-1]
                return f"the reader of the packet ring ended with exit code {reader.returncode}: {last[:200]}"
            stop_ms = round((time.perf_counter() - begun) * 1e3, 3)
            self.facts = replace(joined(self.facts, msgspec.json.decode(output, type=Tap)), stop_ms=stop_ms)
            return None
        finally:
            self._ring.close()

    def close(self) -> None:
        """Close the tap of a run that did not start."""
        if self._reader is not None:
            self.stop()
        self._ring.close()


def open_tap(
    client: Client, targets: Sequence[TargetSpec], events_per_s: float, workers: int, cores: int
) -> TapProcess | None:
    """The tap that --timestamps asks for; None if `auto` does not use one. HostLimitError: requested and impossible.

    All of it is about this host: *events_per_s* that its *workers* expect, on its *cores*.
    """
    asked = client.timestamps
    if asked != "tap" and not (asked == "auto" and auto_uses_tap(client, targets, events_per_s, workers, cores)):
        return None
    try:
        return TapProcess(targets, ring_bytes(events_per_s))
    except TapUnavailable as problem:
        if asked == "tap":
            raise HostLimitError("tap-unavailable", f"--timestamps tap: {problem}") from problem
        return None
