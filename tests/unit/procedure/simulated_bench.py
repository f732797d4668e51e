"""Searches over the discrete-event slot server: a whole search in about a second, in simulated time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from slot_server import Served, SlotServer

from fastllmload.experiment.level.evidence import ALL, FAILED, LevelEvidence, growth, parts_of
from fastllmload.search import objectives
from fastllmload.search.interval_search import Interval, Trials
from fastllmload.search.objectives import SearchObjective
from fastllmload.statistics import sequential_tests
from fastllmload.statistics.sequential_tests import Decision, SequentialPlan, Severities

TOKENS = 100  # of every answer


def evidence(
    served: Served, limit_s: float, first_trial_s: float, ramp: float = 0.1, bad: npt.NDArray[np.bool_] | None = None
) -> LevelEvidence:
    """What a run of these requests would show; the wait is the severity. *bad*: requests that miss their objective,
    however long they wait, such as one of TPOT.
    """
    w0, seconds = ramp * served.seconds, (1 - ramp) * served.seconds
    inside = served.arrive >= w0
    parts = parts_of(seconds, first_trial_s)
    at, severity = served.arrive[inside] - w0, served.wait[inside] / limit_s
    if bad is not None:
        severity = np.where(bad[inside], 1.5, 0.5)
    borders = np.linspace(w0, served.seconds, parts + 1)
    begin, end = (((instants - w0) * 1e9).astype(np.int64) for instants in (served.arrive, served.end))
    done, _ = np.histogram(served.end, bins=borders)
    return LevelEvidence(
        severities={
            FAILED: Severities(at, np.zeros(len(at)), seconds, parts),
            ALL: Severities(at, severity, seconds, parts),
        },
        growth=growth(begin, end, round(seconds * 1e9), parts),
        tokens=done * float(TOKENS),
        benefit=done * float(TOKENS),
        part_s=seconds / parts,
        service_s=float(np.median(served.end - served.begin)) if len(served.arrive) else None,
    )


@dataclass
class SlotBench(Trials):
    """Measures levels on *server* with trials of *seconds* x 2^number. *bad*: share of the requests that miss the objective
    whatever the load is; None: those that wait too long do.
    """

    server: SlotServer
    objective: SearchObjective
    plan: SequentialPlan
    seconds: float
    limit_s: float
    rng: np.random.Generator
    bad: float | None = None
    runs: dict[float, list[LevelEvidence]] = field(default_factory=dict)
    measured_s: float = 0.0

    def _measure(self, level: float, seconds: float) -> LevelEvidence:
        self.measured_s += seconds
        served = self.server.serve(level, seconds, self.rng)
        bad = None if self.bad is None else self.rng.random(len(served.arrive)) < self.bad
        return evidence(served, self.limit_s, 0.9 * self.seconds, bad=bad)

    def _decide(self, level: float, runs: Sequence[LevelEvidence]) -> Decision:
        return self.objective.judge(level, runs, self.plan, self._lower(level)).decision

    def _lower(self, level: float) -> dict[float, list[LevelEvidence]]:
        return {at: found for at, found in self.runs.items() if at < level}

    def run_trial(self, level: float, number: int) -> Decision:
        length = self.length(level, number)
        self.runs.setdefault(level, []).append(self._measure(level, self.seconds * length))
        return self.pooled_decision(level)

    def length(self, level: float, number: int) -> float:
        """Of a trial; ea1b49f, which bench/search_seconds.py measures as well, has no short ones."""
        if not hasattr(self.plan, "length"):
            return 2.0**number
        runs = self.runs.get(level, [])
        return self.objective.length(level, runs, self.plan_at(level), self._lower(level), number, 0.9 * self.seconds)

    def plan_at(self, level: float) -> SequentialPlan:
        """The first level that is measured is the lowest; ea1b49f has no plan of its own for it."""
        return self.plan.for_lowest_level if level == next(iter(self.runs), level) else self.plan

    def retest(self, level: float, number: int) -> Decision:
        found = self._measure(level, self.seconds)
        self.runs[level].append(found)
        return self._decide(level, [found])

    def pooled_decision(self, level: float) -> Decision:
        """Short trials alone only fail a level, and one alone only where that is plain."""
        runs = self.runs[level]
        if not getattr(self.plan, "short", 0):
            return self._decide(level, runs)
        if max(run.seconds for run in runs) >= 0.8 * self.seconds:
            judge = self.objective.judge_lowest if self.plan_at(level).lowest else self.objective.judge
            return judge(level, runs, self.plan, self._lower(level)).decision
        plan = self.plan.for_short_trial if len(runs) == 1 else self.plan_at(level)
        found = self.objective.judge(level, runs, plan, self._lower(level)).decision
        return found if found is Decision.FAIL else Decision.UNDECIDED

    def recheck(self, level: float) -> bool:
        found = self._measure(level, self.seconds * sequential_tests.SHORT)
        self.runs[level].append(found)
        return not self.objective.likely_to_hold(level, [found], self._lower(level))

    def likely_to_hold(self, level: float) -> bool | None:
        return self.objective.likely_to_hold(level, self.runs[level], self._lower(level))

    def within_reach(self, level: float, optimistic: bool) -> bool:
        done = sum(run.seconds for run in self.runs[level]) / (0.9 * self.seconds)
        times = max(1.0, self.plan.longest / done)
        optimism = objectives.OPTIMISTIC if optimistic else objectives.PESSIMISTIC
        return self.objective.within_reach(
            level, self.runs[level], self.plan_at(level), self._lower(level), times, optimism
        )

    def overload_throughput(self, level: float) -> float | None:
        return self.objective.overload_throughput(level, self.runs[level])

    def reference_level(self, level: float, tested: Collection[float]) -> float | None:
        return self.objective.reference_level(level, tested)

    def changed(self, level: float) -> str | None:
        *before, last = self.runs[level]
        return self.objective.changed(level, before, [last], self.plan)

    def is_resolved(self, level: float) -> bool:
        if not hasattr(self.objective, "is_resolved"):  # of ea1b49f
            return self.objective.max_growth(self.runs[level], self.plan) <= self.objective.width(level)
        return self.objective.is_resolved(level, self.runs[level], self.plan, 0.9 * self.seconds)

    def low(self, found: Interval) -> float:
        """The lower end of the answer."""
        passed = [found.best] if self.objective.sustain and found.best is not None else found.passed
        return max(
            (
                self.objective.lower_bound(
                    level, found.decisions, self.objective.max_growth(self.runs[level], self.plan)
                )
                for level in passed
            ),
            default=0.0,
        )
