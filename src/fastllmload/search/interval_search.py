"""Searches with noisy decisions: each level passes, fails or stays undecided, and the answer is an interval.

Bracket by doubling, then halve the widest open gap. An undecided level does not stop the search: the gaps below and
above it are still narrowed, and what stays open is the width of the answer.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from fastllmload.search.driver import (
    CHANGED,
    ROUNDING,
    Interval,
    LevelWalk,
    halfway,
    halves,
    middle_of_gap,
    monotonicity_notes,
    rounded,
)
from fastllmload.statistics.sequential_tests import LOWEST, Decision, SequentialPlan

LIKELY_FAILURES = 2  # successive levels that are likely to fail; higher ones are not tried
STEPS_FROM_THROUGHPUT = 1.5  # distance from the overload throughput at which a level is likely to be decided
WIDE_RATIO = 2.0  # upper end over lower end: such an answer is worth trials that decide only by luck
RETESTS = 2  # best levels that may be refuted in a row


class Trials(Protocol):
    """Measures levels. The same calls in the same order give the same results after a restart.

    The methods from `likely_to_hold` on guide the choice of the next level. Their defaults know decisions only.
    """

    def run_trial(self, level: float, number: int) -> Decision:
        """Measure *level* once more and decide by all its trials. Trial 0 is short, if the plan has short trials, and
        shows where the answer is likely to be; each later one lasts twice as long as the one before. A trial in which
        the client was the limit is repeated at the same length.
        """

    def retest(self, level: float, number: int) -> Decision:
        """Measure *level* again, as long as its first full trial, and decide by that run alone."""

    def pooled_decision(self, level: float) -> Decision:
        """Decide by all trials of *level* so far, without measuring."""

    def likely_to_hold(self, level: float) -> bool | None:
        """Whether an undecided *level* is more likely to hold than not; None if unknown."""
        return None

    def within_reach(self, level: float, optimistic: bool) -> bool:
        """Whether the remaining trials of *level* are likely to decide it; *optimistic*: with some luck."""
        return True

    def overload_throughput(self, level: float) -> float | None:
        """Throughput of the system at *level*, where that overloaded it; None if unknown."""
        return None

    def reference_level(self, level: float, tested: Collection[float]) -> float | None:
        """A level that must be measured before a pass of *level* is sure, given those already *tested*; None: no level."""
        return None

    def is_resolved(self, level: float) -> bool:
        """Whether the bound that a passing *level* gives is within one step, will be after its re-test, or cannot become
        so. The best level is measured until it is.
        """
        return True

    def recheck(self, level: float) -> bool:
        """Measure a failed *level* again in a short trial; whether that trial alone says it is likely to fail."""
        return self.retest(level, 0) is Decision.FAIL

    def changed(self, level: float) -> str | None:
        """How the last run of *level* differs from those before it by more than chance, as text; None: it does not."""
        return None


@dataclass
class IntervalSearch(LevelWalk[Decision]):
    """*shuffle*: seed of an interleaved order.

    Short trials at each level on the way up, and at each that halves the range in which the answer is likely; then longer
    trials at the levels on both sides of it that they can decide. What a higher pass implies is not proven again.
    """

    runner: Trials
    plan: SequentialPlan
    shuffle: int | None = None
    confirmed: bool | None = None
    system_changed: bool = False

    def __post_init__(self) -> None:
        self.order = random.Random(f"{self.shuffle}/order")
        self.last = 0.0  # level that was measured last
        self.retests = 0
        self.likelihoods: dict[tuple[float, int], bool | None] = {}  # by level and number of its trials
        self.reachable: dict[tuple[float, int, bool], bool] = {}
        self.optimistic = False  # also try levels that are decided only by luck
        self.refuted: set[float] = set()  # best levels that failed their re-test

    def run(self) -> Interval:
        self.walk()
        return self.interval()

    # -- trials -------------------------------------------------------------------------------------------------------

    def judge(self, level: float, number: int) -> Decision:
        return self.runner.run_trial(level, number)

    def measure(self, level: float) -> None:
        """As in the driver. Interleaved, a further trial of a level comes after one of each end of the bracket."""
        if level in self.outcomes and self.shuffle is not None:
            self._measure_bracket_ends(level)
            if not self._has_trials_left(level) or self.system_changed:
                return
        super().measure(level)

    def repeats(self, level: float, taken: int) -> bool:
        """A new level is repeated if the client was the limit. Without short trials, until it is decided, interleaved with
        trials of its neighbours.
        """
        again = {Decision.CLIENT} if self.plan.short else {Decision.CLIENT, Decision.UNDECIDED}
        is_new = self.trials[level] == taken
        if not is_new or self.outcomes[level] not in again or not self._has_trials_left(level) or self.system_changed:
            return False
        if self.shuffle is not None and not self.plan.short:
            self._measure_bracket_ends(level)
        return True

    @property
    def has_room(self) -> bool:
        return len(self.outcomes) < self.plan.levels

    def _has_trials_left(self, level: float) -> bool:
        """Whether *level*, and the search's number of deciding trials, allow one more. The lowest level gets twice as many
        trials as another while it is likely to fail, because there is nothing else to measure then.
        """
        likely_to_fail = self.plan.short and level == self.lo and self._likely_to_hold(level) is False
        most = self.plan.trials * (LOWEST if likely_to_fail else 1) + self.plan.short
        return self.trials.get(level, 0) < most and self.tests + self._weight(level) <= self.plan.tests

    @property
    def tests(self) -> int:
        """Deciding trials so far, weighted by the shares of the error rate that they took."""
        taken = (self._weight(level) * max(0, count - self.plan.short) for level, count in self.trials.items())
        return sum(taken) + self.retests

    def _weight(self, level: float) -> int:
        """Shares of the error rate that a trial of *level* takes."""
        return LOWEST if self.plan.short and level == self.lo else 1

    def run_trial(self, level: float) -> Decision:
        before, decision = self.outcomes.get(level), super().run_trial(level)
        self.last = level
        if self.trials[level] > 1:
            self._compare(level)
        if before in (Decision.PASS, Decision.FAIL) and decision is not before:
            self.note("answers-contradict", f"level {level:g}: {before}, but {decision} after another trial")
        return decision

    def _compare(self, level: float) -> None:
        """Compare the last run of *level* with those before: a system that has changed ends the search."""
        difference = self.runner.changed(level)
        if difference is not None and not self.system_changed:
            self.system_changed = True
            self.note("system-changed", f"the system changed during the search: at level {level:g} {difference}")

    def _measure_bracket_ends(self, level: float) -> None:
        """Measure the ends of the bracket other than *level* again, in random order, if they have trials left."""
        ends = [end for end in (self.best, self.above) if end is not None and end != level]
        self.order.shuffle(ends)
        for end in ends:
            if self._has_trials_left(end) and not self.system_changed:
                self.run_trial(end)

    # -- up and down --------------------------------------------------------------------------------------------------

    def lower_levels(self) -> Iterator[float]:
        for level in halves(self.lo, self.step):
            self.note(
                "level-below-range",
                f"level {level:g} is below the lowest one asked for: the client was the limit above it",
            )
            yield level

    def goes_down(self) -> bool:
        """If the client was the limit at the lowest level, a lighter load may tell something about the system."""
        return self.outcomes[min(self.outcomes)] is Decision.CLIENT and self.has_room

    def goes_up(self, top: float) -> bool:
        """Until a level fails, or two in a row are likely to. An undecided level does not stop the doubling; one at which
        the client was the limit in all trials does.
        """
        if self.outcomes[top] not in (Decision.PASS, Decision.UNDECIDED) or not self.has_room:
            return False
        return not all(self._likely_to_hold(one) is False for one in sorted(self.outcomes)[-LIKELY_FAILURES:])

    # -- checks -------------------------------------------------------------------------------------------------------

    def checks(self) -> Iterator[None]:
        yield from self._verify_interpolation()
        yield from self._resolve_best()
        yield from self._confirm()
        yield from self._check_above()

    def _verify_interpolation(self) -> Iterator[None]:
        """Measure the levels that the best level's pass is interpolated from, then judge all passes above them again."""
        while self.has_room and self.best is not None and not self.system_changed:
            level = self.runner.reference_level(self.best, self.outcomes)
            if level is None or level in self.outcomes:
                return
            self.measure(level)
            for passed in [other for other in self._levels_with(Decision.PASS) if other > level]:
                self.outcomes[passed] = self.runner.pooled_decision(passed)
            yield

    def _resolve_best(self) -> Iterator[None]:
        """Measure the best level until it is resolved or has no trials left; if it fails now, its successor."""
        while (level := self.best) is not None and not self.runner.is_resolved(level) and self._has_trials_left(level):
            if self.system_changed:
                return
            before = self.outcomes[level]
            if self.run_trial(level) is not before:
                yield

    def _confirm(self) -> Iterator[None]:
        """Re-test the best level; if that fails, the next lower one becomes the best."""
        for number in range(RETESTS):
            level = self.best
            if level is None or self.system_changed:
                return
            alone = self.runner.retest(level, number)
            self.last, self.retests = level, self.retests + 1
            self._compare(level)
            if alone is not Decision.FAIL:
                self.confirmed = alone is Decision.PASS
                return
            pooled = self.runner.pooled_decision(level)
            self.refuted.add(level)
            self.outcomes[level] = Decision.FAIL if pooled is Decision.FAIL else Decision.UNDECIDED
            self.note("level-not-confirmed", f"level {level:g} passed, but failed its re-test: it does not count")
            yield
        self.confirmed = None if self.best is None else False

    def _check_above(self) -> Iterator[None]:
        """Measure the failed level once more, in case the system became faster. That run alone proves nothing, but a level
        that failed only in a short trial gets a longer one if it is likely to hold now.
        """
        level = self.above
        if level is None or level == self.last or self.system_changed:
            return
        fails = self.runner.recheck(level)
        self.last = level
        self._compare(level)
        if (
            not fails
            and self.trials[level] <= self.plan.short
            and self._has_trials_left(level)
            and not self.system_changed
        ):
            self.run_trial(level)
            yield

    # -- what to measure next -----------------------------------------------------------------------------------------

    def next_level(self) -> float | None:
        """A passing level above a failing one; one that halves the range in which the answer is likely; one that further
        trials are likely to decide; one in a gap that is still too wide. If the answer is still wide then, one that further
        trials decide with some luck; if nothing is decided, one that is likely to hold.
        """
        if self.system_changed:
            return None
        floor = min(self._levels_with(Decision.FAIL), default=float("inf"))
        contradicted = min((level for level in self._levels_with(Decision.PASS) if level > floor), default=None)
        if contradicted is not None and self._has_trials_left(contradicted):
            return contradicted
        for self.optimistic in (False, True):
            if self.optimistic and not self._is_wide():
                break
            for find in (
                self._doubtful_level,
                self._higher,
                self._level_in_likely_range,
                self._lower_end,
                self._upper_end,
                self._widest_gap,
            ):
                level = find()
                if level is not None and self._can_measure(level):
                    return level
        return self._last_resort() if self.best is None and self.above is None else None

    def _last_resort(self) -> float | None:
        """Where nothing is decided: the highest level that is likely to hold gets one full trial, however little its short
        trial promises: a stall of the host in that may be all that speaks against it.
        """
        likely = (level for level in self.outcomes if self._likely_to_hold(level) and self._has_trials_left(level))
        return max((level for level in likely if self.trials[level] == self.plan.short), default=None)

    def _is_wide(self) -> bool:
        """Whether the answer is open at an end, or its ends lie far apart."""
        return self.best is None or self.above is None or self.above > WIDE_RATIO * self.best

    def _can_measure(self, level: float) -> bool:
        """Whether *level* may have a (further) trial; without this check `next_level` would return it forever."""
        return self._has_trials_left(level) if level in self.outcomes else self.has_room

    def _doubtful_level(self) -> float | None:
        """A level below the best one that is likely to fail by its short trial, which contradicts monotonicity."""
        below = (
            level
            for level in self._levels_with(Decision.UNDECIDED)
            if level < (self.best or 0.0) and self.trials[level] == 1
        )
        return min((level for level in below if self._likely_to_hold(level) is False), default=None)

    def _higher(self) -> float | None:
        """Twice the highest level, if no level is likely to fail after all."""
        top = max(self.outcomes)
        if not self.has_room or top >= self.hi or self._levels_with(Decision.FAIL, Decision.CLIENT):
            return None
        if any(self._likely_to_hold(level) is False for level in self.outcomes):
            return None
        return self.doubled(top)

    def _inside(self) -> list[float]:
        """Levels above the best one and below the lowest that failed, or at which the client was the limit."""
        bottom, top = self.best or 0.0, self._top()
        return sorted(level for level in self.outcomes if bottom < level < top)

    def _top(self) -> float:
        """The lowest level that failed. If none failed, and none that is likely to fail can be decided: the lowest at which
        the client was the limit.
        """
        if self.above is not None:
            return self.above
        likely = any(
            self._likely_to_hold(level) is False and self._can_be_decided(level)
            for level in self._levels_with(Decision.UNDECIDED)
        )
        limit = None if likely else self._client_limit()
        return float("inf") if limit is None else limit

    def _can_be_decided(self, level: float) -> bool:
        """Whether more trials may decide it."""
        undecided = self.outcomes[level] is Decision.UNDECIDED
        if not undecided or level in self.refuted or not self._has_trials_left(level):
            return False
        asked = level, self.trials[level], self.optimistic
        if asked not in self.reachable:
            self.reachable[asked] = self.runner.within_reach(level, self.optimistic)
        return self.reachable[asked]

    def _likely_to_hold(self, level: float) -> bool | None:
        if self.outcomes.get(level) is not Decision.UNDECIDED:
            return None
        if (level, self.trials[level]) not in self.likelihoods:
            self.likelihoods[level, self.trials[level]] = self.runner.likely_to_hold(level)
        return self.likelihoods[level, self.trials[level]]

    def _likely_range(self) -> tuple[float | None, float]:
        """(low, high): *high* is the lowest level likely to fail, *low* the highest below it that is likely to hold."""
        inside = self._inside()
        high = min((level for level in inside if self._likely_to_hold(level) is False), default=self._top())
        return max((level for level in inside if self._likely_to_hold(level) and level < high), default=self.best), high

    def _level_in_likely_range(self) -> float | None:
        """A level in the range in which the answer is likely: next to the overload throughput if that is known, else
        the middle.
        """
        low, high = self._likely_range()
        if low is None or not self.has_room or not low < high < float("inf"):
            return None
        if low == self.lo and self.trials[low] == self.plan.short and high <= 2 * low * (1 + ROUNDING):
            return low  # perhaps by chance, where no level holds: it must pass before its neighbours are measured
        if any(self._likely_to_hold(level) is None for level in self._inside() if low < level < high):
            return None
        width = self.step(low)
        if high - low <= width * (1 + ROUNDING):
            return None
        middle, overload_throughput = halfway(low, high, width), self.runner.overload_throughput(high)
        if overload_throughput is not None:
            below, over = (
                rounded(overload_throughput + side * STEPS_FROM_THROUGHPUT * self.step(overload_throughput))
                for side in (-1, 1)
            )
            if low + width / 2 < over < middle:
                return over
            if middle < below < high - width / 2:
                return below
        return middle if low < middle < high else None

    def _lower_end(self) -> float | None:
        """The highest level that is likely to hold and can be decided; a new level if that is far below an undecidable
        one.
        """
        likely = [level for level in self._inside() if self._likely_to_hold(level) is not False]
        found = max(filter(self._can_be_decided, likely), default=None)
        undecidable = min(
            (level for level in likely if not self._can_be_decided(level) and level > (found or self.best or 0)),
            default=None,
        )
        if undecidable is not None and found is not None and self.has_room:
            new = self._near_undecidable(undecidable, max(found, self.best or 0.0), -1)
            if new is not None and new - found > self.step(found) * (1 + ROUNDING):
                return new
        return found

    def _upper_end(self) -> float | None:
        """The lowest level that is likely to fail and can be decided."""
        return min(
            (level for level in self._inside() if self._likely_to_hold(level) is False and self._can_be_decided(level)),
            default=None,
        )

    def _widest_gap(self) -> float | None:
        """A level in the widest gap (in steps): below or above the undecided levels between *best* and *above*.

        If nothing failed: below the lowest level at which the client was the limit. A lighter load may be within the
        client's limit and still too heavy for the system.
        """
        return self._level_in_gap() if self.has_room else None

    def _level_in_gap(self) -> float | None:
        """`_widest_gap`, whether or not there is room for one more level."""
        top, inside = self._top(), self._inside()
        if top == float("inf") and not inside:
            return None
        gaps: list[tuple[float, float]] = []
        lowest, highest = min(inside, default=top), max(inside, default=self.best)
        if self.best is not None:
            new = (
                self._near_undecidable(lowest, self.best, -1)
                if inside
                else middle_of_gap(self.best, top, self.step(self.best))
            )
            gaps += [((lowest - self.best) / self.step(self.best), new)] if new is not None else []
        if highest is not None and inside and top < float("inf"):
            new = self._near_undecidable(highest, top, 1)
            gaps += [((top - highest) / self.step(highest), new)] if new is not None else []
        return max(gaps)[1] if gaps else None

    def _near_undecidable(self, undecidable: float, end: float, side: int) -> float | None:
        """A level between *undecidable* and *end*: one step from it, two if a second level there is undecidable, then four
        and so on, up to the middle.
        """
        low, high = sorted((undecidable, end))
        middle = middle_of_gap(low, high, self.step(low))
        if middle is None or not self.plan.short:
            return middle
        many = sum(not self._can_be_decided(level) for level in self._inside())
        new = rounded(undecidable + side * 2 ** max(0, many - 1) * self.step(low))
        return max(middle, new) if side < 0 else min(middle, new)

    def _client_limit(self) -> float | None:
        """The lowest level above *best* at which the client was the limit."""
        return min((level for level in self._levels_with(Decision.CLIENT) if level > (self.best or 0.0)), default=None)

    # -- the answer ---------------------------------------------------------------------------------------------------

    def _levels_with(self, *kinds: Decision) -> list[float]:
        return [level for level, decision in self.outcomes.items() if decision in kinds]

    @property
    def best(self) -> float | None:
        floor = min(self._levels_with(Decision.FAIL), default=float("inf"))
        return max((level for level in self._levels_with(Decision.PASS) if level < floor), default=None)

    @property
    def above(self) -> float | None:
        top = max(self._levels_with(Decision.PASS), default=0.0)
        return min((level for level in self._levels_with(Decision.FAIL) if level > top), default=None)

    def interval(self) -> Interval:
        """The answer so far, also of a search that was stopped."""
        return Interval(
            self.best, self.above, self._ended_by(), self.confirmed, dict(self.outcomes), dict(self.trials),
            (*self.notes, *monotonicity_notes(self.outcomes)),
        )  # fmt: skip

    def _ended_by(self) -> str:
        if self.system_changed:
            return CHANGED
        if self._levels_with(Decision.CLIENT) and self.above is None:
            return "client"
        if self.above is None:
            return "bound" if self.outcomes.get(self.hi) is Decision.PASS else "undecided"
        if self.best is None:
            return "minimum" if self.outcomes[min(self.outcomes)] is Decision.FAIL else "undecided"
        if self._level_in_gap() is not None:
            return "levels"
        return "bracket" if not self._levels_with(Decision.CLIENT) else "client"
