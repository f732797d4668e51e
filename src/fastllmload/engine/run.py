"""The supervisor: preflight, plan, workers, phases, then merge, measure, judge and report. Light by design: while the
clock runs it looks four times a second, and nothing crosses between it and the workers but shared words.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fastllmload._ext import counters as k
from fastllmload.certificate.ceiling import stored_ceiling
from fastllmload.certificate.watch import Watch
from fastllmload.endpoint import Endpoint, resolve_endpoint
from fastllmload.engine import banner, sizing
from fastllmload.engine.conclude import Fate, conclude, exit_code
from fastllmload.engine.environment import command_line, environment
from fastllmload.engine.failures import Failures
from fastllmload.engine.fleet import Fleet, Member
from fastllmload.engine.folder import Folder
from fastllmload.engine.interrupts import STOP, Interrupts
from fastllmload.engine.live import Live
from fastllmload.engine.phases import Outcome, PhaseRun
from fastllmload.engine.places import refuse_cpus
from fastllmload.engine.planned import Plans, build_plans, settled
from fastllmload.engine.preflight import Preflight, preflight
from fastllmload.engine.prometheus import serving
from fastllmload.engine.resolve import parse_base
from fastllmload.engine.simtarget import options_of
from fastllmload.engine.specs import RunPhase, phase_specs, refuse_slow_readers, run_phases, worker_specs
from fastllmload.engine.telemetry import Finder, Found, TelemetryProcess
from fastllmload.engine.totals import Totals
from fastllmload.engine.workspec import PhaseSpec, WorkerSpec
from fastllmload.errors import HostLimitError, InternalError, Interrupted
from fastllmload.host import limits, probe
from fastllmload.host.wallclock import WallClock
from fastllmload.plan.archive import save_plan
from fastllmload.plan.build import check_workloads
from fastllmload.plan.plan import BODIES
from fastllmload.plan.settings import Load, RunSettings, Secret
from fastllmload.records.samples import DISK_FULL, SampleLog
from fastllmload.redact import Redactor, header_secrets, url_secrets
from fastllmload.report.terminal import Ui
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.slo.classes import refuse_unknown
from fastllmload.workload.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from fastllmload.plan.plan import Plan


def execute(settings: RunSettings, secret: Secret | None, ui: Ui, simulator: SimulatorProcess | None = None) -> int:
    """Do one run and return its exit code. What is refused before anything is sent raises a FastLLMLoadError.

    *simulator*: a simulated engine that is running already and goes on running; without it a run that has no target
    starts one of its own.
    """
    refuse_cpus(settings.client.pin)
    folder = Folder.create(settings.output.directory)
    try:
        totals = Totals()
        with (
            Interrupts() as interrupts,
            serving(settings.telemetry.prometheus, totals),
            simulated_target(settings, ui, simulator) as (urls, engine),
        ):
            session = Session(settings, secret, ui, folder, interrupts, urls, engine, totals)
            return session.run()
    except OSError as problem:
        if problem.errno not in DISK_FULL:
            raise
        kept = (
            "what the workers wrote is still there"
            if folder.manifest
            else "free some space, or choose another with --output"
        )
        raise HostLimitError(f"the disk of {folder.path} is full; {kept}") from problem
    finally:
        folder.give_up()
        folder.clean()
        ui.close()


@contextlib.contextmanager
def simulated_target(
    settings: RunSettings, ui: Ui, running: SimulatorProcess | None = None
) -> Iterator[tuple[tuple[str, ...], SimulatorProcess | None]]:
    """The run's URLs; without any, that of the *running* simulated engine, or of one that lives as long as the run."""
    target = settings.target
    embedded = not target.urls and target.unix_socket is None
    ui.banner(banner.opening(embedded))
    if not embedded:
        yield target.urls or ("http://localhost",), None
        return
    if running is not None:
        yield (running.url,), running
        return
    with SimulatorProcess(options_of(target.simulate)) as simulator:
        try:
            yield (simulator.url,), simulator
        finally:
            simulator.ending()  # if it has ended before its time, the run has said so: it is no failure of the end


def redactor(settings: RunSettings, secret: Secret | None) -> Redactor:
    """Knows every secret of the run: the key, secret headers, passwords in URLs."""
    known = Redactor([] if secret is None else [secret.reveal()])
    for name, value in settings.target.headers:
        for text in header_secrets(name, value):
            known.add(text)
    for url in settings.target.urls:
        basic = parse_base(url).authorization
        for text in [*url_secrets(url), *([] if basic is None else header_secrets("Authorization", basic))]:
            known.add(text)
    return known


