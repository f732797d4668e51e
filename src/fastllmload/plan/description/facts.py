"""Summarize a plan in numbers, for review before anything is sent."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastllmload.endpoint import ENDPOINTS
from fastllmload.plan.plan import Plan

NEEDED = {"p50": 1, "p90": 1, "p95": 1, "p99": 1_000, "p999": 10_000}  # samples that a percentile needs (IETF 5.1.2.1)
QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class LengthFigures:
    """Tokens. A quantile q is the smallest length that a share q of requests does not exceed."""

    mean: float
    min: float
    max: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class PercentileSamples:
    """Samples in the window for one percentile, and what is missing; *more_s* None: no rate is known."""

    samples: int
    needs: int
    more_requests: int = 0
    more_s: float | None = None

    @property
    def enough(self) -> bool:
        return self.samples >= self.needs


@dataclass(frozen=True)
class PlanFigures:
    """What is counted from a plan's arrays; None for what the target of a closed loop decides.

    In a mix of open and closed classes, requests and tokens are those of the open ones, and there are no samples.
    """

    requests: int | None
    pool: int | None  # requests that closed loops repeat
    duration_s: float | None
    input_tokens: int | None
    output_tokens: int | None
    input_length: LengthFigures | None
    output_length: LengthFigures | None
    samples: dict[str, PercentileSamples] | None


def figures(plan: Plan, *, ramp_share: float = 0.1) -> PlanFigures:
    """Figures of *plan*, without *ramp_share* of the duration."""
    counted = not plan.cycles
    requests = plan.open_requests if plan.closed_cycles else plan.requests
    repeated = plan.requests - requests if counted else plan.requests
    return PlanFigures(
        requests=requests if counted else None,
        pool=repeated or None,
        duration_s=_duration(plan),
        input_tokens=int(plan.input_tokens[:requests].sum()) if counted else None,
        output_tokens=int(plan.output_tokens[:requests].sum()) if counted else None,
        input_length=_lengths(plan.input_tokens),
        output_length=_lengths(plan.output_tokens[generating(plan)]),
        samples=_samples(plan, ramp_share),
    )


def generating(plan: Plan) -> npt.NDArray[np.bool_]:
    """Requests of *plan* whose answers are tokens."""
    names = [one.endpoint for one in plan.description.classes] or [plan.description.endpoint]
    spoken = [ENDPOINTS.get(name or "") for name in names]
    by_class = np.array([one is None or one.tokens for one in spoken])
    return np.full(plan.requests, by_class[0]) if len(by_class) == 1 else by_class[plan.request_class]


def _duration(plan: Plan) -> float | None:
    """The bound, or the last instant of a count-bounded open loop."""
    if plan.duration_s is not None or plan.t_sched is None or not plan.requests:
        return plan.duration_s
    return float(plan.t_sched.max()) / 1e9


def _lengths(tokens: npt.NDArray[np.int32]) -> LengthFigures | None:
    if not len(tokens):
        return None
    ranked = np.sort(tokens)
    quantiles = (float(ranked[max(0, math.ceil(q * len(ranked)) - 1)]) for q in QUANTILES)
    return LengthFigures(float(tokens.mean()), float(ranked[0]), float(ranked[-1]), *quantiles)


def _samples(plan: Plan, ramp_share: float) -> dict[str, PercentileSamples] | None:
    if plan.cycles or plan.closed_cycles or not plan.requests:
        return None
    samples, share = plan.requests, 1.0
    if plan.duration_s is not None and plan.t_sched is not None:
        share = 1.0 - ramp_share
        samples = _begun_from(plan, ramp_share * plan.duration_s * 1e9)
    rate = _rate(plan)
    found = {}
    for name, needs in NEEDED.items():
        more = math.ceil(max(0, needs - samples) / share)
        found[name] = PercentileSamples(samples, needs, more, None if rate is None else more / rate)
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
