"""One phase from READY to its last end: start the clock, watch, show, drain. Interrupts and deaths are handled here."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from fastllmload._ext import counters as k
from fastllmload._ext import histogram
from fastllmload.engine.fleet import STARTING_S, Fleet
from fastllmload.engine.live import Live
from fastllmload.engine.workspec import PhaseSpec
from fastllmload.errors import InternalError
from fastllmload.report.terminal import Ui

LOOK_S = 0.25
LEAD_NS = 200_000_000  # between "everyone is ready" and time zero
MIN_GRACE_S = 60.0


@dataclass
class Interrupts:
    """SIGINT once: send no more and drain; twice, or SIGTERM: write what there is."""

    count: int = 0
    _before: dict[int, Any] = field(default_factory=dict)

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._strike)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _strike(self, number: int, frame: FrameType | None) -> None:
        self.count += 2 if number == signal.SIGTERM else 1


@dataclass
class Director:
    """Runs phases on *fleet*; *status* says how the run ended: done, interrupted, partial or disk_full."""

    fleet: Fleet
    live: Live
    ui: Ui
    interrupts: Interrupts
    redact: Callable[[str], str]
    grace_s: float | None
    on_start: Callable[[PhaseSpec, int], None]
    status: str = "done"

    def run(self, phase: PhaseSpec, planned: int | None, seconds: float | None, rate: float | None) -> bool:
        """One phase; False when the run must end now."""
        self.fleet.begin_phase(phase.number)
        if not self._await_ready(phase):
            return False
        self.ui.phase(phase.name, planned, seconds)
        self.live.begin()
        start = time.monotonic_ns() + LEAD_NS
        self.on_start(phase, start)
        self.fleet.start_clock(start)
        slots = phase.concurrency or None
        drain_until = math.inf
        while not self.fleet.phase_ended(phase.number):
            time.sleep(LOOK_S)
            cpu = self.live.record(phase.number)
            self.ui.update(self.live.snapshot(phase.name, start, cpu, rate, slots, seconds))
            self._look_for_deaths()
            if not self.fleet.alive:
                return False
            drain_until = self._steer(drain_until)
        self.live.record(phase.number)
        return self.status in ("done", "partial") and self.interrupts.count == 0

    def _await_ready(self, phase: PhaseSpec) -> bool:
        give_up = time.monotonic() + STARTING_S
        while not self.fleet.ready(phase.number):
            time.sleep(0.005)
            self._look_for_deaths()
            if self.interrupts.count:
                self.status = "interrupted"
            if self.interrupts.count or not self.fleet.alive:
                return False
            if time.monotonic() > give_up:
                raise InternalError(f"the workers were not ready within {STARTING_S:g} s")
        return True

    def _steer(self, drain_until: float) -> float:
        """Pass on interrupts and a full disk; returns when the drain must end."""
        if self.interrupts.count:
            if self.status != "interrupted":
                self.ui.message("interrupted: no more requests are sent; interrupt again to end at once")
            self.status = "interrupted"
            self.fleet.command(k.DRAIN if self.interrupts.count == 1 else k.ABORT)
        if self.fleet.total(k.W_DISK_FULL) and self.status == "done":
            self.status = "disk_full"
            self.ui.message("the disk is full: sending has stopped, what was measured is kept")
            self.fleet.command(k.DRAIN)
        if drain_until == math.inf and self.fleet.sending_over():
            drain_until = time.monotonic() + self.drain_s()
        if time.monotonic() > drain_until:
            self.fleet.command(k.ABORT)
        return drain_until

    def drain_s(self) -> float:
        """The declared drain time-out: --grace, else max(60 s, 5 x P99 e2e so far) (procedures 0.6)."""
        if self.grace_s is not None:
            return self.grace_s
        p99 = histogram.percentile(self.fleet.histogram(k.H_E2E), 0.99)
        return max(MIN_GRACE_S, 5 * (p99 or 0) / 1e9)

    def _look_for_deaths(self) -> None:
        for member in self.fleet.watch():
            if self.status == "done":
                self.status = "partial"
            self.ui.message(
                f"worker {member.spec.worker} died (exit code {member.process.returncode}): "
                f"{self.fleet.last_words(member, self.redact)}; the others go on"
            )
