"""What is said before anything is sent: to whom, how much, with what."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fastllmload import __version__
from fastllmload.engine.preflight import Preflight
from fastllmload.plan.plan import Plan
from fastllmload.plan.settings import RunSettings
from fastllmload.report.summary import SIMULATED


def opening(simulated: bool) -> list[str]:
    """The first lines, before the preflight."""
    return [SIMULATED] * simulated + [f"fastllmload {__version__}"]


def target_lines(settings: RunSettings, urls: Sequence[str], found: Preflight) -> list[str]:
    lines = [f"target: {', '.join(urls)}, {settings.target.endpoint_type}, model {found.model}"]
    return lines + [f"note: {note}" for note in found.notes]


def plan_lines(settings: RunSettings, warmup: Plan, measure: Plan, workers: int) -> list[str]:
    load = f"load: {loop(settings, measure)}; {bounds(measure)}; seed {settings.client.seed}; plan {measure.digest[:12]}"
    warm = f"warm-up: {warmup.requests:,} requests" if warmup.requests else "warm-up: none"
    return [load, f"{warm}; {workers} worker{'' if workers == 1 else 's'}"]


def loop(settings: RunSettings, plan: Plan) -> str:
    """`open loop, poisson, 500 requests/s`."""
    if plan.concurrency is not None:
        return f"closed loop, {plan.concurrency:,} in flight"
    arrivals = plan.description["load"]["arrivals"]
    rate = arrivals["rate"]
    shown = "all at once" if rate == "inf" or math.isinf(rate) else f"{rate:g} requests/s"
    cap = settings.load.max_concurrency
    return f"open loop, {arrivals['name']}, {shown}" + (f", at most {cap:,} in flight" if cap is not None else "")


def bounds(plan: Plan) -> str:
    parts = [] if plan.cycles else [f"{plan.requests:,} requests"]
    parts += [] if plan.duration_s is None else [f"{plan.duration_s:g} s"]
    return " in ".join(parts)
