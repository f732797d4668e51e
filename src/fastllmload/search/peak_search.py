"""The search for the load at which something is highest, such as smooth goodput: it rises, then falls, and is noisy.

Levels whose interval overlaps that of the best one are contenders: any of them may be the peak. Pure, as `seek` is.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from fastllmload.search.bisection import GRAIN, halfway, tidy
from fastllmload.search.interval_search import lower_levels
from fastllmload.statistics.sequential_tests import SequentialPlan


@dataclass(frozen=True)
class Height:
    """*value* with the half-width of its interval; *known* False: the client was the limit, so it may be higher."""

    value: float
    half: float
    known: bool = True

    @property
    def top(self) -> float:
        return self.value + self.half if self.known else float("inf")


class PeakTrials(Protocol):
    """Where levels are measured; *look* gives the height by all looks at the level but those, where there are others,
    on which the client was the limit.
    """

    def look(self, level: float, number: int) -> Height: ...


@dataclass(frozen=True)
class Peak:
    """*best*: the level with the highest value of those at which the client was not the limit; None without any.

    The peak lies within (*low*, *high*): the tested neighbours of all contenders; None where none was tested beyond.
    *ended_by*: "bracket", "levels", "bound", "minimum" or "client".
    """

    best: float | None
    low: float | None
    high: float | None
    ended_by: str
    heights: dict[float, Height]
    contenders: tuple[float, ...]
    looks: dict[float, int]


@dataclass
class PeakSearch:
    """As `IntervalSearch`; *step* is the width that gaps beside the best level may keep."""

    lo: float
    hi: float
    step: Callable[[float], float]
    bench: PeakTrials
    plan: SequentialPlan
    shuffle: int | None = None
    heights: dict[float, Height] = field(default_factory=dict)
    looks: dict[float, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.order = random.Random(f"{self.shuffle}/order")

    def run(self) -> Peak:
        self._climb()
        while len(self.heights) < self.plan.levels and (level := self._gap()) is not None:
            self._look(level)
        while (again := self._again()) is not None:
            self._look(again)
        return self.peak()

    def _look(self, level: float) -> None:
        """Once; while the client is the limit again, as long as the level has looks left."""
        while True:
            number = self.looks.get(level, 0)
            self.heights[level] = self.bench.look(level, number)
            self.looks[level] = number + 1  # one that was cut short is none
            if self.heights[level].known or self.looks[level] >= self.plan.looks:
                return

    def _climb(self) -> None:
        """Double until a level is surely below the best one, or the client is the limit in every look."""
        x = self.lo
        self._look(x)
        self._descend()
        while x < self.hi and len(self.heights) < self.plan.levels and self.heights[x].known and self._may_rise(x):
            x = min(tidy(2 * x), self.hi)
            self._look(x)

    def _descend(self) -> None:
        """Where the client was the limit at the lowest level, nothing is known at all: halve it to one that tells."""
        for level in lower_levels(self.lo, self.step):
            if self.heights[min(self.heights)].known or len(self.heights) >= self.plan.levels:
                return
            self._look(level)

    def _may_rise(self, level: float) -> bool:
        best = self.heights[self.best]
        return self.heights[level].top >= best.value - best.half

    @property
    def best(self) -> float:
        """The level of the highest value, the lowest such one."""
        return max(sorted(self.heights), key=lambda level: self.heights[level].value)

    @property
    def contenders(self) -> list[float]:
        return sorted(level for level in self.heights if self._may_rise(level))

    def _gap(self) -> float | None:
        """Middle of the wider of the two gaps beside the best level; None too where nothing is known of any."""
        if not any(height.known for height in self.heights.values()):
            return None
        levels = sorted(self.heights)
        at = levels.index(self.best)
        found = []
        for low, high in zip(levels[max(0, at - 1) : at + 1], levels[max(0, at - 1) + 1 : at + 2], strict=False):
            width = self.step(low)
            middle = halfway(low, high, width)
            if high - low > width * (1 + GRAIN) and low < middle < high:
                found.append(((high - low) / width, middle))
        return max(found)[1] if found else None

    def _again(self) -> float | None:
        """The contender with the fewest looks, as long as there are several; drawn among equals when interleaved."""
        if not any(height.known for height in self.heights.values()):
            return None
        open_ones = [level for level in self.contenders if self.looks[level] < self.plan.looks]
        if len(self.contenders) < 2 or not open_ones:
            return None
        fewest = [level for level in open_ones if self.looks[level] == min(self.looks[one] for one in open_ones)]
        return fewest[0] if self.shuffle is None else self.order.choice(fewest)

    def peak(self) -> Peak:
        """As far as is known now."""
        if not self.heights:
            return Peak(None, None, None, "levels", {}, (), {})
        known = [level for level, height in sorted(self.heights.items()) if height.known]
        if not known:
            return Peak(None, None, None, "client", dict(self.heights), (), dict(self.looks))
        best = max(known, key=lambda level: self.heights[level].value)
        levels, contenders = sorted(self.heights), self.contenders
        low = max((level for level in levels if level < contenders[0]), default=None)
        high = min((level for level in levels if level > contenders[-1]), default=None)
        return Peak(best, low, high, self._ended_by(high), dict(self.heights), tuple(contenders), dict(self.looks))

    def _ended_by(self, high: float | None) -> str:
        if any(not height.known for height in self.heights.values()):
            return "client"
        if high is None:
            return "bound" if self.hi in self.heights else "levels"
        if self.best == self.lo:
            return "minimum"
        return "bracket" if self._gap() is None else "levels"
