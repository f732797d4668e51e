"""Searches over the discrete-event slot server: a whole search in about a second, in simulated time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from slot_server import Served, SlotServer

from fastllmload.experiment.level.evidence import ALL, FAILED, LevelEvidence, growth, parts_of
from fastllmload.search.driver import Interval
from fastllmload.search.evidence_trials import EvidenceTrials
from fastllmload.search.objectives import SearchObjective
from fastllmload.statistics.sequential_tests import SequentialPlan, Severities

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
class SlotBench(EvidenceTrials):
    """Measures levels on *server*; *seconds*: length of the first trial that may pass a level. *bad*: share of the requests
    that miss the objective whatever the load is; None: those that wait too long do.
    """

    server: SlotServer
    objective: SearchObjective
    trial_plan: SequentialPlan
    seconds: float
    limit_s: float
    rng: np.random.Generator
    bad: float | None = None
    measured_s: float = 0.0

    @property
    def criteria(self) -> SearchObjective:
        return self.objective

    @property
    def plan(self) -> SequentialPlan:
        return self.trial_plan

    @property
    def window_s(self) -> float:
        return 0.9 * self.seconds

    def is_lowest(self, level: float) -> bool:
        """The first level that is measured is the lowest."""
        return level == next(iter(self.runs), level)

    def measure(self, level: float, times: float, suffix: str) -> LevelEvidence:
        seconds = self.seconds * times
        self.measured_s += seconds
        served = self.server.serve(level, seconds, self.rng)
        bad = None if self.bad is None else self.rng.random(len(served.arrive)) < self.bad
        found = evidence(served, self.limit_s, self.window_s, bad=bad)
        self.runs.setdefault(level, []).append(found)
        return found

    def low(self, found: Interval) -> float:
        """The lower end of the answer."""
        passed = [found.best] if self.objective.sustain and found.best is not None else found.passed
        return max(
            (self.objective.lower_bound(level, found.decisions, self.max_growth(level)) for level in passed),
            default=0.0,
        )
