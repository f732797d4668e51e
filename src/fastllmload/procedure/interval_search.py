"""The search over noisy answers: each level passes, fails or stays undecided, and the answer is an interval.

Bracket by doubling, then halve the widest gap that is open. An undecided level is no wall: the gaps below and
above it are narrowed on their own; what stays open is the answer's width. Pure, like `seek`: it only asks the bench.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from fastllmload.procedure.seek import GRAIN, disorder, halfway, tidy
from fastllmload.procedure.sequential import Decision, Plan

RETESTS = 2  # winners that may be refuted one after the other
DESCENTS = 4  # times that the lowest level is halved, where the client was the limit at it


class Bench(Protocol):
    """Where levels are measured. The same questions in the same order get the same answers after a restart."""

    def look(self, level: float, number: int) -> Decision:
        """Measure *level* once more, twice as long as the time before; decide by all looks at it. A look on which the
        client was the limit is repeated instead.
        """

    def retest(self, level: float, number: int) -> Decision:
        """Measure *level* afresh, as long as its longest look, and decide by that run alone."""

    def again(self, level: float) -> Decision:
        """The decision by everything that was measured at *level*, without measuring."""


@dataclass(frozen=True)
class Interval:
    """*best*: the highest level that passed, below all that failed; *above*: the lowest that failed above these.

    *ended_by*: "bracket", "levels" (their number was used up), "bound", "minimum", "undecided" or "client".
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


@dataclass
class IntervalSearch:
    """*step*: the width that a gap must keep to be left alone, by level. *shuffle*: seed of an interleaved order.

    *reference*: the level, if any, that must be measured before a pass of a level is sure, given all that are. *firm*:
    whether what a passing level says is as narrow as the step; the winner is looked at until it is.
    """

    lo: float
    hi: float
    step: Callable[[float], float]
    bench: Bench
    plan: Plan
    shuffle: int | None = None
    reference: Callable[[float, Collection[float]], float | None] = lambda level, tested: None
    firm: Callable[[float], bool] = lambda level: True
    decisions: dict[float, Decision] = field(default_factory=dict)
    looks: dict[float, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    confirmed: bool | None = None

    def __post_init__(self) -> None:
        self.order = random.Random(f"{self.shuffle}/order")

    def run(self) -> Interval:
        self._bracket()
        self._narrow()
        self._underpin()
        self._make_firm()
        self._confirm()
        return self.interval()

    # -- levels -------------------------------------------------------------------------------------------------------

    @property
    def room(self) -> bool:
        return len(self.decisions) < self.plan.levels

    def _test(self, level: float) -> Decision:
        """Look until it is decided, or for the last time; interleaved, at its neighbours between two looks."""
        while self._look(level) not in (Decision.PASS, Decision.FAIL) and self.looks[level] < self.plan.looks:
            if self.shuffle is not None:
                self._look_around()
        return self.decisions[level]

    def _look(self, level: float) -> Decision:
        number = self.looks.get(level, 0)
        self.decisions[level] = self.bench.look(level, number)
        self.looks[level] = number + 1  # one that was cut short is none
        return self.decisions[level]

    def _look_around(self) -> None:
        """Another look at both ends of the bracket, in a drawn order, as far as their looks go."""
        ends = [level for level in (self.best, self.above) if level is not None]
        self.order.shuffle(ends)
        for level in ends:
            if self.looks[level] < self.plan.looks:
                before = self.decisions[level]
                if self._look(level) is not before:
                    self.notes.append(f"level {level:g}: {before}, after another look {self.decisions[level]}")

    def _bracket(self) -> None:
        """Double until a level fails. An undecided level does not stop the way up; the client's own limit does, after
        as many looks as a level may have.
        """
        x = self.lo
        while self._test(x) in (Decision.PASS, Decision.UNDECIDED) and x < self.hi and self.room:
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
        while self.room and (level := self._widest_gap()) is not None:
            self._test(level)

    def _underpin(self) -> None:
        """Measure what the winner's pass leans on, and judge all passes above it again, until it stands by itself."""
        while self.room and self.best is not None:
            level = self.reference(self.best, self.decisions)
            if level is None or level in self.decisions:
                return
            self._test(level)
            for passed in [other for other in self._of(Decision.PASS) if other > level]:
                self.decisions[passed] = self.bench.again(passed)
            self._narrow()

    def _make_firm(self) -> None:
        """Look at the winner again, as far as its looks go; when it fails now, at the one that takes its place."""
        while (level := self.best) is not None and not self.firm(level) and self.looks[level] < self.plan.looks:
            before = self.decisions[level]
            if self._look(level) is not before:
                self.notes.append(f"level {level:g}: {before}, after another look {self.decisions[level]}")
                self._narrow()

    def _widest_gap(self) -> float | None:
        """Middle of the gap that is most too wide: below or above what is undecided between *best* and *above*.

        Where nothing failed, below the lowest level at which the client was the limit: a lighter load may be none too
        heavy for it, and too heavy for the system.
        """
        top = self.above if self.above is not None else self._client_limit()
        if top is None:
            return None
        inside = [level for level in self.decisions if (self.best or 0.0) < level < top]
        gaps = [(max(inside, default=self.best), top)]
        if self.best is not None and inside:
            gaps.append((self.best, min(inside)))
        open_gaps = []
        for low, high in gaps:
            if low is None or high - low <= self.step(low) * (1 + GRAIN):
                continue
            middle = halfway(low, high, self.step(low))
            if low < middle < high:
                open_gaps.append(((high - low) / self.step(low), middle))
        return max(open_gaps)[1] if open_gaps else None

    def _client_limit(self) -> float | None:
        """The lowest level above *best* at which the client was the limit."""
        return min((level for level in self._of(Decision.CLIENT) if level > (self.best or 0.0)), default=None)

    def _confirm(self) -> None:
        """Measure the winner afresh; when that fails, the next lower one is the winner."""
        for number in range(RETESTS):
            level = self.best
            if level is None:
                return
            alone = self.bench.retest(level, number)
            if alone is not Decision.FAIL:
                self.confirmed = alone is Decision.PASS
                return
            pooled = self.bench.again(level)
            self.decisions[level] = Decision.FAIL if pooled is Decision.FAIL else Decision.UNDECIDED
            self.notes.append(f"level {level:g} passed, but failed when it was measured afresh: it does not count")
            self._narrow()
        self.confirmed = None if self.best is None else False

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
        if self._of(Decision.CLIENT) and self.above is None:
            return "client"
        if self.above is None:
            return "bound" if self.decisions.get(self.hi) is Decision.PASS else "undecided"
        if self.best is None:
            return "minimum" if self.decisions[min(self.decisions)] is Decision.FAIL else "undecided"
        if self._widest_gap() is not None:
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
