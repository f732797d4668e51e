"""How many workers a run gets. Reasons and figures: docs/decisions/004-workers-auto.md."""

from __future__ import annotations

import math
import os

from fastllmload.plan.plan import Plan
from fastllmload.plan.settings import RunSettings

EVENTS_PER_S = 100_000.0  # of one worker at a full core, where `calibrate` has not measured this host
REQUESTS_PER_S = 10_000.0
COMFORT = 0.6  # share of the ceiling that one worker is given


def auto_workers(settings: RunSettings, plan: Plan, simulated: bool, ceiling: tuple[float, float] | None) -> int:
    """Workers for the planned load; never more than cores, less one where the simulated engine needs a core."""
    if settings.client.workers is not None:
        return settings.client.workers
    events_per_s, requests_per_s = ceiling or (EVENTS_PER_S, REQUESTS_PER_S)
    cores = len(os.sched_getaffinity(0))
    most = max(1, cores - 1 if simulated else cores)
    rate = settings.load.rate
    if rate is None or math.isinf(rate):
        # A closed loop's rate is the server's: one worker holds a few thousand streams at reading speed.
        slots = settings.load.concurrency or plan.requests
        return min(most, max(1, math.ceil(slots / 4000)))
    events = float(plan.output_tokens.mean()) + 3 if settings.workload.streaming and plan.requests else 1.0
    needed = rate * events / events_per_s + rate / requests_per_s
    return min(most, max(1, math.ceil(needed / COMFORT)))
