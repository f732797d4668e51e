"""Finds the load at which a noisy figure such as smooth goodput is highest; it rises with load, then falls.

Levels whose interval overlaps that of the best one are contenders: any of them may be the peak. Pure, like `bisection`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from fastllmload.search.bisection import ROUNDING, halfway, rounded
from fastllmload.search.interval_search import lower_levels
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


class PeakTrials(Protocol):
    """Measures levels. *run_trial* gives the height by all trials of the level, without those in which the client was the
    limit if there are others.
    """

    def run_trial(self, level: float, number: int) -> Height: ...


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
class PeakSearch:
    """Parameters as for `IntervalSearch`; *step*: width of a gap next to the best level that needs no more narrowing."""

    lo: float
    hi: float
    step: Callable[[float], float]
    runner: PeakTrials
    plan: SequentialPlan
    shuffle: int | None = None
    heights: dict[float, Height] = field(default_factory=dict)
    trials: dict[float, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.order = random.Random(f"{self.shuffle}/order")

    def run(self) -> Peak:
        self._climb()
        while len(self.heights) < self.plan.levels and (level := self._gap()) is not None:
            self._run_trial(level)
        while (again := self._next_contender()) is not None:
            self._run_trial(again)
        return self.peak()

    def _run_trial(self, level: float) -> None:
        """Measure *level* once; again while the client is the limit and the level has trials left."""
        while True:
            number = self.trials.get(level, 0)
            self.heights[level] = self.runner.run_trial(level, number)
            self.trials[level] = number + 1  # an interrupted trial does not count
            if self.heights[level].known or self.trials[level] >= self.plan.trials:
                return

    def _climb(self) -> None:
        """Double until a level is certainly below the best one, or the client is the limit in every trial."""
        x = self.lo
        self._run_trial(x)
        self._descend()
        while x < self.hi and len(self.heights) < self.plan.levels and self.heights[x].known and self._may_rise(x):
            x = min(rounded(2 * x), self.hi)
            self._run_trial(x)

    def _descend(self) -> None:
        """If the client was the limit at the lowest level, halve it until a level can be judged."""
        for level in lower_levels(self.lo, self.step):
            if self.heights[min(self.heights)].known or len(self.heights) >= self.plan.levels:
                return
            self._run_trial(level)

    def _may_rise(self, level: float) -> bool:
        best = self.heights[self.best]
        return self.heights[level].top >= best.value - best.half

    @property
    def best(self) -> float:
        """The level with the highest value; the lowest of several."""
        return max(sorted(self.heights), key=lambda level: self.heights[level].value)

    @property
    def contenders(self) -> list[float]:
        return sorted(level for level in self.heights if self._may_rise(level))

    def _gap(self) -> float | None:
        """Middle of the wider gap next to the best level; None if both are narrow, or no level is known."""
        if not any(height.known for height in self.heights.values()):
            return None
        levels = sorted(self.heights)
        at = levels.index(self.best)
        found = []
        for low, high in zip(levels[max(0, at - 1) : at + 1], levels[max(0, at - 1) + 1 : at + 2], strict=False):
            width = self.step(low)
            middle = halfway(low, high, width)
            if high - low > width * (1 + ROUNDING) and low < middle < high:
                found.append(((high - low) / width, middle))
        return max(found)[1] if found else None

    def _next_contender(self) -> float | None:
        """The contender with the fewest trials, if there are several contenders; a random one of these when interleaved."""
        if not any(height.known for height in self.heights.values()):
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
        if not self.heights:
            return Peak(None, None, None, "levels", {}, (), {})
        known = [level for level, height in sorted(self.heights.items()) if height.known]
        if not known:
            return Peak(None, None, None, "client", dict(self.heights), (), dict(self.trials))
        best = max(known, key=lambda level: self.heights[level].value)
        levels, contenders = sorted(self.heights), self.contenders
        low = max((level for level in levels if level < contenders[0]), default=None)
        high = min((level for level in levels if level > contenders[-1]), default=None)
        return Peak(best, low, high, self._ended_by(high), dict(self.heights), tuple(contenders), dict(self.trials))

    def _ended_by(self, high: float | None) -> str:
        if any(not height.known for height in self.heights.values()):
            return "client"
        if high is None:
            return "bound" if self.hi in self.heights else "levels"
        if self.best == self.lo:
            return "minimum"
        return "bracket" if self._gap() is None else "levels"
