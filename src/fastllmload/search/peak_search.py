"""Finds the load at which a noisy figure such as smooth goodput is highest; it rises with load, then falls.

Levels whose interval overlaps that of the best one are contenders: any of them may be the peak.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from fastllmload.search.driver import LevelWalk, halves, middle_of_gap
from fastllmload.statistics.sequential_tests import SequentialPlan


@dataclass(frozen=True)
class Height:
    """*value* and the half-width of its interval; not *known*: the client was the limit, so it may be higher."""

    value: float
    half: float
    known: bool = True

    @property
    def top(self) -> float:
        return self.value + self.half if self.known else float("inf")


@dataclass(frozen=True)
class Peak:
    """*best*: the level with the highest value of those at which the client was not the limit; None if there are none.

    The peak lies within (*low*, *high*): the tested neighbours of all contenders; None if none was tested beyond.
    *ended_by*: "bracket", "levels", "bound", "minimum" or "client".
    """

    best: float | None
    low: float | None
    high: float | None
    ended_by: str
    heights: dict[float, Height]
    contenders: tuple[float, ...]
    trials: dict[float, int]


@dataclass
class PeakSearch(LevelWalk[Height]):
    """*step*: width of a gap next to the best level that needs no more narrowing. *shuffle*: as for `IntervalSearch`.
    *run_level* runs a trial, given its level and number, and gives the height by all trials of the level, without those in
    which the client was the limit if there are others.
    """

    run_level: Callable[[float, int], Height]
    plan: SequentialPlan
    shuffle: int | None = None

    def __post_init__(self) -> None:
        self.order = random.Random(f"{self.shuffle}/order")
        self.comparing = False  # the gaps are narrow: only contenders are measured again

    def run(self) -> Peak:
        self.walk()
        return self.peak()

    @property
    def has_room(self) -> bool:
        return len(self.outcomes) < self.plan.levels

    def judge(self, level: float, number: int) -> Height:
        return self.run_level(level, number)

    def repeats(self, level: float, taken: int) -> bool:
        return not self.outcomes[level].known and self.trials[level] < self.plan.trials

    def lower_levels(self) -> list[float]:
        return halves(self.lo, self.step)

    def goes_down(self) -> bool:
        """If the client was the limit at the lowest level, a lower one may be judged."""
        return not self.outcomes[min(self.outcomes)].known and self.has_room

    def goes_up(self, top: float) -> bool:
        """Until a level is certainly below the best one, or the client is the limit in every trial."""
        return self.has_room and self.outcomes[top].known and self._may_rise(top)

    def next_level(self) -> float | None:
        """A level next to the best one; where these are near, a contender."""
        if not self.comparing and self.has_room and (level := self._gap()) is not None:
            return level
        self.comparing = True
        return self._next_contender()

    def _may_rise(self, level: float) -> bool:
        best = self.outcomes[self.best]
        return self.outcomes[level].top >= best.value - best.half

    @property
    def best(self) -> float:
        """The level with the highest value; the lowest of several."""
        return max(sorted(self.outcomes), key=lambda level: self.outcomes[level].value)

    @property
    def contenders(self) -> list[float]:
        return sorted(level for level in self.outcomes if self._may_rise(level))

    def _gap(self) -> float | None:
        """Middle of the wider gap next to the best level; None if both are narrow, or no level is known."""
        if not any(height.known for height in self.outcomes.values()):
            return None
        levels = sorted(self.outcomes)
        at = levels.index(self.best)
        found = []
        for low, high in zip(levels[max(0, at - 1) : at + 1], levels[max(0, at - 1) + 1 : at + 2], strict=False):
            middle = middle_of_gap(low, high, self.step(low))
            if middle is not None:
                found.append(((high - low) / self.step(low), middle))
        return max(found)[1] if found else None

    def _next_contender(self) -> float | None:
        """The contender with the fewest trials, if there are several contenders; a random one of these when interleaved."""
        if not any(height.known for height in self.outcomes.values()):
            return None
        measurable = [level for level in self.contenders if self.trials[level] < self.plan.trials]
        if len(self.contenders) < 2 or not measurable:
            return None
        fewest = [
            level for level in measurable if self.trials[level] == min(self.trials[other] for other in measurable)
        ]
        return fewest[0] if self.shuffle is None else self.order.choice(fewest)

    def peak(self) -> Peak:
        """The answer so far."""
        if not self.outcomes:
            return Peak(None, None, None, "levels", {}, (), {})
        known = [level for level, height in sorted(self.outcomes.items()) if height.known]
        if not known:
            return Peak(None, None, None, "client", dict(self.outcomes), (), dict(self.trials))
        best = max(known, key=lambda level: self.outcomes[level].value)
        levels, contenders = sorted(self.outcomes), self.contenders
        low = max((level for level in levels if level < contenders[0]), default=None)
        high = min((level for level in levels if level > contenders[-1]), default=None)
        return Peak(best, low, high, self._ended_by(high), dict(self.outcomes), tuple(contenders), dict(self.trials))

    def _ended_by(self, high: float | None) -> str:
        if any(not height.known for height in self.outcomes.values()):
            return "client"
        if high is None:
            return "bound" if self.hi in self.outcomes else "levels"
        if self.best == self.lo:
            return "minimum"
        return "bracket" if self._gap() is None else "levels"
