"""The parts of run.json that are known before a run is measured: target, plan, phases, environment."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from fastllmload.certificate.ceiling import cpu_model
from fastllmload.engine.phases import PhaseOutcome
from fastllmload.engine.preflight.answers import TOKEN_IDS, USAGE
from fastllmload.engine.preflight.check import Preflight
from fastllmload.engine.run_plans import Plans
from fastllmload.engine.workers.spec import PhaseSpec
from fastllmload.host import probe
from fastllmload.plan.plan import Plan
from fastllmload.settings import Load, TrafficClass
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer

LIBRARIES = ("uvloop", "httptools", "numpy", "msgspec", "hdrhistogram")
CONGESTION = "/proc/sys/net/ipv4/tcp_congestion_control"


def command_line() -> list[str] | None:
    """The arguments of this process; None when a user's program called the Python API."""
    program = Path(sys.argv[0]) if sys.argv else Path()
    ours = program.name == "fastllmload" or program.parts[-2:] == ("fastllmload", "__main__.py")
    return ["fastllmload", *sys.argv[1:]] if ours else None


def environment() -> dict[str, Any]:
    """*clock_offset_ns* is CLOCK_REALTIME - CLOCK_MONOTONIC now: the only link between rows and wall time."""
    return {
        "time_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "clock_offset_ns": probe.offset_ns()[1],
        "host": platform.node(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": cpu_model(),
        "cores": probe.cores(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "tcp_congestion_control": probe.setting(CONGESTION),
        "python": sys.version.split()[0],
        "libraries": {name: metadata.version(name) for name in LIBRARIES},
    }


def target_facts(protocol: str, classes: Sequence[TrafficClass], found: Preflight, simulated: bool) -> dict[str, Any]:
    return {
        "urls": [target.url for target in found.targets],
        "addresses": [target.address for target in found.targets],
        "endpoint_type": protocol,
        "classes": class_targets(protocol, classes, found),
        "model": found.model,
        "simulated": simulated,
        "usage_reported": found.usage_reported,
        **token_reporting(found.way),
        "connect_ms": found.connect_ms,
        "probe_s": found.answer_s,
        "notes": found.notes,
    }


def token_reporting(way: str | None) -> dict[str, bool | None]:
    """Whether every event reported its usage, or the ids of its tokens, on request; null: not requested."""
    if way is None:
        return {"continuous_usage": None, "token_ids": None}
    return {"continuous_usage": way == USAGE, "token_ids": None if way == USAGE else way == TOKEN_IDS}


def class_targets(protocol: str, classes: Sequence[TrafficClass], found: Preflight) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "endpoint_type": one.endpoint_type or protocol,
            "urls": [target.url for target in found.targets[first : first + many]],
            "model": model,
        }
        for one, (first, many), model in zip(classes, found.class_targets, found.class_models, strict=True)
    ]


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
    """How the plan counts tokens, with the version of the library used here."""
    found = plan.counting
    tokenizer = load_tokenizer(found["tokenizer"]["name"])
    return found if tokenizer is None else {**found, "tokenizer": tokenizer.facts()}


def phase_begun(load: Load, spec: PhaseSpec, plan: Plan, start_ns: int) -> dict[str, Any]:
    """A phase whose time zero is known. *start_ns*: CLOCK_MONOTONIC."""
    duration, share = plan.duration_s, load.ramp_share
    most = load.num_requests
    cut = plan.t_sched is not None and most is not None and len(plan.starts) >= most  # an open loop with both bounds
    by_duration = duration is not None and not cut
    asked_for = share != Load().ramp_share
    return {
        "number": spec.number,
        "name": spec.name,
        "mode": spec.mode,
        "start_ns": start_ns,
        "start_utc": utc(time.time_ns() + start_ns - time.monotonic_ns()),
        "end_ns": start_ns + round(duration * 1e9) if by_duration and duration is not None else None,
        "bound": "duration" if by_duration else "count",
        "ramp_share": share if by_duration or asked_for else 0.0,
    }


def end_phase(entry: dict[str, Any], load: Load, plan: Plan, outcome: PhaseOutcome) -> None:
    """Complete the phase's *entry* now that nothing is in flight."""
    if plan.concurrency is not None and not plan.cycles and outcome.released >= plan.requests:
        entry["bound"] = "count"
        if load.ramp_share == Load().ramp_share:
            entry["ramp_share"] = 0.0
    entry["end_ns"] = outcome.end_ns
    entry["drained_ns"] = time.monotonic_ns()
    entry["released"], entry["ok"] = outcome.released, outcome.ok
    entry["drain_timed_out"] = outcome.timed_out
    if outcome.cascading:
        entry["cascading_failure"] = True
    if plan.cycles:
        entry["rounds_of_plan"] = outcome.released / plan.requests


def utc(ns: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ns // 1_000_000_000)) + f".{ns // 1_000_000 % 1000:03d}Z"
