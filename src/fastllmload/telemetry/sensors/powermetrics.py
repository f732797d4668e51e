"""Power of Apple silicon by `powermetrics`, which prints a block of text per interval; only as root on macOS."""

from __future__ import annotations

import re
import shutil
import sys

from fastllmload.telemetry.sensors.command import Command
from fastllmload.telemetry.sensors.sensor import Absent, Key

LINE = re.compile(r"(CPU|GPU|ANE|Combined) Power(?: \([^)]*\))?:\s*(\d+(?:\.\d+)?)\s*(mW|W)\s*")


def power_line(line: str) -> list[tuple[Key, float]]:
    """`CPU Power: 1234 mW` as `powermetrics.cpu.power_w`; `Combined Power (CPU + GPU + ANE)` is `power_w`. Else nothing."""
    match = LINE.fullmatch(line)
    if match is None:
        return []
    part, scale = match[1], 1e-3 if match[3] == "mW" else 1.0
    name = "power_w" if part == "Combined" else f"powermetrics.{part.lower()}.power_w"
    return [(Key(name, f"{part} Power", "W"), float(match[2]) * scale)]


def open_powermetrics(interval_s: float, platform: str = sys.platform) -> Command | Absent:
    if platform != "darwin":
        return Absent("powermetrics", "powermetrics is a tool of macOS, and this is not macOS")
    if shutil.which("powermetrics") is None:
        return Absent("powermetrics", "powermetrics is not on the PATH")
    arguments = ["sudo", "-n", "powermetrics", "--samplers", "cpu_power,gpu_power", "-i", f"{interval_s * 1e3:.0f}"]
    return Command(arguments, power_line, "powermetrics")
