"""Limits of this host on open files and ports, checked in the preflight so that a run does not fail midway."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
RESERVED_PORTS = Path("/proc/sys/net/ipv4/ip_local_reserved_ports")
TW_REUSE = Path("/proc/sys/net/ipv4/tcp_tw_reuse")
DEFAULT_PORT_RANGE = (32768, 60999)  # the kernel's default, used without /proc
TIME_WAIT_S = 60.0  # TCP_TIMEWAIT_LEN, fixed in the kernel
REUSED_AFTER_S = 1.0  # where net.ipv4.tcp_tw_reuse lets connect() take a port that waits
OWN_FILES = 64  # of a worker in addition to its connections: libraries, rows, epoll, timers, standard streams


@dataclass(frozen=True)
class FileLimit:
    """RLIMIT_NOFILE; None for an unlimited hard limit."""

    soft: int
    hard: int | None


def file_limit() -> FileLimit:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = resource.RLIM_INFINITY
    return FileLimit(1 << 30 if soft == endless else soft, None if hard == endless else hard)


def raise_nofile(wanted: int | None = None) -> FileLimit:
    """Raise the soft limit to *wanted*, or as far as the hard one allows; never lower it. Returns the new limits."""
    now = file_limit()
    ceiling = now.hard if now.hard is not None else max(now.soft, wanted or now.soft)
    goal = ceiling if wanted is None else min(wanted, ceiling)
    if goal > now.soft:
        hard = resource.RLIM_INFINITY if now.hard is None else now.hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (goal, hard))
    return file_limit()


def port_range() -> tuple[int, int]:
    try:
        low, high = PORT_RANGE.read_text(encoding="ascii").split()
    except OSError:  # no /proc: containers and other kernels; assume the kernel's default
        return DEFAULT_PORT_RANGE
    return int(low), int(high)


def reserved_ports() -> int:
    low, high = port_range()
    try:
        text = RESERVED_PORTS.read_text(encoding="ascii").strip()
    except OSError:  # as above; without this setting no port is reserved
        return 0
    spans = [part.partition("-") for part in text.split(",") if part != ""]
    bounds = [(int(first), int(last or first)) for first, _, last in spans]
    return sum(max(0, min(high, last) - max(low, first) + 1) for first, last in bounds)


def port_capacity(n_sources: int = 1) -> int:
    """Connections to one target that can exist at once: a port is used once per source address and target."""
    low, high = port_range()
    return max(0, high - low + 1 - reserved_ports()) * max(1, n_sources)


def time_wait_s(loopback: bool = False) -> float:
    """Seconds for which a port stays in use after this side closed first (tcp_tw_reuse: 1 all, 2 loopback)."""
    try:
        reuse = int(TW_REUSE.read_text(encoding="ascii"))
    except OSError:  # no /proc: the longer time is the safe one
        reuse = 0
    return REUSED_AFTER_S if reuse == 1 or (reuse == 2 and loopback) else TIME_WAIT_S


@dataclass(frozen=True)
class TargetConnections:
    """Connections to one address and port: how many at a time, and how many are opened and closed per second.

    *name*: for messages. *loopback*: it is on this host. *ports* False: a Unix socket, which needs none.
    *requests*: total number of requests to it, None without bound; each needs at most one connection.
    """

    name: str
    connections: int
    churn_per_s: float = 0.0
    loopback: bool = False
    ports: bool = True
    requests: int | None = None


def check_capacity(
    targets: Sequence[TargetConnections],
    n_sources: int,
    *,
    workers: int = 1,
    seconds: float | None = None,
    limit: FileLimit | None = None,
    ports: int | None = None,
) -> list[str]:
    """Problems of a run with those *targets* from *n_sources* source addresses, one sentence each with its remedy.

    *seconds* is the run's length; *limit* and *ports* (to one address) override this host's values.
    """
    problems = []
    limit = file_limit() if limit is None else limit
    files = -(-sum(target.connections for target in targets) // max(1, workers)) + OWN_FILES
    if limit.hard is not None and files > limit.hard:
        problems.append(
            f"the limit of open files is {limit.hard:,} and each worker needs {files:,}; raise it with "
            f"'ulimit -Hn {files}' as root, use more --workers, or offer less load"
        )
    ports = port_capacity(n_sources) if ports is None else ports
    for target in targets:
        wait_s = time_wait_s(target.loopback)
        needed = target.connections + int(target.churn_per_s * (wait_s if seconds is None else min(wait_s, seconds)))
        if target.requests is not None:
            needed = min(needed, max(target.connections, target.requests))
        if target.ports and needed > ports:
            problems.append(_too_few_ports(needed, ports, target, n_sources))
    return problems


def _too_few_ports(needed: int, ports: int, target: TargetConnections, n_sources: int) -> str:
    sources = "1 source address has" if n_sources <= 1 else f"{n_sources} source addresses have"
    closed = needed - target.connections
    waiting = f", {closed:,} of them for closed connections in TIME_WAIT" if closed > 0 else ""
    return (
        f"the run needs {needed:,} local ports to {target.name}{waiting}, and {sources} {ports:,}; add "
        "--source-address, widen net.ipv4.ip_local_port_range, or reuse connections"
    )
