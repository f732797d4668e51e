"""Facts about this host for run.json, needed to compare runs."""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from fastllmload._ext.clock import realtime_offset_ns
from fastllmload.certificate.ceiling import cpu_model
from fastllmload.host import probe

LIBRARIES = ("uvloop", "httptools", "numpy", "msgspec", "hdrhistogram")
CONGESTION = "/proc/sys/net/ipv4/tcp_congestion_control"


def command_line() -> list[str] | None:
    """The arguments of this process; None when a user's program called the Python API."""
    program = Path(sys.argv[0]) if sys.argv else Path()
    ours = program.name == "fastllmload" or program.parts[-2:] == ("fastllmload", "__main__.py")
    return ["fastllmload", *sys.argv[1:]] if ours else None


def environment() -> dict[str, Any]:
    """*clock_offset_ns* is CLOCK_REALTIME - CLOCK_MONOTONIC now: the only link between rows and wall time."""
    return {
        "time_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "clock_offset_ns": realtime_offset_ns(),
        "host": platform.node(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": cpu_model(),
        "cores": probe.cores(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "tcp_congestion_control": probe.setting(CONGESTION),
        "python": sys.version.split()[0],
        "libraries": {name: metadata.version(name) for name in LIBRARIES},
    }
