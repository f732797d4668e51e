"""The judges of a search: one per criterion, each of which passes or fails a load level, or leaves it undecided."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np

from fastllmload.experiment.level.criteria import COMPLETION, GAIN, MORE_SLOTS
from fastllmload.experiment.level.evidence import ALL, FAILED, LevelEvidence
from fastllmload.statistics.sequential_tests import (
    Decision,
    Growth,
    Ratio,
    decide_growth,
    decide_share,
    growth_within_reach,
    ratio,
    requests_needed,
    seems_to_grow,
    share_interval,
    share_within_reach,
)

FILLING = 0.25  # of the window: requests that take longer make any queue seem to grow
SUSPICION = 0.2  # chance that a queue seems to grow although it does not: the level is only measured for longer then
SHARE, GROWTH, RATIO = "share", "requests/s", "ratio"
SEEMS_TO_GROW = "it seems to grow, which only a longer trial can decide"


class CriterionResult(msgspec.Struct, frozen=True, kw_only=True):
    """One test. *low*, *high*: one-sided bounds; *allowed*: what is compared with them. *veto*: it can fail a level, but
    need not pass for the level to pass.
    """

    name: str
    decision: Decision
    value: float | None = None
    low: float | None = None
    high: float | None = None
    allowed: float
    unit: str
    veto: bool = False
    note: str = ""


CASCADE = CriterionResult(
    name="cascading failure", decision=Decision.FAIL, allowed=0.5, unit=SHARE, veto=True,
    note="more than half of 100 requests in a row failed",
)  # fmt: skip


@dataclass(frozen=True)
class LevelRuns:
    """What a level is judged by: its *runs*, and those of all levels below it. *short_alone*: a short trial alone."""

    level: float
    runs: Sequence[LevelEvidence]
    lower: Mapping[float, Sequence[LevelEvidence]]
    short_alone: bool = False


class Judge(Protocol):
    """Decides one criterion. *alpha*: its error rate."""

    def judge(self, at: LevelRuns, alpha: float) -> CriterionResult: ...

    def seems_to_hold(self, at: LevelRuns) -> bool:
        """Whether the criterion is more likely to hold than not; not a proof."""

    def within_reach(self, at: LevelRuns, alpha: float, times: float, optimism: float) -> tuple[bool, bool]:
        """Whether *times* as many measurements might prove that the criterion holds; and that it does not. *optimism*:
        standard errors by which the further ones are assumed to be clearer.
        """


@dataclass(frozen=True)
class ShareLimit:
    """A criterion: at most the share *allowed* of the requests may miss objective *key* (`ttft`, FAILED, ALL)."""

    name: str
    key: str
    allowed: float

    def judge(self, at: LevelRuns, alpha: float) -> CriterionResult:
        found = share_interval([run.severities[self.key] for run in at.runs], alpha)
        decision = decide_share(found, self.allowed)
        needed, note = requests_needed(self.allowed, alpha), ""
        if decision is Decision.UNDECIDED and found is not None and found.effective < needed:
            note = f"worth {found.effective:,.0f} independent requests, {needed:,} are needed"
        value, low, high = (None, None, None) if found is None else (found.value, found.low, found.high)
        return CriterionResult(
            name=self.name, decision=decision, value=value, low=low, high=high, allowed=self.allowed, unit=SHARE, note=note,
        )  # fmt: skip

    def seems_to_hold(self, at: LevelRuns) -> bool:
        found = share_interval([run.severities[self.key] for run in at.runs], SUSPICION)
        return found is None or found.value <= self.allowed

    def within_reach(self, at: LevelRuns, alpha: float, times: float, optimism: float) -> tuple[bool, bool]:
        found = share_interval([run.severities[self.key] for run in at.runs], alpha)
        return share_within_reach(found, self.allowed, times, alpha, optimism)


@dataclass(frozen=True)
class QueueGrowth:
    """A criterion: the queue of an open loop grows by less than *width* at that level. *needed*: a level passes only if that
    is proven. Otherwise growth can fail a level, and a level whose queue only seems to grow is measured for longer.
    """

    width: Callable[[float], float]
    needed: bool

    def judge(self, at: LevelRuns, alpha: float) -> CriterionResult:
        """A short trial cannot tell a growing queue from one that is only filling up with long requests."""
        width, growths = self.width(at.level), growths_of(at.runs)
        decision, found = decide_growth(growths, alpha, width)
        note = ""
        if decision is Decision.FAIL and at.short_alone:
            decision, note = Decision.UNDECIDED, "it may only be filling up, which a short trial cannot tell"
        elif decision is Decision.FAIL and all(is_filling_up(run) for run in at.runs):
            decision, note = Decision.UNDECIDED, "requests take too long for levels of this length"
        elif decision is Decision.UNDECIDED and not self.needed:
            note = SEEMS_TO_GROW if seems_to_grow(growths, SUSPICION) else ""
        elif decision is Decision.UNDECIDED and found is not None and found.half > 0:
            times = (2 * found.half / width) ** 2
            if times > 1:
                note = f"needs about {times * sum(run.seconds for run in growths):,.0f} s of measurement"
        value, half = (None, 0.0) if found is None else (found.value, found.half)
        return CriterionResult(
            name="queue growth", decision=decision, value=value, low=None if value is None else value - half,
            high=None if value is None else value + half, allowed=width, unit=GROWTH, veto=not self.needed, note=note,
        )  # fmt: skip

    def seems_to_hold(self, at: LevelRuns) -> bool:
        return not seems_to_grow(growths_of(at.runs), SUSPICION)

    def within_reach(self, at: LevelRuns, alpha: float, times: float, optimism: float) -> tuple[bool, bool]:
        holds, fails = growth_within_reach(growths_of(at.runs), times, alpha, self.width(at.level), optimism)
        return holds or not self.needed, fails


@dataclass(frozen=True)
class Gain:
    """A criterion of a closed loop: at least 5% more output tokens/s than at level / 1.25, interpolated between tested
    levels.
    """

    def judge(self, at: LevelRuns, alpha: float) -> CriterionResult:
        rates = {load: token_rate(found, alpha) for load, found in {**at.lower, at.level: at.runs}.items()}
        known = {0.0: (0.0, 0.0)} | {load: (rate.value, rate.half) for load, rate in rates.items() if rate is not None}
        allowed = 1 + GAIN
        if not at.lower or at.level not in known or known[at.level][0] <= 0:
            decision = Decision.UNDECIDED if at.lower else Decision.PASS
            note = "no tokens were received" if at.lower else "no lower level was tested"
            return CriterionResult(name="gain", decision=decision, allowed=allowed, unit=RATIO, note=note)
        share, half = share_below(at.level, known)
        low, value = 1 / (share + half), 1 / share
        high = 1 / (share - half) if share > half else math.inf
        decision = Decision.PASS if low >= allowed else Decision.FAIL if high < allowed else Decision.UNDECIDED
        return CriterionResult(
            name="gain", decision=decision, value=value, low=low, high=high, allowed=allowed, unit=RATIO
        )

    def seems_to_hold(self, at: LevelRuns) -> bool:
        part = self.judge(at, SUSPICION)
        return part.value is None or part.value >= part.allowed

    def within_reach(self, at: LevelRuns, alpha: float, times: float, optimism: float) -> tuple[bool, bool]:
        """If the gain lies half of its error higher or lower."""
        part = self.judge(at, alpha)
        if part.value is None or part.low is None or part.high is None:
            return True, True
        width = 0.5 - 1 / math.sqrt(times)
        low, high = part.value - part.low, part.high - part.value
        return part.value + low * width >= part.allowed, part.value - high * width < part.allowed


# -- texts ------------------------------------------------------------------------------------------------------------


def criterion_text(part: CriterionResult) -> str:
    """`ttft: 2.3% over the limit (1.1% to 4.2%), allowed 1%`."""
    if part.value is None:
        return f"{part.name}: {part.note or 'not measured'}"
    if part.unit == SHARE:
        text = f"{100 * part.value:.3g}% ({100 * (part.low or 0):.3g} to {100 * (part.high or 0):.3g}%), allowed"
        return f"{part.name}: {text} {100 * part.allowed:.3g}%" + (f"; {part.note}" if part.note else "")
    if part.unit == RATIO:
        value, low, high = (gain_percent(end or 0.0) for end in (part.value, part.low, part.high))
        return f"{part.name}: {value:+.3g}% ({low:+.3g} to {high:+.3g}%), needed {100 * part.allowed - 100:+.3g}%"
    limit = "proven above 0" if part.decision is Decision.FAIL else f"allowed {part.allowed:.3g}"
    text = f"{part.value:+.3g} {part.unit} ({part.low or 0:+.3g} to {part.high or 0:+.3g}), {limit}"
    return f"{part.name}: {text}" + (f"; {part.note}" if part.note else "")


def gain_percent(times: float) -> float:
    """1.05 -> 5; a gain that is only a float rounding error is 0."""
    return round(100 * times - 100, 6) + 0.0  # no -0


# -- evidence ---------------------------------------------------------------------------------------------------------


def deciding_runs(runs: Sequence[LevelEvidence]) -> Sequence[LevelEvidence]:
    """The trials that decide: those in which the client was not the limit; all if there are none."""
    return [run for run in runs if not run.limited] or runs


def is_filling_up(run: LevelEvidence) -> bool:
    """Whether its requests take so long that any queue seems to grow."""
    return run.service_s is not None and run.service_s > FILLING * run.seconds


def growths_of(runs: Sequence[LevelEvidence]) -> list[Growth]:
    """Growth in the runs that were long enough to show it; in all runs if none was."""
    return [run.growth for run in runs if not is_filling_up(run)] or [run.growth for run in runs]


def around(level: float, tested: Collection[float]) -> tuple[float | None, float]:
    """The levels of *tested* on either side of level / 1.25; the first is None below the lowest."""
    load = level / MORE_SLOTS
    below = max((at for at in tested if at <= load), default=None)
    return below, min((at for at in tested if at >= load), default=level)


def token_rate(runs: Sequence[LevelEvidence], alpha: float) -> Ratio | None:
    """Output tokens/s of all runs of a level."""
    return ratio([run.tokens for run in runs], [np.full(len(run.tokens), run.part_s) for run in runs], alpha)


def share_below(level: float, known: Mapping[float, tuple[float, float]]) -> tuple[float, float]:
    """Ratio of the rate at level / 1.25 to that at *level*, and its half-width; *known*: rate and half-width by level.

    If *level* itself is the upper neighbour, its own part of the line has no error.
    """
    load = level / MORE_SLOTS
    below, above = max(at for at in known if at <= load), min(at for at in known if at >= load)
    weight = 0.0 if above == below else (load - below) / (above - below)
    mine, half = known[level]
    own = weight if above == level else 0.0
    others = [((1 - weight), known[below])] + ([(weight, known[above])] if above != level else [])
    rate = sum(part * value for part, (value, _) in others)
    error = math.hypot(*(part * width for part, (_, width) in others))
    relative = math.hypot(error / rate if rate > 0 else 0.0, half / mine)
    return own + rate / mine, rate / mine * relative


def failures(allowed: float = 1 - COMPLETION) -> ShareLimit:
    """At most 10% may fail (IETF 5.2.3.1)."""
    return ShareLimit("failed requests", FAILED, allowed)


def all_limits(allowed: float) -> ShareLimit:
    """At most *allowed* of the requests may miss any of the objectives."""
    return ShareLimit("requests that miss an objective", ALL, allowed)
