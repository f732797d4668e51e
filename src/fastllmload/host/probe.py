"""Properties and behaviour of this host: small readings and probes, each None where the host does not provide it."""

from __future__ import annotations

import errno
import hashlib
import ipaddress
import os
import socket
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

LEAST_STEP_NS = 5_000_000
SLEW = 1e-3  # adjtime() and NTP move the clock by at most half of this; a faster change is a step
PAIRS = 3


class WallClock:
    """Compares CLOCK_REALTIME with CLOCK_MONOTONIC from one call of `step_s` to the next."""

    def __init__(self) -> None:
        self._at, self._offset = offset_ns()

    def step_s(self) -> float | None:
        """Seconds by which the wall clock was set forward (or back, < 0) since the last call; None when it was not set."""
        (before, known), (self._at, self._offset) = (self._at, self._offset), offset_ns()
        step = self._offset - known
        return step / 1e9 if abs(step) > LEAST_STEP_NS + SLEW * (self._at - before) else None


def offset_ns() -> tuple[int, int]:
    """(monotonic now, realtime - monotonic), from the tightest of a few pairs of readings: an interrupted pair is wrong."""
    found: list[tuple[int, int, int]] = []
    for _ in range(PAIRS):
        begin = time.monotonic_ns()
        real = time.time_ns()
        end = time.monotonic_ns()
        found.append((end - begin, end, real - (begin + end) // 2))
    return min(found)[1:]


SO_TIMESTAMPNS = 35  # Linux, asm-generic; also the type of the control message
LARGEST_RATE = 1e-3  # ns per ns, by which two clocks of hosts may drift apart (records/host_clock.py)
PROBE_BYTES = 32 << 20
PROBE_SLEEPS = 200
SLEEP_NS = 1_000_000


def setting(path: str) -> str | None:
    """The text of a file in /proc or /sys; None when there is no such setting."""
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


def cores() -> float:
    """Cores that this process may use: its affinity, or less where a cgroup's quota limits it."""
    mine = float(len(os.sched_getaffinity(0)))
    quota, _, period = (setting("/sys/fs/cgroup/cpu.max") or "max 1").partition(" ")
    return mine if quota == "max" else min(mine, int(quota) / int(period))


def steal_share() -> float | None:
    """Share of CPU time since boot that the hypervisor gave to others."""
    fields = (setting("/proc/stat") or "").partition("\n")[0].split()[1:]
    if len(fields) < 8:
        return None
    times = [int(field) for field in fields[:8]]  # user nice system idle iowait irq softirq steal
    return times[7] / sum(times) if sum(times) > 0 else None


def available_memory() -> int | None:
    """Bytes."""
    for line in (setting("/proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return None


def existing(folder: Path) -> Path:
    """*folder*, or its nearest parent that exists. NotADirectoryError when that is not a folder."""
    folder = folder.absolute()
    found = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not found.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{found} is a file, not a folder")
    return found


def free_disk(folder: Path) -> int:
    """Bytes that this user may still write. OSError when *folder* cannot exist."""
    state = os.statvfs(existing(folder))
    return state.f_bavail * state.f_frsize


def disk_speed(folder: Path, size: int = PROBE_BYTES) -> float:
    """Bytes per second when writing and syncing *size* bytes in *folder*. OSError when it cannot be written to."""
    block = os.urandom(1 << 20)
    with tempfile.TemporaryFile(dir=existing(folder)) as file:
        begin = time.monotonic_ns()
        for _ in range(max(1, size // len(block))):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return max(1, size // len(block)) * len(block) / ((time.monotonic_ns() - begin) / 1e9)


def kernel_stamps() -> bool:
    """Whether a TCP socket on loopback provides receive stamps. The first segments after enabling them may have none."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as sender:
        receiver, _ = listener.accept()
        with receiver:
            receiver.settimeout(2.0)
            try:
                receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            except OSError:  # not supported by this kernel or sandbox
                return False
            return any(_stamped(sender, receiver) for _ in range(10))


def _stamped(sender: socket.socket, receiver: socket.socket) -> bool:
    sender.sendall(b"x")
    _, messages, _, _ = receiver.recvmsg(1, 256)
    return any((level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS) for level, kind, _ in messages)


def is_own(address: str) -> bool:
    """Whether the IP *address* belongs to this host: no other address can be bound."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def timer_lateness_us(sleeps: int = PROBE_SLEEPS) -> list[float]:
    late = []
    for _ in range(sleeps):
        due = time.monotonic_ns() + SLEEP_NS
        time.sleep(SLEEP_NS / 1e9)
        late.append((time.monotonic_ns() - due) / 1e3)
    return sorted(late)


def compiled_names() -> list[str]:
    import fastllmload._ext as package

    stubs = sorted(Path(package.__path__[0]).glob("*/*.pyi"))
    return [f"fastllmload._ext.{stub.parent.name}.{stub.stem}" for stub in stubs]


def compiled_digest() -> str:
    """Digest of the files of all compiled modules: two hosts with the same one run the same code."""
    import fastllmload._ext as package

    found = hashlib.sha256()
    for path in sorted(Path(package.__path__[0]).glob("*/*.so")):
        found.update(f"{path.parent.name}/{path.name}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


def not_importable(names: Sequence[str]) -> dict[str, str]:
    """Those of the modules *names* that cannot be imported, with the reason."""
    failed = {}
    for name in names:
        try:
            import_module(name)
        except ImportError as error:
            failed[name] = str(error)
    return failed


def is_loopback(address: str) -> bool:
    """Whether *address*, an IP address (brackets and zone allowed) or a host name, is this host's own loopback."""
    try:
        return ipaddress.ip_address(address.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return address == "localhost"
