"""Reads every source once a tick of the absolute clock, each on its own thread; missed ticks are counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from fastllmload.telemetry.log import TelemetryLog
from fastllmload.telemetry.sensors.sensor import Sensor, SensorError

STOPPING_S = 6.0  # for reads under way and the last ones


class Sampler:
    """`start()`, then `stop()`, which reads each source one last time: a run is checked by the final counters."""

    def __init__(self, sensors: Sequence[Sensor], log: TelemetryLog, interval_s: float) -> None:
        self._log = log
        self._interval_ns = round(interval_s * 1e9)
        self._stopping = threading.Event()
        self._finished = 0
        self._threads = [
            threading.Thread(target=self._follow, args=(number, sensor), daemon=True)
            for number, sensor in enumerate(sensors)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> bool:
        """Whether every source came to its end, in time and without a fault of ours (its trace is on stderr)."""
        self._stopping.set()
        until = time.monotonic() + STOPPING_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return self._finished == len(self._threads)

    def _follow(self, number: int, sensor: Sensor) -> None:
        due = time.monotonic_ns()
        while not self._stopping.is_set():
            self._ask(number, sensor)
            due += self._interval_ns
            missed = max(0, (time.monotonic_ns() - due) // self._interval_ns + 1)
            if missed:
                self._log.skip(number, missed)
                due += missed * self._interval_ns
            self._stopping.wait((due - time.monotonic_ns()) / 1e9)
        self._ask(number, sensor)
        try:
            sensor.close()
        except SensorError as problem:
            now = time.monotonic_ns()
            self._log.fail(number, now, now, str(problem))
        self._finished += 1

    def _ask(self, number: int, sensor: Sensor) -> None:
        before = time.monotonic_ns()
        try:
            readings = sensor.read()
        except SensorError as problem:
            self._log.fail(number, before, time.monotonic_ns(), str(problem), problem.readings)
        else:
            self._log.add(number, before, time.monotonic_ns(), readings)
