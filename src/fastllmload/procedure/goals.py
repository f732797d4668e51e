"""What a level must keep for a search to go higher, each decided by a test with three outcomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from fastllmload.procedure.criteria import COMPLETION, GAIN, MORE_SLOTS
from fastllmload.procedure.evidence import ALL, FAILED, Evidence
from fastllmload.procedure.sequential import (
    Decision,
    Plan,
    Ratio,
    decide_growth,
    decide_share,
    growth_bound,
    ratio,
    requests_needed,
    seems_to_grow,
    share_interval,
)

FILLING = 0.25  # of the window: a request that takes longer makes any queue look growing
SUSPICION = 0.2  # chance that a queue which does not grow seems to: then a level is looked at for longer, no more
SHARE, GROWTH, RATIO = "share", "requests/s", "ratio"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One test. *low*, *high*: one-sided bounds; *allowed*: what is compared with them. *veto*: it can only fail."""

    name: str
    decision: Decision
    value: float | None
    low: float | None
    high: float | None
    allowed: float
    unit: str
    veto: bool = False
    note: str = ""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """Of one level after some looks. On *limited* of *looks* the client was the limit, for the reasons *limits*; where
    there were others, these decided alone.
    """

    decision: Decision
    parts: tuple[Part, ...]
    limits: tuple[str, ...] = ()
    limited: int = 0
    looks: int = 0

    @property
    def reason(self) -> str:
        """The parts that decided, in words."""
        if self.decision is Decision.CLIENT:
            return client_words(self.limits, self.looks)
        chosen = [part for part in self.parts if part.decision is self.decision] or list(self.parts)
        words = [part_words(part) for part in chosen if not (part.veto and self.decision is Decision.PASS)]
        if 0 < self.limited < self.looks:
            words.append(set_aside(self.limited, self.looks))
        return "; ".join(words)


def client_words(limits: Sequence[str], looks: int) -> str:
    """Why nothing is known of a level after *looks* looks."""
    more = f" (and {len(limits) - 1} more)" if len(limits) > 1 else ""
    where = f" in each of {looks} looks" if looks > 1 else ""
    return f"the client was the limit{where}" + (f": {limits[-1]}{more}" if limits else "")


def set_aside(limited: int, looks: int) -> str:
    """Of looks that decided nothing, for a table's cell."""
    return f"{limited} of {looks} looks set aside: there the client was the limit"


def part_words(part: Part) -> str:
    """`ttft: 2.3% over the limit (1.1% to 4.2%), allowed 1%`."""
    if part.value is None:
        return f"{part.name}: {part.note or 'not measured'}"
    if part.unit == SHARE:
        text = f"{100 * part.value:.3g}% ({100 * (part.low or 0):.3g} to {100 * (part.high or 0):.3g}%), allowed"
        return f"{part.name}: {text} {100 * part.allowed:.3g}%" + (f"; {part.note}" if part.note else "")
    if part.unit == RATIO:
        value, low, high = (in_percent_more(end or 0.0) for end in (part.value, part.low, part.high))
        return f"{part.name}: {value:+.3g}% ({low:+.3g} to {high:+.3g}%), needed {100 * part.allowed - 100:+.3g}%"
    text = f"{part.value:+.3g} {part.unit} ({part.low or 0:+.3g} to {part.high or 0:+.3g}), allowed {part.allowed:.3g}"
    return f"{part.name}: {text}" + (f"; {part.note}" if part.note else "")


def in_percent_more(times: float) -> float:
    """1.05 -> 5; what only the rounding of floats makes of a gain is 0."""
    return round(100 * times - 100, 6) + 0.0  # no -0


SEEMS_TO_GROW = "it seems to grow, which only a longer look can tell"

CASCADE = Part(
    name="cascading failure", decision=Decision.FAIL, value=None, low=None, high=None, allowed=0.5, unit=SHARE,
    veto=True, note="more than half of 100 requests in a row failed",
)  # fmt: skip


