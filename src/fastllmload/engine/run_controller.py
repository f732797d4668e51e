"""Runs the workers through all phases and records incidents."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from fastllmload._ext.record import counters as k
from fastllmload.documents.run_parts.hosts import WorkerEntry
from fastllmload.engine.document import phase_begun, phase_ended
from fastllmload.engine.finalize import RunStatus
from fastllmload.engine.interrupts import STOP, Interrupts
from fastllmload.engine.phases import FailureMonitor, PhaseOutcome, PhaseRun
from fastllmload.engine.recording.class_rows import ClassLines
from fastllmload.engine.recording.folder import Folder
from fastllmload.engine.recording.live import Live
from fastllmload.engine.recording.totals import Totals
from fastllmload.engine.run_plans import RunPhase
from fastllmload.engine.warmup_check import WarmUpCheck, unreachable
from fastllmload.engine.workers import sizing
from fastllmload.engine.workers.fleet import Fleet, LocalFleet, Member
from fastllmload.engine.workers.spec import PhaseSpec, TargetSpec, WorkerSpec
from fastllmload.errors import coded
from fastllmload.host.probe import WallClock
from fastllmload.plan.plan import BODIES, Plan
from fastllmload.records.samples import SampleLog
from fastllmload.redact import Redactor
from fastllmload.report.terminal.view import Ui
from fastllmload.settings import Load
from fastllmload.simulator.process import SimulatorProcess

MEASURE = "measure"
KILLED = (1, 2, 9, 15)  # SIGHUP SIGINT SIGKILL SIGTERM come from outside; any other signal is a bug of ours
STOP_S, STOP_NOW_S = 10.0, 2.0  # for workers to close their files after the last phase; after a second interrupt


@dataclass
class RunController:
    """Runs the workers through the phases; *run_status* records what the end of each process means for the run.

    *start*: starts the workers, on this machine or others. *prepare*: called when nothing is in flight before the
    measurement; False: that does not begin.
    """

    load: Load
    ui: Ui
    folder: Folder
    interrupts: Interrupts
    simulator: SimulatorProcess | None
    totals: Totals
    redact: Redactor
    pinned: tuple[int, ...] = ()  # --pin
    source: str | None = None  # first of --source-address
    gaps: str = "itl"  # which gaps the live view shows
    start: Callable[[Sequence[WorkerSpec]], Fleet] = LocalFleet.start
    prepare: Callable[[], bool] = lambda: True
    run_status: RunStatus = field(default_factory=RunStatus)
    wall: WallClock = field(default_factory=WallClock)
    cpus: dict[int, int] = field(default_factory=dict)  # of each worker; empty: any

    def run(self, specs: list[WorkerSpec], phases: list[RunPhase], helpers: Sequence[int | None] = ()) -> None:
        """Run the workers from start to end. *helpers*: processes that read telemetry and the packet ring."""
        self.interrupts.collect()
        fleet = self.start(specs)
        self.folder.update(hosts=fleet.entries())
        self.totals.attach(fleet)
        log = SampleLog(self.folder.path / "samples.npy")
        engine = None if self.simulator is None else self.simulator.pid
        live = Live(fleet, log, engine, [one.url for one in specs[0].targets], self.gaps, self._classes(phases, fleet))
        isolation = ExitStack()
        self.cpus = isolation.enter_context(fleet.isolated(engine, helpers, self.pinned))

        def check() -> bool:
            gone = self._check_incidents()
            self._report(fleet)
            return gone

        try:
            for spec, phase in zip(specs[0].phases, phases, strict=True):
                if phase.name == MEASURE and not self.prepare():
                    fleet.command(k.ABORT)
                    break
                ready = fleet.begin_watch if phase.name == MEASURE else nothing
                outcome = self._phase(fleet, live, spec, phase, ready, check)
                if outcome is None:
                    fleet.command(k.ABORT)  # the others wait for a clock that will not start
                    break
                if outcome.cut or not fleet.alive:
                    break
                if phase.name != MEASURE and not self._target_answers(live, specs[0].targets):
                    fleet.command(k.ABORT)
                    break
            self._report_unmeasured(fleet)
            if not self.interrupts.level:
                for member in fleet.join():
                    self._died(fleet, member)
        finally:
            fleet.stop(STOP_S if self.interrupts.level < STOP else STOP_NOW_S)
            isolation.close()
            log.close()
            self.folder.release([phase.plan.directory / BODIES for phase in phases])
            # Now there is room again on a full disk for the rows that wait.
            watched = fleet.finish(self.folder.path)
            self.folder.update(watch=watched, hosts=fleet.entries())
            self._report(fleet)
            self._account(fleet, log)

    def _classes(self, phases: list[RunPhase], fleet: Fleet) -> ClassLines | None:
        """The classes of a mix; None for one class."""
        names = [str(one.name) for one in phases[-1].plan.description.classes]
        return ClassLines(names, fleet.class_counts(self.folder.path, len(names))) if len(names) > 1 else None

    def _phase(
        self,
        fleet: Fleet,
        live: Live,
        spec: PhaseSpec,
        phase: RunPhase,
        ready: Callable[[], None],
        check: Callable[[], bool],
    ) -> PhaseOutcome | None:
        arrivals = phase.plan.description.load.arrivals
        brings = sizing.requests_per_start(phase.plan)
        asked_rate = None if arrivals is None else float(f"{float(arrivals.rate or 0.0) * brings:.4g}")
        self.totals.begin(spec.name, asked_rate)
        run = PhaseRun(
            fleet=fleet,
            spec=spec,
            plan=phase.plan,
            live=live,
            ui=self.ui,
            interrupts=self.interrupts,
            asked_rate=asked_rate,
            own_grace=spec.drain_ns == 0,
            prepares=phase.name != MEASURE,
            failures=FailureMonitor(self.load.stop_on_failures if phase.name == MEASURE else None),
            died=lambda member: self._died(fleet, member),
            ready=ready,
            check=check,
            started=lambda start_ns: self._started(spec, phase.plan, start_ns),
        )
        outcome = run.run()
        if outcome is not None:
            self.totals.ended(outcome.end_ns)
            self._ended(phase, outcome)
        return outcome

    def _target_answers(self, live: Live, targets: Sequence[TargetSpec]) -> bool:
        """Whether the target still takes connections after the warm-up; failures in the warm-up are reported."""
        warmup = WarmUpCheck(live.since(k.W_ENDED), live.since(k.W_FAILED), live.errors(), live.failed_at())
        lost = unreachable(targets, self.source) if warmup.failed else []
        sentence = warmup.sentence(lost)
        if sentence is not None:
            self.incident("target-lost" if lost else "warmup-failures", sentence)
        self.run_status.target_lost = bool(lost)
        return not lost

    def _report_unmeasured(self, fleet: Fleet) -> None:
        """Report that the measurement did not begin: with a worker missing its load would not be the planned one."""
        begun = [phase.name for phase in self.folder.document.phases]
        if len(fleet.alive) < len(fleet.members) and begun and MEASURE not in begun and not self.interrupts.level:
            self.incident(
                "workers-missing",
                f"the measurement did not begin, because it needs all {len(fleet.members)} workers: start the run again",
            )

    def _started(self, spec: PhaseSpec, plan: Plan, start_ns: int) -> None:
        """Write time zero to run.json at once, because a killed run cannot be read without it."""
        self.totals.started(start_ns)
        begun = phase_begun(self.load, spec, plan, start_ns)
        self.folder.update(phases=(*self.folder.document.phases, begun))
        self.folder.save()

    def _ended(self, phase: RunPhase, outcome: PhaseOutcome) -> None:
        *before, last = self.folder.document.phases
        self.folder.update(phases=(*before, phase_ended(last, self.load, phase.plan, outcome)))
        if outcome.cascading:
            self.incident(
                "cascading-failures",
                f"more than {self.load.stop_on_failures:.0%} of the last requests failed: sending was stopped",
            )

    def _report(self, fleet: Fleet) -> None:
        """Record what the fleet reports about its processes and hosts."""
        for code, sentence in fleet.update():
            self.incident(code, sentence)

    def _died(self, fleet: Fleet, member: Member) -> None:
        if member.lost:  # the fleet has reported the loss of its host
            return
        code = member.process.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if member.stuck:
            how = "made no progress for 60 s and was killed"
        message = fleet.last_message(member, self.redact)
        if code > 0 and (log := fleet.log_of(member, self.redact)):
            print(log, file=sys.stderr)  # a bug of ours: its traceback is lost with the worker's folder
        self.incident("worker-died", f"worker {member.spec.worker} {how}: {message}")

    def _check_incidents(self) -> bool:
        """Report a step of the wall clock, and the end of the simulated engine, for which this returns True."""
        how = None if self.simulator is None else self.simulator.ending()
        if self.simulator is not None and how is not None:
            self.run_status.engine_crashed = self.simulator.crashed
            self.run_status.engine_killed = not self.simulator.crashed
            self.incident("simulator-ended", f"the simulated engine {how} before the run was over")
        step_s = self.wall.step_s()
        if step_s is not None:
            self.incident(
                "wall-clock-set",
                f"the wall clock was set {abs(step_s):,.3f} s {'forward' if step_s > 0 else 'back'} during the run; "
                "intervals are measured with CLOCK_MONOTONIC and are not affected",
            )
        return self.run_status.engine_crashed or self.run_status.engine_killed

    def incident(self, code: str, sentence: str) -> None:
        """Record and show what happened; *code* as in `codes.toml`."""
        self.folder.incident(code, sentence)
        self.ui.message(coded(code, sentence))

    def _account(self, fleet: Fleet, log: SampleLog) -> None:
        """Set the run's status from how every process ended."""
        self._check_incidents()
        self.run_status.interrupted = self.interrupts.level > 0
        lost = ", ".join(f"{count:,} {name}" for name, count in fleet.missing.items() if count)
        disks = fleet.full_disks()
        self.run_status.disk_full = log.full or bool(disks) or bool(lost)
        if self.run_status.disk_full:
            full = log.full or fleet.write_failed
            self.incident("disk-full" if full else "disk-slow", not_written(full, lost, ", ".join(disks) or "the disk"))
        died = [member for member in fleet.members if member.died]
        self.run_status.killed = sum(not member.stuck and -member.process.returncode in KILLED for member in died)
        self.run_status.crashed = len(died) - self.run_status.killed
        workers = (
            WorkerEntry(
                worker=member.spec.worker,
                died=member.died,
                exit_code=member.process.returncode,
                cpu=self.cpus.get(member.spec.worker),
            )
            for member in fleet.members
        )
        self.folder.update(workers=tuple(workers))


def not_written(full: bool, lost: str, disk: str = "the disk") -> str:
    """Why sending stopped early: *disk* was full, or slower than the answers. *lost*: what is missing."""
    why = f"{disk} was full" if full else "answers came faster than they could be written to the disk"
    rest = f"not on the disk: {lost}" if lost else "everything measured until then was saved"
    return f"{why}: sending stopped early; {rest}"


def nothing() -> None:
    """The `ready` of the warm-up, which has no watch."""
