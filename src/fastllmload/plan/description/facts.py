"""Summarize a plan in numbers, for review before anything is sent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.plan.plan import Plan

NEEDED = {"p50": 1, "p90": 1, "p95": 1, "p99": 1_000, "p999": 10_000}  # samples that a percentile needs (IETF 5.1.2.1)
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def describe(plan: Plan, *, ramp_share: float = 0.1) -> dict[str, Any]:
    """Figures of *plan*; None for those that the target of a closed loop decides. Without *ramp_share* of the duration."""
    known = not plan.cycles
    return {
        "phase": plan.description["phase"],
        "load": plan.description["load"],
        "workload": plan.description["workload"],
        "model": plan.description["model"],
        "endpoint": plan.description["endpoint"],
        "seed": plan.description["seed"],
        "requests": plan.requests if known else None,
        "pool": None if known else plan.requests,
        "duration_s": _duration(plan),
        "input_tokens": int(plan.input_tokens.sum()) if known else None,
        "output_tokens": int(plan.output_tokens.sum()) if known else None,
        "input_length": _lengths(plan.input_tokens),
        "output_length": _lengths(plan.output_tokens),
        "bytes": len(plan.bodies),
        "digest": plan.digest,
        "schedule_sha256": plan.schedule_hash,
        "samples": _samples(plan, ramp_share),
        "deviations": plan.deviations,
        "conversations": plan.description.get("conversations"),
        "behaviour": plan.description.get("behaviour"),
        "classes": plan.description.get("classes", []),
    }


def _duration(plan: Plan) -> float | None:
    """The bound, or the last instant of a count-bounded open loop."""
    if plan.duration_s is not None or plan.t_sched is None or not plan.requests:
        return plan.duration_s
    return float(plan.t_sched.max()) / 1e9


def _lengths(tokens: npt.NDArray[np.int32]) -> dict[str, float] | None:
    """Tokens: mean, min, max, and per q the smallest length that a share q of requests does not exceed."""
    if not len(tokens):
        return None
    ranked = np.sort(tokens)
    quantiles = {name: float(ranked[max(0, math.ceil(q * len(ranked)) - 1)]) for name, q in QUANTILES.items()}
    return {"mean": float(tokens.mean()), "min": float(ranked[0]), "max": float(ranked[-1]), **quantiles}


def _samples(plan: Plan, ramp_share: float) -> dict[str, dict[str, Any]] | None:
    """Per percentile: samples in the window, samples needed, enough or not; requests and seconds that are missing."""
    if plan.cycles or not plan.requests:
        return None
    samples, share = plan.requests, 1.0
    if plan.duration_s is not None and plan.t_sched is not None:
        share = 1.0 - ramp_share
        samples = _begun_from(plan, ramp_share * plan.duration_s * 1e9)
    rate = _rate(plan)
    found: dict[str, dict[str, Any]] = {}
    for name, needs in NEEDED.items():
        found[name] = {"samples": samples, "needs": needs, "enough": samples >= needs}
        if samples < needs:
            more = math.ceil((needs - samples) / share)
            found[name] |= {"more_requests": more, "more_s": None if rate is None else more / rate}
    return found


def _begun_from(plan: Plan, t_ns: float) -> int:
    """Requests that are due from *t_ns* on; later turns count with their first turn, as their instants are unknown."""
    assert plan.t_sched is not None
    starts = plan.starts
    sizes = np.diff(np.append(starts, plan.requests))
    return int(sizes[plan.t_sched[starts] >= t_ns].sum())


def _rate(plan: Plan) -> float | None:
    """Mean requests per second of an open loop; None in a closed loop and if all are sent at once."""
    seconds = _duration(plan)
    return plan.requests / seconds if plan.t_sched is not None and seconds else None
