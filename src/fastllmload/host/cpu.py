"""CPU time of the processes on this host, and time that a CPU quota withheld."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TICKS_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ProcessFigures:
    """From /proc: CPU of all threads (10 ms resolution), memory, switches and run-queue delay of the main thread."""

    cpu_ns: int
    rss_bytes: int
    voluntary_switches: int
    involuntary_switches: int
    run_delay_ns: int


def process_figures(pid: int) -> ProcessFigures | None:
    """None when the process is gone."""
    try:
        stat = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        status = read(f"/proc/{pid}/status")
        schedule = read(f"/proc/{pid}/schedstat").split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    switches = {line.split(b":")[0]: int(line.split()[1]) for line in status.splitlines() if b"ctxt_switches" in line}
    return ProcessFigures(
        cpu_ns=(int(stat[11]) + int(stat[12])) * TICKS_NS,
        rss_bytes=int(stat[21]) * PAGE,
        voluntary_switches=switches.get(b"voluntary_ctxt_switches", 0),
        involuntary_switches=switches.get(b"nonvoluntary_ctxt_switches", 0),
        run_delay_ns=int(schedule[1]),
    )


def read(path: str) -> bytes:
    """Read a complete file of /proc at once. Called while the clock runs, where a Path would cost as much as the file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 1 << 16)
    finally:
        os.close(descriptor)


PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
LEAST_NS = 100_000_000  # a process that used less is not named
MOST = 3


@dataclass(frozen=True)
class CpuUse:
    name: str
    parent: int
    ns: int


def used_cpu(proc: Path = PROC) -> dict[int, CpuUse]:
    found = {}
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # it ended meanwhile
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()  # from the third field of proc(5) on
        found[int(folder.name)] = CpuUse(name, int(fields[1]), (int(fields[11]) + int(fields[12])) * TICKS_NS)
    return found


def competitors(before: Mapping[int, CpuUse], after: Mapping[int, CpuUse], own: int | None = None) -> list[str]:
    """The processes that used most CPU time between the two readings, without *own* (this one) and its descendants."""
    mine = tree_of(os.getpid() if own is None else own, after)
    spent = {pid: used.ns - (before[pid].ns if pid in before else 0) for pid, used in after.items() if pid not in mine}
    most = sorted((pid for pid in spent if spent[pid] >= LEAST_NS), key=lambda pid: -spent[pid])[:MOST]
    return [f"{after[pid].name} (process {pid}) {spent[pid] / 1e9:.1f} s of CPU" for pid in most]


def tree_of(root: int, processes: Mapping[int, CpuUse]) -> set[int]:
    found, grew = {root}, True
    while grew:
        more = {pid for pid, used in processes.items() if used.parent in found} - found
        found |= more
        grew = bool(more)
    return found


def throttled_ns(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Time for which the CPU quota of this process's cgroup has throttled it; None where that is not known."""
    try:
        lines = (proc / "self/cgroup").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):  # no /proc
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        folder = cgroups / controllers if controllers else cgroups
        for where in (folder / path.lstrip("/"), folder):
            found = read_throttled(where / "cpu.stat")
            if found is not None:
                return found
    return None


def read_throttled(path: Path) -> int | None:
    """From cpu.stat of cgroup 2 (throttled_usec) or 1 (throttled_time, ns)."""
    try:
        fields = dict(line.split() for line in path.read_text(encoding="ascii").splitlines())
    except (OSError, ValueError):  # no such file, or another format
        return None
    if "throttled_usec" in fields:
        return int(fields["throttled_usec"]) * 1000
    return int(fields["throttled_time"]) if "throttled_time" in fields else None
