"""What a process has used so far, as the kernel counts it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TICKS_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ProcessFigures:
    """From /proc: CPU of all threads (10 ms grain), memory, switches and run-queue delay of the main thread."""

    cpu_ns: int
    rss_bytes: int
    voluntary_switches: int
    involuntary_switches: int
    run_delay_ns: int


def process_figures(pid: int) -> ProcessFigures | None:
    """None when the process is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
        schedule = Path(f"/proc/{pid}/schedstat").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    switches = {line.split(":")[0]: int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line}
    return ProcessFigures(
        cpu_ns=(int(stat[11]) + int(stat[12])) * TICKS_NS,
        rss_bytes=int(stat[21]) * PAGE,
        voluntary_switches=switches.get("voluntary_ctxt_switches", 0),
        involuntary_switches=switches.get("nonvoluntary_ctxt_switches", 0),
        run_delay_ns=int(schedule[1]),
    )
