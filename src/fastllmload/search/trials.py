"""Runs the trials of `fastllmload search` in an experiment and decides each level by its evidence."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from fastllmload.errors import HostLimitError, InputError
from fastllmload.experiment.experiment import Experiment
from fastllmload.experiment.level.evidence import LevelEvidence, evidence_of
from fastllmload.experiment.level.result import Level
from fastllmload.experiment.level.settings import at_load
from fastllmload.experiment.level.verdict import Lowest, criteria_entry, judge_level, lowest_of
from fastllmload.metrics.objectives.benefit import PRESETS
from fastllmload.search.interval_search import Trials
from fastllmload.search.judges import deciding_runs
from fastllmload.search.objective_text import RequestedObjective
from fastllmload.search.objectives import LEAST_FULL_TRIAL, OPTIMISTIC, PESSIMISTIC, LevelDecision, SearchObjective
from fastllmload.search.peak_search import Height
from fastllmload.settings import RunSettings
from fastllmload.statistics.sequential_tests import SHORT, Decision, SequentialPlan, ratio

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
class EvidenceTrials(Trials):
    """Decides each level by the evidence of its runs; a subclass measures. *refused*: levels that this host cannot offer."""

    runs: dict[float, list[LevelEvidence]] = field(default_factory=dict, kw_only=True)
    level_decisions: dict[float, LevelDecision] = field(default_factory=dict, kw_only=True)
    refused: dict[float, str] = field(default_factory=dict, kw_only=True)
    repeated: dict[float, int] = field(default_factory=dict, kw_only=True)  # trials to be repeated at the same length

    # -- the subclass -------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def criteria(self) -> SearchObjective:
        """The criteria, each of which decides a level."""

    @property
    @abstractmethod
    def plan(self) -> SequentialPlan: ...

    @property
    @abstractmethod
    def window_s(self) -> float:
        """Length of the window of a first trial."""

    @abstractmethod
    def is_lowest(self, level: float) -> bool:
        """Whether *level* is the lowest of the search."""

    @abstractmethod
    def measure(self, level: float, times: float, suffix: str) -> LevelEvidence | None:
        """Run *level* once, *times* as long as a first trial, and add the evidence to `runs`; None if this host cannot
        offer it or no answer came back.
        """

    # -- the interface of IntervalSearch ------------------------------------------------------------------------------

    def run_trial(self, level: float, number: int) -> Decision:
        suffix = ", short trial" if number < self.plan.short else f", trial {number + 1 - self.plan.short}"
        self.measure(level, self.length(level, number - self.repeated.get(level, 0)), suffix)
        decision = self.pooled_decision(level)
        self.repeated[level] = self.repeated.get(level, 0) + (decision is Decision.CLIENT)
        return decision

    def length(self, level: float, number: int) -> float:
        """Length of trial *number*, in first trials."""
        runs = self.runs.get(level, [])
        return self.criteria.length(level, runs, self._plan_at(level), self._lower(level), number, self.window_s)

    def _plan_at(self, level: float) -> SequentialPlan:
        return self.plan.for_lowest_level if self.is_lowest(level) else self.plan

    def retest(self, level: float, number: int) -> Decision:
        found = self.measure(level, 1, ", re-test")
        return Decision.CLIENT if found is None else self._judge(level, [found]).decision

    def recheck(self, level: float) -> bool:
        found = self.measure(level, SHORT, ", re-test")
        return found is None or not self.criteria.likely_to_hold(level, [found], self._lower(level))

    def pooled_decision(self, level: float) -> Decision:
        if level in self.refused:
            level_decision = LevelDecision(decision=Decision.CLIENT, parts=(), limits=(self.refused[level],))
        elif self._is_short(level):
            level_decision = self._decide_by_short_trials(level)
        else:
            level_decision = self._judge(level, self.runs[level], pooled=True)
        self.level_decisions[level] = level_decision
        return level_decision.decision

    def _decide_by_short_trials(self, level: float) -> LevelDecision:
        """Decide by short trials alone. They never pass *level*, and a single one fails it only at a smaller error rate."""
        runs = self.runs[level]
        one = sum(run.seconds for run in deciding_runs(runs)) < 2 * SHORT * LEAST_FULL_TRIAL * self.window_s
        plan = self.plan.for_short_trial if one else self._plan_at(level)
        level_decision = self.criteria.judge(level, runs, plan, self._lower(level))
        if level_decision.decision in (Decision.CLIENT, Decision.FAIL):
            return level_decision
        likely = "hold" if self.likely_to_hold(level) else "fail"
        text = f"{'a short trial' if one else 'short trials'}, by which it is likely to {likely}"
        return msgspec.structs.replace(level_decision, decision=Decision.UNDECIDED, short=text)

    def _is_short(self, level: float) -> bool:
        """Whether *level* has only short trials."""
        runs = deciding_runs(self.runs.get(level, []))
        return bool(runs) and max(run.seconds for run in runs) < LEAST_FULL_TRIAL * self.window_s

    def likely_to_hold(self, level: float) -> bool | None:
        if not self.plan.short or not self.runs.get(level):
            return None
        return self.criteria.likely_to_hold(level, self.runs[level], self._lower(level))

    def within_reach(self, level: float, optimistic: bool) -> bool:
        runs = self.runs.get(level)
        if not runs or not self.plan.short:
            return True
        done = sum(run.seconds for run in runs) / self.window_s
        times = max(1.0, self.plan.longest / done)
        optimism = OPTIMISTIC if optimistic else PESSIMISTIC
        return self.criteria.within_reach(level, runs, self._plan_at(level), self._lower(level), times, optimism)

    def overload_throughput(self, level: float) -> float | None:
        return self.criteria.overload_throughput(level, self.runs[level]) if self.runs.get(level) else None

    def reference_level(self, level: float, tested: Collection[float]) -> float | None:
        return self.criteria.reference_level(level, tested)

    def changed(self, level: float) -> str | None:
        runs = self.runs.get(level, [])
        before = [run for run in runs[:-1] if not run.limited] or runs[:-1]
        return self.criteria.changed(level, before, runs[-1:], self.plan) if before else None

    def is_resolved(self, level: float) -> bool:
        return self.criteria.is_resolved(level, self.runs[level], self.plan, self.window_s)

    def max_growth(self, level: float) -> float:
        """Upper bound of the queue's growth in requests/s, by all trials of *level*."""
        return self.criteria.max_growth(self.runs[level], self.plan)

    def _judge(self, level: float, runs: list[LevelEvidence], pooled: bool = False) -> LevelDecision:
        """Decide *level* by *runs*. *pooled*: these are all its trials, not a re-test alone."""
        if not runs:
            return LevelDecision(decision=Decision.UNDECIDED, parts=())
        judge = self.criteria.judge_lowest if pooled and self._plan_at(level).lowest else self.criteria.judge
        return judge(level, runs, self.plan, self._lower(level))

    def _lower(self, level: float) -> dict[float, list[LevelEvidence]]:
        return {at: found for at, found in self.runs.items() if at < level and found}


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
        """The objective's plan; a search for a peak has no short trials."""
        plan = self.parameters.plan
        return replace(plan, short=0) if self.requested.objective is None else self.requested.objective.planned(plan)

    @property
    def window_s(self) -> float:
        return self.parameters.level_s * (1 - self.settings.load.ramp_share)

    def is_lowest(self, level: float) -> bool:
        return level == self.parameters.minimum

    def pooled_decision(self, level: float) -> Decision:
        decision = super().pooled_decision(level)
        reason = self.level_decisions[level].reason
        self.experiment.console.say(f"  {self.parameters.what} {level:g}: {decision.upper()}, {reason}")
        return decision

    def times(self, level: float, number: int) -> int:
        """Length of trial *number* of a search for a peak, in first trials: twice the one before, but a trial that decided
        nothing because the client was the limit is repeated at the same length.
        """
        return 1 << (number - self.repeated.get(level, 0))

    def measure(self, level: float, times: float, suffix: str) -> LevelEvidence | None:
        self.before_trial()
        runs, repetition = self.runs.setdefault(level, []), self.taken.get(level, 0)
        self.taken[level] = repetition + 1
        settings = at_load(
            self.settings, level, self.parameters.closed, duration=self.parameters.level_s * times, num_requests=None
        )
        stream = f"search/{level:.9g}/{repetition}"
        settings = msgspec.structs.replace(settings, workload=msgspec.structs.replace(settings.workload, stream=stream))
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
        self.experiment.record(
            measured,
            look=suffix.removeprefix(", ") or "first trial",
            level_value=level,
            criteria=criteria_entry(verdict),
            cascading=measured.cascading,
        )


