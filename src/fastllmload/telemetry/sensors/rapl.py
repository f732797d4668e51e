"""Power of CPU packages and memory by Linux RAPL: energy counters under /sys/class/powercap, which wrap around.

A package's `core` and `uncore` are parts of it and are not added; `psys` holds the packages and is left out
of the sum unless it is all there is.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from fastllmload.telemetry.sensors.sensor import Absent, Key, Reading, SensorError

POWERCAP = Path("/sys/class/powercap")
ZONE = re.compile(r"(?:intel-rapl|amd-rapl):\d+(?::\d+)?")
SUMMED = re.compile(r"package-\d+|dram")


@dataclass
class Zone:
    """One counter. *last*: (CLOCK_MONOTONIC ns, microjoules) of the read before."""

    name: str
    path: Path
    highest_uj: int
    last: tuple[int, int] | None = None

    def watts(self) -> float | None:
        """Mean since the read before; None for the first."""
        now = time.monotonic_ns()
        energy = int(self.path.read_text())
        before, self.last = self.last, (now, energy)
        if before is None or now <= before[0]:
            return None
        used = energy - before[1]
        if used < 0:
            used += self.highest_uj + 1  # the counter runs from 0 to its range and starts again
        return used * 1e3 / (now - before[0])


class Rapl:
    """Sensor over zones: `rapl.<zone>.power_w`, and `power_w`, the sum of packages and memory."""

    origin = "rapl"

    def __init__(self, zones: list[Zone]) -> None:
        self._zones = zones
        summed = [zone for zone in zones if SUMMED.fullmatch(zone.name.rpartition("/")[2])]
        self._summed = {zone.name for zone in (summed or [zone for zone in zones if zone.name == "psys"])}

    def read(self) -> list[Reading]:
        watts: dict[str, float] = {}
        for zone in self._zones:
            try:
                value = zone.watts()
            except (OSError, ValueError) as problem:
                raise SensorError(f"the energy counter of {zone.name} cannot be read: {words(problem)}") from None
            if value is not None:
                watts[zone.name] = value
        readings = [Reading(Key(f"rapl.{name}.power_w", "energy_uj", "W"), value) for name, value in watts.items()]
        if self._summed and self._summed <= watts.keys():
            readings.append(Reading(Key("power_w", "energy_uj", "W"), sum(watts[name] for name in self._summed)))
        return readings

    def close(self) -> None:
        """Nothing is held open between reads."""


def words(problem: BaseException) -> str:
    return (problem.strerror or "no access").lower() if isinstance(problem, OSError) else "it is not a number"


def open_rapl(root: Path = POWERCAP) -> Rapl | Absent:
    """All zones that can be read; Absent says why there is none."""
    found = sorted(path for path in root.glob("*-rapl:*") if ZONE.fullmatch(path.name)) if root.is_dir() else []
    if not found:
        return Absent("rapl", f"there is no RAPL energy counter under {root}")
    zones = []
    try:
        for path in found:
            int((path / "energy_uj").read_text())
            name = (path / "name").read_text().strip()
            if path.name.count(":") == 2:  # a part of a package: its name alone would be there once per package
                name = f"{(path.parent / path.name.rpartition(':')[0] / 'name').read_text().strip()}/{name}"
            zones.append(Zone(name, path / "energy_uj", int((path / "max_energy_range_uj").read_text())))
    except PermissionError:
        return Absent("rapl", f"the RAPL energy counters under {root} are only for root; give read access to energy_uj")
    except (OSError, ValueError) as problem:
        return Absent("rapl", f"the RAPL energy counters under {root} cannot be read: {words(problem)}")
    return Rapl(zones)
