"""The parts of run.json that are known before a run is measured: target, plan, phases, environment."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from msgspec.structs import replace

from fastllmload.certificate.ceiling import cpu_model
from fastllmload.documents.plan import CountingFacts, PlanDescription, PlanSummary, WarmupPlan
from fastllmload.documents.run import Environment, Phase
from fastllmload.documents.run_parts.target import ClassTarget, EngineFacts, TargetFacts
from fastllmload.endpoint import shown, told_apart
from fastllmload.engine.phases import PhaseOutcome
from fastllmload.engine.preflight.answers import TOKEN_IDS, USAGE
from fastllmload.engine.preflight.check import Preflight
from fastllmload.engine.preflight.client import H2
from fastllmload.engine.run_plans import Plans
from fastllmload.engine.workers.spec import PhaseSpec
from fastllmload.host import probe
from fastllmload.plan.plan import Plan
from fastllmload.settings import Load, TrafficClass
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer

LIBRARIES = ("uvloop", "httptools", "numpy", "msgspec", "hdrhistogram")
CONGESTION = "/proc/sys/net/ipv4/tcp_congestion_control"


def command_line() -> tuple[str, ...] | None:
    """The arguments of this process; None when a user's program called the Python API."""
    program = Path(sys.argv[0]) if sys.argv else Path()
    ours = program.name == "fastllmload" or program.parts[-2:] == ("fastllmload", "__main__.py")
    return ("fastllmload", *sys.argv[1:]) if ours else None


def environment(engine: EngineFacts | None) -> Environment:
    """*clock_offset_ns* is CLOCK_REALTIME - CLOCK_MONOTONIC now: the only link between rows and wall time."""
    return Environment(
        time_utc=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        clock_offset_ns=probe.offset_ns()[1],
        host=platform.node(),
        kernel=platform.release(),
        machine=platform.machine(),
        cpu=cpu_model(),
        cores=probe.cores(),
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        tcp_congestion_control=probe.setting(CONGESTION),
        python=sys.version.split()[0],
        libraries={name: metadata.version(name) for name in LIBRARIES},
        engine=engine,
    )


def target_facts(protocol: str, classes: Sequence[TrafficClass], found: Preflight, simulated: bool) -> TargetFacts:
    asked, by_usage = found.way is not None, found.way == USAGE
    return TargetFacts(
        urls=tuple(target.url for target in found.targets),
        addresses=tuple(target.address for target in found.targets),
        endpoint_type=shown(protocol),
        classes=class_targets(protocol, classes, found),
        model=found.model,
        simulated=simulated,
        http_version="2" if found.http_version == H2 else "1.1",
        usage_reported=found.usage_reported,
        continuous_usage=by_usage if asked else None,
        token_ids=found.way == TOKEN_IDS if asked and not by_usage else None,
        connect_ms=tuple(found.connect_ms),
        probe_s=found.answer_s,
        notes=tuple(found.notes),
    )


def class_targets(protocol: str, classes: Sequence[TrafficClass], found: Preflight) -> tuple[ClassTarget, ...]:
    return tuple(
        ClassTarget(
            name=one.name,
            endpoint_type=shown(one.endpoint_type or protocol),
            urls=tuple(target.url for target in found.targets[first : first + many]),
            model=model,
        )
        for one, (first, many), model in zip(classes, found.class_targets, found.class_models, strict=True)
    )


def plan_summary(plans: Plans, whole_ns: int) -> PlanSummary:
    """*whole_ns*: CLOCK_MONOTONIC when the last byte of every request had been written."""
    measure, warmup = plans.measure, plans.warmup
    return PlanSummary(
        digest=measure.digest,
        schedule_hash=measure.schedule_hash,
        model=measure.description.model,
        requests=None if measure.cycles else measure.open_requests,
        whole_ns=whole_ns,
        description=with_names(measure.description),
        classes=tuple(measure.classes),
        deviations=tuple(measure.deviations),
        counting=counting(measure),
        warmup=WarmupPlan(
            digest=warmup.digest,
            requests=warmup.requests,
            description=with_names(warmup.description),
            deviation=plans.warmup_deviation,
        ),
    )


def with_names(found: PlanDescription) -> PlanDescription:
    """*found* with the names of protocols that files describe: `config` has their texts."""
    classes = [
        replace(
            one,
            endpoint=told_apart(one.endpoint),
            settings=one.settings and replace(one.settings, endpoint_type=told_apart(one.settings.endpoint_type)),
        )
        for one in found.classes
    ]
    return replace(found, endpoint=told_apart(found.endpoint), classes=tuple(classes))


def counting(plan: Plan) -> CountingFacts:
    """How the plan counts tokens, with the version of the library used here."""
    found = plan.counting
    tokenizer = load_tokenizer(str(found.tokenizer.name))
    return found if tokenizer is None else replace(found, tokenizer=tokenizer.facts())


def phase_begun(load: Load, spec: PhaseSpec, plan: Plan, start_ns: int) -> Phase:
    """A phase whose time zero is known. *start_ns*: CLOCK_MONOTONIC."""
    duration, share = plan.duration_s, load.ramp_share
    most = load.num_requests
    cut = plan.t_sched is not None and most is not None and len(plan.arrivals) >= most  # an open loop with both bounds
    by_duration = duration is not None and not cut
    asked_for = share != Load().ramp_share
    return Phase(
        number=spec.number,
        name=spec.name,
        mode=spec.mode,
        start_ns=start_ns,
        start_utc=utc(time.time_ns() + start_ns - time.monotonic_ns()),
        end_ns=start_ns + round(duration * 1e9) if by_duration and duration is not None else None,
        bound="duration" if by_duration else "count",
        ramp_share=share if by_duration or asked_for else 0.0,
    )


def phase_ended(phase: Phase, load: Load, plan: Plan, outcome: PhaseOutcome) -> Phase:
    """*phase* now that nothing is in flight."""
    if plan.concurrency is not None and not plan.cycles and outcome.released >= plan.requests:
        usual = load.ramp_share == Load().ramp_share
        phase = replace(phase, bound="count", ramp_share=0.0 if usual else phase.ramp_share)
    return replace(
        phase,
        end_ns=outcome.end_ns,
        drained_ns=time.monotonic_ns(),
        released=outcome.released,
        ok=outcome.ok,
        drain_timed_out=outcome.timed_out,
        cascading_failure=True if outcome.cascading else None,
        rounds_of_plan=outcome.released / plan.requests if plan.cycles else None,
    )


def utc(ns: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ns // 1_000_000_000)) + f".{ns // 1_000_000 % 1000:03d}Z"
