"""Objectives that a load level must meet in a search: what all its criteria together decide, and which trials it needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
from msgspec.structs import replace as replace_struct

from fastllmload.experiment.level.criteria import MORE_SLOTS
from fastllmload.experiment.level.evidence import LevelEvidence
from fastllmload.experiment.level.limits import combined
from fastllmload.search.judges import (
    CASCADE,
    SEEMS_TO_GROW,
    SUSPICION,
    CriterionResult,
    Gain,
    Judge,
    LevelRuns,
    QueueGrowth,
    ShareLimit,
    around,
    criterion_text,
    deciding_runs,
    growths_of,
    token_rate,
)
from fastllmload.statistics.sequential_tests import SHORT, Decision, SequentialPlan, drift, growth_bound, seems_to_grow

# Standard errors by which further trials are assumed to be clearer than those so far, when it is decided whether a level is
# worth more of them. VERY_OPTIMISTIC: at the lowest level, where a trial that is too short costs only one more.
PESSIMISTIC, OPTIMISTIC, VERY_OPTIMISTIC = -0.3, 0.5, 0.8
RETEST = 1.0  # length of the re-test of the best level, in first trials
LEAST_FULL_TRIAL = 0.9  # of a first trial's window: shorter trials pass nothing

Runs = Sequence[LevelEvidence]
Lower = Mapping[float, Sequence[LevelEvidence]]  # those of all lower levels


class LevelDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision on one level. In *limited* of *trials* the client was the limit, for the reasons *limits*; if there
    were others, these alone decided. *short*: result of short trials alone, as text. *bounded*: decided although the
    client was the limit, because the decision is the same for all values that the times may have had.
    """

    decision: Decision
    parts: tuple[CriterionResult, ...]
    limits: tuple[str, ...] = ()
    limited: int = 0
    trials: int = 0
    short: str = ""
    bounded: bool = False

    @property
    def reason(self) -> str:
        """The criteria that decided, as text."""
        if self.decision is Decision.CLIENT:
            return client_limit_text(self.limits, self.trials)
        chosen = [part for part in self.parts if part.decision is self.decision] or list(self.parts)
        words = [self.short] if self.short else []
        words += [
            criterion_text(part) for part in chosen if not part.veto or part.decision is Decision.FAIL or part.note
        ]
        if self.bounded:
            words.append(f"whatever the client was late ({self.limits[-1]})")
        if 0 < self.limited < self.trials:
            words.append(discarded_text(self.limited, self.trials))
        return "; ".join(words)


def client_limit_text(limits: Sequence[str], trials: int) -> str:
    """Why nothing is known of a level after *trials* trials."""
    more = f" (and {len(limits) - 1} more)" if len(limits) > 1 else ""
    where = f" in each of {trials} trials" if trials > 1 else ""
    return f"the client was the limit{where}" + (f": {limits[-1]}{more}" if limits else "")


def discarded_text(limited: int, trials: int) -> str:
    """Number of trials that decided nothing, for a table's cell."""
    return f"{limited} of {trials} trials discarded: the client was the limit"


