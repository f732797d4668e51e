"""Samples this host: CPU per core, clock, thermal throttling, memory, load, bytes of the used interface.

From small files of /proc and /sys. What a machine does not have (clock, thermal counters) has no series.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from fastllmload.telemetry.sensors.sensor import COUNTER, Key, Reading, SensorError

ROOT = Path("/")
IDLE, IOWAIT, STEAL, LAST = 3, 4, 7, 8  # columns of /proc/stat; guest time is in user time already


class Host:
    """Sensor of the client's machine. *interface*: its network device towards the target, None when unknown."""

    origin = "host"

    def __init__(self, interface: str | None = None, root: Path = ROOT) -> None:
        self.interface = interface
        self._root = root
        self._ticks: dict[str, list[int]] = {}

    def read(self) -> list[Reading]:
        try:
            return [*self._cpu(), *self._memory(), *self._clock(), *self._thermal(), *self._network(), self._own()]
        except (OSError, ValueError, IndexError) as problem:
            raise SensorError(f"/proc or /sys cannot be read: {type(problem).__name__}") from None

    def close(self) -> None:
        """Nothing is held open between reads."""

    def _cpu(self) -> Iterator[Reading]:
        """Busy share of all cores (`cpu`) and of each one since the read before, and what the hypervisor took."""
        for line in (self._root / "proc/stat").read_text().splitlines():
            name, _, rest = line.partition(" ")
            if not name.startswith("cpu"):
                break
            now = [int(word) for word in rest.split()[:LAST]]
            before, self._ticks[name] = self._ticks.get(name), now
            total = 0 if before is None else sum(now) - sum(before)
            if before is None or total <= 0:
                continue
            idle = now[IDLE] - before[IDLE] + now[IOWAIT] - before[IOWAIT]
            yield Reading(Key(f"host.{name}.busy", "/proc/stat", "share"), min(1.0, max(0.0, 1 - idle / total)))
            if name == "cpu" and len(now) > STEAL:
                yield Reading(Key("host.cpu.steal", "/proc/stat", "share"), (now[STEAL] - before[STEAL]) / total)

    def _memory(self) -> Iterator[Reading]:
        for line in (self._root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield Reading(Key("host.memory_available_bytes", "MemAvailable", "bytes"), int(line.split()[1]) * 1024)
        load = (self._root / "proc/loadavg").read_text().split()[0]
        yield Reading(Key("host.load1", "/proc/loadavg", "processes"), float(load))

    def _clock(self) -> Iterator[Reading]:
        """Mean clock of the cores that tell theirs."""
        paths = (self._root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq")
        clocks = [int(path.read_text()) * 1e3 for path in paths]
        if clocks:
            yield Reading(Key("host.cpu.clock_hz", "scaling_cur_freq", "Hz"), sum(clocks) / len(clocks))

    def _thermal(self) -> Iterator[Reading]:
        """How often any core was slowed down for its heat, since boot."""
        paths = (self._root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/core_throttle_count")
        counts = [int(path.read_text()) for path in paths]
        if counts:
            yield Reading(Key("host.cpu.thermal_throttles", "core_throttle_count", "events", COUNTER), sum(counts))

    def _network(self) -> Iterator[Reading]:
        if self.interface is None:
            return
        for way in ("rx", "tx"):
            path = self._root / "sys/class/net" / self.interface / "statistics" / f"{way}_bytes"
            if path.exists():
                key = Key(f"host.net.{way}_bytes", f"{self.interface}/{way}_bytes", "bytes", COUNTER)
                yield Reading(key, int(path.read_text()))

    def _own(self) -> Reading:
        """CPU time of this very process: what telemetry costs."""
        return Reading(Key("sampler.cpu_s", "process_time", "s", COUNTER), time.process_time())