@dataclass
class Session:
    """One run between its folder and its exit code."""

    settings: RunSettings
    secret: Secret | None
    ui: Ui
    folder: Folder
    interrupts: Interrupts
    urls: tuple[str, ...]
    simulator: SimulatorProcess | None
    totals: Totals
    fate: Fate = field(default_factory=Fate)
    wall: WallClock = field(default_factory=WallClock)

    def __post_init__(self) -> None:
        self.redact = redactor(self.settings, self.secret)

    def run(self) -> int:
        settings, endpoint = self.settings, resolve_endpoint(self.settings.target.endpoint_type)
        limits.raise_nofile()
        check_workloads(settings)
        replayed = settled(settings, endpoint, self.folder.work)
        found = preflight(replayed.settings, self.urls, endpoint, self.secret, self.redact)
        replayed = replayed.within(found.context_limit).naming(found.class_models)
        asked = stampable(replayed.settings, found)
        beside = Finder(settings, found, self.secret, self.redact).find(self.urls, found.class_urls)
        found.notes.extend(beside.notes)
        self.ui.banner(banner.target_lines(asked, [target.url for target in found.targets], found))
        plans = build_plans(replayed, endpoint, found.model, self.folder.work)
        refuse_unknown(settings.output.goodput, plans.measure.classes, set(plans.measure.request_class.tolist()))
        if settings.output.save_plan is not None:
            save_plan(plans.measure, Path(settings.output.save_plan))
        specs, phases = self._prepare(asked, endpoint, found, plans, beside)
        with self._sampling(beside):
            self._drive(specs, phases)
        self._refuse_empty()
        document = conclude(self.folder, phases, self.fate)
        for warning in (document["telemetry"] or {}).get("warnings", ()):
            self.ui.message(f"warning: {warning}")
        self.ui.finish(document, folder=str(self.folder.path))
        return exit_code(document, self.fate, settings.output.strict)

    def _refuse_empty(self) -> None:
        """No phase began: there is nothing to merge, measure or judge."""
        if self.folder.manifest["phases"]:
            return
        if self.fate.interrupted:
            self.folder.manifest["status"] = self.fate.status
            self.folder.save()
            raise Interrupted("interrupted before the first request; nothing was measured")
        raise InternalError(
            "; ".join(self.folder.manifest["incidents"]) or "the workers ended before the first request"
        )

    # -- before the clock ---------------------------------------------------------------------------------------------

    def _prepare(
        self, settings: RunSettings, endpoint: Endpoint, found: Preflight, plans: Plans, beside: Found
    ) -> tuple[list[WorkerSpec], list[RunPhase]]:
        """Sizes, refusals, and the run folder's first run.json."""
        refuse_slow_readers(settings, plans.measure, found)
        wanted = sizing.demand(settings, plans.measure, found.answer_s)
        cores = max(1, int(probe.cores()))
        workers = sizing.worker_count(
            settings, plans.measure, wanted, stored_ceiling(), cores, simulated=self.simulator is not None
        )
        loopback = all(target.address in ("127.0.0.1", "::1") for target in found.targets)
        if any(target.family != "unix" for target in found.targets):
            sizing.refuse_what_does_not_fit(settings, plans.measure, wanted, workers, loopback)
        self.folder.settle(plans.measure.digest)
        plans = plans.moved(self.folder.work)
        phases = run_phases(plans.warmup, plans.measure)
        run_id = secrets.token_hex(4)
        told = phase_specs(settings, phases, wanted, workers)
        specs = worker_specs(settings, endpoint, found, self.folder, told, workers, run_id, self.redact.known)
        self._begin(settings, found, plans, run_id, workers, beside)
        self.ui.banner(banner.plan_lines(settings, plans, workers))
        return specs, phases

    def _begin(
        self, settings: RunSettings, found: Preflight, plans: Plans, run_id: str, workers: int, beside: Found
    ) -> None:
        plans.measure.write_record(self.folder.path / "plan")
        self.folder.begin(
            public(settings, self.redact, self.folder.path),
            {**environment(), "engine": beside.engine},
            run_id=run_id,
            command=blank(command_line(), self.redact),
            plan=plan_facts(plans, time.monotonic_ns()),
            target={
                "urls": [target.url for target in found.targets],
                "addresses": [target.address for target in found.targets],
                "endpoint_type": self.settings.target.endpoint_type,
                "classes": class_targets(settings, found),
                "model": found.model,
                "simulated": self.simulator is not None,
                "usage_reported": found.usage_reported,
                "connect_ms": found.connect_ms,
                "probe_s": found.answer_s,
                "notes": found.notes,
            },
            workers=[{"worker": worker, "died": False} for worker in range(workers)],
            incidents=[],
        )

    # -- the clock ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _sampling(self, beside: Found) -> Iterator[None]:
        """Telemetry for as long as there are workers: its last look comes after their last byte."""
        if not self.settings.telemetry.enabled:
            yield
            return
        sampler = TelemetryProcess(self.settings, beside, self.folder.path, self.folder.work, self.redact)
        sampler.start()
        try:
            yield
        finally:
            problem = sampler.stop()
            if problem is not None:
                self._incident(problem)

    def _drive(self, specs: list[WorkerSpec], phases: list[RunPhase]) -> None:
        """Workers from start to end. Whatever happens, none is left behind and what they wrote stays."""
        self.interrupts.collect()
        fleet = Fleet.start(specs)
        self.totals.attach(fleet)
        log = SampleLog(self.folder.path / "samples.npy")
        live = Live(fleet, log, None if self.simulator is None else self.simulator.pid)
        watch = Watch([member.shared for member in fleet.members])
        watching: list[bool] = []

        def ready() -> None:
            watch.start()
            watching.append(True)

        def look() -> bool:
            gone = self._look_around()
            if watching:
                watch.look()
            return gone

        try:
            for spec, phase in zip(specs[0].phases, phases, strict=True):
                outcome = self._phase(fleet, live, spec, phase, ready if phase.name == "measure" else nothing, look)
                if outcome is None or outcome.cut or not fleet.alive:
                    break
            if not self.interrupts.level:
                for member in fleet.join():
                    self._died(fleet, member)
        finally:
            fleet.stop(PATIENCE_S if self.interrupts.level < STOP else HURRY_S)
            log.close()
            self.folder.release([phase.plan.directory / BODIES for phase in phases])
            if watching:
                self.folder.manifest["watch"] = watch.stop(self.folder.path)
            self._account(fleet, log)

    def _phase(
        self,
        fleet: Fleet,
        live: Live,
        spec: PhaseSpec,
        phase: RunPhase,
        ready: Callable[[], None],
        look: Callable[[], bool],
    ) -> Outcome | None:
        arrivals = phase.plan.description["load"]["arrivals"]
        brings = sizing.requests_per_start(phase.plan)
        asked_rate = None if arrivals is None else float(f"{float(arrivals['rate']) * brings:.4g}")
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
            failures=Failures(self.settings.load.stop_on_failures if phase.name == "measure" else None),
            died=lambda member: self._died(fleet, member),
            ready=ready,
            look=look,
            started=lambda start_ns: self._started(spec, phase.plan, start_ns),
        )
        outcome = run.run()
        if outcome is not None:
            self.totals.ended(outcome.end_ns)
            self._ended(phase, outcome)
        return outcome

    def _started(self, spec: PhaseSpec, plan: Plan, start_ns: int) -> None:
        """Time zero is known: run.json says so at once, because a killed run is read with it."""
        self.totals.started(start_ns)
        duration, share = plan.duration_s, self.settings.load.ramp_share
        by_duration = duration is not None and not self._count_comes_first(plan)
        asked_for = share != Load().ramp_share
        self.folder.manifest["phases"].append(
            {
                "number": spec.number,
                "name": spec.name,
                "mode": spec.mode,
                "start_ns": start_ns,
                "start_utc": utc(time.time_ns() + start_ns - time.monotonic_ns()),
                "end_ns": start_ns + round(duration * 1e9) if by_duration and duration is not None else None,
                "bound": "duration" if by_duration else "count",
                "ramp_share": share if by_duration or asked_for else 0.0,
            }
        )
        self.folder.save()

    def _count_comes_first(self, plan: Plan) -> bool:
        """An open loop with both bounds: the plan was cut at --num-requests."""
        asked = self.settings.load.num_requests
        return plan.t_sched is not None and asked is not None and len(plan.starts) >= asked

    def _ended(self, phase: RunPhase, outcome: Outcome) -> None:
        entry = self.folder.manifest["phases"][-1]
        if phase.plan.concurrency is not None and not phase.plan.cycles and outcome.released >= phase.plan.requests:
            entry["bound"] = "count"
            if self.settings.load.ramp_share == Load().ramp_share:
                entry["ramp_share"] = 0.0
        entry["end_ns"] = outcome.end_ns
        entry["drained_ns"] = time.monotonic_ns()
        entry["released"], entry["ok"] = outcome.released, outcome.ok
        entry["drain_timed_out"] = outcome.timed_out
        if outcome.cascading:
            entry["cascading_failure"] = True
            self._incident(
                f"more than {self.settings.load.stop_on_failures:.0%} of the last requests failed: sending was stopped"
            )
        if phase.plan.cycles:
            entry["rounds_of_plan"] = outcome.released / phase.plan.requests

    def _died(self, fleet: Fleet, member: Member) -> None:
        """A dead worker is told at once; the others go on."""
        code = member.process.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if member.stuck:
            how = "stood still for a minute and was ended"
        words = fleet.last_words(member, self.redact)
        self._incident(f"worker {member.spec.worker} {how}: {words}")

    def _look_around(self) -> bool:
        """What else can befall a run while its clock runs: the wall clock is set, the simulated engine ends (True)."""
        how = None if self.simulator is None else self.simulator.ending()
        if self.simulator is not None and how is not None:
            self.fate.engine_crashed = self.simulator.crashed
            self.fate.engine_killed = not self.simulator.crashed
            self._incident(f"the simulated engine {how} before the run was over")
        step_s = self.wall.step_s()
        if step_s is not None:
            self._incident(
                f"the wall clock was set {abs(step_s):,.3f} s {'forward' if step_s > 0 else 'back'} during the run; "
                "intervals are taken from CLOCK_MONOTONIC and are not touched by it"
            )
        return self.fate.engine_crashed or self.fate.engine_killed

    def _incident(self, sentence: str) -> None:
        self.folder.manifest["incidents"].append(sentence)
        self.ui.message(sentence)

    def _account(self, fleet: Fleet, log: SampleLog) -> None:
        """What the end of every worker, and of the simulated engine, means for the run."""
        self._look_around()
        self.fate.interrupted = self.interrupts.level > 0
        self.fate.disk_full = log.full or fleet.total(k.W_DISK_FULL) > 0
        if self.fate.disk_full:
            self._incident("the disk was full: sending stopped early, and rows or events are missing")
        died = [member for member in fleet.members if member.died]
        self.fate.killed = sum(not member.stuck and -member.process.returncode in KILLED for member in died)
        self.fate.crashed = len(died) - self.fate.killed
        self.folder.manifest["workers"] = [
            {"worker": member.spec.worker, "died": member.died, "exit_code": member.process.returncode}
            for member in fleet.members
        ]


