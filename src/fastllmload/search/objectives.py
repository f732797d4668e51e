"""Objectives that a load level must meet in a search; each criterion is decided by a test with three outcomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from msgspec.structs import replace as replace_struct

from fastllmload.experiment.level.criteria import COMPLETION, GAIN, MORE_SLOTS
from fastllmload.experiment.level.evidence import ALL, FAILED, LevelEvidence
from fastllmload.statistics.sequential_tests import (
    SHORT,
    Decision,
    Growth,
    Ratio,
    SequentialPlan,
    decide_growth,
    decide_share,
    drift,
    growth_bound,
    growth_within_reach,
    ratio,
    requests_needed,
    seems_to_grow,
    share_interval,
    share_within_reach,
)

FILLING = 0.25  # of the window: requests that take longer make any queue seem to grow
# Standard errors by which further trials are assumed to be clearer than those so far, when it is decided whether a level is
# worth more of them. VERY_OPTIMISTIC: at the lowest level, where a trial that is too short costs only one more.
PESSIMISTIC, OPTIMISTIC, VERY_OPTIMISTIC = -0.3, 0.5, 0.8
RETEST = 1.0  # length of the re-test of the best level, in first trials
LEAST_FULL_TRIAL = 0.9  # of a first trial's window: shorter trials pass nothing
SUSPICION = 0.2  # chance that a queue seems to grow although it does not: the level is only measured for longer then
SHARE, GROWTH, RATIO = "share", "requests/s", "ratio"


class CriterionResult(msgspec.Struct, frozen=True, kw_only=True):
    """One test. *low*, *high*: one-sided bounds; *allowed*: what is compared with them. *veto*: it can fail a level, but
    need not pass for the level to pass.
    """

    name: str
    decision: Decision
    value: float | None
    low: float | None
    high: float | None
    allowed: float
    unit: str
    veto: bool = False
    note: str = ""


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
        words += [criterion_text(part) for part in chosen if not (part.veto and self.decision is Decision.PASS)]
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


def criterion_text(part: CriterionResult) -> str:
    """`ttft: 2.3% over the limit (1.1% to 4.2%), allowed 1%`."""
    if part.value is None:
        return f"{part.name}: {part.note or 'not measured'}"
    if part.unit == SHARE:
        text = f"{100 * part.value:.3g}% ({100 * (part.low or 0):.3g} to {100 * (part.high or 0):.3g}%), allowed"
        return f"{part.name}: {text} {100 * part.allowed:.3g}%" + (f"; {part.note}" if part.note else "")
    if part.unit == RATIO:
        value, low, high = (gain_percent(end or 0.0) for end in (part.value, part.low, part.high))
        return f"{part.name}: {value:+.3g}% ({low:+.3g} to {high:+.3g}%), needed {100 * part.allowed - 100:+.3g}%"
    text = f"{part.value:+.3g} {part.unit} ({part.low or 0:+.3g} to {part.high or 0:+.3g}), allowed {part.allowed:.3g}"
    return f"{part.name}: {text}" + (f"; {part.note}" if part.note else "")


def gain_percent(times: float) -> float:
    """1.05 -> 5; a gain that is only a float rounding error is 0."""
    return round(100 * times - 100, 6) + 0.0  # no -0


SEEMS_TO_GROW = "it seems to grow, which only a longer trial can decide"

CASCADE = CriterionResult(
    name="cascading failure", decision=Decision.FAIL, value=None, low=None, high=None, allowed=0.5, unit=SHARE,
    veto=True, note="more than half of 100 requests in a row failed",
)  # fmt: skip


@dataclass(frozen=True)
class ShareLimit:
    """A criterion: at most the share *allowed* of the requests may miss objective *key* (`ttft`, FAILED, ALL)."""

    name: str
    key: str
    allowed: float

    def part(self, runs: Sequence[LevelEvidence], alpha: float) -> CriterionResult:
        found = share_interval([run.severities[self.key] for run in runs], alpha)
        decision = decide_share(found, self.allowed)
        needed, note = requests_needed(self.allowed, alpha), ""
        if decision is Decision.UNDECIDED and found is not None and found.effective < needed:
            note = f"worth {found.effective:,.0f} independent requests, {needed:,} are needed"
        value, low, high = (None, None, None) if found is None else (found.value, found.low, found.high)
        return CriterionResult(
            name=self.name,
            decision=decision,
            value=value,
            low=low,
            high=high,
            allowed=self.allowed,
            unit=SHARE,
            note=note,
        )

    def within_reach(
        self, runs: Sequence[LevelEvidence], alpha: float, times: float, optimism: float
    ) -> tuple[bool, bool]:
        """Whether *times* as many requests might prove that the limit is kept; and that it is missed."""
        found = share_interval([run.severities[self.key] for run in runs], alpha)
        return share_within_reach(found, self.allowed, times, alpha, optimism)


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

    def max_growth(self, runs: Sequence[LevelEvidence], plan: SequentialPlan) -> float:
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

    def likely_to_hold(
        self, level: float, runs: Sequence[LevelEvidence], lower: Mapping[float, Sequence[LevelEvidence]]
    ) -> bool:
        """Whether *level* is more likely to hold than not, by its *runs*. Guides the choice of levels; not a proof."""
        runs = deciding_runs(runs)
        if any(run.cascading for run in runs):
            return False
        found = [share_interval([run.severities[limit.key] for run in runs], SUSPICION) for limit in self.shares]
        if any(
            share is not None and share.value > limit.allowed for share, limit in zip(found, self.shares, strict=True)
        ):
            return False
        if not self.closed:
            return not seems_to_grow(growths_of(runs), SUSPICION)
        part = gain(level, runs, lower, SUSPICION) if self.sustain else None
        return part is None or part.value is None or part.value >= part.allowed

    def within_reach(
        self,
        level: float,
        runs: Sequence[LevelEvidence],
        plan: SequentialPlan,
        lower: Mapping[float, Sequence[LevelEvidence]],
        times: float,
        optimism: float,
    ) -> bool:
        """Whether *times* as many measurements like *runs* are likely to decide *level*; guides the choice of levels.
        *optimism*: standard errors by which the further ones are assumed to be clearer.
        """
        runs, alpha = deciding_runs(runs), self._alpha(plan)
        reach = [limit.within_reach(runs, alpha, times, optimism) for limit in self.shares]
        if not self.closed:
            holds, fails = growth_within_reach(growths_of(runs), times, alpha, self.width(level), optimism)
            reach.append((holds or not self.sustain, fails))
        elif self.sustain:
            reach.append(gain_within_reach(gain(level, runs, lower, alpha), times))
        return all(holds for holds, _ in reach) or any(fails for _, fails in reach)

    def length(
        self,
        level: float,
        runs: Sequence[LevelEvidence],
        plan: SequentialPlan,
        lower: Mapping[float, Sequence[LevelEvidence]],
        number: int,
        first_s: float,
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
        self, level: float, runs: Sequence[LevelEvidence], plan: SequentialPlan, longest: float, done: float
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

    def is_resolved(self, level: float, runs: Sequence[LevelEvidence], plan: SequentialPlan, first_s: float) -> bool:
        """Whether the queue of a passing *level* is known to grow by at most a step, or will be after its re-test; or
        whether even all trials that it may have are unlikely to show that. *first_s*: as in `length`.
        """
        if self.closed or self.sustain:
            return True
        runs, alpha = deciding_runs(runs), self._alpha(plan)
        done = sum(run.seconds for run in runs) / first_s
        soon, longest = ((done + RETEST) / done, max(1.0, (plan.longest + RETEST) / done))
        return self._would_resolve(level, runs, alpha, soon) or not self._would_resolve(level, runs, alpha, longest)

    def _would_resolve(self, level: float, runs: Sequence[LevelEvidence], alpha: float, times: float) -> bool:
        """Whether *times* as many measurements like *runs* would resolve a passing *level*."""
        return growth_bound(growths_of(runs), alpha, times) <= self.width(level)

    def _misses(
        self, level: float, runs: Sequence[LevelEvidence], alpha: float, times: float, optimism: float = OPTIMISTIC
    ) -> bool:
        """Whether *times* as many measurements like *runs* would prove that too many requests miss."""
        return any(limit.within_reach(runs, alpha, times, optimism)[1] for limit in self.shares)

    def overload_throughput(self, level: float, runs: Sequence[LevelEvidence]) -> float | None:
        """Requests/s that an overloaded server finished in an open loop, *level* less the queue's growth; None if the
        queue did not grow.
        """
        growths = growths_of(deciding_runs(runs))
        if self.closed or not seems_to_grow(growths, SUSPICION):
            return None
        found = drift(growths, SUSPICION)
        return None if found is None else max(0.0, level - found.value)

    def changed(
        self, level: float, before: Sequence[LevelEvidence], after: Sequence[LevelEvidence], plan: SequentialPlan
    ) -> str | None:
        """What differs between two measurements of one *level* by more than chance and more than the step, as text; None
        if nothing does. A system that has not changed differs so with the probability of one wrong decision.
        """
        alpha = self._alpha(plan) / 2
        first, then = (drift(growths_of(runs), alpha) for runs in (before, after))
        if not self.closed and first is not None and then is not None:
            difference = then.value - first.value
            if abs(difference) > max(math.hypot(first.half, then.half), self.width(level)):
                return f"the queue grew by {first.value:+.3g} requests/s, then by {then.value:+.3g}"
        rates = token_rate(before, alpha), token_rate(after, alpha)
        if self.closed and rates[0] is not None and rates[1] is not None:
            difference = rates[1].value - rates[0].value
            if abs(difference) > max(
                math.hypot(rates[0].half, rates[1].half), self.width(level) / level * rates[0].value
            ):
                return f"{rates[0].value:,.4g} output tokens/s, then {rates[1].value:,.4g}"
        for limit in self.shares:
            found = [limit.part(runs, alpha) for runs in (before, after)]
            if {part.decision for part in found} == {Decision.PASS, Decision.FAIL}:
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

    def judge(
        self,
        level: float,
        runs: Sequence[LevelEvidence],
        plan: SequentialPlan,
        lower: Mapping[float, Sequence[LevelEvidence]],
    ) -> LevelDecision:
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
        return LevelDecision(
            decision=decision, parts=found.parts, limits=limits, limited=len(limited), trials=len(runs)
        )

    def judge_lowest(
        self,
        level: float,
        runs: Sequence[LevelEvidence],
        plan: SequentialPlan,
        lower: Mapping[float, Sequence[LevelEvidence]],
    ) -> LevelDecision:
        """`judge` for the lowest level: LOWEST shares of the error rate to fail it, one to pass it."""
        found = self.judge(level, runs, plan.for_lowest_level, lower)
        return found if found.decision is Decision.FAIL else self.judge(level, runs, plan, lower)

    def _decide(
        self,
        level: float,
        runs: Sequence[LevelEvidence],
        plan: SequentialPlan,
        lower: Mapping[float, Sequence[LevelEvidence]],
    ) -> LevelDecision:
        alpha = self._alpha(plan)
        parts = [limit.part(runs, alpha) for limit in self.shares]
        if not self.closed:
            parts.append(self._growth(level, runs, alpha, plan.short_alone))
        elif self.sustain:
            parts.append(gain(level, runs, lower, alpha))
        if any(run.cascading for run in runs):
            parts.append(CASCADE)
        needed = [part.decision for part in parts if not part.veto]
        suspect = any(part.veto and part.note == SEEMS_TO_GROW for part in parts)
        if any(part.decision is Decision.FAIL for part in parts):
            decision = Decision.FAIL
        else:
            passed = all(one is Decision.PASS for one in needed) and not suspect
            decision = Decision.PASS if passed else Decision.UNDECIDED
        return LevelDecision(decision=decision, parts=tuple(parts))

    def _alpha(self, plan: SequentialPlan) -> float:
        """Error rate of one of the tests that decide a trial. The queue's growth has two ways to pass, but as all tests
        must pass, a level passes wrongly only if the test whose limit it misses does.
        """
        return plan.alpha_per_trial / (len(self.shares) + 1)

    def _growth(self, level: float, runs: Sequence[LevelEvidence], alpha: float, short_alone: bool) -> CriterionResult:
        """*short_alone*: a short trial cannot tell a growing queue from one that is only filling up with long requests."""
        width, growths = self.width(level), growths_of(runs)
        decision, found = decide_growth(growths, alpha, width)
        note = ""
        if decision is Decision.FAIL and short_alone:
            decision, note = Decision.UNDECIDED, "it may only be filling up, which a short trial cannot tell"
        elif decision is Decision.FAIL and all(is_filling_up(run) for run in runs):
            decision, note = Decision.UNDECIDED, "requests take too long for levels of this length"
        elif not self.sustain and decision is Decision.UNDECIDED and seems_to_grow(growths, SUSPICION):
            note = SEEMS_TO_GROW
        elif decision is Decision.UNDECIDED and found is not None and found.half > 0:
            times = (2 * found.half / width) ** 2
            if times > 1:
                note = f"needs about {times * sum(run.seconds for run in growths):,.0f} s of measurement"
        value, half = (None, 0.0) if found is None else (found.value, found.half)
        return CriterionResult(
            name="queue growth", decision=decision, value=value, low=None if value is None else value - half,
            high=None if value is None else value + half, allowed=width, unit=GROWTH, veto=not self.sustain, note=note,
        )  # fmt: skip


def deciding_runs(runs: Sequence[LevelEvidence]) -> Sequence[LevelEvidence]:
    """The trials that decide: those in which the client was not the limit; all if there are none."""
    return [run for run in runs if not run.limited] or runs


def is_filling_up(run: LevelEvidence) -> bool:
    """Whether its requests take so long that any queue seems to grow."""
    return run.service_s is not None and run.service_s > FILLING * run.seconds


def growths_of(runs: Sequence[LevelEvidence]) -> list[Growth]:
    """Growth in the runs that were long enough to show it; in all runs if none was."""
    return [run.growth for run in runs if not is_filling_up(run)] or [run.growth for run in runs]


def around(level: float, tested: Collection[float]) -> tuple[float | None, float]:
    """The levels of *tested* on either side of level / 1.25; the first is None below the lowest."""
    load = level / MORE_SLOTS
    below = max((at for at in tested if at <= load), default=None)
    return below, min((at for at in tested if at >= load), default=level)


def gain(
    level: float, runs: Sequence[LevelEvidence], lower: Mapping[float, Sequence[LevelEvidence]], alpha: float
) -> CriterionResult:
    """Gain criterion: at least 5% more output tokens/s than at level / 1.25, interpolated between tested levels."""
    rates = {at: token_rate(found, alpha) for at, found in {**lower, level: runs}.items()}
    known = {0.0: (0.0, 0.0)} | {at: (rate.value, rate.half) for at, rate in rates.items() if rate is not None}
    allowed = 1 + GAIN
    if not lower or level not in known or known[level][0] <= 0:
        decision = Decision.UNDECIDED if lower else Decision.PASS
        note = "no tokens were received" if lower else "no lower level was tested"
        return CriterionResult(
            name="gain", decision=decision, value=None, low=None, high=None, allowed=allowed, unit=RATIO, note=note
        )
    share, half = share_below(level, known)
    low, value = 1 / (share + half), 1 / share
    high = 1 / (share - half) if share > half else math.inf
    decision = Decision.PASS if low >= allowed else Decision.FAIL if high < allowed else Decision.UNDECIDED
    return CriterionResult(name="gain", decision=decision, value=value, low=low, high=high, allowed=allowed, unit=RATIO)


def gain_within_reach(part: CriterionResult, times: float) -> tuple[bool, bool]:
    """Whether *times* as many measurements might prove a gain large enough, and too small, if it lies half of its error
    higher or lower.
    """
    if part.value is None or part.low is None or part.high is None:
        return True, True
    width = 0.5 - 1 / math.sqrt(times)
    low, high = part.value - part.low, part.high - part.value
    return part.value + low * width >= part.allowed, part.value - high * width < part.allowed


def token_rate(runs: Sequence[LevelEvidence], alpha: float) -> Ratio | None:
    """Output tokens/s of all runs of a level."""
    return ratio([run.tokens for run in runs], [np.full(len(run.tokens), run.part_s) for run in runs], alpha)


def share_below(level: float, known: Mapping[float, tuple[float, float]]) -> tuple[float, float]:
    """Ratio of the rate at level / 1.25 to that at *level*, and its half-width; *known*: rate and half-width by level.

    If *level* itself is the upper neighbour, its own part of the line has no error.
    """
    load = level / MORE_SLOTS
    below, above = max(at for at in known if at <= load), min(at for at in known if at >= load)
    weight = 0.0 if above == below else (load - below) / (above - below)
    mine, half = known[level]
    own = weight if above == level else 0.0
    others = [((1 - weight), known[below])] + ([(weight, known[above])] if above != level else [])
    rate = sum(part * value for part, (value, _) in others)
    error = math.hypot(*(part * width for part, (_, width) in others))
    relative = math.hypot(error / rate if rate > 0 else 0.0, half / mine)
    return own + rate / mine, rate / mine * relative


def failures(allowed: float = 1 - COMPLETION) -> ShareLimit:
    """At most 10% may fail (IETF 5.2.3.1)."""
    return ShareLimit("failed requests", FAILED, allowed)


def all_limits(allowed: float) -> ShareLimit:
    """At most *allowed* of the requests may miss any of the objectives."""
    return ShareLimit("requests that miss an objective", ALL, allowed)
