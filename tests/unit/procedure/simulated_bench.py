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
    served: Served, limit_s: float, first_look_s: float, ramp: float = 0.1, bad: npt.NDArray[np.bool_] | None = None
) -> LevelEvidence:
    """What a run of these requests would show; the wait is the severity. *bad*: requests that miss their objective,
    however long they wait, such as one of TPOT.
    """
    w0, seconds = ramp * served.seconds, (1 - ramp) * served.seconds
    inside = served.arrive >= w0
    parts = parts_of(seconds, first_look_s)
    at, severity = served.arrive[inside] - w0, served.wait[inside] / limit_s
    if bad is not None:
        severity = np.where(bad[inside], 1.5, 0.5)
    looks = np.linspace(w0, served.seconds, parts + 1)
    begin, end = (((instants - w0) * 1e9).astype(np.int64) for instants in (served.arrive, served.end))
    done, _ = np.histogram(served.end, bins=looks)
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
    """Measures levels on *server* with looks of *seconds* x 2^number. *bad*: share of the requests that miss the objective
    whatever the load is; None: those that wait too long do.
    """

    server: SlotServer
    goal: SearchObjective
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
        return self.goal.judge(level, runs, self.plan, self._lower(level)).decision

    def _lower(self, level: float) -> dict[float, list[LevelEvidence]]:
        return {at: found for at, found in self.runs.items() if at < level}

    def look(self, level: float, number: int) -> Decision:
        length = self.length(level, number)
        self.runs.setdefault(level, []).append(self._measure(level, self.seconds * length))
        return self.again(level)

    def length(self, level: float, number: int) -> float:
        """Of a look; ea1b49f, which bench/search_seconds.py measures as well, has no short ones."""
        if not hasattr(self.plan, "length"):
            return 2.0**number
        runs = self.runs.get(level, [])
        return self.goal.length(level, runs, self.plan_at(level), self._lower(level), number, 0.9 * self.seconds)

    def plan_at(self, level: float) -> SequentialPlan:
        """The first level that is measured is the lowest; ea1b49f has no plan of its own for it."""
        return self.plan.of_the_lowest if level == next(iter(self.runs), level) else self.plan

    def retest(self, level: float, number: int) -> Decision:
        found = self._measure(level, self.seconds)
        self.runs[level].append(found)
        return self._decide(level, [found])

    def again(self, level: float) -> Decision:
        """Short looks alone only fail a level, and one alone only where that is plain."""
        runs = self.runs[level]
        if not getattr(self.plan, "short", 0):
            return self._decide(level, runs)
        if max(run.seconds for run in runs) >= 0.8 * self.seconds:
            judge = self.goal.judge_lowest if self.plan_at(level).lowest else self.goal.judge
            return judge(level, runs, self.plan, self._lower(level)).decision
        plan = self.plan.of_a_glance if len(runs) == 1 else self.plan_at(level)
        found = self.goal.judge(level, runs, plan, self._lower(level)).decision
        return found if found is Decision.FAIL else Decision.UNDECIDED

    def recheck(self, level: float) -> bool:
        found = self._measure(level, self.seconds * sequential_tests.SHORT)
        self.runs[level].append(found)
        return not self.goal.leaning(level, [found], self._lower(level))

    def leaning(self, level: float) -> bool | None:
        return self.goal.leaning(level, self.runs[level], self._lower(level))

    def within_reach(self, level: float, hopeful: bool) -> bool:
        done = sum(run.seconds for run in self.runs[level]) / (0.9 * self.seconds)
        times = max(1.0, self.plan.longest / done)
        luck = objectives.LUCK if hopeful else objectives.CAUTION
        return self.goal.within_reach(level, self.runs[level], self.plan_at(level), self._lower(level), times, luck)

    def pace(self, level: float) -> float | None:
        return self.goal.pace(level, self.runs[level])

    def reference(self, level: float, tested: Collection[float]) -> float | None:
        return self.goal.reference(level, tested)

    def changed(self, level: float) -> str | None:
        *before, last = self.runs[level]
        return self.goal.changed(level, before, [last], self.plan)

    def firm(self, level: float) -> bool:
        if not hasattr(self.goal, "firm"):  # of ea1b49f
            return self.goal.growth_left(self.runs[level], self.plan) <= self.goal.width(level)
        return self.goal.firm(level, self.runs[level], self.plan, 0.9 * self.seconds)

    def low(self, found: Interval) -> float:
        """The lower end of the answer."""
        passed = [found.best] if self.goal.sustain and found.best is not None else found.passed
        return max(
            (
                self.goal.claim(level, found.decisions, self.goal.growth_left(self.runs[level], self.plan))
                for level in passed
            ),
            default=0.0,
        )
