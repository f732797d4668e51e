"""`fastllmload search`: levels measured in the lab, each decided by its evidence, until the answer is an interval."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from fastllmload.errors import HostLimitError, InputError
from fastllmload.experiment.experiment import Experiment
from fastllmload.experiment.level.evidence import LevelEvidence, evidence_of
from fastllmload.experiment.level.result import Level
from fastllmload.experiment.level.settings import at_load
from fastllmload.experiment.level.verdict import Lowest, judge_level, lowest_of
from fastllmload.metrics.objectives.benefit import PRESETS
from fastllmload.search.interval_search import Trials
from fastllmload.search.objective_text import RequestedObjective
from fastllmload.search.objectives import CAUTION, LEAST_LOOK, LUCK, LevelDecision, SearchObjective, believed
from fastllmload.search.peak_search import Height
from fastllmload.settings import RunSettings
from fastllmload.statistics.sequential_tests import SHORT, Decision, SequentialPlan, ratio

RATE, CONCURRENCY = "rate", "concurrency"


class SearchParameters(msgspec.Struct, frozen=True, kw_only=True):
    """*step* in levels, or as a share of the level when *step_share*. *level_s*: of the first look at a level."""

    objective: str | None = None
    what: str = RATE
    minimum: float = 1.0
    maximum: float = 1024.0
    step: float = 0.05
    step_share: bool = True
    level_s: float = 60.0
    looks: int = 3
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
        """The step at *level*; slots are whole."""
        step = self.step * level if self.step_share else self.step
        return max(1.0, round(step)) if self.closed else step

    def refuse(self) -> None:
        """InputError for what makes no sense together."""
        if self.minimum > self.maximum:
            raise InputError(
                f"--min {self.minimum:g} is above --max {self.maximum:g}; give a range with something in it"
            )
        if self.closed and (self.minimum % 1 or self.maximum % 1):
            raise InputError(f"--min {self.minimum:g} and --max {self.maximum:g} are slots and must be whole numbers")
        if self.preset not in PRESETS:
            raise InputError(f"--preset {self.preset!r} does not exist; presets are {', '.join(PRESETS)}")


@dataclass
class TrialRunner(Trials):
    """Measures levels in *lab* and decides. *settings*: what all levels share.

    Every run has requests and instants of its own (a stream of the seed), so that runs are independent of each other
    and a prefix cache finds nothing of one level in another.
    """

    experiment: Experiment
    settings: RunSettings
    parameters: SearchParameters
    asked: RequestedObjective
    runs: dict[float, list[LevelEvidence]] = field(default_factory=dict)
    judgements: dict[float, LevelDecision] = field(default_factory=dict)
    refused: dict[float, str] = field(default_factory=dict)
    taken: dict[float, int] = field(default_factory=dict)
    repeated: dict[float, int] = field(default_factory=dict)  # looks that are to be repeated as they were
    lowest: Lowest | None = None
    before: Callable[[], object] = lambda: None  # each level: keeps what is known by then, should this be the last

    @property
    def plan(self) -> SequentialPlan:
        """A search for a peak has no short looks either."""
        plan = self.parameters.plan
        return replace(plan, short=0) if self.asked.goal is None else self.asked.goal.planned(plan)

    # -- the questions of IntervalSearch ------------------------------------------------------------------------------

    def look(self, level: float, number: int) -> Decision:
        words = ", short look" if number < self.plan.short else f", look {number + 1 - self.plan.short}"
        self.measure(level, self._length(level, number - self.repeated.get(level, 0)), words)
        decision = self.again(level)
        self.repeated[level] = self.repeated.get(level, 0) + (decision is Decision.CLIENT)
        return decision

    def _length(self, level: float, number: int) -> float:
        """Of look *number*, in first looks."""
        runs = self.runs.get(level, [])
        return self._goal.length(level, runs, self._plan_at(level), self._lower(level), number, self._window_s)

    def _plan_at(self, level: float) -> SequentialPlan:
        return self.plan.of_the_lowest if level == self.parameters.minimum else self.plan

    def times(self, level: float, number: int) -> int:
        """How often a first look's length look *number* of a search for a peak takes: twice the one before, but a look
        that decided nothing because the client was the limit is repeated as it was.
        """
        return 1 << (number - self.repeated.get(level, 0))

    def retest(self, level: float, number: int) -> Decision:
        found = self.measure(level, 1, ", re-test")
        return Decision.CLIENT if found is None else self._judge(level, [found]).decision

    def recheck(self, level: float) -> bool:
        found = self.measure(level, SHORT, ", re-test")
        return found is None or not self._goal.leaning(level, [found], self._lower(level))

    def again(self, level: float) -> Decision:
        if level in self.refused:
            judgement = LevelDecision(decision=Decision.CLIENT, parts=(), limits=(self.refused[level],))
        elif self._is_short(level):
            judgement = self._glance(level)
        else:
            judgement = self._judge(level, self.runs[level], pooled=True)
        self.judgements[level] = judgement
        self.experiment.console.say(
            f"  {self.parameters.what} {level:g}: {judgement.decision.upper()}, {judgement.reason}"
        )
        return judgement.decision

    def _glance(self, level: float) -> LevelDecision:
        """By short looks alone, which pass nothing, and of which one alone fails *level* only where that is plain."""
        runs = self.runs[level]
        one = sum(run.seconds for run in believed(runs)) < 2 * SHORT * LEAST_LOOK * self._window_s
        plan = self.plan.of_a_glance if one else self._plan_at(level)
        judgement = self._goal.judge(level, runs, plan, self._lower(level))
        if judgement.decision in (Decision.CLIENT, Decision.FAIL):
            return judgement
        likely = "hold" if self.leaning(level) else "fail"
        words = f"{'a short look' if one else 'short looks'}, by which it is likely to {likely}"
        return msgspec.structs.replace(judgement, decision=Decision.UNDECIDED, short=words)

    def _is_short(self, level: float) -> bool:
        """Whether there are only short looks at *level*."""
        runs = believed(self.runs.get(level, []))
        return bool(runs) and max(run.seconds for run in runs) < LEAST_LOOK * self._window_s

    def leaning(self, level: float) -> bool | None:
        if not self.plan.short or not self.runs.get(level):
            return None
        return self._goal.leaning(level, self.runs[level], self._lower(level))

    def within_reach(self, level: float, hopeful: bool) -> bool:
        runs = self.runs.get(level)
        if not runs or not self.plan.short:
            return True
        done = sum(run.seconds for run in runs) / self._window_s
        times = max(1.0, self.plan.longest / done)
        luck = LUCK if hopeful else CAUTION
        return self._goal.within_reach(level, runs, self._plan_at(level), self._lower(level), times, luck)

    def pace(self, level: float) -> float | None:
        return self._goal.pace(level, self.runs[level]) if self.runs.get(level) else None

    def reference(self, level: float, tested: Collection[float]) -> float | None:
        return self._goal.reference(level, tested)

    def changed(self, level: float) -> str | None:
        runs = self.runs.get(level, [])
        before = [run for run in runs[:-1] if not run.limited]
        if not before or runs[-1].limited:
            return None
        return self._goal.changed(level, before, runs[-1:], self.plan)

    def firm(self, level: float) -> bool:
        return self._goal.firm(level, self.runs[level], self.plan, self._window_s)

    def growth_left(self, level: float) -> float:
        """Requests/s, by all looks at *level*."""
        return self._goal.growth_left(self.runs[level], self.plan)

    # -- measuring ----------------------------------------------------------------------------------------------------

    @property
    def _window_s(self) -> float:
        """Of a first look."""
        return self.parameters.level_s * (1 - self.settings.load.ramp_share)

    def _judge(self, level: float, runs: list[LevelEvidence], pooled: bool = False) -> LevelDecision:
        """*pooled*: by all looks at *level*, not by a re-test alone."""
        if not runs:
            return LevelDecision(decision=Decision.UNDECIDED, parts=())
        judge = self._goal.judge_lowest if pooled and self._plan_at(level).lowest else self._goal.judge
        return judge(level, runs, self.plan, self._lower(level))

    def _lower(self, level: float) -> dict[float, list[LevelEvidence]]:
        return {at: found for at, found in self.runs.items() if at < level and found}

    @property
    def _goal(self) -> SearchObjective:
        assert self.asked.goal is not None  # a peak has heights instead
        return self.asked.goal

    def measure(self, level: float, times: float, words: str) -> LevelEvidence | None:
        """One run of *level*; None where this host cannot offer it, or nothing came back."""
        self.before()
        runs, repetition = self.runs.setdefault(level, []), self.taken.get(level, 0)
        self.taken[level] = repetition + 1
        settings = at_load(
            self.settings, level, self.parameters.closed, duration=self.parameters.level_s * times, num_requests=None
        )
        stream = f"search/{level:.9g}/{repetition}"
        settings = msgspec.structs.replace(settings, workload=msgspec.structs.replace(settings.workload, stream=stream))
        name = f"{self.parameters.what} {level:.9g}{words}"
        try:
            measured = self.experiment.level(name, settings)
        except HostLimitError as problem:
            if self.experiment.was_started(name):
                raise  # it began: the host gave out on the way
            self.refused[level] = str(problem)
            return None
        found = evidence_of(measured.run, self.asked.wanted, self._window_s, self.parameters.preset)
        self._record(measured, level, words)
        if found is not None:
            runs.append(found)
        return found

    def _record(self, measured: Level, level: float, words: str) -> None:
        """The draft's own verdict on this run, beside ours."""
        verdict = judge_level(measured.run, self.lowest if self.lowest and level > self.lowest.load else None)
        if self.lowest is None or level < self.lowest.load:
            self.lowest = lowest_of(measured.run)
        self.experiment.record(
            measured,
            look=words.removeprefix(", ") or "first look",
            level_value=level,
            criteria=msgspec.to_builtins(verdict),
            cascading=measured.cascading,
        )


@dataclass
class PeakTrialRunner:
    """The same for a peak: the height is smooth goodput, in tokens/s."""

    bench: TrialRunner

    def look(self, level: float, number: int) -> Height:
        bench = self.bench
        run = bench.measure(level, bench.times(level, number), "" if number == 0 else f", look {number + 1}")
        if run is not None and run.limited:
            bench.repeated[level] = bench.repeated.get(level, 0) + 1
        clean = [run for run in bench.runs[level] if not run.limited]
        runs = clean or bench.runs[level]
        found = ratio(
            [run.benefit for run in runs],
            [np.full(len(run.benefit), run.part_s) for run in runs],
            bench.plan.alpha_per_look,
        )
        known = level not in bench.refused and bool(clean)
        if found is None:  # too short to say how far off: most requests failed, or nothing could be sent
            height = Height(0.0, 0.0, known and any(run.cascading for run in runs))
        else:
            height = Height(found.value, found.half, known)
        bench.experiment.console.say(f"  {bench.parameters.what} {level:g}: smooth goodput {height_words(height)}")
        return height


def height_words(height: Height) -> str:
    known = "" if height.known else "; the client was the limit"
    return f"{height.value:,.5g} +/- {height.half:,.3g} tokens/s{known}"