@dataclass(frozen=True)
class ShareLimit:
    """At most the share *allowed* of the requests may miss objective *key* (`ttft`, FAILED, ALL)."""

    name: str
    key: str
    allowed: float

    def part(self, runs: Sequence[Evidence], alpha: float) -> Part:
        found = share_interval([run.severities[self.key] for run in runs], alpha)
        decision = decide_share(found, self.allowed)
        needed, note = requests_needed(self.allowed, alpha), ""
        if decision is Decision.UNDECIDED and found is not None and found.effective < needed:
            note = f"says as much as {found.effective:,.0f} independent requests, {needed:,} are needed"
        value, low, high = (None, None, None) if found is None else (found.value, found.low, found.high)
        return Part(
            name=self.name,
            decision=decision,
            value=value,
            low=low,
            high=high,
            allowed=self.allowed,
            unit=SHARE,
            note=note,
        )


@dataclass(frozen=True)
class Goal:
    """*shares* must all hold. *width*: of the answer, by level; an open loop's queue must grow by less.

    *sustain*: the queue's growth (of a closed loop, the gain) is part of the goal. Else growth can fail a level, and one
    whose queue only seems to grow is looked at for longer.
    """

    name: str
    sentence: str
    shares: tuple[ShareLimit, ...]
    width: Callable[[float], float]
    closed: bool = False
    sustain: bool = False

    def growth_left(self, runs: Sequence[Evidence], plan: Plan) -> float:
        """Requests/s by which the queue of an open loop may grow at a level that passed on its latencies, by its *runs*.

        A server that gets so much less does keep up; inf where nothing is known.
        """
        if self.closed or self.sustain:
            return 0.0
        return growth_bound([run.growth for run in believed(runs)], self._alpha(plan))

    def claim(self, level: float, tested: Collection[float] = (), growth: float = 0.0) -> float:
        """What is known when *level* passes: the answer is at least so high. *tested*: all levels. *growth*: what is
        left of the queue's at this level, `growth_left`.

        The gain of a closed loop is over a straight line between two tested levels. Throughput that stops rising bends
        away above that line, so a pass says only that it rose somewhere above the lower of the two; unless they are
        neighbours.
        """
        if not self.sustain:
            return max(0.0, level - growth)
        if not self.closed:
            return max(0.0, level - self.width(level))
        below, above = around(level, tested)
        return level if below is None or above - below <= self.width(level) else below

    def reference(self, level: float, tested: Collection[float]) -> float | None:
        """The slots to measure so that the gain of *level* leans on neighbours; None where it does, or needs none."""
        below, above = around(level, tested)
        if not (self.sustain and self.closed) or below is None or above - below <= self.width(level):
            return None
        load = level / MORE_SLOTS
        near = (float(math.floor(load)), float(math.ceil(load)))
        return next((at for at in near if below < at < above), None)

    def judge(
        self, level: float, runs: Sequence[Evidence], plan: Plan, lower: Mapping[float, Sequence[Evidence]]
    ) -> Judgement:
        """*runs*: all looks so far. *lower*: those of all lower levels, for the gain of a closed loop.

        Looks on which the client was the limit are set aside as soon as there is another. Alone they may still pass a
        level that they offered in full: what the client did late can only have made the latencies worse.
        """
        clean = [run for run in runs if not run.limited]
        found = self._decide(level, believed(runs), plan, lower)
        limited = [run for run in runs if run.limited]
        if not limited:
            return found
        decision = found.decision
        unsound = decision is Decision.FAIL or not all(run.offered_in_full for run in limited)
        if not clean and decision is not Decision.UNDECIDED and unsound:
            decision = Decision.CLIENT
        limits = tuple(dict.fromkeys(reason for run in limited for reason in run.limited))
        return Judgement(decision=decision, parts=found.parts, limits=limits, limited=len(limited), looks=len(runs))

    def _decide(
        self, level: float, runs: Sequence[Evidence], plan: Plan, lower: Mapping[float, Sequence[Evidence]]
    ) -> Judgement:
        alpha = self._alpha(plan)
        parts = [limit.part(runs, alpha) for limit in self.shares]
        if not self.closed:
            parts.append(self._growth(level, runs, alpha))
        elif self.sustain:
            parts.append(gain(level, runs, lower, alpha))
        if any(run.cascading for run in runs):
            parts.append(CASCADE)
        needed = [part.decision for part in parts if not part.veto]
        suspect = any(part.veto and part.note == SEEMS_TO_GROW for part in parts)
        if any(part.decision is Decision.FAIL for part in parts):
            decision = Decision.FAIL
        else:
            held = all(one is Decision.PASS for one in needed) and not suspect
            decision = Decision.PASS if held else Decision.UNDECIDED
        return Judgement(decision=decision, parts=tuple(parts))

    def _alpha(self, plan: Plan) -> float:
        """Of one of the tests that a look is decided by."""
        return plan.alpha_per_look / (len(self.shares) + 1)

    def _growth(self, level: float, runs: Sequence[Evidence], alpha: float) -> Part:
        width = self.width(level)
        decision, found = decide_growth([run.growth for run in runs], alpha, width)
        slow = [run for run in runs if run.service_s is not None and run.service_s > FILLING * run.seconds]
        note = ""
        if slow and decision is Decision.FAIL:
            decision, note = Decision.UNDECIDED, "requests take too long for levels of this length"
        elif (
            not self.sustain
            and decision is Decision.UNDECIDED
            and seems_to_grow([run.growth for run in runs], SUSPICION)
        ):
            note = SEEMS_TO_GROW
        elif decision is Decision.UNDECIDED and found is not None and found.half > 0:
            times = (2 * found.half / width) ** 2
            if times > 1:
                note = f"needs about {times * sum(run.seconds for run in runs):,.0f} s of measurement"
        value, half = (None, 0.0) if found is None else (found.value, found.half)
        return Part(
            name="queue growth", decision=decision, value=value, low=None if value is None else value - half,
            high=None if value is None else value + half, allowed=width, unit=GROWTH, veto=not self.sustain, note=note,
        )  # fmt: skip


