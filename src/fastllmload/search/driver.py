"""The one driver of all searches: walks load levels for a strategy, from the lowest level up, then where it is needed.

A strategy answers four questions: must a lower level be tried, may a higher one hold, which level is measured next, and
which levels are tested again at the end. The driver measures. It is pure, because it only calls the judge: a killed search
continues where it was if the judge answers from finished levels, because the same outcomes lead to the same levels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from fastllmload.errors import coded
from fastllmload.statistics.sequential_tests import Decision

ROUNDING = 1e-9  # relative rounding error of levels, which are compared as numbers
TRIES = 3  # successive trials of a level in which the client is the limit
CHANGED = "changed"  # `ended_by` of a search during which the system changed
DESCENTS = 4  # times that the lowest level is halved if the client was the limit there

Outcome = TypeVar("Outcome")
Size = TypeVar("Size", int, float)


@dataclass(frozen=True)
class Interval:
    """*best*: the highest level that passed, below all that failed; *above*: the lowest that failed above these.

    *ended_by*: "bracket" (within the step), "levels" (their number was used up), "bound" (the highest level passed: the
    true maximum may be higher), "minimum" (the lowest level fails), "undecided", "client" (nothing is known of the system
    above *best*, because the client was the limit) or "changed" (the system changed during the search, so the answer is
    not one figure).
    *confirmed*: the re-test of the best level passed by itself; False: it was undecided; None: there was none.
    """

    best: float | None
    above: float | None
    ended_by: str
    confirmed: bool | None = None
    decisions: Mapping[float, Decision] = field(default_factory=dict)
    trials: Mapping[float, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> list[float]:
        """Levels that passed, up to *best*."""
        top = 0.0 if self.best is None else self.best
        return [level for level, decision in self.decisions.items() if decision is Decision.PASS and level <= top]

    @property
    def system_changed(self) -> bool:
        """The system changed while it was measured."""
        return self.ended_by == CHANGED


@dataclass
class LevelWalk(ABC, Generic[Outcome]):
    """A search from *lo* to *hi*. *step*: width by level of a gap that needs no more narrowing.

    *outcomes*: what is known of each level; *trials*: how often it was measured.
    """

    lo: float
    hi: float
    step: Callable[[float], float]
    outcomes: dict[float, Outcome] = field(default_factory=dict, kw_only=True)
    trials: dict[float, int] = field(default_factory=dict, kw_only=True)
    notes: list[str] = field(default_factory=list, kw_only=True)

    # -- the driver ---------------------------------------------------------------------------------------------------

    def walk(self) -> None:
        """Go down from *lo* as far as needed, double up to *hi*, narrow; then test again, and narrow after each change."""
        self.measure(self.lo)
        lower = iter(self.lower_levels())
        while self.goes_down() and (level := next(lower, None)) is not None:
            self.measure(level)
        top = self.lo
        while top < self.hi and self.goes_up(top):
            top = self.doubled(top)
            self.measure(top)
        self._narrow()
        for _ in self.checks():
            self._narrow()

    def _narrow(self) -> None:
        while (level := self.next_level()) is not None:
            self.measure(level)

    def measure(self, level: float) -> None:
        """Run a trial of *level*, and further ones at once as long as it is to be repeated."""
        taken = 1
        self.run_trial(level)
        while self.repeats(level, taken):
            self.run_trial(level)
            taken += 1

    def run_trial(self, level: float) -> Outcome:
        number = self.trials.get(level, 0)
        self.outcomes[level] = self.judge(level, number)
        self.trials[level] = number + 1  # an interrupted trial does not count
        return self.outcomes[level]

    def doubled(self, level: float) -> float:
        return min(rounded(2 * level), self.hi)

    def note(self, code: str, sentence: str) -> None:
        self.notes.append(coded(code, sentence))

    # -- the strategy -------------------------------------------------------------------------------------------------

    @abstractmethod
    def judge(self, level: float, number: int) -> Outcome:
        """Run trial *number* of *level*; what is known of the level after it."""

    @abstractmethod
    def repeats(self, level: float, taken: int) -> bool:
        """Whether *level* is measured again at once, after *taken* trials in a row: transient client overload must not
        decide it.
        """

    def lower_levels(self) -> Iterable[float]:
        """Levels below *lo*, for as long as one must be tried."""
        return ()

    def goes_down(self) -> bool:
        """Whether a level below the lowest one so far must be tried."""
        return False

    @abstractmethod
    def goes_up(self, top: float) -> bool:
        """Whether a level above *top*, the highest one so far, may hold."""

    def next_level(self) -> float | None:
        """The level to measure next; None if the answer is as narrow as it can be."""
        return None

    def checks(self) -> Iterator[None]:
        """Test levels again; yield whenever the answer may have changed, so that gaps are narrowed again."""
        yield from ()


def measure_until(
    measure: Callable[[Size, int], Outcome], next_size: Callable[[Outcome, Size], Size | None], first: Size, tries: int
) -> Outcome:
    """Measure with size *first* (requests, seconds); again with *next_size* until that is None; *tries* times at most."""
    size = first
    for attempt in range(tries):
        outcome = measure(size, attempt)
        if (following := next_size(outcome, size)) is None:
            break
        size = following
    return outcome


def halves(lo: float, step: Callable[[float], float]) -> list[float]:
    """Half of *lo*, half of that and so on, in whole steps; at most DESCENTS levels."""
    found = [lo]
    for _ in range(DESCENTS):
        half = halfway(0.0, found[-1], step(found[-1]))
        if not half < found[-1]:
            break
        found.append(half)
    return found[1:]


def monotonicity_notes(decisions: Mapping[float, Decision]) -> list[str]:
    """Notes on what contradicts monotonicity: passing levels above the lowest failing one."""
    failing = min((level for level, decision in decisions.items() if decision is Decision.FAIL), default=None)
    return [
        coded(
            "answers-not-monotonic",
            f"level {level:g} holds although {failing:g} fails: the answer is not monotonic in the load",
        )
        for level in sorted(decisions)
        if failing is not None and decisions[level] is Decision.PASS and level > failing
    ]


def halfway(low: float, high: float, step: float) -> float:
    """The middle between *low* and *high*, a whole number of steps (at least one) above *low*."""
    return rounded(low + max(1, round((high - low) / 2 / step)) * step)


def middle_of_gap(low: float, high: float, step: float) -> float | None:
    """The middle between *low* and *high*; None if they are at most a step apart, or there is no level between them."""
    middle = halfway(low, high, step)
    return middle if high - low > step * (1 + ROUNDING) and low < middle < high else None


def rounded(level: float) -> float:
    """*level* to nine digits, so that binary rounding never gives one level two names."""
    return float(f"{level:.9g}")
