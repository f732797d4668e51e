"""Runs one phase from READY to its last request: starts the clock, updates four times a second, drains, ends.

During a phase the supervisor reads only shared memory and a few files of /proc.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from fastllmload._ext.record import counters as k
from fastllmload.engine.interrupts import DRAIN, NOTHING, STOP, Interrupts
from fastllmload.engine.recording.live import Live, scaled
from fastllmload.engine.workers.fleet import STARTING_S, Fleet, Member
from fastllmload.engine.workers.sizing import phase_seconds
from fastllmload.engine.workers.spec import PhaseSpec
from fastllmload.errors import HostLimitError
from fastllmload.plan.plan import Plan
from fastllmload.report.terminal.view import Ui

LAST = 100  # requests


class FailureMonitor:
    """Detects from the totals of ended and failed requests that more than *share* of the last LAST, or more, failed."""

    def __init__(self, share: float | None = None) -> None:
        self.share = share
        self.cascading = False
        self._totals: deque[tuple[int, int]] = deque([(0, 0)])

    def update(self, ended: int, failed: int) -> bool:
        """True from the first update with too many failures on."""
        if self.share is None or self.cascading:
            return self.cascading
        self._totals.append((ended, failed))
        while len(self._totals) > 1 and ended - self._totals[1][0] >= LAST:
            self._totals.popleft()
        before, failed_before = self._totals[0]
        if ended - before >= LAST:
            self.cascading = failed - failed_before > self.share * (ended - before)
        return self.cascading


UPDATE_S = 0.25
POLL_S = 0.01  # while no clock runs
LEAD_NS = 200_000_000  # from the last READY to time zero: by then every worker has read the start time
LEAST_GRACE_S = 60.0
GRACE_P99 = 5.0  # times P99 E2E so far
SILENT_NS = 60_000_000_000  # a worker without a heartbeat for this long hangs
ABORT_NS = 10_000_000_000  # for workers to cancel and write
# Why a worker is not ready in time, and what to do.
TOO_BUSY = (
    "this host is too busy or its CPU quota too small: stop other programs, raise the quota, or use fewer --workers"
)
STOPPED = "most of that time it was stopped by a signal or a debugger, or waited for a disk: let it go on"


@dataclass(frozen=True)
class PhaseOutcome:
    """How a phase went; times are CLOCK_MONOTONIC ns. *end_ns*: sending stopped; *cut*: before its bound."""

    start_ns: int
    end_ns: int
    released: int
    ok: int
    cut: bool
    timed_out: bool  # the drain time-out cancelled what was in flight
    cascading: bool = False  # sending was stopped because the last requests failed


@dataclass
class PhaseRun:
    """Runs *spec* on *fleet*. *started* receives time zero before the workers do; *check* returns whether the target ended.

    *prepares*: a later phase needs all workers, so this one is cut short when one of them dies.
    *own_grace*: the supervisor ends the drain (max(60 s, 5 x P99 E2E so far)); else the workers do.
    """

    fleet: Fleet
    spec: PhaseSpec
    plan: Plan
    live: Live
    ui: Ui
    interrupts: Interrupts
    asked_rate: float | None
    own_grace: bool
    died: Callable[[Member], None]
    ready: Callable[[], None]
    check: Callable[[], bool]
    started: Callable[[int], None]
    failures: FailureMonitor = field(default_factory=FailureMonitor)
    prepares: bool = False
    start_ns: int = 0
    command: int = NOTHING  # sent so far
    cut_ns: int = 0  # when a command stopped sending
    drain_ns: int = 0  # when sending was found to have ended
    abort_ns: int = 0
    timed_out: bool = False

    def run(self) -> PhaseOutcome | None:
        """None when the user stopped the run, or every worker died, before time zero."""
        number = self.spec.number
        self._reap()
        if self._missing():
            return None
        endless = self.plan.cycles or self.plan.closed_cycles
        self.ui.phase(self.spec.name, None if endless else self.plan.requests, self.plan.duration_s)
        self.fleet.begin_phase(number)
        if not self._await_ready():
            return None
        self.ready()
        self.live.begin()
        self.start_ns = time.monotonic_ns() + LEAD_NS + (0 if self.prepares else self.fleet.lead_ns)
        self.started(self.start_ns)
        self.fleet.start_clock(self.start_ns)
        self._update_until_ended()
        self._report_cancelled()
        return PhaseOutcome(
            start_ns=self.start_ns,
            end_ns=self._end_of_sending(),
            released=self.live.since(k.W_RELEASED),
            ok=self.live.since(k.W_OK),
            cut=self.cut_ns > 0,
            timed_out=self.timed_out,
            cascading=self.failures.cascading,
        )

    def _await_ready(self) -> bool:
        """False when a worker is missing: a phase begins with all its workers or not at all."""
        until = time.monotonic() + STARTING_S
        while not self.fleet.ready(self.spec.number):
            self._reap()
            if self.interrupts.level or self._missing():
                return False
            if time.monotonic() > until:
                raise HostLimitError("workers-not-ready", self._not_ready())
            self.interrupts.wait(POLL_S)
        return not self._missing()

    def _not_ready(self) -> str:
        """Names the worker that was not ready in time, and how long it had a CPU."""
        late = [member for member in self.fleet.alive if not self.fleet.is_ready(member, self.spec.number)]
        figures = [(found, member) for member in late if (found := member.figures()) is not None]
        problem, advice = f"the workers were not ready for the phase {self.spec.name} within {STARTING_S:g} s", TOO_BUSY
        if figures:
            used, member = max(figures, key=lambda each: each[0].run_delay_ns)
            problem = (
                f"worker {member.spec.worker} was not ready for the phase {self.spec.name} within {STARTING_S:g} s: since "
                f"its start it ran for {used.cpu_ns / 1e9:.1f} s and waited {used.run_delay_ns / 1e9:.1f} s for a CPU"
            )
            if used.cpu_ns + used.run_delay_ns < STARTING_S / 2 * 1e9:
                advice = STOPPED
        return f"{problem}; {advice}, and start the run again"

    def _missing(self) -> bool:
        return len(self.fleet.alive) < len(self.fleet.members)

    def _update_until_ended(self) -> None:
        due = time.monotonic()
        while not self.fleet.phase_ended(self.spec.number) and not self._abort_ignored():
            self._update()
            gone = self.check()
            self._reap()
            self._apply_commands(gone)
            self._end_drain()
            due = max(due + UPDATE_S, time.monotonic())
            self.interrupts.wait(due - time.monotonic())
        self._update()

    def _abort_ignored(self) -> bool:
        """Whether a worker does not react to ABORT; `Fleet.stop` kills it later."""
        return self.abort_ns > 0 and time.monotonic_ns() - self.abort_ns > ABORT_NS

    def _update(self) -> None:
        if not self.drain_ns and self.fleet.sending_over():
            self.drain_ns = time.monotonic_ns()
        cpu = self.live.record(self.spec.number)
        if not self.ui.due((time.monotonic_ns() - self.start_ns) / 1e9):
            return
        closed = self.spec.mode == "closed"
        self.ui.update(
            self.live.snapshot(
                self.spec.name, self.start_ns, self.drain_ns, cpu,
                rate=None if closed else self.asked_rate,
                concurrency=self.spec.concurrency if closed else sum(self.plan.closed_classes.values()) or None,
                end_s=phase_seconds(self.plan),
                waits=self.spec.max_prefill > 0,
            )
        )  # fmt: skip

    def _reap(self) -> None:
        self.fleet.end_stuck(time.monotonic_ns() - SILENT_NS)
        for member in self.fleet.watch():
            self.died(member)

    def _apply_commands(self, gone: bool) -> None:
        """Stop sending after a signal of the user, when the target is *gone*, when a disk is full or a host was lost and the
        run is to end then, and when a worker is missing from a phase that prepares for one that needs them all.
        """
        if self.interrupts.level > self.command:
            self._cut(self.interrupts.level)
            again = "waiting for requests in flight (interrupt again to end at once)"
            now = "what was measured is being written"
            self.ui.message(f"interrupted: no more requests are sent; {now if self.command == STOP else again}")
        elif self.command == NOTHING and gone:
            self._cut(DRAIN)
            self.ui.message("the target has ended: no more requests are sent; what was measured is kept")
        elif self.command == NOTHING and self.prepares and self._missing():
            self._cut(DRAIN)
        elif self.command == NOTHING and self.live.log.full:
            self._cut(DRAIN)
            self.ui.message("the disk is full: no more requests are sent; what was measured is kept")
        elif self.command == NOTHING and (why := self.fleet.sending_must_end()) is not None:
            self._cut(DRAIN)
            self.ui.message(f"{why}: no more requests are sent; what was measured is kept")
        elif self.command == NOTHING and self.failures.update(self.live.since(k.W_ENDED), self.live.since(k.W_FAILED)):
            self._cut(DRAIN)
            self.ui.message("most of the last requests failed: no more are sent; what was measured is kept")

    def _cut(self, level: int) -> None:
        self.command = level
        self.cut_ns = self.cut_ns or time.monotonic_ns()
        self.drain_ns = self.drain_ns or time.monotonic_ns()
        self._send_command()

    def _send_command(self) -> None:
        if self.command == STOP:
            self.abort_ns = self.abort_ns or time.monotonic_ns()
        self.fleet.command(k.ABORT if self.command == STOP else k.DRAIN)

    def _end_drain(self) -> None:
        if not self.own_grace or not self.drain_ns or self.command == STOP:
            return
        grace_s = self._grace_s()
        if (time.monotonic_ns() - self.drain_ns) / 1e9 > grace_s:
            self.timed_out = True
            self.command = STOP
            self._send_command()
            self.ui.message(f"the drain time-out of {grace_s:.0f} s is over: requests in flight are cancelled")

    def _report_cancelled(self) -> None:
        """Report the requests that workers cancelled at the declared drain time-out."""
        cancelled = self.live.errors().get("drain", 0)
        if self.own_grace or self.command == STOP or not cancelled:
            return
        self.timed_out = True
        self.ui.message(
            f"the drain time-out of {self.spec.drain_ns / 1e9:g} s (--grace) is over: {cancelled:,} "
            f"request{'' if cancelled == 1 else 's'} in flight {'was' if cancelled == 1 else 'were'} cancelled"
        )

    def _grace_s(self) -> float:
        p99 = scaled(self.fleet.histogram(k.H_E2E), 0.99, 1e9)
        return max(LEAST_GRACE_S, GRACE_P99 * (p99 or 0.0))

    def _end_of_sending(self) -> int:
        """The bound of a phase that reached it, else the instant at which sending stopped or was found to have ended."""
        stopped = self.cut_ns or self.drain_ns or time.monotonic_ns()
        if self.plan.duration_s is None:
            return stopped
        bound = self.start_ns + round(self.plan.duration_s * 1e9)
        return min(bound, stopped) if self.cut_ns else bound