@dataclass
class PeakTrialRunner:
    """Runs the trials of a search for a peak; the height is smooth goodput in tokens/s."""

    runner: TrialRunner

    def run_trial(self, level: float, number: int) -> Height:
        runner = self.runner
        run = runner.measure(level, runner.times(level, number), "" if number == 0 else f", trial {number + 1}")
        if run is not None and run.limited:
            runner.repeated[level] = runner.repeated.get(level, 0) + 1
        clean = [run for run in runner.runs[level] if not run.limited]
        runs = clean or runner.runs[level]
        found = ratio(
            [run.benefit for run in runs],
            [np.full(len(run.benefit), run.part_s) for run in runs],
            runner.plan.alpha_per_trial,
        )
        known = level not in runner.refused and bool(clean)
        if found is None:  # too short for an interval: most requests failed, or none could be sent
            height = Height(0.0, 0.0, known and any(run.cascading for run in runs))
        else:
            height = Height(found.value, found.half, known)
        runner.experiment.console.say(f"  {runner.parameters.what} {level:g}: smooth goodput {height_text(height)}")
        return height


def height_text(height: Height) -> str:
    suffix = "" if height.known else "; the client was the limit"
    return f"{height.value:,.5g} +/- {height.half:,.3g} tokens/s{suffix}"
