"""Who used the processors of this host, and what a quota withheld."""

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
    """CPU time that a process has used since it began."""

    name: str
    parent: int
    ns: int


def used_cpu(proc: Path = PROC) -> dict[int, CpuUse]:
    """Of every process that can be seen, by process id."""
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
    """The processes outside of the tree of *own* (this process) that used most CPU time between the two, in words."""
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
    """How long the CPU quota of this process's cgroup has withheld a processor; None where that cannot be told."""
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
        stated = dict(line.split() for line in path.read_text(encoding="ascii").splitlines())
    except (OSError, ValueError):  # none, or not of this form
        return None
    if "throttled_usec" in stated:
        return int(stated["throttled_usec"]) * 1000
    return int(stated["throttled_time"]) if "throttled_time" in stated else None
