"""Searches over the discrete-event slot server: a whole search in about a second, in simulated time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from slot_server import Served, SlotServer

from fastllmload.procedure.evidence import ALL, FAILED, Evidence, growth, parts_of
from fastllmload.procedure.goals import Goal
from fastllmload.procedure.sequential import Decision, Plan, Severities

TOKENS = 100  # of every answer


def evidence(served: Served, limit_s: float, first_look_s: float, ramp: float = 0.1) -> Evidence:
    """What a run of these requests would show; the wait is the severity."""
    w0, seconds = ramp * served.seconds, (1 - ramp) * served.seconds
    inside = served.arrive >= w0
    parts = parts_of(seconds, first_look_s)
    at, wait = served.arrive[inside] - w0, served.wait[inside]
    looks = np.linspace(w0, served.seconds, parts + 1)
    begin, end = (((instants - w0) * 1e9).astype(np.int64) for instants in (served.arrive, served.end))
    done, _ = np.histogram(served.end, bins=looks)
    return Evidence(
        severities={
            FAILED: Severities(at, np.zeros(len(at)), seconds, parts),
            ALL: Severities(at, wait / limit_s, seconds, parts),
        },
        growth=growth(begin, end, round(seconds * 1e9), parts),
        tokens=done * float(TOKENS),
        benefit=done * float(TOKENS),
        part_s=seconds / parts,
        service_s=float(np.median(served.end - served.begin)) if len(served.arrive) else None,
    )


@dataclass
class SlotBench:
    """Measures levels on *server* with looks of *seconds* x 2^number."""

    server: SlotServer
    goal: Goal
    plan: Plan
    seconds: float
    limit_s: float
    rng: np.random.Generator
    runs: dict[float, list[Evidence]] = field(default_factory=dict)
    measured_s: float = 0.0

    def _measure(self, level: float, seconds: float) -> Evidence:
        self.measured_s += seconds
        return evidence(self.server.serve(level, seconds, self.rng), self.limit_s, 0.9 * self.seconds)

    def _decide(self, level: float, runs: Sequence[Evidence]) -> Decision:
        lower = {at: found for at, found in self.runs.items() if at < level}
        return self.goal.judge(level, runs, self.plan, lower).decision

    def look(self, level: float, number: int) -> Decision:
        self.runs.setdefault(level, []).append(self._measure(level, self.seconds * 2**number))
        return self.again(level)

    def retest(self, level: float, number: int) -> Decision:
        found = self._measure(level, max(run.seconds for run in self.runs[level]) / 0.9)
        self.runs[level].append(found)
        return self._decide(level, [found])

    def again(self, level: float) -> Decision:
        return self._decide(level, self.runs[level])
