"""Runs the trials of `fastllmload search` in an experiment and decides each level by its evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import numpy as np

from fastllmload.errors import HostLimitError, InputError
from fastllmload.experiment.experiment import Experiment
from fastllmload.experiment.level.evidence import LevelEvidence, evidence_of
from fastllmload.experiment.level.result import Level
from fastllmload.experiment.level.settings import at_load, changed
from fastllmload.experiment.level.verdict import Lowest, judge_level, lowest_of
from fastllmload.metrics.objectives.benefit import PRESETS
from fastllmload.search.evidence_trials import EvidenceTrials
from fastllmload.search.objective_text import RequestedObjective
from fastllmload.search.objectives import SearchObjective
from fastllmload.search.peak_search import Height
from fastllmload.settings import RunSettings
from fastllmload.statistics.sequential_tests import Decision, SequentialPlan, ratio

RATE, CONCURRENCY = "rate", "concurrency"


class SearchParameters(msgspec.Struct, frozen=True, kw_only=True):
    """*step* in levels, or as a share of the level when *step_share*. *level_s*: length of the first trial that
    may pass a level.
    """

    objective: str | None = None
    what: str = RATE
    minimum: float = 1.0
    maximum: float = 1024.0
    step: float = 0.05
    step_share: bool = True
    level_s: float = 60.0
    looks: int = 3  # trials of a level after the short one; the name is a key of search.json
    levels: int = 12
    confidence: float = 0.95
    interleave: bool = False
    preset: str = "sg-default"

    @property
    def closed(self) -> bool:
        return self.what == CONCURRENCY

    @property
    def plan(self) -> SequentialPlan:
        return SequentialPlan(1 - self.confidence, self.levels, self.looks)

    def width(self, level: float) -> float:
        """The step at *level*; a whole number for concurrency."""
        step = self.step * level if self.step_share else self.step
        return max(1.0, round(step)) if self.closed else step

    def validate(self) -> None:
        """InputError for parameters that contradict each other."""
        if self.minimum > self.maximum:
            raise InputError(
                "range-empty",
                f"--min {self.minimum:g} is above --max {self.maximum:g}; give a range with something in it",
            )
        if self.closed and (self.minimum % 1 or self.maximum % 1):
            raise InputError(
                "count-invalid",
                f"--min {self.minimum:g} and --max {self.maximum:g} are slots and must be whole numbers",
            )
        if self.preset not in PRESETS:
            raise InputError(
                "choice-unknown", f"--preset {self.preset!r} does not exist; presets are {', '.join(PRESETS)}"
            )


@dataclass
class TrialRunner(EvidenceTrials):
    """Measures levels in *experiment* and decides. *settings*: shared by all levels.

    Every run has requests and instants of its own (a stream of the seed), so that runs are independent of each other
    and a prefix cache finds nothing of one level in another.
    """

    experiment: Experiment
    settings: RunSettings
    parameters: SearchParameters
    requested: RequestedObjective
    taken: dict[float, int] = field(default_factory=dict)
    lowest: Lowest | None = None
    before_trial: Callable[[], object] = lambda: None  # saves the result so far, in case the trial is the last

    @property
    def criteria(self) -> SearchObjective:
        assert self.requested.objective is not None  # a search for a peak has heights instead
        return self.requested.objective

    @property
    def plan(self) -> SequentialPlan:
        return self.requested.planned(self.parameters.plan)

    @property
    def window_s(self) -> float:
        return self.parameters.level_s * (1 - self.settings.load.ramp_share)

    def is_lowest(self, level: float) -> bool:
        return level == self.parameters.minimum

    def pooled_decision(self, level: float) -> Decision:
        decision = super().pooled_decision(level)
        reason = self.judgements[level].reason
        self.experiment.console.say(f"  {self.parameters.what} {level:g}: {decision.upper()}, {reason}")
        return decision

    def measure(self, level: float, times: float, suffix: str) -> LevelEvidence | None:
        self.before_trial()
        runs, repetition = self.runs.setdefault(level, []), self.taken.get(level, 0)
        self.taken[level] = repetition + 1
        settings = changed(self.settings, workload={"stream": f"search/{level:.9g}/{repetition}"})
        length = self.parameters.level_s * times
        settings = at_load(settings, level, self.parameters.closed, duration=length, num_requests=None)
        name = f"{self.parameters.what} {level:.9g}{suffix}"
        try:
            measured = self.experiment.level(name, settings)
        except HostLimitError as problem:
            if self.experiment.was_started(name):
                raise  # the run had begun: the host failed during it
            self.refused[level] = str(problem)
            return None
        found = evidence_of(measured.run, self.requested.wanted, self.window_s, self.parameters.preset)
        self._record(measured, level, suffix)
        if found is not None:
            runs.append(found)
        return found

    def _record(self, measured: Level, level: float, suffix: str) -> None:
        """Record the run with the verdict by the draft's own criteria (IETF 5.2.3.1)."""
        verdict = judge_level(measured.run, self.lowest if self.lowest and level > self.lowest.load else None)
        if self.lowest is None or level < self.lowest.load:
            self.lowest = lowest_of(measured.run)
        which = suffix.removeprefix(", ") or "first trial"
        self.experiment.record(measured, look=which, level_value=level, criteria=verdict, cascading=measured.cascading)


def height_at(runner: TrialRunner, level: float, number: int) -> Height:
    """Run trial *number* of *level* in a search for a peak. The height is smooth goodput in tokens/s by all its trials.

    A trial is twice as long as the one before, but one that decided nothing because the client was the limit is repeated at
    the same length.
    """
    times = 1 << (number - runner.repeated.get(level, 0))
    run = runner.measure(level, times, f", trial {number + 1}" if number else "")
    if run is not None and run.limited:
        runner.repeated[level] = runner.repeated.get(level, 0) + 1
    clean = [run for run in runner.runs[level] if not run.limited]
    runs = clean or runner.runs[level]
    parts = [np.full(len(run.benefit), run.part_s) for run in runs]
    found = ratio([run.benefit for run in runs], parts, runner.plan.alpha_per_trial)
    known = level not in runner.refused and bool(clean)
    if found is None:  # too short for an interval: most requests failed, or none could be sent
        height = Height(0.0, 0.0, known and any(run.cascading for run in runs))
    else:
        height = Height(found.value, found.half, known)
    text = f"{height.value:,.5g} +/- {height.half:,.3g} tokens/s" + "; the client was the limit" * (not height.known)
    runner.experiment.console.say(f"  {runner.parameters.what} {level:g}: smooth goodput {text}")
    return height
