"""What this host allows: open files, ports. For the preflight, which refuses before a run, not during it."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
RESERVED_PORTS = Path("/proc/sys/net/ipv4/ip_local_reserved_ports")
TW_REUSE = Path("/proc/sys/net/ipv4/tcp_tw_reuse")
DEFAULT_PORT_RANGE = (32768, 60999)  # the kernel's own, where /proc does not tell
TIME_WAIT_S = 60.0  # TCP_TIMEWAIT_LEN, fixed in the kernel
REUSED_AFTER_S = 1.0  # where net.ipv4.tcp_tw_reuse lets connect() take a port that waits
OWN_FILES = 64  # of a worker besides its connections: libraries, rows, epoll, timers, standard streams


@dataclass(frozen=True)
class FileLimit:
    """RLIMIT_NOFILE; a hard limit without bound is None."""

    soft: int
    hard: int | None


def file_limit() -> FileLimit:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = resource.RLIM_INFINITY
    return FileLimit(1 << 30 if soft == endless else soft, None if hard == endless else hard)


def raise_nofile(wanted: int | None = None) -> FileLimit:
    """Raise the soft limit to *wanted*, or as far as the hard one lets it; never lower it. What holds now."""
    now = file_limit()
    ceiling = now.hard if now.hard is not None else max(now.soft, wanted or now.soft)
    goal = ceiling if wanted is None else min(wanted, ceiling)
    if goal > now.soft:
        hard = resource.RLIM_INFINITY if now.hard is None else now.hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (goal, hard))
    return file_limit()


def port_range() -> tuple[int, int]:
    """First and last port that connect() may take."""
    try:
        low, high = PORT_RANGE.read_text(encoding="ascii").split()
    except OSError:  # no /proc: containers and other kernels; the kernel's default then holds
        return DEFAULT_PORT_RANGE
    return int(low), int(high)


def reserved_ports() -> int:
    """How many ports of the range connect() must leave alone."""
    low, high = port_range()
    try:
        text = RESERVED_PORTS.read_text(encoding="ascii").strip()
    except OSError:  # as above: nothing is reserved where nothing can be
        return 0
    spans = [part.partition("-") for part in text.split(",") if part != ""]
    bounds = [(int(first), int(last or first)) for first, _, last in spans]
    return sum(max(0, min(high, last) - max(low, first) + 1) for first, last in bounds)


def port_capacity(n_sources: int = 1) -> int:
    """Connections to one target that can exist at once: a port is used once per source address and target."""
    low, high = port_range()
    return max(0, high - low + 1 - reserved_ports()) * max(1, n_sources)


def time_wait_s(loopback: bool = False) -> float:
    """Seconds that a port stays taken after this side closed first (tcp_tw_reuse: 1 all, 2 loopback)."""
    try:
        reuse = int(TW_REUSE.read_text(encoding="ascii"))
    except OSError:  # no /proc: the longer time is the safe one
        reuse = 0
    return REUSED_AFTER_S if reuse == 1 or (reuse == 2 and loopback) else TIME_WAIT_S


@dataclass(frozen=True)
class Crowd:
    """Connections to one place (address and port): how many at once, and how many are opened and closed per second.

    *where* names it for people. *loopback*: it is on this host. *ports* False: a Unix socket, which needs none.
    *requests*: how many it gets in all, None without bound; each takes one connection at most.
    """

    where: str
    connections: int
    churn_per_s: float = 0.0
    loopback: bool = False
    ports: bool = True
    requests: int | None = None


def check_capacity(
    crowds: Sequence[Crowd],
    n_sources: int,
    *,
    workers: int = 1,
    seconds: float | None = None,
    limit: FileLimit | None = None,
    ports: int | None = None,
) -> list[str]:
    """Problems of a run with those *crowds*, each to a place of its own, from *n_sources* addresses.

    *seconds* is the run's length; *limit* and *ports* (to one place) replace what this host says. An empty list: it
    fits. Each problem is one sentence with what to change.
    """
    problems = []
    limit = file_limit() if limit is None else limit
    files = -(-sum(crowd.connections for crowd in crowds) // max(1, workers)) + OWN_FILES
    if limit.hard is not None and files > limit.hard:
        problems.append(
            f"the limit of open files is {limit.hard:,} and each worker needs {files:,}; raise it with "
            f"'ulimit -Hn {files}' as root, use more --workers, or offer less load"
        )
    ports = port_capacity(n_sources) if ports is None else ports
    for crowd in crowds:
        held_s = time_wait_s(crowd.loopback)
        needed = crowd.connections + int(crowd.churn_per_s * (held_s if seconds is None else min(held_s, seconds)))
        if crowd.requests is not None:
            needed = min(needed, max(crowd.connections, crowd.requests))
        if crowd.ports and needed > ports:
            problems.append(_too_few_ports(needed, ports, crowd, n_sources))
    return problems


def _too_few_ports(needed: int, ports: int, crowd: Crowd, n_sources: int) -> str:
    sources = "1 source address has" if n_sources <= 1 else f"{n_sources} source addresses have"
    held = needed - crowd.connections
    waiting = f", {held:,} of them for closed connections in TIME_WAIT" if held > 0 else ""
    return (
        f"the run needs {needed:,} local ports to {crowd.where}{waiting}, and {sources} {ports:,}; add "
        "--source-address, widen net.ipv4.ip_local_port_range, or reuse connections"
    )
