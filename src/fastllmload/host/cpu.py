"""CPU time of the processes on this host, and time that a CPU quota withheld."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
LEAST_NS = 100_000_000  # a process that used less is not named
MOST = 3


@dataclass(frozen=True)
class CpuUse:
    """CPU time that a process has used since it started."""

    name: str
    parent: int
    ns: int


def used_cpu(proc: Path = PROC) -> dict[int, CpuUse]:
    """CPU time of every visible process, by process id."""
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
        found[int(folder.name)] = CpuUse(name, int(fields[1]), (int(fields[11]) + int(fields[12])) * NS_PER_TICK)
    return found


def competitors(before: Mapping[int, CpuUse], after: Mapping[int, CpuUse], own: int | None = None) -> list[str]:
    """The processes that used most CPU time between the two readings, as text, without *own* (this process) and its
    descendants.
    """
    mine = tree_of(os.getpid() if own is None else own, after)
    spent = {pid: used.ns - (before[pid].ns if pid in before else 0) for pid, used in after.items() if pid not in mine}
    most = sorted((pid for pid in spent if spent[pid] >= LEAST_NS), key=lambda pid: -spent[pid])[:MOST]
    return [f"{after[pid].name} (process {pid}) {spent[pid] / 1e9:.1f} s of CPU" for pid in most]


def tree_of(root: int, processes: Mapping[int, CpuUse]) -> set[int]:
    """*root* and all that descend from it."""
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
