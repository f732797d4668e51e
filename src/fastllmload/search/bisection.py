"""Finds the highest load that holds, as the methodology asks: bracket by doubling, bisect, confirm (IETF 5.2.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fastllmload.search.driver import TRIES, Interval, LevelWalk, middle_of_gap, monotonicity_notes, rounded
from fastllmload.statistics.sequential_tests import Decision

CONFIRMATIONS = 2  # searches after a refuted answer
SAYS_SOMETHING = (Decision.PASS, Decision.FAIL)  # of the system


@dataclass(frozen=True)
class PermanentFailure:
    """A failure that no other run of the level, or of a level above it, outvotes.

    *what*: the event, such as `an out-of-memory error`. A latency above its limit may be noise; an event is not.
    """

    what: str


Judge = Callable[[float, int], Decision | PermanentFailure]  # level, number of its earlier runs


@dataclass
class Bisection(LevelWalk[list[Decision]]):
    """Highest level in [*lo*, *hi*] that passes, to within the step. The outcome of a level is that of each of its runs.

    *least*: if *lo* fails, it is halved down to this level. Each level is run once; then the best one and the one above it
    are confirmed. Monotonicity is assumed; outcomes that contradict it are noted.
    """

    ask: Judge
    least: float | None = None
    events: dict[float, str] = field(default_factory=dict)  # level → the event, and the run it occurred in

    def run(self) -> Interval:
        if not 0 < self.lo <= self.hi:
            raise ValueError(f"the range {self.lo:g} to {self.hi:g} is empty or begins at or below 0")
        self.walk()
        return self._result()

    # -- what is known ------------------------------------------------------------------------------------------------

    def judge(self, level: float, number: int) -> list[Decision]:
        outcome = self.ask(level, number)
        if isinstance(outcome, PermanentFailure):
            self.events[level] = f"{outcome.what} in run {number + 1}"
            outcome = Decision.FAIL
        return [*self.outcomes.get(level, []), outcome]

    def decision(self, level: float) -> Decision:
        """That of most runs of *level*. A draw is a failure; so is an event in any run of it or of a lower level."""
        if any(seen <= level for seen in self.events):
            return Decision.FAIL
        known = self._known(level)
        if not known:
            return Decision.CLIENT
        return Decision.PASS if 2 * known.count(Decision.PASS) > len(known) else Decision.FAIL

    def _known(self, level: float) -> list[Decision]:
        """Outcomes that say something of the system: those of runs in which the client was not the limit."""
        return [one for one in self.outcomes[level] if one in SAYS_SOMETHING]

    @property
    def above(self) -> float | None:
        """The lowest level that does not pass."""
        return min((level for level in self.outcomes if self.decision(level) is not Decision.PASS), default=None)

    @property
    def best(self) -> float | None:
        """The highest level that passes, below all that do not."""
        top = self.above
        return max((level for level in self.outcomes if top is None or level < top), default=None)

    # -- the strategy -------------------------------------------------------------------------------------------------

    def repeats(self, level: float, taken: int) -> bool:
        return self.outcomes[level][-1] not in SAYS_SOMETHING and taken < TRIES

    def lower_levels(self) -> Iterator[float]:
        level, least = self.lo, self.lo if self.least is None else self.least
        while level > least:
            level = max(least, rounded(level / 2))
            yield level

    def goes_down(self) -> bool:
        return self.best is None

    def goes_up(self, top: float) -> bool:
        return self.above is None

    def next_level(self) -> float | None:
        best, above = self.best, self.above
        if best is None:
            return None
        if above is None:
            return self.doubled(best) if best < self.hi else None
        return middle_of_gap(best, above, self.step(best))

    def checks(self) -> Iterator[None]:
        """Confirm both ends of the bracket; search again between others if one is refuted."""
        if self.best is None:
            if self._failure_is_confirmed(min(self.outcomes)):
                return
            yield
        for again in range(CONFIRMATIONS + 1):
            if again:
                yield
            if (self._confirm() and self._confirm_above()) or self.best is None:
                return
        self.note(
            "level-not-confirmed", f"level {self.best:g} was not confirmed: answers kept contradicting each other"
        )

    def _run_again(self, level: float) -> Decision:
        self.measure(level)
        last = self.outcomes[level][-1]
        return last if last in SAYS_SOMETHING else Decision.CLIENT

    def _confirm(self) -> bool:
        """Run the passing level again; if it fails now, the best lower level replaces it."""
        level = self.best
        assert level is not None
        if self._known(level).count(Decision.PASS) >= 2:
            return True
        again = self._run_again(level)
        if again is Decision.CLIENT:
            self.note(
                "level-not-confirmed",
                f"level {level:g} was not confirmed: the client was the limit in each further run",
            )
        if again is not Decision.FAIL:
            return True
        if level not in self.events:
            self.note(
                "answers-contradict",
                f"level {level:g} held once and failed when run again: it does not count as passing",
            )
        return False

    def _confirm_above(self) -> bool:
        """Whether the failing level is confirmed; if not, it becomes the passing one."""
        return self.above is None or self._failure_is_confirmed(self.above)

    def _failure_is_confirmed(self, level: float) -> bool:
        """Run a level that failed in one run again; a third run breaks the tie. An event needs no second run."""
        if self.decision(level) is Decision.CLIENT or len(self._known(level)) > 1 or level in self.events:
            return True
        if self._run_again(level) is not Decision.PASS:
            return True
        third = self._run_again(level)
        if level in self.events:
            return True
        if third is Decision.PASS:
            self.note("answers-contradict", f"level {level:g} failed once and held twice: it counts as passing")
            return False
        often = "once" if third is Decision.CLIENT else "twice"
        self.note("answers-contradict", f"level {level:g} failed {often} and held once: it counts as failing")
        return True

    # -- the answer ---------------------------------------------------------------------------------------------------

    def _result(self) -> Interval:
        decisions = {level: self.decision(level) for level in self.outcomes}
        best, above, ended = self.best, self.above, "bracket"
        if above is not None and decisions[above] is Decision.CLIENT:
            ended = "client"
            self.note(
                "client-limited",
                f"at level {above:g} the client was the limit in each of {self.trials[above]} runs: nothing is known of "
                "the system from there on",
            )
        elif best is None:
            ended = "minimum"
            self.note("no-level-passes", "the lowest level fails: no level holds")
        elif above is None:
            ended = "bound"
            self.note("upper-bound-passes", f"the upper bound {self.hi:g} holds: the true maximum may be higher")
        for level, what in sorted(self.events.items()):
            self.note(
                "level-fails-permanently",
                f"level {level:g} and every level above fail permanently: {what}; other runs do not change that",
            )
        for level in sorted(self.outcomes):
            discarded = self.trials[level] - len(self._known(level))
            if discarded and discarded < self.trials[level]:
                self.note(
                    "client-limited",
                    f"level {level:g}: {discarded} of {self.trials[level]} runs decide nothing because the client was the "
                    "limit; it was run again",
                )
        return Interval(
            best, above, ended, decisions=decisions, trials=dict(self.trials),
            notes=(*self.notes, *monotonicity_notes(decisions)),
        )  # fmt: skip
