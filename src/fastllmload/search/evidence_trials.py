"""Decides the levels of a search by the evidence of their trials, and how long the next trial of a level is."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from msgspec.structs import replace as replace_struct

from fastllmload.experiment.level.criteria import MORE_SLOTS
from fastllmload.experiment.level.evidence import LevelEvidence
from fastllmload.search.interval_search import Trials
from fastllmload.search.judges import (
    SUSPICION,
    LevelRuns,
    around,
    criterion_text,
    deciding_runs,
    growths_of,
    token_rate,
)
from fastllmload.search.objectives import LevelJudgement, SearchObjective
from fastllmload.statistics.sequential_tests import SHORT, Decision, SequentialPlan, drift, growth_bound, seems_to_grow

# Standard errors by which further trials are assumed to be clearer than those so far, when it is decided whether a level is
# worth more of them. VERY_OPTIMISTIC: at the lowest level, where a trial that is too short costs only one more.
PESSIMISTIC, OPTIMISTIC, VERY_OPTIMISTIC = -0.3, 0.5, 0.8
RETEST = 1.0  # length of the re-test of the best level, in first trials
LEAST_FULL_TRIAL = 0.9  # of a first trial's window: shorter trials pass nothing


@dataclass
class EvidenceTrials(Trials):
    """Decides each level by the evidence of its runs; a subclass measures. *refused*: levels that this host cannot offer."""

    runs: dict[float, list[LevelEvidence]] = field(default_factory=dict, kw_only=True)
    judgements: dict[float, LevelJudgement] = field(default_factory=dict, kw_only=True)
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

    # -- what is known of a level -------------------------------------------------------------------------------------

    def _at(self, level: float, runs: Sequence[LevelEvidence] | None = None) -> LevelRuns:
        """What decides *level*: by default all its runs."""
        return LevelRuns(level, deciding_runs(self.runs[level] if runs is None else runs), self._lower(level))

    def _lower(self, level: float) -> dict[float, list[LevelEvidence]]:
        return {at: found for at, found in self.runs.items() if at < level and found}

    def _plan_at(self, level: float) -> SequentialPlan:
        return self.plan.for_lowest_level if self.is_lowest(level) else self.plan

    def _judge(self, level: float, runs: list[LevelEvidence], pooled: bool = False) -> LevelJudgement:
        """Decide *level* by *runs*. *pooled*: these are all its trials, not a re-test alone."""
        if not runs:
            return LevelJudgement(decision=Decision.UNDECIDED, parts=())
        judge = self.criteria.judge_lowest if pooled and self._plan_at(level).lowest else self.criteria.judge
        return judge(level, runs, self.plan, self._lower(level))

    def _decide_by_short_trials(self, level: float) -> LevelJudgement:
        """Decide by short trials alone. They never pass *level*, and a single one fails it only at a smaller error rate."""
        seconds = sum(run.seconds for run in deciding_runs(self.runs[level]))
        one = seconds < 2 * SHORT * LEAST_FULL_TRIAL * self.window_s
        plan = self.plan.for_short_trial if one else self._plan_at(level)
        judgement = self.criteria.judge(level, self.runs[level], plan, self._lower(level))
        if judgement.decision in (Decision.CLIENT, Decision.FAIL):
            return judgement
        likely = "hold" if self.likely_to_hold(level) else "fail"
        text = f"{'a short trial' if one else 'short trials'}, by which it is likely to {likely}"
        return replace_struct(judgement, decision=Decision.UNDECIDED, short=text)

    def _is_short(self, level: float) -> bool:
        """Whether *level* has only short trials."""
        runs = deciding_runs(self.runs.get(level, []))
        return bool(runs) and max(run.seconds for run in runs) < LEAST_FULL_TRIAL * self.window_s

    def _seems_to_hold(self, at: LevelRuns) -> bool:
        """Whether a level is more likely to hold than not. Guides the choice of levels; not a proof."""
        return not any(run.cascading for run in at.runs) and all(one.seems_to_hold(at) for one in self.criteria.judges)

    def max_growth(self, level: float) -> float:
        """Upper bound, by all trials, of the queue's growth in requests/s at a *level* that passed on its latencies: a
        server that gets that much less load keeps up. inf if nothing is known.
        """
        if self.criteria.closed or self.criteria.sustain:
            return 0.0
        return growth_bound(growths_of(deciding_runs(self.runs[level])), self.criteria.alpha(self.plan))

    # -- the interface of IntervalSearch ------------------------------------------------------------------------------

    def run_trial(self, level: float, number: int) -> Decision:
        suffix = ", short trial" if number < self.plan.short else f", trial {number + 1 - self.plan.short}"
        self.measure(level, self.length(level, number - self.repeated.get(level, 0)), suffix)
        decision = self.pooled_decision(level)
        self.repeated[level] = self.repeated.get(level, 0) + (decision is Decision.CLIENT)
        return decision

    def retest(self, level: float, number: int) -> Decision:
        found = self.measure(level, 1, ", re-test")
        return Decision.CLIENT if found is None else self._judge(level, [found]).decision

    def recheck(self, level: float) -> bool:
        found = self.measure(level, SHORT, ", re-test")
        return found is None or not self._seems_to_hold(self._at(level, [found]))

    def pooled_decision(self, level: float) -> Decision:
        if level in self.refused:
            judgement = LevelJudgement(decision=Decision.CLIENT, parts=(), limits=(self.refused[level],))
        elif self._is_short(level):
            judgement = self._decide_by_short_trials(level)
        else:
            judgement = self._judge(level, self.runs[level], pooled=True)
        self.judgements[level] = judgement
        return judgement.decision

    def likely_to_hold(self, level: float) -> bool | None:
        return self._seems_to_hold(self._at(level)) if self.plan.short and self.runs.get(level) else None

    def within_reach(self, level: float, optimistic: bool) -> bool:
        runs = self.runs.get(level)
        if not runs or not self.plan.short:
            return True
        times = max(1.0, self.plan.longest / (sum(run.seconds for run in runs) / self.window_s))
        at, alpha = self._at(level), self.criteria.alpha(self._plan_at(level))
        optimism = OPTIMISTIC if optimistic else PESSIMISTIC
        reach = [one.within_reach(at, alpha, times, optimism) for one in self.criteria.judges]
        return all(holds for holds, _ in reach) or any(fails for _, fails in reach)

    def overload_throughput(self, level: float) -> float | None:
        """In an open loop: *level* less the queue's growth; None if the queue did not grow."""
        growths = growths_of(deciding_runs(self.runs.get(level, [])))
        if self.criteria.closed or not growths or not seems_to_grow(growths, SUSPICION):
            return None
        found = drift(growths, SUSPICION)
        return None if found is None else max(0.0, level - found.value)

    def reference_level(self, level: float, tested: Collection[float]) -> float | None:
        """The concurrency to measure so that the gain of *level* is not interpolated across a gap; None: not needed."""
        criteria, (below, above) = self.criteria, around(level, tested)
        if not (criteria.sustain and criteria.closed) or below is None or above - below <= criteria.width(level):
            return None
        load = level / MORE_SLOTS
        near = (float(math.floor(load)), float(math.ceil(load)))
        return next((at for at in near if below < at < above), None)

    def changed(self, level: float) -> str | None:
        """A system that has not changed differs so with the probability of one wrong decision. If the client was the limit,
        it must differ for all values that the times may have had; a closed loop's rate has no such bounds.
        """
        runs = self.runs.get(level, [])
        before, after = [run for run in runs[:-1] if not run.limited] or runs[:-1], runs[-1:]
        criteria, alpha = self.criteria, self.criteria.alpha(self.plan) / 2
        limited = [run for run in (*before, *after) if run.limited]
        if not before or (limited and (criteria.closed or not all(run.offered_in_full for run in limited))):
            return None
        rising = [run.unfavourable or run for run in before], [run.favourable or run for run in after]
        falling = [run.favourable or run for run in before], [run.unfavourable or run for run in after]
        for sign, pair in ((1, rising), (-1, falling)) if not criteria.closed else ():
            first, then = (drift(growths_of(part), alpha) for part in pair)
            if first is None or then is None:
                continue
            if sign * (then.value - first.value) > max(math.hypot(first.half, then.half), criteria.width(level)):
                return f"the queue grew by {first.value:+.3g} requests/s, then by {then.value:+.3g}"
        old, new = (token_rate(part, alpha) for part in (before, after))
        if criteria.closed and old is not None and new is not None:
            least = max(math.hypot(old.half, new.half), criteria.width(level) / level * old.value)
            if abs(new.value - old.value) > least:
                return f"{old.value:,.4g} output tokens/s, then {new.value:,.4g}"
        worse = [Decision.PASS, Decision.FAIL]
        for limit in criteria.shares:
            for pair, order in ((rising, worse), (falling, worse[::-1])):
                found = [limit.judge(LevelRuns(level, part, {}), alpha) for part in pair]
                if [part.decision for part in found] == order:
                    return f"{criterion_text(found[0])}, then {criterion_text(found[1])}"
        return None

    def is_resolved(self, level: float) -> bool:
        """Whether the queue of a passing *level* is known to grow by at most a step, or will be after its re-test; or
        whether even all trials that it may have are unlikely to show that.
        """
        if self.criteria.closed or self.criteria.sustain:
            return True
        done = sum(run.seconds for run in deciding_runs(self.runs[level])) / self.window_s
        alpha = self.criteria.alpha(self.plan)
        soon, longest = (done + RETEST) / done, max(1.0, (self.plan.longest + RETEST) / done)
        return self._would_resolve(level, alpha, soon) or not self._would_resolve(level, alpha, longest)

    # -- the length of a trial ----------------------------------------------------------------------------------------

    def length(self, level: float, number: int) -> float:
        """Length of trial *number* of *level*, in first trials.

        The planned length; half or a quarter of it if, by its runs, that will fail the level, or resolve a level that
        passed. A level that is likely to pass gets trials of full length, because each begins with an idle system, which
        favours the level; the first of them is not longer than a first trial. The last trial that may decide a level is cut
        to a half at most.
        """
        plan, runs = self._plan_at(level), self.runs.get(level, [])
        longest, done = plan.length(number), sum(run.seconds / self.window_s for run in deciding_runs(runs))
        if number < plan.short or done <= 0:
            return longest
        likely, alpha = self._seems_to_hold(self._at(level)), self.criteria.alpha(plan)
        if plan.lowest and not likely:
            return self._length_at_the_lowest(level, plan, longest, done)
        full, last = not self._is_short(level), number >= plan.trials + plan.short - 1
        any_level = replace(plan, lowest=False)
        passed = full and self.criteria.judge(level, runs, any_level, self._lower(level)).decision is Decision.PASS
        if not passed and likely:
            return longest if full or last else min(longest, 1.0)
        enough = self._would_resolve if passed else self._misses
        for length in (longest / 2,) if last else (longest / 4, longest / 2):
            if enough(level, alpha, (done + length + passed * RETEST) / done):
                return length
        return longest

    def _length_at_the_lowest(self, level: float, plan: SequentialPlan, longest: float, done: float) -> float:
        """Length of a trial of the lowest level, which is likely to fail: the shortest, from a short trial up, that may
        prove it. All its trials together take no longer than those of another level. *done*: so far, in first trials.
        """
        length, longest, alpha = SHORT, min(longest, 2 * done), self.criteria.alpha(plan)
        while length < longest and not self._misses(level, alpha, (done + length) / done, VERY_OPTIMISTIC):
            length *= 2
        return max(SHORT, min(length, longest, plan.longest - done))

    def _would_resolve(self, level: float, alpha: float, times: float) -> bool:
        """Whether *times* as many measurements would resolve a passing *level*."""
        growths = growths_of(deciding_runs(self.runs[level]))
        return growth_bound(growths, alpha, times) <= self.criteria.width(level)

    def _misses(self, level: float, alpha: float, times: float, optimism: float = OPTIMISTIC) -> bool:
        """Whether *times* as many measurements would prove that too many requests miss."""
        at = LevelRuns(level, deciding_runs(self.runs[level]), {})
        return any(limit.within_reach(at, alpha, times, optimism)[1] for limit in self.criteria.shares)
