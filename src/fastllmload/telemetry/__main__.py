"""The telemetry process: reads a `SamplerSpec` from the first line of its stdin, and ends when its stdin does."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import msgspec

from fastllmload.redact import Redactor
from fastllmload.telemetry.files import Index, SourceEntry
from fastllmload.telemetry.http_page import HttpPage
from fastllmload.telemetry.log import TelemetryLog
from fastllmload.telemetry.sampler import Sampler
from fastllmload.telemetry.sensors.host import Host
from fastllmload.telemetry.sensors.nvml import Nvml
from fastllmload.telemetry.sensors.prometheus import PrometheusTarget
from fastllmload.telemetry.sensors.scrape import Scrape
from fastllmload.telemetry.sensors.sensor import Absent, Sensor
from fastllmload.telemetry.spec import SamplerSpec, open_power

NICENESS = 10


def sources(spec: SamplerSpec, index: Index) -> list[Sensor]:
    """All sources that are there, each with its entry in *index*; why the others are not is in `index.absent`."""
    found: list[Sensor] = []
    redact = Redactor(spec.secrets)

    def take(sensor: Sensor, kind: str, exporter: str | None = None, label: str | None = None) -> None:
        facts = sensor.facts() if isinstance(sensor, Nvml) else []
        index.sources.append(SourceEntry(sensor.origin, kind, facts=facts, exporter=exporter, label=label))
        found.append(sensor)

    for page in spec.pages:
        kind = Scrape if page.selector is None else PrometheusTarget
        take(kind(HttpPage(page, spec.timeout_s), spec.metrics, redact), page.role, page.exporter, page.label)
    for name in spec.power:
        sensor = open_power(name, spec.power_command, spec.gpus, spec.interval_s)
        if isinstance(sensor, Absent):
            index.absent[sensor.origin] = sensor.why
        else:
            take(sensor, "power")
    take(Host(spec.interface), "host")
    return found


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's; the supervisor drains first
    os.nice(NICENESS)
    spec = msgspec.json.decode(sys.stdin.buffer.readline(), type=SamplerSpec)
    index = Index(interval_s=spec.interval_s)
    sensors = sources(spec, index)
    log = TelemetryLog(Path(spec.folder), index)
    sampler = Sampler(sensors, log, spec.interval_s)
    sampler.start()
    sys.stdin.buffer.read()
    log.close(sampler.stop())
    sys.stdout.flush()
    os._exit(0)  # a thread that still waits for its peer would hold the process up


if __name__ == "__main__":
    sys.exit(main())
