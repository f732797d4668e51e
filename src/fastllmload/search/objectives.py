"""What a level must keep for a search to go higher, each decided by a test with three outcomes."""

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

FILLING = 0.25  # of the window: a request that takes longer makes any queue look growing
# Standard errors by which a level is taken to be plainer than it looks: when it is asked whether it is worth more looks, and
# where hope costs little or nothing else is left.
CAUTION, LUCK, HOPE = -0.3, 0.5, 0.8  # HOPE: at the lowest level, where one look too short costs only one more
RETEST = 1.0  # first looks that the re-test of a winner takes
LEAST_LOOK = 0.9  # of a first look's window: shorter looks pass nothing
SUSPICION = 0.2  # chance that a queue which does not grow seems to: then a level is looked at for longer, no more
SHARE, GROWTH, RATIO = "share", "requests/s", "ratio"


class CriterionResult(msgspec.Struct, frozen=True, kw_only=True):
    """One test. *low*, *high*: one-sided bounds; *allowed*: what is compared with them. *veto*: it can only fail."""

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
    """Of one level after some looks. On *limited* of *looks* the client was the limit, for the reasons *limits*; where
    there were others, these decided alone. *short*: what its only, short look says, in words. *bounded*: it was decided
    although the client was the limit, because its decision is the same for all that its times may have been.
    """

    decision: Decision
    parts: tuple[CriterionResult, ...]
    limits: tuple[str, ...] = ()
    limited: int = 0
    looks: int = 0
    short: str = ""
    bounded: bool = False

    @property
    def reason(self) -> str:
        """The parts that decided, in words."""
        if self.decision is Decision.CLIENT:
            return client_words(self.limits, self.looks)
        chosen = [part for part in self.parts if part.decision is self.decision] or list(self.parts)
        words = [self.short] if self.short else []
        words += [part_words(part) for part in chosen if not (part.veto and self.decision is Decision.PASS)]
        if self.bounded:
            words.append(f"whatever the client was late ({self.limits[-1]})")
        if 0 < self.limited < self.looks:
            words.append(set_aside(self.limited, self.looks))
        return "; ".join(words)


def client_words(limits: Sequence[str], looks: int) -> str:
    """Why nothing is known of a level after *looks* looks."""
    more = f" (and {len(limits) - 1} more)" if len(limits) > 1 else ""
    where = f" in each of {looks} looks" if looks > 1 else ""
    return f"the client was the limit{where}" + (f": {limits[-1]}{more}" if limits else "")


def set_aside(limited: int, looks: int) -> str:
    """Of looks that decided nothing, for a table's cell."""
    return f"{limited} of {looks} looks set aside: there the client was the limit"


def part_words(part: CriterionResult) -> str:
    """`ttft: 2.3% over the limit (1.1% to 4.2%), allowed 1%`."""
    if part.value is None:
        return f"{part.name}: {part.note or 'not measured'}"
    if part.unit == SHARE:
        text = f"{100 * part.value:.3g}% ({100 * (part.low or 0):.3g} to {100 * (part.high or 0):.3g}%), allowed"
        return f"{part.name}: {text} {100 * part.allowed:.3g}%" + (f"; {part.note}" if part.note else "")
    if part.unit == RATIO:
        value, low, high = (in_percent_more(end or 0.0) for end in (part.value, part.low, part.high))
        return f"{part.name}: {value:+.3g}% ({low:+.3g} to {high:+.3g}%), needed {100 * part.allowed - 100:+.3g}%"
    text = f"{part.value:+.3g} {part.unit} ({part.low or 0:+.3g} to {part.high or 0:+.3g}), allowed {part.allowed:.3g}"
    return f"{part.name}: {text}" + (f"; {part.note}" if part.note else "")


def in_percent_more(times: float) -> float:
    """1.05 -> 5; what only the rounding of floats makes of a gain is 0."""
    return round(100 * times - 100, 6) + 0.0  # no -0


SEEMS_TO_GROW = "it seems to grow, which only a longer look can tell"

CASCADE = CriterionResult(
    name="cascading failure", decision=Decision.FAIL, value=None, low=None, high=None, allowed=0.5, unit=SHARE,
    veto=True, note="more than half of 100 requests in a row failed",
)  # fmt: skip


