"""The supervisor: preflight, plan, workers, phases, merge, measure, judge, report. Light by design: it looks four times a
second, and nothing crosses between it and the workers but shared words.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fastllmload._ext import recorder
from fastllmload._ext.hiccup import HiccupMeter
from fastllmload.endpoint import Endpoint, resolve_endpoint
from fastllmload.engine import hostlimits
from fastllmload.engine.fleet import Fleet
from fastllmload.engine.folder import Folder
from fastllmload.engine.live import Live
from fastllmload.engine.phases import Director, Interrupts
from fastllmload.engine.preflight import Preflight, expected_in_flight, preflight
from fastllmload.engine.resolve import parse_base
from fastllmload.engine.samples import SampleLog
from fastllmload.engine.share import auto_workers
from fastllmload.engine.workspec import PhaseSpec, WorkerSpec
from fastllmload.errors import HostLimitError, InputError
from fastllmload.plan.archive import load_plan, save_plan
from fastllmload.plan.build import build_plan
from fastllmload.plan.plan import Plan
from fastllmload.plan.settings import RunSettings, Secret
from fastllmload.redact import Redactor, header_secrets, url_secrets
from fastllmload.report.terminal import Ui
from fastllmload.simulator.process import SimulatorProcess

EXIT_DONE, EXIT_OBJECTIVE, EXIT_INPUT, EXIT_TARGET, EXIT_INTERRUPTED, EXIT_OWN_FAULT = 0, 1, 2, 3, 4, 70
PHASE_CODES = {"warmup": recorder.PHASE_WARMUP, "measure": recorder.PHASE_MEASURE}
SIMULATED = "the embedded simulated engine: no real server is measured"


def execute(settings: RunSettings, secret: Secret | None, ui: Ui) -> int:
    """Do one run; returns the exit code of the contract."""
    redact = redactor(settings, secret)
    folder = Folder.create(settings.output.directory)
    try:
        with simulated_target(settings) as (urls, simulator):
            return Session(settings, secret, ui, folder, redact, urls, simulator).run()
    finally:
        folder.clean()
        with contextlib.suppress(OSError):  # a run refused before it began leaves no empty folder
            folder.path.rmdir()
        ui.close()


def redactor(settings: RunSettings, secret: Secret | None) -> Redactor:
    """Knows every secret of the run: the key, secret headers, passwords in URLs."""
    known = Redactor([] if secret is None else [secret.reveal()])
    for name, value in settings.target.headers:
        for text in header_secrets(name, value):
            known.add(text)
    for url in settings.target.urls:
        for text in url_secrets(url):
            known.add(text)
    return known


@contextlib.contextmanager
def simulated_target(settings: RunSettings) -> Iterator[tuple[tuple[str, ...], SimulatorProcess | None]]:
    """The run's URLs; without any, those of a simulated engine that lives as long as the run."""
    if settings.target.urls or settings.target.unix_socket is not None:
        yield settings.target.urls or ("http://localhost",), None
        return
    from fastllmload.engine.simtarget import options_of

    with SimulatorProcess(options_of(settings.target.simulate)) as simulator:
        yield (simulator.url,), simulator


