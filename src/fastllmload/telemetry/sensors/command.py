"""Power from a command that prints watts once, and is run again each tick, or repeatedly.

A line is a number of watts (`41.3`, `41.3 W`, `41300 mW`); the instant is when the line arrived.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from fastllmload.settings import KEY_VARIABLES
from fastllmload.telemetry.sensors.sensor import Absent, Key, Reading, SensorError

WATTS = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(mW|W|watts?)?\s*", re.IGNORECASE)
LONGEST_LINE = 4096
MOST_LINES = 10_000  # that wait for a read; a command that floods loses the oldest
SILENT_S = 10.0  # without a line or an end: it hangs
FIRST_LINE_S = 2.0  # how long a read waits for a command that was started by it
LAST_LINES_S = 0.05  # and then for its end, so that one that prints once is asked in every tick
Parse = Callable[[str], list[tuple[Key, float]]]


def watts(line: str) -> list[tuple[Key, float]]:
    """SensorError for a line that is not a power."""
    match = WATTS.fullmatch(line)
    if match is None:
        raise SensorError("the power command printed a line that is not a number of watts")
    scale = 1e-3 if (match[2] or "").lower() == "mw" else 1.0
    return [(Key("power_w", "stdout", "W"), float(match[1]) * scale)]


class Command:
    """Sensor over *arguments*, a program and its words. Its output is read on a thread that does nothing else."""

    def __init__(self, arguments: Sequence[str], parse: Parse = watts, origin: str = "command") -> None:
        self.origin = origin
        self._arguments = tuple(arguments)
        self._parse = parse
        self._child: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._lines: deque[tuple[int, bytes]] = deque(maxlen=MOST_LINES)
        self._news = threading.Event()
        self._last_ns = 0

    def read(self) -> list[Reading]:
        """The lines since the previous read; an empty read is not a failure while the command runs."""
        if self._ended() and not self._lines:
            self._finish()
            self._start()
            self._news.wait(FIRST_LINE_S)
            self._reading(LAST_LINES_S)
        readings, problem = self._drain()
        if problem is not None:
            raise SensorError(str(problem), readings)
        if readings:
            return readings
        if self._ended():
            code = self._finish()
            raise SensorError(f"the power command printed nothing and ended with exit code {code}")
        if time.monotonic_ns() - self._last_ns > SILENT_S * 1e9:
            self._finish()
            raise SensorError(f"the power command printed nothing for {SILENT_S:g} s and was started again")
        return []

    def close(self) -> None:
        self._finish()

    def _start(self) -> None:
        environment = {name: text for name, text in os.environ.items() if name not in KEY_VARIABLES}
        try:
            self._child = subprocess.Popen(
                self._arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                env=environment, start_new_session=True,
            )  # fmt: skip
        except OSError as problem:
            raise SensorError(f"{self._arguments[0]} cannot be started: {(problem.strerror or '').lower()}") from None
        self._news.clear()
        self._last_ns = time.monotonic_ns()
        self._reader = threading.Thread(target=self._collect, args=(self._child,), daemon=True)
        self._reader.start()

    def _collect(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        with child.stdout as output:
            for line in iter(lambda: output.readline(LONGEST_LINE), b""):
                self._last_ns = time.monotonic_ns()
                if line.strip():
                    self._lines.append((self._last_ns, line))
                    self._news.set()
        child.wait()
        self._news.set()

    def _drain(self) -> tuple[list[Reading], SensorError | None]:
        readings: list[Reading] = []
        problem = None
        while self._lines:
            t_ns, line = self._lines.popleft()
            try:
                readings += [Reading(key, value, t_ns) for key, value in self._parse(line.decode(errors="replace"))]
            except SensorError as wrong:
                problem = wrong
        return readings, problem

    def _ended(self) -> bool:
        return self._child is None or (self._child.poll() is not None and not self._reading())

    def _reading(self, wait_s: float = 0.0) -> bool:
        if self._reader is not None:
            self._reader.join(wait_s)
        return self._reader is not None and self._reader.is_alive()

    def _finish(self) -> int | None:
        """End the command and all that it started; returns its exit code."""
        child, self._child = self._child, None
        if child is None:
            return None
        for strike in (signal.SIGTERM, signal.SIGKILL):
            # Once all of it has ended its number may be another's.
            if child.poll() is not None and not self._reading():
                break
            with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or another user's (sudo)
                os.killpg(child.pid, strike)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(1.0)
            self._reading(1.0)
        return child.returncode


# -- powermetrics: Apple silicon, a block of text per interval; only as root on macOS -----------------------------------

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