@dataclass(frozen=True)
class ShareLimit:
    """At most the share *allowed* of the requests may miss objective *key* (`ttft`, FAILED, ALL)."""

    name: str
    key: str
    allowed: float

    def part(self, runs: Sequence[LevelEvidence], alpha: float) -> CriterionResult:
        found = share_interval([run.severities[self.key] for run in runs], alpha)
        decision = decide_share(found, self.allowed)
        needed, note = requests_needed(self.allowed, alpha), ""
        if decision is Decision.UNDECIDED and found is not None and found.effective < needed:
            note = f"says as much as {found.effective:,.0f} independent requests, {needed:,} are needed"
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

    def within_reach(self, runs: Sequence[LevelEvidence], alpha: float, times: float, luck: float) -> tuple[bool, bool]:
        """Whether *times* as many requests might prove that the limit is kept, or that it is missed."""
        found = share_interval([run.severities[self.key] for run in runs], alpha)
        return share_within_reach(found, self.allowed, times, alpha, luck)


@dataclass(frozen=True)
class SearchObjective:
    """*shares* must all hold. *width*: of the answer, by level; an open loop's queue must grow by less.

    *sustain*: the queue's growth (of a closed loop, the gain) is part of the goal. Else growth can fail a level, and one
    whose queue only seems to grow is looked at for longer.
    """

    name: str
    sentence: str
    shares: tuple[ShareLimit, ...]
    width: Callable[[float], float]
    closed: bool = False
    sustain: bool = False

    def planned(self, plan: SequentialPlan) -> SequentialPlan:
        """*plan* with the looks that this goal is decided by: a closed loop's gain leans on lower levels, of which short
        looks would know too little.
        """
        return replace(plan, short=0) if self.closed and self.sustain else plan

    def growth_left(self, runs: Sequence[LevelEvidence], plan: SequentialPlan) -> float:
        """Requests/s by which the queue of an open loop may grow at a level that passed on its latencies, by its *runs*.

        A server that gets so much less does keep up; inf where nothing is known.
        """
        if self.closed or self.sustain:
            return 0.0
        return growth_bound(growths_of(believed(runs)), self._alpha(plan))

    def claim(self, level: float, tested: Collection[float] = (), growth: float = 0.0) -> float:
        """What is known when *level* passes: the answer is at least so high. *tested*: all levels. *growth*: what is
        left of the queue's at this level, `growth_left`.

        The gain of a closed loop is over a straight line between two tested levels. Throughput that stops rising bends
        away above that line, so a pass says only that it rose somewhere above the lower of the two; unless they are
        neighbours.
        """
        if not self.sustain:
            return max(0.0, level - growth)
        if not self.closed:
            return max(0.0, level - self.width(level))
        below, above = around(level, tested)
        return level if below is None or above - below <= self.width(level) else below

    def leaning(
        self, level: float, runs: Sequence[LevelEvidence], lower: Mapping[float, Sequence[LevelEvidence]]
    ) -> bool:
        """Whether *level* is likelier to hold than not, by its *runs*: for the choice of levels, no proof."""
        runs = believed(runs)
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
        luck: float,
    ) -> bool:
        """Whether *times* as much of what *runs* show of *level* is likely to decide it; for the choice of levels. *luck*:
        standard errors by which what is to be proven is found plainer than it was.
        """
        runs, alpha = believed(runs), self._alpha(plan)
        reach = [limit.within_reach(runs, alpha, times, luck) for limit in self.shares]
        if not self.closed:
            holds, fails = growth_within_reach(growths_of(runs), times, alpha, self.width(level), luck)
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
        """Of look *number* of *level*, as a share of a first one whose window has *first_s*: half of what the plan has for
        it, or a quarter, where by its *runs* that will fail it; of a level that passed, make it firm. One that is likely to
        pass gets looks of full length: each begins with an idle system, which speaks for the level. The first of these is no
        longer than a first look. The last look that may decide a level is cut to a half at most.
        """
        looks = [run.seconds / first_s for run in believed(runs)]
        longest, done = plan.length(number), sum(looks)
        if number < plan.short or done <= 0:
            return longest
        if plan.lowest and not self.leaning(level, runs, lower):
            return self._length_at_the_lowest(level, believed(runs), plan, longest, done)
        whole, last = max(looks) >= LEAST_LOOK, number >= plan.looks + plan.short - 1
        passed = whole and self.judge(level, runs, replace(plan, lowest=False), lower).decision is Decision.PASS
        if not passed and self.leaning(level, runs, lower):
            return longest if whole or last else min(longest, 1.0)
        enough = self._made_firm if passed else self._misses
        for length in (longest / 2,) if last else (longest / 4, longest / 2):
            if enough(level, believed(runs), self._alpha(plan), (done + length + passed * RETEST) / done):
                return length
        return longest

    def _length_at_the_lowest(
        self, level: float, runs: Sequence[LevelEvidence], plan: SequentialPlan, longest: float, done: float
    ) -> float:
        """Of a look at the lowest level, which is likely to fail: the shortest that may prove that, from a short look's
        on; all together no longer than those at another level. *done*: so far, in first looks.
        """
        length = SHORT
        longest = min(longest, 2 * done)
        while length < longest and not self._misses(level, runs, self._alpha(plan), (done + length) / done, HOPE):
            length *= 2
        return max(SHORT, min(length, longest, plan.longest - done))

    def firm(self, level: float, runs: Sequence[LevelEvidence], plan: SequentialPlan, first_s: float) -> bool:
        """Whether the queue of a passing *level* is known not to grow by more than a step, or will be by its re-test; or
        whether not even all looks that it may have are likely to tell. *first_s*: as in `length`.
        """
        if self.closed or self.sustain:
            return True
        runs, alpha = believed(runs), self._alpha(plan)
        done = sum(run.seconds for run in runs) / first_s
        soon, longest = ((done + RETEST) / done, max(1.0, (plan.longest + RETEST) / done))
        return self._made_firm(level, runs, alpha, soon) or not self._made_firm(level, runs, alpha, longest)

    def _made_firm(self, level: float, runs: Sequence[LevelEvidence], alpha: float, times: float) -> bool:
        """Whether *times* as much of the same makes a passing *level* firm."""
        return growth_bound(growths_of(runs), alpha, times) <= self.width(level)

    def _misses(
        self, level: float, runs: Sequence[LevelEvidence], alpha: float, times: float, luck: float = LUCK
    ) -> bool:
        """Whether *times* as much of the same proves that too many requests miss."""
        return any(limit.within_reach(runs, alpha, times, luck)[1] for limit in self.shares)

    def pace(self, level: float, runs: Sequence[LevelEvidence]) -> float | None:
        """Requests/s that a server finished while an open loop's queue grew by *level* less that; None where it did not
        grow.
        """
        growths = growths_of(believed(runs))
        if self.closed or not seems_to_grow(growths, SUSPICION):
            return None
        found = drift(growths, SUSPICION)
        return None if found is None else max(0.0, level - found.value)

    def changed(
        self, level: float, before: Sequence[LevelEvidence], after: Sequence[LevelEvidence], plan: SequentialPlan
    ) -> str | None:
        """What differs between two measurements of one *level* by more than chance and by more than the step, in words;
        None where nothing does. A system that stays as it is differs so with the chance of one wrong decision.
        """
        alpha = self._alpha(plan) / 2
        first, then = (drift(growths_of(runs), alpha) for runs in (before, after))
        if not self.closed and first is not None and then is not None:
            apart = then.value - first.value
            if abs(apart) > max(math.hypot(first.half, then.half), self.width(level)):
                return f"the queue grew by {first.value:+.3g} requests/s, then by {then.value:+.3g}"
        rates = token_rate(before, alpha), token_rate(after, alpha)
        if self.closed and rates[0] is not None and rates[1] is not None:
            apart = rates[1].value - rates[0].value
            if abs(apart) > max(math.hypot(rates[0].half, rates[1].half), self.width(level) / level * rates[0].value):
                return f"{rates[0].value:,.4g} output tokens/s, then {rates[1].value:,.4g}"
        for limit in self.shares:
            found = [limit.part(runs, alpha) for runs in (before, after)]
            if {part.decision for part in found} == {Decision.PASS, Decision.FAIL}:
                return f"{part_words(found[0])}, then {part_words(found[1])}"
        return None

    def reference(self, level: float, tested: Collection[float]) -> float | None:
        """The slots to measure so that the gain of *level* leans on neighbours; None where it does, or needs none."""
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
        """*runs*: all looks so far. *lower*: those of all lower levels, for the gain of a closed loop.

        Where the client was the limit, a fail stands that would be one if all that the client did late had been in time,
        and a pass that would be one if each time lay at the worse end of what is known of it, of a load that was offered
        in full. Else looks on which the client was the limit are set aside as soon as there is another.
        """
        limited = [run for run in runs if run.limited]
        found = self._decide(level, believed(runs), plan, lower)
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
        return LevelDecision(decision=decision, parts=found.parts, limits=limits, limited=len(limited), looks=len(runs))

    def judge_lowest(
        self,
        level: float,
        runs: Sequence[LevelEvidence],
        plan: SequentialPlan,
        lower: Mapping[float, Sequence[LevelEvidence]],
    ) -> LevelDecision:
        """`judge` of the lowest level, which fails by LOWEST shares of the error rate and passes by one."""
        found = self.judge(level, runs, plan.of_the_lowest, lower)
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
            parts.append(self._growth(level, runs, alpha, plan.glance))
        elif self.sustain:
            parts.append(gain(level, runs, lower, alpha))
        if any(run.cascading for run in runs):
            parts.append(CASCADE)
        needed = [part.decision for part in parts if not part.veto]
        suspect = any(part.veto and part.note == SEEMS_TO_GROW for part in parts)
        if any(part.decision is Decision.FAIL for part in parts):
            decision = Decision.FAIL
        else:
            held = all(one is Decision.PASS for one in needed) and not suspect
            decision = Decision.PASS if held else Decision.UNDECIDED
        return LevelDecision(decision=decision, parts=tuple(parts))

    def _alpha(self, plan: SequentialPlan) -> float:
        """Of one of the tests that a look is decided by; the queue's growth has two ways to pass, but as all tests must, a
        level is passed wrongly only if the very test passes whose limit it misses.
        """
        return plan.alpha_per_look / (len(self.shares) + 1)

    def _growth(self, level: float, runs: Sequence[LevelEvidence], alpha: float, glance: bool) -> CriterionResult:
        """At a *glance* no queue is told from one that is only filling up: some requests may take long."""
        width, growths = self.width(level), growths_of(runs)
        decision, found = decide_growth(growths, alpha, width)
        note = ""
        if decision is Decision.FAIL and glance:
            decision, note = Decision.UNDECIDED, "it may only be filling up, which a short look cannot tell"
        elif decision is Decision.FAIL and all(is_filling(run) for run in runs):
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