def believed(runs: Sequence[Evidence]) -> Sequence[Evidence]:
    """The looks that decide: those on which the client was not the limit, all where there is none."""
    return [run for run in runs if not run.limited] or runs


def around(level: float, tested: Collection[float]) -> tuple[float | None, float]:
    """The levels of *tested* between which level / 1.25 lies; None below the lowest."""
    load = level / MORE_SLOTS
    below = max((at for at in tested if at <= load), default=None)
    return below, min((at for at in tested if at >= load), default=level)


def gain(level: float, runs: Sequence[Evidence], lower: Mapping[float, Sequence[Evidence]], alpha: float) -> Part:
    """Output tokens/s over those at level / 1.25, on straight lines between the tested levels: at least 5% more."""
    rates = {at: token_rate(found, alpha) for at, found in {**lower, level: runs}.items()}
    known = {0.0: (0.0, 0.0)} | {at: (rate.value, rate.half) for at, rate in rates.items() if rate is not None}
    allowed = 1 + GAIN
    if not lower or level not in known or known[level][0] <= 0:
        decision = Decision.UNDECIDED if lower else Decision.PASS
        note = "no tokens were received" if lower else "no lower level was tested"
        return Part(
            name="gain", decision=decision, value=None, low=None, high=None, allowed=allowed, unit=RATIO, note=note
        )
    share, half = share_below(level, known)
    low, value = 1 / (share + half), 1 / share
    high = 1 / (share - half) if share > half else math.inf
    decision = Decision.PASS if low >= allowed else Decision.FAIL if high < allowed else Decision.UNDECIDED
    return Part(name="gain", decision=decision, value=value, low=low, high=high, allowed=allowed, unit=RATIO)


def token_rate(runs: Sequence[Evidence], alpha: float) -> Ratio | None:
    """Output tokens/s over all runs of a level."""
    return ratio([run.tokens for run in runs], [np.full(len(run.tokens), run.part_s) for run in runs], alpha)


def share_below(level: float, known: Mapping[float, tuple[float, float]]) -> tuple[float, float]:
    """Rate at level / 1.25 over that at *level*, with its half-width; *known*: rate and half-width by level.

    Where *level* itself is the upper neighbour, its own part of the line has no error.
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
