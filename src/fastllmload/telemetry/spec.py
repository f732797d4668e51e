"""Defines the settings that the telemetry process reads as one line of JSON from stdin; the end of stdin ends it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fastllmload.telemetry.http_page import PageSpec
from fastllmload.telemetry.sensors.command import Command, open_powermetrics
from fastllmload.telemetry.sensors.nvml import open_nvml
from fastllmload.telemetry.sensors.rapl import open_rapl
from fastllmload.telemetry.sensors.sensor import Absent, Sensor

# Of several available sensors the first gives the run's power; the others are recorded too.
POWER = ("command", "nvml", "powermetrics", "rapl")


class SamplerSpec(msgspec.Struct, frozen=True):
    """*power*: names out of POWER, in that order. *interface*: the network device towards the target, None when unknown."""

    folder: str
    interval_s: float = 1.0
    timeout_s: float = 5.0
    pages: tuple[PageSpec, ...] = ()
    metrics: tuple[str, ...] = ()
    power: tuple[str, ...] = ()
    power_command: str | None = None
    gpus: tuple[int, ...] = ()
    interface: str | None = None
    secrets: tuple[str, ...] = ()  # blanked in whatever a server says that is stored


def open_power(
    name: str, command: str | None = None, gpus: Sequence[int] = (), interval_s: float = 1.0
) -> Sensor | Absent:
    if name == "nvml":
        return open_nvml(gpus)
    if name == "rapl":
        return open_rapl()
    if name == "powermetrics":
        return open_powermetrics(interval_s)
    if command is None:
        return Absent("command", "no command was given")
    return Command(("/bin/sh", "-c", command))