def class_targets(settings: RunSettings, found: Preflight) -> list[dict[str, Any]]:
    """Where each class goes and what it speaks there; empty without classes."""
    return [
        {
            "name": one.name,
            "endpoint_type": one.endpoint_type or settings.target.endpoint_type,
            "urls": [target.url for target in found.targets[first : first + many]],
            "model": model,
        }
        for one, (first, many), model in zip(settings.classes, found.class_targets, found.class_models, strict=True)
    ]


def stampable(settings: RunSettings, found: Preflight) -> RunSettings:
    """With user stamps where the kernel gives none: TLS, Unix sockets, connections of the event loop."""
    over_loop = settings.client.transport == "asyncio"
    if settings.client.timestamps != "kernel" or not all(
        over_loop or t.tls or t.family == "unix" for t in found.targets
    ):
        return settings
    found.notes.append("no kernel receive stamps on these connections: user-space stamps are used")
    return msgspec.structs.replace(settings, client=msgspec.structs.replace(settings.client, timestamps="user"))


KILLED = (1, 2, 9, 15)  # SIGHUP SIGINT SIGKILL SIGTERM come from outside; any other signal is our fault


PATIENCE_S, HURRY_S = 10.0, 2.0  # for workers to close their files after the last phase; after a second interrupt


def nothing() -> None:
    """No watch during the warm-up."""


