"""The search over noisy answers: each level passes, fails or stays undecided, and the answer is an interval.

Bracket by doubling, then halve the widest gap that is open. An undecided level is no wall: the gaps below and
above it are narrowed on their own; what stays open is the answer's width. Pure, like `seek`: it only asks the bench.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from fastllmload.search.bisection import GRAIN, disorder, halfway, tidy
from fastllmload.statistics.sequential_tests import LOWEST, Decision, SequentialPlan

CHANGED = "changed"  # how a search ends on a system that did not stay the same
ENOUGH = 2  # levels in a row that are likely to fail: higher ones are not tried
ASIDE = 1.5  # steps beside the pace of the system at which a level is likely to be decided
WIDE = 2.0  # times its lower end: such an answer is worth looks that must be lucky
RETESTS = 2  # winners that may be refuted one after the other
DESCENTS = 4  # times that the lowest level is halved, where the client was the limit at it


class Trials(Protocol):
    """Where levels are measured. The same questions in the same order get the same answers after a restart.

    Those from `leaning` on say what to measure next and what to make of it; as they are here, nothing is known but
    decisions.
    """

    def look(self, level: float, number: int) -> Decision:
        """Measure *level* once more; decide by all looks at it. Look 0 is a short one, if there are any, that shows
        where the answer is likely to be; after it each lasts twice as long as the one before. A look on which the client
        was the limit is repeated instead.
        """

    def retest(self, level: float, number: int) -> Decision:
        """Measure *level* afresh, as long as its first look, and decide by that run alone."""

    def again(self, level: float) -> Decision:
        """The decision by everything that was measured at *level*, without measuring."""

    def leaning(self, level: float) -> bool | None:
        """Whether an undecided *level* is likelier to hold than not; None where nothing speaks for either."""
        return None

    def within_reach(self, level: float, hopeful: bool) -> bool:
        """Whether the looks that *level* has left are likely to decide it; *hopeful*: with some luck."""
        return True

    def pace(self, level: float) -> float | None:
        """What the system got through at a *level* that was too much for it; None where that is not known."""
        return None

    def reference(self, level: float, tested: Collection[float]) -> float | None:
        """The level, if any, that must be measured before a pass of *level* is sure, given all that are *tested*."""
        return None

    def firm(self, level: float) -> bool:
        """Whether what a passing *level* says is as narrow as the step, will be by its re-test, or cannot be; the winner is
        looked at until it is.
        """
        return True

    def recheck(self, level: float) -> bool:
        """Measure *level*, which failed, afresh by a short look; whether by that alone it is likely to fail again."""
        return self.retest(level, 0) is Decision.FAIL

    def changed(self, level: float) -> str | None:
        """What the last run of *level* showed otherwise than those before it, beyond chance, in words."""
        return None


@dataclass(frozen=True)
class Interval:
    """*best*: the highest level that passed, below all that failed; *above*: the lowest that failed above these.

    *ended_by*: "bracket", "levels" (their number was used up), "bound", "minimum", "undecided", "client" or "changed":
    the system was not the same throughout, so the answer is not one figure.
    *confirmed*: the winner's re-test passed by itself; False: it only did not contradict; None: there was none.
    """

    best: float | None
    above: float | None
    ended_by: str
    confirmed: bool | None
    decisions: dict[float, Decision]
    looks: dict[float, int]
    notes: tuple[str, ...]

    @property
    def passed(self) -> list[float]:
        """Levels that passed, up to *best*."""
        top = 0.0 if self.best is None else self.best
        return [level for level, decision in self.decisions.items() if decision is Decision.PASS and level <= top]

    @property
    def drifted(self) -> bool:
        """The system changed while it was measured."""
        return self.ended_by == CHANGED


@dataclass
class IntervalSearch:
    """*step*: the width that a gap must keep to be left alone, by level. *shuffle*: seed of an interleaved order.

    A short look at each level on the way up, and at each that halves the range in which the answer is likely; then
    longer ones, at the levels on both sides of it that they can decide. What a higher pass implies is not proven again.
    """

    lo: float
    hi: float
    step: Callable[[float], float]
    bench: Trials
    plan: SequentialPlan
    shuffle: int | None = None
    decisions: dict[float, Decision] = field(default_factory=dict)
    looks: dict[float, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    confirmed: bool | None = None
    drifted: bool = False

    def __post_init__(self) -> None:
        self.order = random.Random(f"{self.shuffle}/order")
        self.last = 0.0  # level that was measured last
        self.retests = 0
        self.leanings: dict[tuple[float, int], bool | None] = {}  # by level and number of its looks
        self.reaches: dict[tuple[float, int, bool], bool] = {}
        self.hopeful = False  # looks at levels that only luck may decide
        self.refuted: set[float] = set()  # winners that failed when they were measured afresh

    def run(self) -> Interval:
        self._bracket()
        self._narrow()
        self._underpin()
        self._make_firm()
        self._confirm()
        self._check_top()
        return self.interval()

    # -- levels -------------------------------------------------------------------------------------------------------

    @property
    def room(self) -> bool:
        return len(self.decisions) < self.plan.levels

    def _test(self, level: float) -> Decision:
        """A first look; where the client was the limit, as many as the level may have. Without short looks all that it
        takes to decide, interleaved with looks at its neighbours.
        """
        more = {Decision.CLIENT} if self.plan.short else {Decision.CLIENT, Decision.UNDECIDED}
        while self._look(level) in more and self._has_looks(level) and not self.drifted:
            if self.shuffle is not None and not self.plan.short:
                self._look_around(level)
        return self.decisions[level]

    def _has_looks(self, level: float) -> bool:
        """Also whether their number allows one more that may decide; the lowest level, while it is likely to fail, gets
        twice as many looks as another: there is nothing else to measure then.
        """
        doomed = self.plan.short and level == self.lo and self._leaning(level) is False
        most = self.plan.looks * (LOWEST if doomed else 1) + self.plan.short
        return self.looks.get(level, 0) < most and self.tests + self._weight(level) <= self.plan.tests

    @property
    def tests(self) -> int:
        """Looks so far that could decide, by the shares of the error rate that they took."""
        taken = (self._weight(level) * max(0, count - self.plan.short) for level, count in self.looks.items())
        return sum(taken) + self.retests

    def _weight(self, level: float) -> int:
        """Shares of the error rate that a look at *level* takes."""
        return LOWEST if self.plan.short and level == self.lo else 1

    def _look(self, level: float) -> Decision:
        number, before = self.looks.get(level, 0), self.decisions.get(level)
        self.decisions[level] = self.bench.look(level, number)
        self.looks[level], self.last = number + 1, level  # one that was cut short is none
        if number > 0:
            self._compare(level)
        if before in (Decision.PASS, Decision.FAIL) and self.decisions[level] is not before:
            self.notes.append(f"level {level:g}: {before}, after another look {self.decisions[level]}")
        return self.decisions[level]

    def _compare(self, level: float) -> None:
        """The last run of *level* with those before: a system that is not the same any more ends the search."""
        words = self.bench.changed(level)
        if words is not None and not self.drifted:
            self.drifted = True
            self.notes.append(f"the system changed during the search: at level {level:g} {words}")

    def _look_around(self, level: float) -> None:
        """Another look at the ends of the bracket other than *level*, in a drawn order, as far as their looks go."""
        ends = [end for end in (self.best, self.above) if end is not None and end != level]
        self.order.shuffle(ends)
        for end in ends:
            if self._has_looks(end) and not self.drifted:
                self._look(end)

    def _bracket(self) -> None:
        """Double until a level fails, or two in a row are likely to. An undecided level does not stop the way up; the
        client's own limit does, after as many looks as a level may have.
        """
        x, likely = self.lo, 0
        while self._test(x) in (Decision.PASS, Decision.UNDECIDED) and x < self.hi and self.room:
            likely = likely + 1 if self._leaning(x) is False else 0
            if likely == ENOUGH or (likely and x == self.lo):
                break
            x = min(tidy(2 * x), self.hi)
        self._descend()

    def _descend(self) -> None:
        """Where the client was the limit at the lowest level, nothing is known at all: halve it to one that tells."""
        for level in lower_levels(self.lo, self.step):
            if self.decisions[min(self.decisions)] is not Decision.CLIENT or not self.room:
                return
            self.notes.append(f"level {level:g} is below the lowest one asked for: the client was the limit above it")
            self._test(level)

    def _narrow(self) -> None:
        while not self.drifted and (level := self._next()) is not None:
            if level not in self.decisions:
                self._test(level)
                continue
            if self.shuffle is not None:
                self._look_around(level)
            if self._has_looks(level) and not self.drifted:
                self._look(level)

    def _underpin(self) -> None:
        """Measure what the winner's pass leans on, and judge all passes above it again, until it stands by itself."""
        while self.room and self.best is not None and not self.drifted:
            level = self.bench.reference(self.best, self.decisions)
            if level is None or level in self.decisions:
                return
            self._test(level)
            for passed in [other for other in self._of(Decision.PASS) if other > level]:
                self.decisions[passed] = self.bench.again(passed)
            self._narrow()

    def _make_firm(self) -> None:
        """Look at the winner again, as far as its looks go; when it fails now, at the one that takes its place."""
        while (level := self.best) is not None and not self.bench.firm(level) and self._has_looks(level):
            if self.drifted:
                return
            before = self.decisions[level]
            if self._look(level) is not before:
                self._narrow()

    # -- what to measure next -----------------------------------------------------------------------------------------

    def _next(self) -> float | None:
        """The level to measure next: a passing one that a failing one contradicts; one that halves the range in which the
        answer is likely; one that further looks are likely to decide; one in a gap that is still too wide. Where the answer
        is wide after all that, one that further looks decide with some luck.
        """
        floor = min(self._of(Decision.FAIL), default=float("inf"))
        contradicted = min((level for level in self._of(Decision.PASS) if level > floor), default=None)
        if contradicted is not None and self._has_looks(contradicted):
            return contradicted
        for self.hopeful in (False, True):
            if self.hopeful and not self._is_wide():
                break
            for find in (self._doubted, self._higher, self._likely, self._lower_end, self._upper_end, self._widest_gap):
                level = find()
                if level is not None and self._can_measure(level):
                    return level
        return None

    def _is_wide(self) -> bool:
        """Whether the answer is open at an end, or says little."""
        return self.best is None or self.above is None or self.above > WIDE * self.best

    def _can_measure(self, level: float) -> bool:
        """Whether *level* may have a (further) look; what has none left must not be asked for again and again."""
        return self._has_looks(level) if level in self.decisions else self.room

    def _doubted(self) -> float | None:
        """A level below the best one that is likely to fail by its short look: were the system monotonic it would hold."""
        below = (
            level for level in self._of(Decision.UNDECIDED) if level < (self.best or 0.0) and self.looks[level] == 1
        )
        return min((level for level in below if self._leaning(level) is False), default=None)

    def _higher(self) -> float | None:
        """On up, where the way up ended at levels that are not likely to fail after all."""
        top = max(self.decisions)
        if not self.room or top >= self.hi or self._of(Decision.FAIL, Decision.CLIENT):
            return None
        return None if any(self._leaning(level) is False for level in self.decisions) else min(tidy(2 * top), self.hi)

    def _inside(self) -> list[float]:
        """Levels above the best one and below the lowest that failed, or at which the client was the limit."""
        bottom, top = self.best or 0.0, self._top()
        return sorted(level for level in self.decisions if bottom < level < top)

    def _top(self) -> float:
        """The lowest level that failed; where none did and none that is likely to can be decided, the lowest at which the
        client was the limit.
        """
        if self.above is not None:
            return self.above
        likely = any(self._leaning(level) is False and self._open(level) for level in self._of(Decision.UNDECIDED))
        limit = None if likely else self._client_limit()
        return float("inf") if limit is None else limit

    def _open(self, level: float) -> bool:
        """Whether more looks may decide it."""
        undecided = self.decisions[level] is Decision.UNDECIDED
        if not undecided or level in self.refuted or not self._has_looks(level):
            return False
        asked = level, self.looks[level], self.hopeful
        if asked not in self.reaches:
            self.reaches[asked] = self.bench.within_reach(level, self.hopeful)
        return self.reaches[asked]

    def _leaning(self, level: float) -> bool | None:
        if self.decisions.get(level) is not Decision.UNDECIDED:
            return None
        if (level, self.looks[level]) not in self.leanings:
            self.leanings[level, self.looks[level]] = self.bench.leaning(level)
        return self.leanings[level, self.looks[level]]

    def _range(self) -> tuple[float | None, float]:
        """The highest level that is likely to hold below the lowest that is likely not to, and that."""
        inside = self._inside()
        high = min((level for level in inside if self._leaning(level) is False), default=self._top())
        return max((level for level in inside if self._leaning(level) and level < high), default=self.best), high

    def _likely(self) -> float | None:
        """A level within the range in which the answer is likely: beside what the system got through when it had too
        much, or the middle.
        """
        low, high = self._range()
        if low is None or not self.room or not low < high < float("inf"):
            return None
        if low == self.lo and self.looks[low] == self.plan.short and high <= 2 * low * (1 + GRAIN):
            return low  # by chance, where none holds: its neighbours need not be looked at before it has passed itself
        if any(self._leaning(level) is None for level in self._inside() if low < level < high):
            return None
        width = self.step(low)
        if high - low <= width * (1 + GRAIN):
            return None
        middle, pace = halfway(low, high, width), self.bench.pace(high)
        if pace is not None:
            below, over = (tidy(pace + side * ASIDE * self.step(pace)) for side in (-1, 1))
            if low + width / 2 < over < middle:
                return over
            if middle < below < high - width / 2:
                return below
        return middle if low < middle < high else None

    def _lower_end(self) -> float | None:
        """The highest level that is likely to hold and can be decided; a new one, where that is far below one that
        cannot.
        """
        likely = [level for level in self._inside() if self._leaning(level) is not False]
        found = max(filter(self._open, likely), default=None)
        stuck = min(
            (level for level in likely if not self._open(level) and level > (found or self.best or 0)), default=None
        )
        if stuck is not None and found is not None and self.room:
            new = self._beside(stuck, max(found, self.best or 0.0), -1)
            if new is not None and new - found > self.step(found) * (1 + GRAIN):
                return new
        return found

    def _upper_end(self) -> float | None:
        """The lowest level that is likely to fail and can be decided."""
        return min(
            (level for level in self._inside() if self._leaning(level) is False and self._open(level)), default=None
        )

    def _widest_gap(self) -> float | None:
        """A level in the gap that is most too wide: below or above what is undecided between *best* and *above*.

        Where nothing failed, below the lowest level at which the client was the limit: a lighter load may be none too
        heavy for it, and too heavy for the system.
        """
        return self._in_a_gap() if self.room else None

    def _in_a_gap(self) -> float | None:
        """The same, whether there is room for one more level or not."""
        top, inside = self._top(), self._inside()
        if top == float("inf") and not inside:
            return None
        gaps: list[tuple[float, float]] = []
        lowest, highest = min(inside, default=top), max(inside, default=self.best)
        if self.best is not None:
            new = self._beside(lowest, self.best, -1) if inside else self._middle(self.best, top)
            gaps += [((lowest - self.best) / self.step(self.best), new)] if new is not None else []
        if highest is not None and inside and top < float("inf"):
            new = self._beside(highest, top, 1)
            gaps += [((top - highest) / self.step(highest), new)] if new is not None else []
        return max(gaps)[1] if gaps else None

    def _middle(self, low: float, high: float) -> float | None:
        """None where the gap is no wider than a step."""
        if high - low <= self.step(low) * (1 + GRAIN):
            return None
        middle = halfway(low, high, self.step(low))
        return middle if low < middle < high else None

    def _beside(self, stuck: float, end: float, side: int) -> float | None:
        """A level between *stuck*, which cannot be decided, and *end*: a step from it, two where a second one is stuck
        there, then four and so on; no further than the middle.
        """
        middle = self._middle(min(stuck, end), max(stuck, end))
        if middle is None or not self.plan.short:
            return middle
        many = sum(not self._open(level) for level in self._inside())
        new = tidy(stuck + side * 2 ** max(0, many - 1) * self.step(min(stuck, end)))
        return max(middle, new) if side < 0 else min(middle, new)

    def _client_limit(self) -> float | None:
        """The lowest level above *best* at which the client was the limit."""
        return min((level for level in self._of(Decision.CLIENT) if level > (self.best or 0.0)), default=None)

    def _confirm(self) -> None:
        """Measure the winner afresh; when that fails, the next lower one is the winner."""
        for number in range(RETESTS):
            level = self.best
            if level is None or self.drifted:
                return
            alone = self.bench.retest(level, number)
            self.last, self.retests = level, self.retests + 1
            self._compare(level)
            if alone is not Decision.FAIL:
                self.confirmed = alone is Decision.PASS
                return
            pooled = self.bench.again(level)
            self.refuted.add(level)
            self.decisions[level] = Decision.FAIL if pooled is Decision.FAIL else Decision.UNDECIDED
            self.notes.append(f"level {level:g} passed, but failed when it was measured afresh: it does not count")
            self._narrow()
        self.confirmed = None if self.best is None else False

    def _check_top(self) -> None:
        """Measure the level that failed once more, for a system that became faster. By itself that run proves nothing, but
        a level that only a short look failed is looked at for longer when it is likely to hold now.
        """
        level = self.above
        if level is None or level == self.last or self.drifted:
            return
        fails = self.bench.recheck(level)
        self.last = level
        self._compare(level)
        if not fails and self.looks[level] <= self.plan.short and self._has_looks(level) and not self.drifted:
            self._look(level)
            self._narrow()

    # -- the answer ---------------------------------------------------------------------------------------------------

    def _of(self, *kinds: Decision) -> list[float]:
        return [level for level, decision in self.decisions.items() if decision in kinds]

    @property
    def best(self) -> float | None:
        floor = min(self._of(Decision.FAIL), default=float("inf"))
        return max((level for level in self._of(Decision.PASS) if level < floor), default=None)

    @property
    def above(self) -> float | None:
        top = max(self._of(Decision.PASS), default=0.0)
        return min((level for level in self._of(Decision.FAIL) if level > top), default=None)

    def interval(self) -> Interval:
        """As far as is known now; also of a search that was stopped."""
        known = {Decision.PASS: True, Decision.FAIL: False}
        odd = disorder({level: known.get(decision) for level, decision in self.decisions.items()})
        return Interval(
            self.best, self.above, self._ended_by(), self.confirmed, dict(self.decisions), dict(self.looks),
            (*self.notes, *odd),
        )  # fmt: skip

    def _ended_by(self) -> str:
        if self.drifted:
            return CHANGED
        if self._of(Decision.CLIENT) and self.above is None:
            return "client"
        if self.above is None:
            return "bound" if self.decisions.get(self.hi) is Decision.PASS else "undecided"
        if self.best is None:
            return "minimum" if self.decisions[min(self.decisions)] is Decision.FAIL else "undecided"
        if self._in_a_gap() is not None:
            return "levels"
        return "bracket" if not self._of(Decision.CLIENT) else "client"


def lower_levels(lo: float, step: Callable[[float], float]) -> list[float]:
    """Half of *lo*, half of that and so on, in whole steps."""
    found = [lo]
    for _ in range(DESCENTS):
        half = halfway(0.0, found[-1], step(found[-1]))
        if not half < found[-1]:
            break
        found.append(half)
    return found[1:]