@dataclass(frozen=True)
class SearchObjective:
    """All *shares* must hold. *width*: of the answer, by level; the queue of an open loop must grow by less.

    *sustain*: the queue's growth (in a closed loop, the gain) is part of the objective. Otherwise growth can fail a level,
    and a level whose queue only seems to grow is measured for longer.
    """

    name: str
    sentence: str
    shares: tuple[ShareLimit, ...]
    width: Callable[[float], float]
    closed: bool = False
    sustain: bool = False

    def planned(self, plan: SequentialPlan) -> SequentialPlan:
        """*plan* with the trials that decide this objective: none are short for the gain of a closed loop, which is
        compared with lower levels, because short trials would tell too little about those.
        """
        return replace(plan, short=0) if self.closed and self.sustain else plan

    def max_growth(self, runs: Runs, plan: SequentialPlan) -> float:
        """Upper bound, in requests/s, of queue growth in an open loop at a level that passed on its latencies.

        A server that gets that much less load keeps up; inf if nothing is known.
        """
        if self.closed or self.sustain:
            return 0.0
        return growth_bound(growths_of(deciding_runs(runs)), self._alpha(plan))

    def lower_bound(self, level: float, tested: Collection[float] = (), growth: float = 0.0) -> float:
        """Lower bound of the answer if *level* passes. *tested*: all levels. *growth*: `max_growth` at this level.

        The gain of a closed loop is measured against a straight line between two tested levels. Interpolating across the
        knee overestimates the gain, so a pass shows only that throughput rose somewhere above the lower of the two, unless
        they are neighbours.
        """
        if not self.sustain:
            return max(0.0, level - growth)
        if not self.closed:
            return max(0.0, level - self.width(level))
        below, above = around(level, tested)
        return level if below is None or above - below <= self.width(level) else below

    @property
    def judges(self) -> tuple[Judge, ...]:
        """One per criterion."""
        if not self.closed:
            return (*self.shares, QueueGrowth(self.width, needed=self.sustain))
        return (*self.shares, Gain()) if self.sustain else self.shares

    def likely_to_hold(self, level: float, runs: Runs, lower: Lower) -> bool:
        """Whether *level* is more likely to hold than not, by its *runs*. Guides the choice of levels; not a proof."""
        at = LevelRuns(level, deciding_runs(runs), lower)
        return not any(run.cascading for run in at.runs) and all(one.seems_to_hold(at) for one in self.judges)

    def within_reach(
        self, level: float, runs: Runs, plan: SequentialPlan, lower: Lower, times: float, optimism: float
    ) -> bool:
        """Whether *times* as many measurements like *runs* are likely to decide *level*; guides the choice of levels.
        *optimism*: standard errors by which the further ones are assumed to be clearer.
        """
        at, alpha = LevelRuns(level, deciding_runs(runs), lower), self._alpha(plan)
        reach = [one.within_reach(at, alpha, times, optimism) for one in self.judges]
        return all(holds for holds, _ in reach) or any(fails for _, fails in reach)

    def length(
        self, level: float, runs: Runs, plan: SequentialPlan, lower: Lower, number: int, first_s: float
    ) -> float:
        """Length of trial *number* of *level*, in first trials, whose window has *first_s* seconds.

        The planned length; half or a quarter of it if, by its *runs*, that will fail the level, or resolve a level that
        passed. A level that is likely to pass gets trials of full length, because each begins with an idle system, which
        favours the level; the first of them is not longer than a first trial. The last trial that may decide a level is cut
        to a half at most.
        """
        trials = [run.seconds / first_s for run in deciding_runs(runs)]
        longest, done = plan.length(number), sum(trials)
        if number < plan.short or done <= 0:
            return longest
        if plan.lowest and not self.likely_to_hold(level, runs, lower):
            return self._length_at_the_lowest(level, deciding_runs(runs), plan, longest, done)
        full, last = max(trials) >= LEAST_FULL_TRIAL, number >= plan.trials + plan.short - 1
        passed = full and self.judge(level, runs, replace(plan, lowest=False), lower).decision is Decision.PASS
        if not passed and self.likely_to_hold(level, runs, lower):
            return longest if full or last else min(longest, 1.0)
        enough = self._would_resolve if passed else self._misses
        for length in (longest / 2,) if last else (longest / 4, longest / 2):
            if enough(level, deciding_runs(runs), self._alpha(plan), (done + length + passed * RETEST) / done):
                return length
        return longest

    def _length_at_the_lowest(
        self, level: float, runs: Runs, plan: SequentialPlan, longest: float, done: float
    ) -> float:
        """Length of a trial of the lowest level, which is likely to fail: the shortest, from a short trial up, that may
        prove it. All its trials together take no longer than those of another level. *done*: so far, in first trials.
        """
        length = SHORT
        longest = min(longest, 2 * done)
        while length < longest and not self._misses(
            level, runs, self._alpha(plan), (done + length) / done, VERY_OPTIMISTIC
        ):
            length *= 2
        return max(SHORT, min(length, longest, plan.longest - done))

    def is_resolved(self, level: float, runs: Runs, plan: SequentialPlan, first_s: float) -> bool:
        """Whether the queue of a passing *level* is known to grow by at most a step, or will be after its re-test; or
        whether even all trials that it may have are unlikely to show that. *first_s*: as in `length`.
        """
        if self.closed or self.sustain:
            return True
        runs, alpha = deciding_runs(runs), self._alpha(plan)
        done = sum(run.seconds for run in runs) / first_s
        soon, longest = ((done + RETEST) / done, max(1.0, (plan.longest + RETEST) / done))
        return self._would_resolve(level, runs, alpha, soon) or not self._would_resolve(level, runs, alpha, longest)

    def _would_resolve(self, level: float, runs: Runs, alpha: float, times: float) -> bool:
        """Whether *times* as many measurements like *runs* would resolve a passing *level*."""
        return growth_bound(growths_of(runs), alpha, times) <= self.width(level)

    def _misses(self, level: float, runs: Runs, alpha: float, times: float, optimism: float = OPTIMISTIC) -> bool:
        """Whether *times* as many measurements like *runs* would prove that too many requests miss."""
        at = LevelRuns(level, runs, {})
        return any(limit.within_reach(at, alpha, times, optimism)[1] for limit in self.shares)

    def overload_throughput(self, level: float, runs: Runs) -> float | None:
        """Requests/s that an overloaded server finished in an open loop, *level* less the queue's growth; None if the
        queue did not grow.
        """
        growths = growths_of(deciding_runs(runs))
        if self.closed or not seems_to_grow(growths, SUSPICION):
            return None
        found = drift(growths, SUSPICION)
        return None if found is None else max(0.0, level - found.value)

    def changed(self, level: float, before: Runs, after: Runs, plan: SequentialPlan) -> str | None:
        """What differs between two measurements of one *level* by more than chance and more than the step, as text; None
        if nothing does. A system that has not changed differs so with the probability of one wrong decision. If the client
        was the limit, it must differ for all values that the times may have had; a closed loop's rate has no such bounds.
        """
        alpha = self._alpha(plan) / 2
        limited = [run for run in (*before, *after) if run.limited]
        if limited and (self.closed or not all(run.offered_in_full for run in limited)):
            return None
        rising = [run.unfavourable or run for run in before], [run.favourable or run for run in after]
        falling = [run.favourable or run for run in before], [run.unfavourable or run for run in after]
        for sign, pair in ((1, rising), (-1, falling)) if not self.closed else ():
            first, then = (drift(growths_of(runs), alpha) for runs in pair)
            if first is None or then is None:
                continue
            if sign * (then.value - first.value) > max(math.hypot(first.half, then.half), self.width(level)):
                return f"the queue grew by {first.value:+.3g} requests/s, then by {then.value:+.3g}"
        rates = token_rate(before, alpha), token_rate(after, alpha)
        if self.closed and rates[0] is not None and rates[1] is not None:
            difference = rates[1].value - rates[0].value
            if abs(difference) > max(
                math.hypot(rates[0].half, rates[1].half), self.width(level) / level * rates[0].value
            ):
                return f"{rates[0].value:,.4g} output tokens/s, then {rates[1].value:,.4g}"
        worse = [Decision.PASS, Decision.FAIL]
        for limit in self.shares:
            for pair, order in ((rising, worse), (falling, worse[::-1])):
                found = [limit.judge(LevelRuns(level, runs, {}), alpha) for runs in pair]
                if [part.decision for part in found] == order:
                    return f"{criterion_text(found[0])}, then {criterion_text(found[1])}"
        return None

    def reference_level(self, level: float, tested: Collection[float]) -> float | None:
        """The concurrency to measure so that the gain of *level* is not interpolated across a gap; None: not needed."""
        below, above = around(level, tested)
        if not (self.sustain and self.closed) or below is None or above - below <= self.width(level):
            return None
        load = level / MORE_SLOTS
        near = (float(math.floor(load)), float(math.ceil(load)))
        return next((at for at in near if below < at < above), None)

    def judge(self, level: float, runs: Runs, plan: SequentialPlan, lower: Lower) -> LevelDecision:
        """Decide *level*. *runs*: all its trials so far. *lower*: those of all lower levels, for the gain of a closed loop.

        If the client was the limit, the level still fails if it would with everything the client did late done in time, and
        still passes if it would with every time at the worse end of its bracket and the load was offered in full. Otherwise
        trials in which the client was the limit are discarded as soon as there is another.
        """
        limited = [run for run in runs if run.limited]
        found = self._decide(level, deciding_runs(runs), plan, lower)
        if not limited:
            return found
        limits = tuple(dict.fromkeys(reason for run in limited for reason in run.limited))
        in_time = self._decide(level, [run.favourable or run for run in runs], plan, lower)
        if in_time.decision is Decision.FAIL and not (self.closed and self.sustain):
            return replace_struct(in_time, limits=limits, bounded=True)
        if all(run.offered_in_full for run in limited):
            at_worst = self._decide(level, [run.unfavourable or run for run in runs], plan, lower)
            if at_worst.decision is Decision.PASS:
                return replace_struct(at_worst, limits=limits, bounded=True)
        decided = found.decision in (Decision.PASS, Decision.FAIL)
        decision = Decision.CLIENT if decided and len(limited) == len(runs) else found.decision
        return replace_struct(found, decision=decision, limits=limits, limited=len(limited), trials=len(runs))

    def judge_lowest(self, level: float, runs: Runs, plan: SequentialPlan, lower: Lower) -> LevelDecision:
        """`judge` for the lowest level: LOWEST shares of the error rate to fail it, one to pass it."""
        found = self.judge(level, runs, plan.for_lowest_level, lower)
        return found if found.decision is Decision.FAIL else self.judge(level, runs, plan, lower)

    def _decide(self, level: float, runs: Runs, plan: SequentialPlan, lower: Lower) -> LevelDecision:
        at = LevelRuns(level, runs, lower, plan.short_alone)
        parts = [one.judge(at, self._alpha(plan)) for one in self.judges]
        if any(run.cascading for run in runs):
            parts.append(CASCADE)
        decisions = [part.decision for part in parts if not part.veto or part.decision is Decision.FAIL]
        if any(part.veto and part.note == SEEMS_TO_GROW for part in parts):
            decisions.append(Decision.UNDECIDED)
        return LevelDecision(decision=combined(decisions), parts=tuple(parts))

    def _alpha(self, plan: SequentialPlan) -> float:
        """Error rate of one of the tests that decide a trial. The queue's growth has two ways to pass, but as all tests
        must pass, a level passes wrongly only if the test whose limit it misses does.
        """
        return plan.alpha_per_trial / (len(self.shares) + 1)
