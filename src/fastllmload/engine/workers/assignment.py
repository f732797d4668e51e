"""Builds the spec of each worker from settings, preflight and plans."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fastllmload.endpoint import resolve_endpoint
from fastllmload.endpoint.identity import named_sessions
from fastllmload.engine.preflight.check import Preflight
from fastllmload.engine.recording.folder import Folder
from fastllmload.engine.run_plans import RunPhase
from fastllmload.engine.workers.sizing import Demand, initial_connections
from fastllmload.engine.workers.spec import PhaseSpec, TargetSpec, WorkerSpec
from fastllmload.errors import InputError
from fastllmload.plan.plan import Plan
from fastllmload.settings import Client, Load, RunSettings, TrafficClass

NS = 1_000_000_000
WARMUP_GRACE_S = 60.0  # the drain time-out cannot depend on P99, which is not known yet


def phase_specs(load: Load, phases: Sequence[RunPhase], wanted: Demand, workers: int) -> tuple[PhaseSpec, ...]:
    return tuple(
        phase_spec(load, number, phase, initial_connections(phase.plan, wanted, workers, load.max_concurrency))
        for number, phase in enumerate(phases)
    )


def phase_spec(load: Load, number: int, phase: RunPhase, connections: int) -> PhaseSpec:
    """Without a declared drain time-out the supervisor ends the drain of the measured phase."""
    plan = phase.plan
    closed = plan.concurrency is not None
    # Requests that follow replies, or that slots send, are not in the plan's schedule.
    bounded = closed or bool(plan.closed_classes) or plan.turns is not None
    grace = load.grace if load.grace is not None or phase.name == "measure" else WARMUP_GRACE_S
    return PhaseSpec(
        number=number,
        name=phase.name,
        phase_code=phase.code,
        plan_dir=str(plan.directory.absolute()),
        mode="closed" if closed else "open",
        concurrency=plan.concurrency or 0,
        max_concurrency=0 if closed or load.max_concurrency is None else load.max_concurrency,
        max_prefill=load.max_prefill or 0,
        stop_sending_ns=round(plan.duration_s * NS) if bounded and plan.duration_s is not None else 0,
        num_requests=len(plan.starts) if closed and not plan.cycles else 0,
        drain_ns=0 if grace is None else max(1, round(grace * NS)),
        initial_connections=connections,
    )


def records_text(settings: RunSettings, found: Preflight) -> bool:
    """Whether the text of answers is recorded, to count their tokens."""
    text = "on" if settings.workload.counting == "B" else settings.client.record_text
    return text == "on" or (text == "auto" and found.usage_reported is not True)


def worker_specs(
    settings: RunSettings,
    found: Preflight,
    folder: Folder,
    phases: tuple[PhaseSpec, ...],
    workers: int,
    run_id: str,
    secrets: tuple[str, ...] = (),
) -> list[WorkerSpec]:
    """One per worker; they differ in number, files and CPU."""
    client, target = settings.client, settings.target
    return [
        WorkerSpec(
            worker=worker,
            workers=workers,
            supervisor_pid=os.getpid(),
            run_id=run_id,
            rows_dir=absolute(folder.path / "workers" / str(worker)),
            targets=weighted(settings.classes, found),
            class_heads=tuple(tuple(heads) for heads in found.class_heads),
            phases=phases,
            timeout_ns=round(settings.load.timeout * NS),
            class_targets=tuple(found.routes),
            protocols=protocols(target.endpoint_type, settings.classes),
            strict_decode=client.decode == "strict",
            timestamps=client.timestamps,
            transport="asyncio" if client.transport == "asyncio" else "reactor",
            fresh_connections=client.fresh_connections,
            http2_streams=client.streams_per_connection if client.http_version == "2" else 0,
            websocket=resolve_endpoint(protocols(target.endpoint_type, settings.classes)[0]).websocket,
            spin_budget=client.spin_budget,
            pin_cpu=client.pin[worker % len(client.pin)] if client.pin else None,
            record_text=records_text(settings, found),
            source_addresses=target.source_addresses,
            cacert=target.cacert,
            cert=target.client_cert,
            key=target.client_key,
            insecure=target.insecure,
            tls_resume=target.tls_resume,
            session=named_sessions(settings.session),
            backend_header=settings.target.backend_header,
            secrets=secrets,
        )
        for worker in range(workers)
    ]


def protocols(protocol: str, classes: Sequence[TrafficClass]) -> tuple[str, ...]:
    return tuple(one.endpoint_type or protocol for one in classes) or (protocol,)


def weighted(classes: Sequence[TrafficClass], found: Preflight) -> tuple[TargetSpec, ...]:
    """The targets, each with its fraction of the requests, which sets how many connections are opened in advance."""
    if not found.own_urls:
        return tuple(found.targets)
    weights = [0.0] * len(found.targets)
    mixed = any(one.load.concurrency is not None for one in classes)  # of slots and rates: what is in flight
    answer_s = found.answer_s or 1.0 if mixed else 1.0
    for one, (first, many) in zip(classes, found.class_targets, strict=True):
        for number in range(first, first + many):
            # the rate of a trace is not known before it is read
            weights[number] += (one.load.concurrency or (one.load.rate or 1.0) * answer_s) / many
    chosen = zip(found.targets, weights, strict=True)
    return tuple(msgspec.structs.replace(target, weight=weight) for target, weight in chosen)


def check_transport(client: Client, plan: Plan, found: Preflight) -> None:
    """InputError when connections of the event loop, or of HTTP/2, are to do what they cannot."""
    secured = [target.url for target in found.targets if target.tls]
    slow = plan.client is not None and plan.client["read_rate"].any()
    if client.http_version == "2" and slow:
        raise InputError(
            "slow-readers-unsupported",
            "slow readers need a connection each, and HTTP/2 shares them; leave --http-version out",
        )
    if client.transport != "asyncio":
        return
    if secured:
        raise InputError(
            "transport-without-tls", f"--transport asyncio has no TLS, but {secured[0]} is https; leave --transport out"
        )
    if slow:
        raise InputError(
            "slow-readers-unsupported",
            "slow readers need connections of the reactor; leave --transport asyncio out",
        )


def absolute(path: Path) -> str:
    return str(path.absolute())
