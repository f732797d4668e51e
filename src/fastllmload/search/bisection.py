"""Finds the highest load that holds, as the methodology asks: bracket by doubling, bisect, confirm (IETF 5.2.3).

Pure: it only calls *ok*. A killed search continues where it was if *ok* answers from finished levels, because the same
answers lead to the same questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fastllmload.errors import coded


@dataclass(frozen=True)
class SearchEvent:
    """A permanent failure: no other run of the level, or of a level above it, outvotes it.

    *what*: the event, such as `an out-of-memory error`. A latency above its limit may be noise; an event is not.
    """

    what: str


Answer = bool | None  # None: not known, because the client was the limit
Ok = Callable[[float, int], Answer | SearchEvent]  # level, repetition (0 is the first run of that level)
Step = float | Callable[[float], float]

CONFIRMATIONS = 2  # searches after a refuted answer
DECISIONS = 3  # runs of a level whose first two contradict each other
TRIES = 3  # successive runs of a level in which the client is the limit
ROUNDING = 1e-9  # relative rounding error of levels, which are compared as numbers


@dataclass(frozen=True)
class SearchRequest:
    """The *answer* of one run of *level*; *repetition* counts its runs from 0."""

    level: float
    repetition: int
    answer: Answer


@dataclass(frozen=True)
class BisectionResult:
    """*level*: the highest that holds, None when none does. *above*: the lowest that does not, None when *hi* holds.

    *ended_by*: "bracket" (within the step), "bound" (*hi* holds: the true maximum may be higher), "minimum" (the lowest
    level fails) or "client" (nothing is known of the system above *level*, because the client was the limit).
    """

    level: float | None
    above: float | None
    ended_by: str
    notes: tuple[str, ...]
    asked: tuple[SearchRequest, ...]


def search(lo: float, hi: float, step: Step, ok: Ok, least: float | None = None) -> BisectionResult:
    """Highest level in [lo, hi] at which *ok*, to within *step*: a number, or a function of the passing level.

    *least*: where *lo* fails, halve down to this level. Each level is asked once, then confirmed. Monotonicity is
    assumed; answers that contradict it are noted.
    """
    if not 0 < lo <= hi:
        raise ValueError(f"the range {lo:g} to {hi:g} is empty or begins at or below 0")
    return Bisection(hi, step, ok).run(lo, lo if least is None else least)


@dataclass
class Bisection:
    """The state of one search: *passes* is the highest level that holds, *fails* the lowest known not to."""

    hi: float
    step: Step
    ok: Ok
    passes: float | None = None
    fails: float | None = None
    asked: list[SearchRequest] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    events: dict[float, str] = field(default_factory=dict)  # level → the event, and the run it occurred in

    def run(self, lo: float, least: float) -> BisectionResult:
        if not self._bracket(lo, least):
            return self._result()
        for _ in range(CONFIRMATIONS + 1):
            self._bisect()
            if self._confirm() and self._confirm_top():
                return self._result()
            if self.passes is None:
                return self._result()
        self._note(
            "level-not-confirmed", f"level {self.passes:g} was not confirmed: answers kept contradicting each other"
        )
        return self._result()

    # -- asking -------------------------------------------------------------------------------------------------------

    def _ask(self, level: float) -> Answer:
        """Ask; repeat while the client is the limit, because transient client overload must not end a search."""
        for _ in range(TRIES):
            repetition = sum(each.level == level for each in self.asked)
            answer = self.ok(level, repetition)
            if isinstance(answer, SearchEvent):
                self.events[level] = f"{answer.what} in run {repetition + 1}"
                answer = False
            self.asked.append(SearchRequest(level, repetition, answer))
            if answer is not None:
                return answer
        return None

    def _answers(self, level: float) -> list[bool]:
        """Answers about the system, without those in which the client was the limit."""
        return [each.answer for each in self.asked if each.level == level and each.answer is not None]

    def _was_asked(self, level: float) -> bool:
        return any(each.level == level for each in self.asked)

    def _ask_once(self, level: float) -> Answer:
        """The level's majority answer; asked now if it never was."""
        return self._majority(level) if self._was_asked(level) else self._ask(level)

    def _majority(self, level: float) -> Answer:
        """The answer of most runs of *level*. A draw is a failure; so is an event in any run of it or of a lower level."""
        if any(seen <= level for seen in self.events):
            return False
        known = self._answers(level)
        return None if not known else 2 * sum(known) > len(known)

    # -- steps --------------------------------------------------------------------------------------------------------

    def _bracket(self, lo: float, least: float) -> bool:
        """Set *passes* and *fails*; False when no level holds."""
        x = lo
        above: float | None = None
        while not self._ask_once(x) and (x > least or self._failure_is_confirmed(x)):
            if x <= least:
                self.fails = x
                return False
            above, x = x, max(least, rounded(x / 2))
        self.passes, self.fails = x, above
        if self.fails is None:
            self._double()
        return True

    def _double(self) -> None:
        while self.passes is not None and self.passes < self.hi:
            y = min(rounded(2 * self.passes), self.hi)
            if not self._ask_once(y):
                self.fails = y
                return
            self.passes = y

    def _bisect(self) -> None:
        while self.passes is not None and self.fails is not None:
            width = self.step(self.passes) if callable(self.step) else self.step
            middle = halfway(self.passes, self.fails, width)
            if self.fails - self.passes <= width * (1 + ROUNDING) or middle in (self.passes, self.fails):
                return
            if self._ask_once(middle):
                self.passes = middle
            else:
                self.fails = middle

    def _confirm(self) -> bool:
        """Run the passing level again; if it fails now, the best lower level replaces it."""
        assert self.passes is not None
        level = self.passes
        if sum(self._answers(level)) >= 2:
            return True
        again = self._ask(level)
        if again is None:
            self._note(
                "level-not-confirmed",
                f"level {level:g} was not confirmed: the client was the limit in each further run",
            )
        if again is not False:
            return True
        if level not in self.events:
            self._note(
                "answers-contradict",
                f"level {level:g} held once and failed when run again: it does not count as passing",
            )
        self.fails = level
        lower = [each.level for each in self.asked if each.level < level and self._majority(each.level)]
        self.passes = max(lower, default=None)
        return False

    def _confirm_top(self) -> bool:
        """Whether the failing level is confirmed; if not, it becomes the passing one."""
        level = self.fails
        if level is None or self._failure_is_confirmed(level):
            return True
        higher = [each.level for each in self.asked if each.level > level and not self._majority(each.level)]
        self.passes, self.fails = level, min(higher, default=None)
        if self.fails is None:
            self._double()
        return False

    def _failure_is_confirmed(self, level: float) -> bool:
        """Run a level that failed in one run again; a third run breaks the tie. An event needs no second run."""
        if self._majority(level) is None or len(self._answers(level)) > 1 or level in self.events:
            return True
        if self._ask(level) is not True:
            return True
        third = self._ask(level)
        if level in self.events:
            return True
        if third is None:
            self._note("answers-contradict", f"level {level:g} failed once and held once: it counts as failing")
            return True
        if not self._majority(level):
            self._note("answers-contradict", f"level {level:g} failed twice and held once: it counts as failing")
            return True
        self._note("answers-contradict", f"level {level:g} failed once and held twice: it counts as passing")
        return False

    # -- the answer ---------------------------------------------------------------------------------------------------

    def _result(self) -> BisectionResult:
        top = None if self.fails is None else self._majority(self.fails)
        if self.fails is not None and top is None:
            ended = "client"
            self._note(
                "client-limited",
                f"at level {self.fails:g} the client was the limit in each of "
                f"{sum(each.level == self.fails for each in self.asked)} runs: nothing is known of the "
                "system from there on",
            )
        elif self.passes is None:
            ended = "minimum"
            self._note("no-level-passes", "the lowest level fails: no level holds")
        elif self.fails is None:
            ended = "bound"
            self._note("upper-bound-passes", f"the upper bound {self.hi:g} holds: the true maximum may be higher")
        else:
            ended = "bracket"
        for level, what in sorted(self.events.items()):
            self._note(
                "level-fails-permanently",
                f"level {level:g} and every level above fail permanently: {what}; other runs do not change that",
            )
        self.notes += self._repeated_notes()
        odd = monotonicity_notes({each.level: self._majority(each.level) for each in self.asked})
        return BisectionResult(self.passes, self.fails, ended, (*self.notes, *odd), tuple(self.asked))

    def _note(self, code: str, sentence: str) -> None:
        self.notes.append(coded(code, sentence))

    def _repeated_notes(self) -> list[str]:
        """Notes on levels with runs in which the client was the limit, and others."""
        discarded = Counter(each.level for each in self.asked if each.answer is None)
        return [
            coded(
                "client-limited",
                f"level {level:g}: {count} of {sum(each.level == level for each in self.asked)} runs decide nothing because "
                "the client was the limit; it was run again",
            )
            for level, count in sorted(discarded.items())
            if self._answers(level)
        ]


def monotonicity_notes(answers: Mapping[float, Answer]) -> list[str]:
    """Notes on what contradicts monotonicity: passing levels above the lowest failing one."""
    failing = min((level for level, answer in answers.items() if answer is False), default=None)
    return [
        coded(
            "answers-not-monotonic",
            f"level {level:g} holds although {failing:g} fails: the answer is not monotonic in the load",
        )
        for level in sorted(answers)
        if failing is not None and answers[level] and level > failing
    ]


def halfway(low: float, high: float, step: float) -> float:
    """The middle between *low* and *high*, a whole number of steps (at least one) above *low*."""
    return rounded(low + max(1, round((high - low) / 2 / step)) * step)


def rounded(level: float) -> float:
    """*level* to nine digits, so that binary rounding never gives one level two names."""
    return float(f"{level:.9g}")
