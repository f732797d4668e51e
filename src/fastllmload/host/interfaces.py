"""Network interfaces of this host: which one leads to an address, what they have carried, and the speed of their links."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

DEV = Path("/proc/net/dev")  # of this process's network namespace, in contrast to /sys/class/net
NET = Path("/sys/class/net")
# rtnetlink(7): a message header, then rtmsg, then attributes of a length and a type, each aligned to 4 bytes
HEADER, ROUTE, ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=8BI"), struct.Struct("=HH")
GET_ROUTE, NEW_ROUTE, REQUEST = 26, 24, 1
TO, FROM, OUT = 1, 2, 4  # attributes: destination, source, index of the interface
ANSWER_S, ANSWER_BYTES = 1.0, 1 << 14
LEAST_NS = 500_000_000  # a shorter interval says little about a second


@dataclass(frozen=True)
class InterfaceCounters:
    """Since the interface exists. What a full ring made it miss counts as dropped."""

    rx_bytes: int
    rx_packets: int
    rx_errors: int
    rx_dropped: int
    tx_bytes: int
    tx_packets: int
    tx_errors: int
    tx_dropped: int


def read_counters(path: Path = DEV) -> dict[str, InterfaceCounters]:
    """By name; empty without /proc."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()[2:]
    except OSError:
        return {}
    found = {}
    for line in lines:
        name, _, text = line.rpartition(":")
        numbers = [int(word) for word in text.split()]
        found[name.strip()] = InterfaceCounters(*numbers[:4], *numbers[8:12])
    return found


def interface_to(address: str, source: str | None = None) -> str | None:
    """The interface over which this host sends to a numeric *address*, from *source*; None where the kernel names none."""
    address, _, zone = address.partition("%")
    if zone:
        return zone
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    ends = [(TO, socket.inet_pton(family, address))]
    if source is not None and (":" in source) == (family == socket.AF_INET6):
        ends.append((FROM, socket.inet_pton(family, source)))
    bits = [8 * len(ends[0][1]), 8 * len(ends[0][1]) if len(ends) == 2 else 0]
    body = ROUTE.pack(family, *bits, 0, 0, 0, 0, 0, 0)
    body += b"".join(ATTRIBUTE.pack(ATTRIBUTE.size + len(value), kind) + value for kind, value in ends)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
            kernel.settimeout(ANSWER_S)
            kernel.send(HEADER.pack(HEADER.size + len(body), GET_ROUTE, REQUEST, 1, 0) + body)
            index = out_index(kernel.recv(ANSWER_BYTES))
        return None if index is None else socket.if_indextoname(index)
    except OSError:  # a sandbox without netlink
        return None


def out_index(answer: bytes) -> int | None:
    """The index of the interface in an answer of the kernel; None in one that there is no route."""
    length, kind, *_ = HEADER.unpack_from(answer)
    at = HEADER.size + ROUTE.size
    while kind == NEW_ROUTE and at + ATTRIBUTE.size <= length:
        size, attribute = ATTRIBUTE.unpack_from(answer, at)
        if attribute == OUT:
            return int.from_bytes(answer[at + ATTRIBUTE.size : at + size], sys.byteorder)
        at += max(ATTRIBUTE.size, -(-size // 4) * 4)
    return None


def carriers(addresses: Iterable[str], sources: Iterable[str] = (), net: Path = NET) -> tuple[str, ...]:
    """The interfaces over which this host sends to *addresses*, from *sources*, and those below them, as of a bond."""
    ways = [(address, source) for address in addresses for source in (tuple(sources) or (None,))]
    waiting = [name for way in ways if (name := interface_to(*way)) is not None]
    found: dict[str, None] = {}
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found[name] = None
            waiting += sorted(path.name.removeprefix("lower_") for path in (net / name).glob("lower_*"))
    return tuple(found)


def link_speed(name: str, net: Path = NET) -> int | None:
    """In bits per second; None where it is not known, and for an interface without a device: its speed is only nominal."""
    folder = net / name
    try:
        index = int((folder / "ifindex").read_text(encoding="ascii"))
        if index != socket.if_nametoindex(name) or not (folder / "device").exists():  # or of another namespace
            return None
        speed = int((folder / "speed").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no link, or no such file
        return None
    return speed * 1_000_000 if speed > 0 else None


@dataclass
class Traffic:
    """What *names* carry: `start`, `take` about once a second, `stop`. Times are CLOCK_MONOTONIC ns."""

    names: tuple[str, ...]
    path: Path = DEV
    peaks: dict[str, dict[str, float]] = field(default_factory=dict)  # bytes per second in the busiest interval
    _first: Mapping[str, InterfaceCounters] = field(default_factory=dict)
    _last: Mapping[str, InterfaceCounters] = field(default_factory=dict)
    _t_ns: int = 0

    def start(self, now_ns: int) -> None:
        if self.names:
            self._first = self._last = read_counters(self.path)
        self._t_ns = now_ns

    def take(self, now_ns: int) -> None:
        """End an interval, unless it is too short to say something about a second."""
        passed_ns = now_ns - self._t_ns
        if not self.names or passed_ns < LEAST_NS:
            return
        before, self._last, self._t_ns = self._last, read_counters(self.path), now_ns
        for name in self.names:
            if name not in before or name not in self._last:
                continue
            peaks = self.peaks.setdefault(name, {})
            for key in ("rx_bytes", "tx_bytes"):
                carried = getattr(self._last[name], key) - getattr(before[name], key)
                peaks[key] = max(peaks.get(key, 0.0), carried * 1e9 / passed_ns)

    def stop(self, now_ns: int) -> dict[str, dict[str, int]]:
        """By name, how much each counter of InterfaceCounters has grown. An interface that was added meanwhile has none."""
        self.take(now_ns)
        last = read_counters(self.path) if self.names else {}
        both = [
            (name, vars(self._first[name]), vars(last[name]))
            for name in self.names
            if name in last and name in self._first
        ]
        return {name: {key: now[key] - first[key] for key in now} for name, first, now in both}