def utc(ns: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ns // 1_000_000_000)) + f".{ns // 1_000_000 % 1000:03d}Z"


def plan_facts(plans: Plans, whole_ns: int) -> dict[str, Any]:
    """*whole_ns*: CLOCK_MONOTONIC when the last byte of every request had been written."""
    measure, warmup = plans.measure, plans.warmup
    return {
        "digest": measure.digest,
        "schedule_hash": measure.schedule_hash,
        "model": measure.description["model"],
        "requests": None if measure.cycles else measure.requests,
        "whole_ns": whole_ns,
        "description": measure.description,
        "classes": measure.classes,
        "deviations": measure.deviations,
        "counting": counting(measure),
        "warmup": {
            "digest": warmup.digest,
            "requests": warmup.requests,
            "description": warmup.description,
            "deviation": plans.warmup_deviation,
        },
    }


def counting(plan: Plan) -> dict[str, Any]:
    """As the plan says, with the version of the library that counts here."""
    found = plan.counting
    tokenizer = load_tokenizer(found["tokenizer"]["name"])
    return found if tokenizer is None else {**found, "tokenizer": tokenizer.facts()}


def public(settings: RunSettings, redact: Redactor, folder: Path) -> RunSettings:
    """The settings as they are stored: the folder's real name, no secret."""
    output = msgspec.structs.replace(settings.output, directory=str(folder))
    built = msgspec.to_builtins(msgspec.structs.replace(settings, output=output))
    found: RunSettings = msgspec.convert(blank(built, redact), RunSettings)
    return found


def blank(value: Any, redact: Redactor) -> Any:
    """Every text in *value* without secrets."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, (list, tuple)):
        return [blank(item, redact) for item in value]
    if isinstance(value, dict):
        return {name: blank(item, redact) for name, item in value.items()}
    return value
