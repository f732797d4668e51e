"""The supervisor: preflight, plan, workers, phases, then merge, measure, judge and report."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fastllmload.certificate.ceiling import stored_ceiling
from fastllmload.documents.run_parts.control import SessionEnds
from fastllmload.documents.run_parts.hosts import WorkerEntry
from fastllmload.endpoint import resolve_endpoint, silent_classes
from fastllmload.engine import banner
from fastllmload.engine.control.control import ControlFailed, ServerController
from fastllmload.engine.document import command_line, environment, plan_summary, target_facts
from fastllmload.engine.finalize import exit_code, finalize
from fastllmload.engine.interrupts import Interrupts
from fastllmload.engine.preflight.check import Preflight, preflight
from fastllmload.engine.public_settings import blank, public, redactor
from fastllmload.engine.recording.folder import Folder
from fastllmload.engine.recording.prometheus import serving
from fastllmload.engine.recording.tap import TapProcess, open_tap, stamp_source
from fastllmload.engine.recording.telemetry import TelemetryDiscovery, TelemetryProcess, TelemetryTargets
from fastllmload.engine.recording.totals import Totals
from fastllmload.engine.run_controller import RunController
from fastllmload.engine.run_plans import (
    MEASURE,
    WARMUP,
    Plans,
    ResolvedSettings,
    RunPhase,
    add_seen,
    build_plans,
    resolve_settings,
)
from fastllmload.engine.session_ends import EndsConfig, EndsProcess
from fastllmload.engine.simulated_target import needs_engine, simulated_target
from fastllmload.engine.workers import sizing
from fastllmload.engine.workers.affinity import check_pinned_cpus
from fastllmload.engine.workers.assignment import (
    check_transport,
    phase_specs,
    protocols,
    records_text,
    worker_specs,
)
from fastllmload.engine.workers.fleet import environment as environment_of_workers
from fastllmload.engine.workers.spec import WorkerSpec
from fastllmload.errors import HostLimitError, InputError, InternalError, Interrupted, TargetError, coded
from fastllmload.host import limits, probe
from fastllmload.metrics.objectives.objective import refuse_tokens, refuse_unknown
from fastllmload.metrics.run.cold_start import declared_cold
from fastllmload.plan.archive import check_writable, save_plan
from fastllmload.plan.plan import Plan
from fastllmload.records.run import DONE
from fastllmload.records.samples import DISK_FULL
from fastllmload.report.terminal.view import Ui
from fastllmload.report.text.control import changed_texts
from fastllmload.settings import Client, RunSettings, Secret
from fastllmload.simulator.process import SimulatorProcess

if TYPE_CHECKING:  # what only a run over many hosts needs is imported by that run
    from fastllmload.engine.hosts.fleet import HostFleet
    from fastllmload.engine.hosts.group import HostGroup, StartingAgents
    from fastllmload.engine.hosts.kept.events import Questions
    from fastllmload.engine.hosts.placement.local import PlacedHost, Placement


def execute(
    settings: RunSettings,
    secret: Secret | None,
    ui: Ui,
    simulator: SimulatorProcess | None = None,
    placement: Placement | None = None,
) -> int:
    """Do one run and return its exit code. FastLLMLoadError before anything is sent. *simulator*: an engine that runs.
    *placement*: the hosts that send the load, instead of those of the settings; it is closed at the end.
    """
    if placement is None and settings.hosts.address is not None:
        from fastllmload.engine.hosts.placement.cluster import RayPlacement

        placement = RayPlacement(settings.hosts)
    if placement is None:
        check_pinned_cpus(settings.client.pin)
    with Interrupts() as interrupts, agents(placement) as starting:
        return run_in(Folder.create(settings.output.directory), settings, secret, ui, interrupts, simulator, starting)


@contextlib.contextmanager
def agents(placement: Placement | None) -> Iterator[StartingAgents | None]:
    """Start the agents of a run over many hosts; they have ended when the block has. None: this host sends the load."""
    if placement is None:
        yield None
        return
    from fastllmload.engine.hosts.group import StartingAgents

    starting = StartingAgents(placement)
    try:
        yield starting
    finally:
        starting.close()


def run_in(
    folder: Folder,
    settings: RunSettings,
    secret: Secret | None,
    ui: Ui,
    interrupts: Interrupts,
    simulator: SimulatorProcess | None,
    starting: StartingAgents | None = None,
) -> int:
    """Do the run in its *folder*, which is cleaned up however the run ends."""
    try:
        totals = Totals()
        replayed = resolve_settings(settings, folder.work)
        with serving(settings.telemetry.prometheus, totals):
            ui.banner(banner.opening(needs_engine(replayed.settings.target)))
            with simulated_target(replayed.settings.target, simulator, replayed.settings.classes) as (urls, engine):
                session = RunSession(replayed, secret, ui, folder, interrupts, urls, engine, totals, starting)
                return session.run()
    except OSError as problem:
        if problem.errno not in DISK_FULL:
            raise
        kept = (
            "what the workers wrote is still there"
            if folder.begun
            else "free some space, or choose another with --output"
        )
        raise HostLimitError("disk-full", f"the disk of {folder.path} is full; {kept}") from problem
    finally:
        folder.mark_failed()
        folder.clean()
        ui.close()


@dataclass
class RunSession:
    replayed: ResolvedSettings
    secret: Secret | None
    ui: Ui
    folder: Folder
    interrupts: Interrupts
    urls: tuple[str, ...]
    simulator: SimulatorProcess | None
    totals: Totals
    starting: StartingAgents | None = None  # on the hosts that send the load; None: this one does
    group: HostGroup | None = None  # these hosts, when their agents are started
    fleet: HostFleet | None = None  # their workers

    def __post_init__(self) -> None:
        self.redact = redactor(self.settings, self.secret)
        client, load, target = self.settings.client, self.settings.load, self.settings.target
        gaps = "tbc" if self.settings.output.itl_option == "B" else "itl"  # the counters know no tokens of a chunk
        spoken = protocols(target.endpoint_type, self.settings.classes)
        self.controller = RunController(
            load, self.ui, self.folder, self.interrupts, self.simulator, self.totals, self.redact,
            pinned=client.pin, source=next(iter(target.source_addresses), None),
            gaps=gaps if any(resolve_endpoint(name).tokens for name in spoken) else "",
        )  # fmt: skip
        self.control = ServerController(
            self.settings, self.urls, self.secret, self.redact, self.interrupts, self.ui.message
        )
        self.controller.prepare = self._prepare_servers
        if self.starting is not None:
            self.controller.start = self._start_on_hosts

    @property
    def settings(self) -> RunSettings:
        return self.replayed.settings

    def run(self) -> int:
        settings, target = self.settings, self.settings.target
        limits.raise_nofile()
        if settings.output.save_plan is not None:
            check_writable(Path(settings.output.save_plan))
        found = preflight(
            settings, self.urls, self.secret, self.redact, self.ui.message,
            cold=declared_cold(dict(settings.output.declare)),
            simulated=None if self.simulator is None else self.simulator.options.model,
        )  # fmt: skip
        replayed = self.replayed.with_findings(found)
        asked = replayed.settings
        discovery = TelemetryDiscovery(target, settings.telemetry, found, self.secret, self.redact)
        telemetry = discovery.find(self.urls, found.class_urls)
        found.notes.extend(telemetry.notes)
        if self.control.asked or (settings.telemetry.enabled and self.simulator is None):
            self.control.find(found)
        self.ui.banner(banner.target_lines(target.endpoint_type, asked.classes, found))
        if self.starting is None:
            sizing.check_slots_fit_files(asked, cores=own_cores())
        else:
            self.starting.refuse_failed()
        plans = build_plans(replayed, found.model, self.folder.work)
        if settings.output.save_plan is not None:
            add_seen(asked, plans.measure, replayed.loaded)
        self.replayed = replace(self.replayed, loaded=())  # frees the memory of their files
        sent, numbers = plans.measure, set(plans.measure.request_class.tolist())
        refuse_unknown(settings.output.goodput, sent.classes, numbers, sent.calls is not None)
        refuse_tokens(settings.output.goodput, silent_classes(target.endpoint_type, settings.classes))
        if settings.output.save_plan is not None:
            save_plan(plans.measure, Path(settings.output.save_plan))
        specs, phases, tap = self._prepare(asked, found, plans, telemetry)
        with self._sampling(telemetry) as sampler, self._tapping(tap) as reader, self._ending(specs, found) as ends:
            if ends is not None:
                specs = [msgspec.structs.replace(spec, ends_fd=ends.descriptor) for spec in specs]
            with self.control.measuring():
                self.controller.run(specs, phases, (sampler, reader, None if ends is None else ends.process.pid))
        self._note_control()
        self._refuse_empty()
        self._round_trips_after(found)
        keeps_events = self.starting is not None and settings.hosts.collect == "summary"
        document = finalize(self.folder, phases, self.controller.run_status, self._ask if keeps_events else None)
        for host in document.hosts if keeps_events else ():
            if host.folder is not None:
                kept = f"host {host.host} ({host.name}) keeps its events in {host.folder}"
                self.ui.message(coded("events-on-host", kept))
        for warning in () if document.telemetry is None else document.telemetry.warnings:
            self.ui.message(f"warning: {warning}")
        self.ui.finish(document, folder=str(self.folder.path))
        return exit_code(document, self.controller.run_status, settings.output.strict)

    def _round_trips_after(self, found: Preflight) -> None:
        """Measure the round-trip time again after the run; skipped unless the run is complete (spec/procedures 0.12)."""
        if found.first is None or self.controller.run_status.status != DONE:
            return
        target, taken = self.folder.document.target, list[float]()
        try:
            found.first.round_trips(taken)
        except TargetError as problem:
            target = msgspec.structs.replace(target, notes=(*target.notes, f"after the run: {problem}"))
            self.ui.message(f"warning: after the run: {problem}")
        self.folder.update(target=msgspec.structs.replace(target, connect_after_ms=tuple(taken)))

    def _prepare_servers(self) -> bool:
        """Do what --between asks of servers. Whether the measurement may begin."""
        try:
            if self.control.asked:
                self.control.prepare()
        except ControlFailed as problem:
            self.controller.run_status.not_prepared = True
            self.controller.incident(problem.code, problem.message)
        self.folder.update(control=self.control.facts if self.control.asked else None)
        return not (self.controller.run_status.not_prepared or self.interrupts.level)

    def _note_control(self) -> None:
        """Record how servers were controlled, and what they say of themselves; a change of that is an incident."""
        if self.control.asked:
            self.folder.update(control=self.control.facts)
        info = self.control.info()
        if info is None:
            return
        info.write(self.folder.path)
        self.folder.update(server_pages=info.entries())
        for text in changed_texts(self.folder.document):
            self.controller.incident("server-changed", text)

    def _refuse_empty(self) -> None:
        """Raise when no phase began: there is nothing to merge, measure or judge."""
        if self.folder.document.phases:
            return
        if self.controller.run_status.interrupted:
            self.folder.update(status=self.controller.run_status.status)
            self.folder.save()
            raise Interrupted("interrupted", "interrupted before the first request; nothing was measured")
        if self.controller.run_status.not_prepared:
            raise TargetError("control-failed", "; ".join(self.folder.document.incidents))
        happened = "; ".join(self.folder.document.incidents) or "the workers ended before the first request"
        if self.controller.run_status.killed and not self.controller.run_status.crashed:
            raise HostLimitError(
                "workers-killed",
                f"{happened}; that was before the first request, nothing was measured: start the run again",
            )
        raise InternalError("internal-error", happened)

    def _prepare(
        self, settings: RunSettings, found: Preflight, plans: Plans, telemetry: TelemetryTargets
    ) -> tuple[list[WorkerSpec], list[RunPhase], TapProcess | None]:
        """Size the run, reject what does not fit, and write the first run.json."""
        load, client, measure = settings.load, settings.client, plans.measure
        check_transport(client, measure, found)
        wanted = sizing.demand(
            measure, found.answer_s,
            timeout_s=load.timeout, streaming=measure.description.streaming is not False, cap=load.max_concurrency,
        )  # fmt: skip
        workers = self._place_workers(settings, measure, wanted, found)
        self.folder.set_name(plans.measure.digest)
        plans = Plans(Plan.open(self.folder.work / WARMUP), Plan.open(self.folder.work / MEASURE))  # their new place
        phases = plans.phases
        run_id = os.urandom(4).hex()
        worker_phases = phase_specs(load, phases, wanted, workers)
        tap = self._open_tap(client, found, wanted, workers)
        if self.group is None:  # each agent decides for its host
            client = msgspec.structs.replace(
                client, timestamps=source_of_stamps(client.timestamps, found, tap is not None)
            )
            settings = msgspec.structs.replace(settings, client=client)
        specs = worker_specs(settings, found, self.folder, worker_phases, workers, run_id, self.redact.known)
        try:
            self._begin(settings, found, plans, run_id, workers, telemetry)
            if self.group is not None:
                from fastllmload.engine.hosts.group import plan_files

                self.group.send_files(plan_files([phase.plan for phase in phases]))
        except BaseException:
            if tap is not None:
                tap.close()
            raise
        self.ui.banner(banner.plan_lines(load, client.seed, plans, workers, settings.session))
        return specs, phases, tap

    def _place_workers(self, settings: RunSettings, plan: Plan, wanted: sizing.Demand, found: Preflight) -> int:
        """The number of workers. HostLimitError when they, or one of the hosts, cannot carry the run."""
        load, client = settings.load, settings.client
        sources = len(settings.target.source_addresses)
        check = functools.partial(
            sizing.check_run_fits_host, plan, found=found,
            timeout_s=load.timeout, sources=sources, fresh=client.fresh_connections,
        )  # fmt: skip
        if self.starting is None:
            simulated = self.simulator is not None
            workers = sizing.worker_count(
                client, plan, wanted, stored_ceiling(), own_cores(), simulated=simulated, cap=load.max_concurrency,
                waiting=load.max_prefill,
            )  # fmt: skip
            check(wanted=wanted, workers=workers)
            return workers
        if settings.hosts.collect == "summary" and records_text(settings, found):
            raise InputError(
                "option-not-applicable",
                "--collect summary: tokens would be counted in the recorded text, which stays on the hosts; use "
                "--collect rows, or --record-text off with --counting A",
            )
        self.group = self.starting.wait(self.ui.message)
        self.group.gather()
        self._leave_out(plan, found)
        refuse_local_target(found, [host.place for host in self.group.hosts])
        limits_of = self.group.limits()
        counts = sizing.workers_by_host(
            client,
            plan,
            wanted,
            stored_ceiling(),
            self.group.cores(),
            cap=load.max_concurrency,
            waiting=load.max_prefill,
        )
        for host, count in zip(limits_of, counts, strict=True):
            check(wanted=sizing.part_of(wanted, count / sum(counts)), workers=count, host=host)
        self.group.assign(counts, wanted.events_per_s)
        return sum(counts)

    def _leave_out(self, plan: Plan, found: Preflight) -> None:
        """Leave out hosts for which there would be no request: a cap holds for all hosts together."""
        assert self.group is not None
        load = self.settings.load
        most = max(1, sizing.most_at_work(plan, load.max_concurrency, load.max_prefill))
        unused = self.group.keep(most)
        if unused:
            names = ", ".join(host.title for host in unused)
            requests = "1 request" if most == 1 else f"{most} requests"
            where = "without a first token" if most == load.max_prefill else "in flight"
            sentence = f"at most {requests} {where} at one time: nothing is sent from {names}"
            note = coded("hosts-unused", sentence)
            found.notes.append(note)
            self.ui.message(f"note: {note}")

    def _open_tap(self, client: Client, found: Preflight, wanted: sizing.Demand, workers: int) -> TapProcess | None:
        if self.group is None:
            return open_tap(client, found.targets, wanted.events_per_s, workers, own_cores())
        if client.timestamps == "tap":
            self.group.refuse_without_ring()
        return None

    def _start_on_hosts(self, specs: Sequence[WorkerSpec]) -> HostFleet:
        from fastllmload.engine.hosts.fleet import HostFleet

        assert self.group is not None
        asked = self.settings.hosts
        self.fleet = HostFleet.start(
            self.group, specs, self.folder.path,
            pinned=self.settings.client.pin, collect=asked.collect, on_loss=asked.on_host_loss,
        )  # fmt: skip
        return self.fleet

    def _ask(self, questions: Mapping[int, Questions]) -> Mapping[int, str]:
        """Ask the hosts about events that stay there; the run continues without those that do not answer."""
        assert self.fleet is not None
        document = msgspec.structs.replace(self.folder.document, status=self.controller.run_status.status)
        silent = self.fleet.ask(questions, document)
        for code, sentence in self.fleet.update():
            self.controller.incident(code, sentence)
        return silent

    def _begin(
        self,
        settings: RunSettings,
        found: Preflight,
        plans: Plans,
        run_id: str,
        workers: int,
        telemetry: TelemetryTargets,
    ) -> None:
        plans.measure.write_record(self.folder.path / "plan")
        self.folder.begin(
            public(settings, self.redact, self.folder.path),
            environment(telemetry.engine),
            run_id=run_id,
            command=blank(command_line(), self.redact),
            plan=plan_summary(plans, time.monotonic_ns()),
            target=target_facts(settings.target.endpoint_type, settings.classes, found, self.simulator is not None),
            workers=tuple(WorkerEntry(worker=worker, died=False) for worker in range(workers)),
        )

    @contextlib.contextmanager
    def _sampling(self, telemetry: TelemetryTargets) -> Iterator[int | None]:
        """Sample telemetry until all workers have ended. Yields the process id."""
        if not self.settings.telemetry.enabled:
            yield None
            return
        sampler = TelemetryProcess(self.settings.telemetry, telemetry, self.folder.path, self.folder.work, self.redact)
        sampler.start()
        try:
            self.interrupts.wait(self.settings.telemetry.idle)
            yield sampler.pid
        finally:
            problem = sampler.stop()
            if problem is not None:
                self.controller.incident("telemetry-ended", problem)

    @contextlib.contextmanager
    def _ending(self, specs: Sequence[WorkerSpec], found: Preflight) -> Iterator[EndsProcess | None]:
        """Send the requests that end sessions, until all workers have ended."""
        session = specs[0].session
        if session is None or session.end is None or found.first is None:
            yield None
            return
        config = EndsConfig(
            pipe=-1, method=session.end.partition(" ")[0], target=self.settings.target, targets=specs[0].targets,
            headers=found.first.headers, key=found.first.key,
        )  # fmt: skip
        process = EndsProcess(config, environment_of_workers())
        try:
            yield process
        finally:
            ended = process.finish()
            self.folder.update(session_ends=ended or SessionEnds())
            if ended is None:
                self.controller.incident("session-ends-lost", "the process that ends sessions died or took too long")
            elif ended.failed:
                why = self.redact(ended.failure or "")
                sentence = f"{ended.failed} of {ended.sent} sessions were not ended at the server: {why}"
                self.ui.message(f"warning: {coded('session-ends-failed', sentence)}")

    @contextlib.contextmanager
    def _tapping(self, tap: TapProcess | None) -> Iterator[int | None]:
        """Read the packet ring until all workers have ended and it is empty. Yields the reader's process id."""
        if tap is None:
            yield None
            return
        try:
            yield tap.start(self.folder.path / "workers")
        finally:
            problem = tap.stop()
            self.folder.update(tap=tap.facts)
            if problem is not None:
                self.controller.incident("tap-ended", problem)


def refuse_local_target(found: Preflight, places: Sequence[PlacedHost]) -> None:
    """InputError when the target is this machine's loopback interface or a socket file, and other machines send to it."""
    local = [one.url for one in found.targets if one.family == "unix" or ip_address(one.address).is_loopback]
    others = [one.name for one in places if not probe.is_own(one.address)]
    if local and others:
        raise InputError(
            "target-not-shared",
            f"{local[0]} is this machine's own address, and {', '.join(others)} would send to itself there; "
            "give a --url that all hosts reach",
        )


def own_cores() -> int:
    return max(1, int(probe.cores()))


def source_of_stamps(asked: str, found: Preflight, tapped: bool) -> str:
    """The source of stamps: packet ring, else the kernel (not for Unix sockets), else user space. *asked*: --timestamps."""
    source = stamp_source(asked, tapped)
    if source == "kernel" and all(t.family == "unix" for t in found.targets):
        found.notes.append(
            coded("kernel-stamps-missing", "no kernel receive stamps on these connections: user-space stamps are used")
        )
        source = "user"
    return source
