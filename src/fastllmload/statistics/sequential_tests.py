"""Sequential tests of one load level with three outcomes: pass, fail, or undecided, which needs a longer trial.

Requests of one run depend on each other: a queue that is long now is long a second later. So a run is cut into equal
parts of time, and the error is the variance between parts, at the length of part where it is largest. The error rates
are stated: `SequentialPlan.alpha` bounds the probability that a search contains one wrong pass or fail, summed over its
trials.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

import numpy as np

from fastllmload.arrays import Floats, Mask
from fastllmload.statistics.batches import MOST_CORRELATED
from fastllmload.statistics.student import beta_quantile, t_quantile

SHORT = 0.25  # of the first trial that may pass a level: length of the trial that shows whether it is likely to hold
SHORT_ALPHA = 0.1  # of alpha: for short trials, which may fail a level but not pass it
LOWEST = 2  # shares of alpha to fail the lowest level by: if it fails, no other level needs one
PARTS = 30  # of the shortest trial; a longer one has parts of the same length
CORRELATED_PARTS = 10  # fewer do not show how much neighbours share
LEAST_PARTS = 5  # fewer give no usable variance
MERGES = (1, 2, 4, 8, 16)  # parts taken together: a queue is correlated over more than one part
FEW = 5  # independent bad (or good) requests; with fewer, their clustering is estimated at a lower limit
SURROGATES = (0.9, 0.75)  # quantiles of the severity
HALVINGS = 20  # of the range in which a bound is searched for
FAR = 1 / 50  # of the limit: if all requests are below it, their clustering says nothing about requests above the limit


class Decision(StrEnum):
    """Outcome of a level. CLIENT: unknown, because the client was the limit."""

    PASS = "pass"
    FAIL = "fail"
    UNDECIDED = "undecided"
    CLIENT = "client limited"


@dataclass(frozen=True)
class SequentialPlan:
    """Error rates and lengths of the trials of one search.

    *alpha*: probability of any wrong pass or fail in a search of at most *levels*, each with up to *trials* trials after
    a short one (SHORT of the first), which can only fail it, at a smaller error rate. Trial r lasts up to 2^r times as
    long as the first and is pooled with those before it. At most *tests* trials of a search may decide, re-tests
    included; one of the lowest level counts as LOWEST of them. *short*: 1, or 0 for no short trials, so that each trial
    may decide. *short_alone*: the plan for a decision by a short trial alone; *lowest*: for failing the lowest level.
    """

    alpha: float = 0.05
    levels: int = 12
    trials: int = 3
    short: int = 1
    short_alone: bool = False
    lowest: bool = False

    @property
    def tests(self) -> int:
        return self.levels + self.trials + 1 if self.short else self.levels * (self.trials + 1)

    def length(self, number: int) -> float:
        """Longest length of trial *number*, in units of the first one that may pass the level: 1/4, 1, 2, 4. Those that
        only the lowest level has are as long as the last of the others.
        """
        return SHORT if number < self.short else float(2 ** min(number - self.short, self.trials - 1))

    @property
    def longest(self) -> float:
        """Length of all trials of a level together, in first trials."""
        return sum(self.length(number) for number in range(self.trials + self.short))

    @property
    def alpha_per_trial(self) -> float:
        """One-sided error rate of one test: a level can be wrong in one direction only."""
        if self.short_alone:
            return self.alpha * SHORT_ALPHA / self.levels
        share = self.alpha * (1 - SHORT_ALPHA * self.short) / self.tests
        return LOWEST * share if self.lowest else share

    @property
    def for_short_trial(self) -> SequentialPlan:
        return replace(self, short_alone=True)

    @property
    def for_lowest_level(self) -> SequentialPlan:
        """The plan for the lowest level; unchanged without short trials, because all levels are decided in turn then."""
        return replace(self, lowest=bool(self.short))


@dataclass(frozen=True)
class Ratio:
    """sum(a) / sum(b) over parts, with the half-width of its one-sided interval."""

    value: float
    half: float
    deviation: float  # standard error at the size of parts that gave *half*
    parts: int  # parts at that size


def merged(values: Floats, size: int) -> Floats:
    """Sums of *size* neighbouring parts; the last may be shorter."""
    return np.add.reduceat(values, np.arange(0, len(values), size))


def ratio(a: Sequence[Floats], b: Sequence[Floats], alpha: float, lasting: bool = False) -> Ratio | None:
    """Ratio of sums over the parts of one or more runs; None below five parts or without any *b*.

    The interval is the widest over the sizes of parts that leave at least five of them. *lasting*: dependence may last
    longer than the largest part, so the correlation of neighbouring parts widens it further.
    """
    total = float(sum(part.sum() for part in b))
    if total <= 0:
        return None
    value = float(sum(part.sum() for part in a)) / total
    rests = [x - value * y for x, y in zip(a, b, strict=True)]
    deviations = []
    for size in MERGES:
        pieces = [merged(one, size) for one in rests]
        rest = np.concatenate(pieces)
        if len(rest) >= LEAST_PARTS:
            wider = math.sqrt(widening(pieces)) if lasting and len(rest) >= CORRELATED_PARTS else 1.0
            deviations.append(wider * math.sqrt(float(np.dot(rest, rest)) * len(rest) / (len(rest) - 1)) / total)
    if not deviations:
        return None
    parts = sum(len(one) for one in rests)
    return Ratio(value, quantile(1 - alpha, parts - 1) * max(deviations), max(deviations), parts)


def widening(runs: Sequence[Floats]) -> float:
    """Factor on the variance of a sum over parts for the correlation of neighbours, if that decays exponentially."""
    squares = sum(float(np.dot(one, one)) for one in runs)
    if squares <= 0:
        return 1.0
    lagged = sum(float(np.dot(one[1:], one[:-1])) for one in runs) / squares + 1 / sum(len(one) for one in runs)
    shared = min(max(lagged, 0.0), MOST_CORRELATED)
    return (1 + shared) / (1 - shared)


@lru_cache(maxsize=4096)
def quantile(p: float, df: float) -> float:
    """t_quantile with a cache: a search needs few different ones."""
    return t_quantile(p, df)


def cut(at_s: Floats, chosen: Mask, seconds: float, parts: int) -> Floats:
    """Number of *chosen* events, at times *at_s* in [0, seconds), in each of *parts* equal parts."""
    counts, _ = np.histogram(at_s[chosen], bins=parts, range=(0.0, seconds))
    return counts.astype(np.float64)


@dataclass(frozen=True)
class Severities:
    """Requests of one run: submission times *at_s* in the window of *seconds*, value / limit of each; above 1 is bad.

    inf: failed. *parts*: equal parts of time that the window is cut into.
    """

    at_s: Floats
    severity: Floats
    seconds: float
    parts: int

    def over(self, limit: float) -> tuple[Floats, Floats]:
        """Requests above *limit* and all requests, by part."""
        everything = np.ones(len(self.at_s), np.bool_)
        above = cut(self.at_s, self.severity > limit, self.seconds, self.parts)
        return above, cut(self.at_s, everything, self.seconds, self.parts)


@dataclass(frozen=True)
class Proportion:
    """Share of bad requests with one-sided bounds; *effective*: equivalent number of independent requests."""

    value: float
    low: float
    high: float
    requests: int
    effective: float


def share_interval(runs: Sequence[Severities], alpha: float) -> Proportion | None:
    """Bounds of the share of bad requests, each wrong with probability *alpha* (Korn and Graubard 1998).

    Clopper-Pearson for the number of independent requests that would have this variance. If that gives fewer than
    five independent bad (or good) ones, their clustering is also estimated from the worst tenth and the worst quarter of the
    requests, unless all lie far below the limit. None without requests or below five parts.
    """
    n = sum(len(run.at_s) for run in runs)
    bad = sum(int((run.severity > 1).sum()) for run in runs)
    if n == 0 or sum(run.parts for run in runs) < LEAST_PARTS:
        return None
    p = bad / n
    effective = effective_size(runs, 1.0, n, alpha)
    if min(p, 1 - p) * effective < FEW:
        everything = np.concatenate([run.severity for run in runs])
        limits = [float(np.quantile(everything, q, method="lower")) for q in SURROGATES]
        if float(everything.max()) > FAR:
            effective = min(effective, *(effective_size(runs, limit, n, alpha) for limit in limits))
    return Proportion(p, lower(p, effective, alpha), upper(p, effective, alpha), n, effective)


def effective_size(runs: Sequence[Severities], limit: float, n: int, alpha: float) -> float:
    """Number of independent requests whose share above *limit* would be as uncertain; from 1 to *n*."""
    above = [run.over(limit) for run in runs]
    found = ratio([a for a, _ in above], [b for _, b in above], alpha, lasting=True)
    if found is None or found.half == 0:
        return float(n)
    z = quantile(1 - alpha, math.inf)
    size = found.value * (1 - found.value) * (z / found.half) ** 2
    return float(min(n, max(1.0, size)))


def share_within_reach(
    found: Proportion | None, allowed: float, times: float, alpha: float, optimism: float
) -> tuple[bool, bool]:
    """Whether *times* as many requests might prove that the share is at most *allowed*; and that it is above. The share
    is assumed *optimism* standard errors lower, and higher, than measured.
    """
    if found is None:
        return True, True
    effective, error = found.effective * times, optimism * math.sqrt(found.value * (1 - found.value) / found.effective)
    low, high = (min(1.0, max(0.0, found.value + side * error)) for side in (-1, 1))
    return upper(low, effective, alpha) <= allowed, lower(high, effective, alpha) > allowed


def lower(share: float, n: float, alpha: float) -> float:
    """Clopper-Pearson lower bound for *share* of *n* independent requests."""
    return beta_quantile(alpha, share * n, (1 - share) * n + 1) if share > 0 else 0.0


def upper(share: float, n: float, alpha: float) -> float:
    """Clopper-Pearson upper bound for *share* of *n* independent requests."""
    return beta_quantile(1 - alpha, share * n + 1, (1 - share) * n) if share < 1 else 1.0


def decide_share(found: Proportion | None, allowed: float) -> Decision:
    """Whether at most the share *allowed* of all requests is bad."""
    if found is None:
        return Decision.UNDECIDED
    if found.low > allowed:
        return Decision.FAIL
    return Decision.PASS if found.high <= allowed else Decision.UNDECIDED


@dataclass(frozen=True)
class Growth:
    """Requests in flight at the borders of equal parts of a window of *seconds*.

    *spread*: highest less lowest at any instant of the window, inf if unknown. *jolt*: variance of the number of
    arrivals per second, at most their rate; 0 if unknown.
    """

    at_borders: Floats
    seconds: float
    spread: float = math.inf
    jolt: float = 0.0

    @property
    def steps(self) -> Floats:
        return np.diff(self.at_borders)

    @property
    def lengths(self) -> Floats:
        return np.full(len(self.at_borders) - 1, self.seconds / (len(self.at_borders) - 1))

    def later_half(self) -> float:
        """Growth per second over the later half of the window."""
        half = len(self.at_borders) // 2
        return float(self.at_borders[-1] - self.at_borders[half]) / float(self.lengths[half:].sum())


def drift(runs: Sequence[Growth], alpha: float) -> Ratio | None:
    """Growth of the requests in flight per second, over all runs."""
    return ratio([run.steps for run in runs], [run.lengths for run in runs], alpha)


def stays_in_band(runs: Sequence[Growth]) -> float:
    """Probability that the queue of a server that cannot keep up would have stayed in a band as narrow, or narrower.

    Such a server ends requests at its own rate, so arrivals alone make its queue a random walk. A walk with a floor
    stays within R of it for T seconds with a probability of (4 / pi) exp(-pi^2 var T / (8 R^2)); a rise makes that
    smaller.
    """
    exponent = sum(math.pi**2 * run.jolt * run.seconds / (8 * (run.spread + 1) ** 2) for run in runs)
    return min(1.0, (4 / math.pi) ** len(runs) * math.exp(-exponent))


def cannot_grow(runs: Sequence[Growth], growth_rate: float, variance: float) -> float:
    """Probability that a queue growing by at least *growth_rate* requests/s would have stayed as narrow and grown as
    little, or less. *variance*: upper bound of the variance of its growth per second.

    The probability of the band without a drift (`stays_in_band`) times exp(rate x / variance - rate^2 T / (2 variance)),
    the factor by which a drift changes that of a random walk that ended x higher after T seconds (Girsanov). Faster
    growth than *growth_rate* makes it smaller still, as long as the queue grew more slowly than that.
    """
    seconds = sum(run.seconds for run in runs)
    risen = sum(float(run.at_borders[-1] - run.at_borders[0]) for run in runs)
    band = stays_in_band(runs)
    if variance <= 0 or risen >= growth_rate * seconds:
        return band
    return band * math.exp(min(0.0, (growth_rate * risen - growth_rate**2 * seconds / 2) / variance))


def growth_variance(found: Ratio, seconds: float, alpha: float) -> float:
    """Upper bound of the variance per second of the growth *found*, by the half-width of its interval."""
    return seconds * (found.half / quantile(1 - alpha, math.inf)) ** 2


def decide_growth(runs: Sequence[Growth], alpha: float, tolerance: float) -> tuple[Decision, Ratio | None]:
    """Whether the queue grows by less than *tolerance* requests/s in the long run: by its slope, or by its band.

    A queue that is only filling up grows at first and then no more, so a level fails only if the later half of its runs
    grew at least half as fast as the runs as a whole. *alpha*: of a fail, and of each of the two ways to pass.
    """
    found = drift(runs, alpha)
    if found is None:
        return Decision.UNDECIDED, None
    if found.value - found.half > 0 and later_growth(runs) >= found.value / 2:
        return Decision.FAIL, found
    variance = growth_variance(found, sum(run.seconds for run in runs), alpha)
    flat = found.value + found.half < tolerance or cannot_grow(runs, tolerance, variance) <= alpha
    return (Decision.PASS if flat else Decision.UNDECIDED), found


def growth_within_reach(
    runs: Sequence[Growth], times: float, alpha: float, tolerance: float, optimism: float
) -> tuple[bool, bool]:
    """Whether *times* as many seconds might prove, by `decide_growth`, that the queue does not grow; and that it does.
    Growth is assumed *optimism* standard errors lower, and higher, than measured.
    """
    found = drift(runs, alpha)
    if found is None:
        return True, True
    seconds = sum(run.seconds for run in runs)
    half, error = found.half / math.sqrt(times), optimism * found.deviation
    longer = [replace(run, seconds=run.seconds * times) for run in runs]
    variance = growth_variance(found, seconds, alpha)
    flat = found.value - error + half < tolerance or cannot_grow(longer, tolerance, variance) <= alpha
    return flat, found.value + error - half > 0


def growth_bound(runs: Sequence[Growth], alpha: float, times: float = 1.0) -> float:
    """Upper bound of the queue's growth in requests/s; 0 if it kept a band that a server which cannot keep up would have
    left, inf if nothing is known. *alpha*: of each of the two ways to know. *times*: the bound expected if the runs
    continued alike for *times* as long.
    """
    found = drift(runs, alpha)
    if found is None:
        return math.inf
    variance = growth_variance(found, sum(run.seconds for run in runs), alpha)
    runs = [replace(run, seconds=run.seconds * times) for run in runs] if times > 1 else runs
    if stays_in_band(runs) <= alpha:
        return 0.0
    low, high = 0.0, max(0.0, found.value + found.half / math.sqrt(times))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if cannot_grow(runs, middle, variance) <= alpha else (middle, high)
    return high


def seems_to_grow(runs: Sequence[Growth], alpha: float) -> bool:
    """Whether growth is significant at *alpha* and continued in the later half of the runs."""
    found = drift(runs, alpha)
    return found is not None and found.value - found.half > 0 and later_growth(runs) >= found.value / 2


def later_growth(runs: Sequence[Growth]) -> float:
    return float(np.average([run.later_half() for run in runs], weights=[run.seconds for run in runs]))


def requests_needed(allowed: float, alpha: float) -> int:
    """Number of independent requests, all good, that prove a share of at most *allowed*."""
    return math.ceil(math.log(alpha) / math.log1p(-allowed))