def believed(runs: Sequence[LevelEvidence]) -> Sequence[LevelEvidence]:
    """The looks that decide: those on which the client was not the limit, all where there is none."""
    return [run for run in runs if not run.limited] or runs


def is_filling(run: LevelEvidence) -> bool:
    """Whether its requests take so long that any queue looks growing."""
    return run.service_s is not None and run.service_s > FILLING * run.seconds


def growths_of(runs: Sequence[LevelEvidence]) -> list[Growth]:
    """Of the runs that were long enough to tell growth; of all where none was."""
    return [run.growth for run in runs if not is_filling(run)] or [run.growth for run in runs]


def around(level: float, tested: Collection[float]) -> tuple[float | None, float]:
    """The levels of *tested* between which level / 1.25 lies; None below the lowest."""
    load = level / MORE_SLOTS
    below = max((at for at in tested if at <= load), default=None)
    return below, min((at for at in tested if at >= load), default=level)


def gain(
    level: float, runs: Sequence[LevelEvidence], lower: Mapping[float, Sequence[LevelEvidence]], alpha: float
) -> CriterionResult:
    """Output tokens/s over those at level / 1.25, on straight lines between the tested levels: at least 5% more."""
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
    """Whether a gain known sqrt(*times*) as well might be proven to be enough, or too small; by half of its error more or
    less.
    """
    if part.value is None or part.low is None or part.high is None:
        return True, True
    width = 0.5 - 1 / math.sqrt(times)
    low, high = part.value - part.low, part.high - part.value
    return part.value + low * width >= part.allowed, part.value - high * width < part.allowed


def token_rate(runs: Sequence[LevelEvidence], alpha: float) -> Ratio | None:
    """Output tokens/s over all runs of a level."""
    return ratio([run.tokens for run in runs], [np.full(len(run.tokens), run.part_s) for run in runs], alpha)


def share_below(level: float, known: Mapping[float, tuple[float, float]]) -> tuple[float, float]:
    """Rate at level / 1.25 over that at *level*, with its half-width; *known*: rate and half-width by level.

    Where *level* itself is the upper neighbour, its own part of the line has no error.
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