@dataclass
class Session:
    """One run between its folder and its exit code."""

    settings: RunSettings
    secret: Secret | None
    ui: Ui
    folder: Folder
    redact: Redactor
    urls: tuple[str, ...]
    simulator: SimulatorProcess | None

    def run(self) -> int:
        settings = self.settings
        endpoint = resolve_endpoint(settings.target.endpoint_type)
        found = preflight(settings, self.urls, endpoint, self.secret)
        warmup, measure = self._plans(endpoint, found.model)
        self._check_limits(measure)
        if settings.output.save_plan is not None:
            save_plan(measure, Path(settings.output.save_plan))
        workers = auto_workers(settings, measure, self.simulator is not None, stored_ceiling())
        self._begin(found, measure, warmup, workers)
        self.ui.banner(self._banner(found, measure, workers))
        specs = self._specs(endpoint, found, warmup, measure, workers)
        with Interrupts() as interrupts:
            status = self._drive(specs, warmup, measure, interrupts)
        self._merge(measure)
        return self._report(status)

    # -- before -------------------------------------------------------------------------------------------------------

    def _plans(self, endpoint: Endpoint, model: str) -> tuple[Plan, Plan]:
        settings, work = self.settings, self.folder.work
        if settings.output.plan is not None:
            measure = load_plan(Path(settings.output.plan), work / "measure")
        else:
            measure = build_plan(settings, phase="measure", endpoint=endpoint, model=model, out_dir=work / "measure")
        if measure.requests == 0:
            raise InputError("the plan holds no request; ask for a longer --duration or a higher --rate")
        build_plan(settings, phase="warmup", endpoint=endpoint, model=model, out_dir=work / "warmup")
        self.folder.settle(settings.output.directory is not None, measure.digest)
        work = self.folder.work
        return Plan.open(work / "warmup"), Plan.open(work / "measure")

    def _check_limits(self, plan: Plan) -> None:
        """Refuse now what would fail during the run: open files and ports."""
        settings = self.settings
        hostlimits.raise_nofile()
        in_flight = expected_in_flight(settings, float(plan.output_tokens.mean()))
        certain = settings.load.concurrency or (
            plan.requests if settings.load.rate is not None and math.isinf(settings.load.rate) else 0
        )
        churn = (settings.load.rate or 0.0) if settings.client.fresh_connections else 0.0
        if math.isinf(churn):
            churn = 0.0
        problems = hostlimits.check_capacity(
            certain or min(in_flight, plan.requests, 1 << 14), churn, max(1, len(settings.target.source_addresses)),
            n_targets=len(self.urls), workers=settings.client.workers or 1, seconds=settings.load.duration,
        )
        if problems:
            raise HostLimitError("; ".join(problems))

    def _begin(self, found: Preflight, measure: Plan, warmup: Plan, workers: int) -> None:
        from fastllmload.records.environment import environment

        settings = self.settings
        shown = replace_secrets(settings, self.redact)
        self.folder.begin(
            shown, environment(),
            plan={
                "digest": measure.digest, "schedule_hash": measure.schedule_hash, "requests": measure.requests,
                "description": measure.description, "warmup_digest": warmup.digest, "warmup_requests": warmup.requests,
            },
            target={
                "urls": [parse_base(url, settings.target.unix_socket).shown for url in self.urls],
                "addresses": [f"{target.address}:{target.port}" for target in found.targets],
                "model": found.model, "simulated": self.simulator is not None,
                "endpoint_type": settings.target.endpoint_type, "usage_reported": found.usage_reported,
                "connect_ms": found.connect_ms, "notes": found.notes,
            },
            workers=workers,
        )  # fmt: skip
        measure.write_record(self.folder.path / "plan")

    def _banner(self, found: Preflight, plan: Plan, workers: int) -> list[str]:
        load = self.settings.load
        target = self.folder.manifest["target"]
        if load.concurrency is not None:
            shape = f"closed loop of {load.concurrency}"
        else:
            shape = f"open loop, {load.arrival}, {load.rate:g}/s"
        bound = f"{load.duration:g} s" if load.duration is not None else f"{plan.requests} requests"
        lines = [f"SIMULATED TARGET: {SIMULATED}"] if self.simulator is not None else []
        lines += [
            f"target   {', '.join(target['urls'])}  model {found.model}  {self.settings.target.endpoint_type}",
            f"load     {shape}, {bound}, {plan.requests} requests planned, plan {plan.digest[:12]}",
            f"client   {workers} worker{'s' if workers != 1 else ''}, run folder {self.folder.path}",
        ]
        return lines + [f"note     {note}" for note in found.notes]

    def _specs(
        self, endpoint: Endpoint, found: Preflight, warmup: Plan, measure: Plan, workers: int
    ) -> list[WorkerSpec]:
        settings, client = self.settings, self.settings.client
        phases = tuple(self._phase(number, name, plan) for number, (name, plan) in enumerate(
            (name, plan) for name, plan in (("warmup", warmup), ("measure", measure)) if plan.requests
        ))
        run_id = secrets.token_hex(4)
        specs = []
        for worker in range(workers):
            share = tuple(replace_connections(phase, workers) for phase in phases)
            specs.append(WorkerSpec(
                worker=worker, workers=workers, supervisor_pid=os.getpid(), run_id=run_id,
                shared_path=str((self.folder.work / f"words.{worker}").absolute()),
                rows_dir=str((self.folder.path / "workers" / str(worker)).absolute()),
                targets=tuple(found.targets), phases=share, timeout_ns=int(settings.load.timeout * 1e9),
                dialect=endpoint.dialect, strict_decode=client.decode == "strict", timestamps=client.timestamps,
                transport=client.transport if client.transport != "auto" else "reactor",
                fresh_connections=client.fresh_connections, spin_budget=client.spin_budget,
                pin_cpu=client.pin[worker % len(client.pin)] if client.pin else None,
                record_text=client.record_text == "on" or (client.record_text == "auto" and found.usage_reported is False),
                source_addresses=settings.target.source_addresses,
                cacert=settings.target.cacert, cert=settings.target.client_cert, key=settings.target.client_key,
                insecure=settings.target.insecure,
            ))  # fmt: skip
        return specs

    def _phase(self, number: int, name: str, plan: Plan) -> PhaseSpec:
        """*initial_connections* is the total here; `replace_connections` deals it out."""
        load = self.settings.load
        closed = plan.t_sched is None
        grace = 60.0 if load.grace is None else load.grace
        ahead = plan.concurrency or min(plan.requests, math.ceil((load.rate or 0) / 4) + 16 if load.rate != math.inf else plan.requests)
        return PhaseSpec(
            number=number, name=name, phase_code=PHASE_CODES[name],
            plan_dir=str(plan.directory.absolute()), mode="closed" if closed else "open",
            concurrency=plan.concurrency or 0, max_concurrency=load.max_concurrency or 0,
            stop_sending_ns=int((plan.duration_s or 0) * 1e9) if closed else 0,
            num_requests=0 if plan.cycles or not closed else plan.requests,
            drain_ns=int(grace * 1e9) if name == "warmup" or load.grace is not None else 0,
            initial_connections=max(1, ahead),
        )  # fmt: skip

    # -- the clock ----------------------------------------------------------------------------------------------------

    def _drive(self, specs: list[WorkerSpec], warmup: Plan, measure: Plan, interrupts: Interrupts) -> str:
        fleet = Fleet.start(specs)
        log = SampleLog(self.folder.path / "samples.npy")
        pid = None if self.simulator is None else self.simulator.pid
        director = Director(
            fleet, Live(fleet, log, pid), self.ui, interrupts, self.redact, self.settings.load.grace, self._started
        )
        meter = HiccupMeter()
        try:
            meter.start()
            for phase in specs[0].phases:
                plan = warmup if phase.name == "warmup" else measure
                rate = self.settings.load.rate if phase.mode == "open" else None
                planned = None if plan.cycles else plan.requests
                if not director.run(phase, planned, plan.duration_s, rate):
                    break
                self.folder.manifest["phases"][-1]["drained_ns"] = time.monotonic_ns()
            if director.status == "done" and not interrupts.count:
                fleet.join()
        finally:
            meter.stop()
            fleet.stop()
            fleet.watch()
            log.close()
            self._keep(fleet, meter)
        return director.status

    def _started(self, phase: PhaseSpec, start_ns: int) -> None:
        """Time zero of a phase is known: run.json says so at once, a killed run needs it to be read."""
        plan = Plan.open(Path(phase.plan_dir))
        load = self.settings.load
        duration = plan.duration_s if phase.name == "measure" else None
        self.folder.manifest["phases"].append({
            "number": phase.number, "name": phase.name, "start_ns": start_ns,
            "start_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + (start_ns - time.monotonic_ns()) / 1e9)),
            "end_ns": None if duration is None else start_ns + int(duration * 1e9),
            "bound": "count" if duration is None else "duration",
            "ramp_share": load.ramp_share if duration is not None else 0.0,
            "requests": None if plan.cycles else plan.requests, "mode": phase.mode, "plan_requests": plan.requests,
        })  # fmt: skip
        self.folder.save()

    def _keep(self, fleet: Fleet, meter: HiccupMeter) -> None:
        """What lives in shared memory and in the meter goes to the folder."""
        path = self.folder.path
        np.savez_compressed(path / "words.npz", words=np.stack([member.words for member in fleet.members]))
        np.save(path / "hiccup.npy", meter.words)
        np.save(path / "stalls.npy", meter.stalls)
        self.folder.manifest["worker_processes"] = [
            {"worker": member.spec.worker, "pid": member.pid, "died": member.died, "exit_code": member.process.returncode}
            for member in fleet.members
        ]

    # -- after --------------------------------------------------------------------------------------------------------

    def _merge(self, measure: Plan) -> None:
        from fastllmload.records.merge import PlannedPhase, merge_workers

        planned = []
        started = {phase["name"]: phase["start_ns"] for phase in self.folder.manifest["phases"]}
        if measure.t_sched is not None and "measure" in started:
            planned.append(PlannedPhase(
                recorder.PHASE_MEASURE, measure.t_sched + started["measure"], measure.input_tokens,
                measure.output_tokens, measure.request_class,
            ))  # fmt: skip
        logs = self.folder.path / "workers"
        for log in logs.glob("*/stderr.txt"):
            if log.stat().st_size:
                shutil.copy(log, self.folder.path / f"worker-{log.parent.name}.stderr.txt")
        merge_workers(self.folder.path, planned)

    def _report(self, status: str) -> int:
        from fastllmload.report.document import finish_run

        self.folder.manifest["status"] = status
        self.folder.save()
        document = finish_run(self.folder.path)
        self.ui.finish(document)
        return exit_code(status, document, self.settings.output.strict)


def exit_code(status: str, document: dict[str, Any], strict: bool) -> int:
    """A full disk is the host's limit (2); a worker that died is our fault (70); a run without one success is the target's (3)."""
    if status == "interrupted":
        return EXIT_INTERRUPTED
    if status == "disk_full":
        return EXIT_INPUT
    if status == "partial":
        return EXIT_OWN_FAULT
    if document["completed"] == 0:
        return EXIT_TARGET
    if strict and document["certificate"]["verdict"] != "valid":
        return EXIT_OBJECTIVE
    return EXIT_DONE


def replace_connections(phase: PhaseSpec, workers: int) -> PhaseSpec:
    return msgspec.structs.replace(phase, initial_connections=-(-phase.initial_connections // workers))


def replace_secrets(settings: RunSettings, redact: Redactor) -> RunSettings:
    """The settings as they may be stored."""
    text = msgspec.json.encode(settings).decode()
    return msgspec.json.decode(redact(text), type=RunSettings)


def stored_ceiling() -> tuple[float, float] | None:
    """(events/s, requests/s) of one worker on this host, when `fastllmload calibrate` has measured it."""
    from fastllmload.certificate.calibrate import stored

    found = stored()
    return None if found is None else (found.events_per_s, found.requests_per_s)
