"""Objectives that a load level must meet in a search: what all its criteria together decide, and which trials it needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace as replace_struct

from fastllmload.experiment.level.evidence import LevelEvidence
from fastllmload.experiment.level.limits import combined
from fastllmload.search.judges import (
    CASCADE,
    SEEMS_TO_GROW,
    CriterionResult,
    Gain,
    Judge,
    LevelRuns,
    QueueGrowth,
    ShareLimit,
    around,
    criterion_text,
    deciding_runs,
)
from fastllmload.statistics.sequential_tests import Decision, SequentialPlan

Runs = Sequence[LevelEvidence]
Lower = Mapping[float, Sequence[LevelEvidence]]  # those of all lower levels


class LevelJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """The decision on one level. In *limited* of *trials* the client was the limit, for the reasons *limits*; if there
    were others, these alone decided. *short*: result of short trials alone, as text. *bounded*: decided although the
    client was the limit, because the decision is the same for all values that the times may have had.
    """

    decision: Decision
    parts: tuple[CriterionResult, ...]
    limits: tuple[str, ...] = ()
    limited: int = 0
    trials: int = 0
    short: str = ""
    bounded: bool = False

    @property
    def reason(self) -> str:
        """The criteria that decided, as text."""
        if self.decision is Decision.CLIENT:
            return client_limit_text(self.limits, self.trials)
        chosen = [part for part in self.parts if part.decision is self.decision] or list(self.parts)
        words = [self.short] if self.short else []
        words += [
            criterion_text(part) for part in chosen if not part.veto or part.decision is Decision.FAIL or part.note
        ]
        if self.bounded:
            words.append(f"whatever the client was late ({self.limits[-1]})")
        if 0 < self.limited < self.trials:
            words.append(discarded_text(self.limited, self.trials))
        return "; ".join(words)


def client_limit_text(limits: Sequence[str], trials: int) -> str:
    """Why nothing is known of a level after *trials* trials."""
    more = f" (and {len(limits) - 1} more)" if len(limits) > 1 else ""
    where = f" in each of {trials} trials" if trials > 1 else ""
    return f"the client was the limit{where}" + (f": {limits[-1]}{more}" if limits else "")


def discarded_text(limited: int, trials: int) -> str:
    """Number of trials that decided nothing, for a table's cell."""
    return f"{limited} of {trials} trials discarded: the client was the limit"


@dataclass(frozen=True)
class SearchObjective:
    """All *shares* must hold. *width*: of the answer, by level; the queue of an open loop must grow by less.

    *sustain*: the queue's growth (in a closed loop, the gain) is part of the objective. Otherwise growth can fail a level,
    and a level whose queue only seems to grow is measured for longer.
    """

    name: str
    sentence: str
    shares: tuple[ShareLimit, ...]
    width: Callable[[float], float]
    closed: bool = False
    sustain: bool = False

    def lower_bound(self, level: float, tested: Collection[float] = (), growth: float = 0.0) -> float:
        """Lower bound of the answer if *level* passes. *tested*: all levels. *growth*: `max_growth` at this level.

        The gain of a closed loop is measured against a straight line between two tested levels. Interpolating across the
        knee overestimates the gain, so a pass shows only that throughput rose somewhere above the lower of the two, unless
        they are neighbours.
        """
        if not self.sustain:
            return max(0.0, level - growth)
        if not self.closed:
            return max(0.0, level - self.width(level))
        below, above = around(level, tested)
        return level if below is None or above - below <= self.width(level) else below

    @property
    def judges(self) -> tuple[Judge, ...]:
        """One per criterion."""
        if not self.closed:
            return (*self.shares, QueueGrowth(self.width, needed=self.sustain))
        return (*self.shares, Gain()) if self.sustain else self.shares

    def judge(self, level: float, runs: Runs, plan: SequentialPlan, lower: Lower) -> LevelJudgement:
        """Decide *level*. *runs*: all its trials so far. *lower*: those of all lower levels, for the gain of a closed loop.

        If the client was the limit, the level still fails if it would with everything the client did late done in time, and
        still passes if it would with every time at the worse end of its bracket and the load was offered in full. Otherwise
        trials in which the client was the limit are discarded as soon as there is another.
        """
        limited = [run for run in runs if run.limited]
        found = self._decide(level, deciding_runs(runs), plan, lower)
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
        return replace_struct(found, decision=decision, limits=limits, limited=len(limited), trials=len(runs))

    def judge_lowest(self, level: float, runs: Runs, plan: SequentialPlan, lower: Lower) -> LevelJudgement:
        """`judge` for the lowest level: LOWEST shares of the error rate to fail it, one to pass it."""
        found = self.judge(level, runs, plan.for_lowest_level, lower)
        return found if found.decision is Decision.FAIL else self.judge(level, runs, plan, lower)

    def _decide(self, level: float, runs: Runs, plan: SequentialPlan, lower: Lower) -> LevelJudgement:
        at = LevelRuns(level, runs, lower, plan.short_alone)
        parts = [one.judge(at, self.alpha(plan)) for one in self.judges]
        if any(run.cascading for run in runs):
            parts.append(CASCADE)
        decisions = [part.decision for part in parts if not part.veto or part.decision is Decision.FAIL]
        if any(part.veto and part.note == SEEMS_TO_GROW for part in parts):
            decisions.append(Decision.UNDECIDED)
        return LevelJudgement(decision=combined(decisions), parts=tuple(parts))

    def alpha(self, plan: SequentialPlan) -> float:
        """Error rate of one of the tests that decide a trial. The queue's growth has two ways to pass, but as all tests
        must pass, a level passes wrongly only if the test whose limit it misses does.
        """
        return plan.alpha_per_trial / (len(self.shares) + 1)
