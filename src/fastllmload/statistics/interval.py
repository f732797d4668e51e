"""95 % intervals of percentiles, means and rates of one run, for latencies that depend on each other.

Percentiles: the share of values above the percentile is a mean like any other, so its uncertainty comes from batch
means; the interval of the share, read back through the ordered sample, is the interval of the percentile (Woodruff
1952). No density, no distribution. What it needs and how well it covers: docs/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from fastllmload.arrays import Floats, Mask, Numbers, Values
from fastllmload.statistics.batches import BATCHES, LongRun, batch_edges, long_run
from fastllmload.statistics.order_statistics import Ordered
from fastllmload.statistics.student import CONFIDENCE, beta_quantile, t_quantile

BULK = (0.5, 0.75)  # percentiles whose dependence decides whether the sample supports an interval
LEAST_INDEPENDENT = 80  # equivalent independent values: 4 in each batch
BEYOND = 4.0  # equivalent independent values beyond a percentile, times the root of the inflation
MOST_BEYOND = 20.0
DRIFTING = 0.5  # correlation of neighbouring stretches of a window; occurs by chance once in 160 windows
SHORTEST_WINDOW = 10  # times the duration over which counted events are correlated
NARROWEST = 0.3  # lowest inflation used; below 1 for evenly spread values


@dataclass(frozen=True)
class ConfidenceInterval:
    """[low, high] in the unit of the values."""

    low: float
    high: float


@dataclass(frozen=True)
class NotEstimable:
    """No interval: the *reason*, and the number of such requests probably *needed* for one (None: more do not help)."""

    reason: str
    needed: int | None


Estimate = ConfidenceInterval | NotEstimable


@dataclass(frozen=True)
class Sample:
    """*values* in order of time, and *ordered*, the same ascending.

    Unit k (a request, or one of *called*) has the values `first[k]:first[k + 1]`; *first* None: one value each. *std*: of
    the values, dividing by n, if already known.
    """

    values: Values
    ordered: Ordered
    first: Numbers | None = None
    std: float | None = None
    called: str = "requests"

    @property
    def scatter(self) -> float:
        return float(self.values.var()) if self.std is None else self.std**2

    @property
    def units(self) -> int:
        return len(self.values) if self.first is None else len(self.first) - 1

    def edges(self) -> Numbers:
        """Borders of the batches, as positions in *values*; a batch is a stretch of whole units."""
        edges = batch_edges(self.units)
        return edges if self.first is None else self.first[edges]

    def at(self, level: float) -> float:
        """Type 7 percentile of the ordered values, *level* clipped to [0, 1]."""
        position = min(max(level, 0.0), 1.0) * (len(self.ordered) - 1)
        below = math.floor(position)
        above = min(below + 1, len(self.ordered) - 1)
        low, high = float(self.ordered[below]), float(self.ordered[above])
        return low + (position - below) * (high - low)


@cache
def t_of(batches: int = BATCHES) -> float:
    """Student's t quantile for two-sided intervals from *batches* batches."""
    return t_quantile((1 + CONFIDENCE) / 2, batches - 1)


def intervals(sample: Sample, levels: Mapping[str, float]) -> dict[str, Estimate]:
    """Intervals of the percentiles *levels* (name: share below), and of the mean under the name "mean"."""
    if sample.units < LEAST_INDEPENDENT:
        reason = f"{sample.units} {sample.called} are too few to see how they depend on each other"
        least = {name: max(LEAST_INDEPENDENT, math.ceil(BEYOND / min(q, 1 - q) - 1e-9)) for name, q in levels.items()}
        return {name: NotEstimable(reason, needed) for name, needed in {**least, "mean": LEAST_INDEPENDENT}.items()}
    edges = sample.edges()
    shares = {q: above_share(sample, edges, q) for q in {*BULK, *levels.values()}}
    bulk = max(1.0, *(inflation(shares[q], len(sample.values), q) for q in BULK))
    found: dict[str, Estimate] = {}
    for name, q in levels.items():
        found[name] = too_few(sample, bulk, q) or percentile_interval(sample, shares[q], q)
    found["mean"] = mean_interval(sample, edges, bulk)
    return found


def above_share(sample: Sample, edges: Numbers, q: float) -> LongRun:
    """Variance of the share of values above the q-percentile, which is 1 - q in every batch if it is exact."""
    bound = sample.at(q)
    sizes = np.diff(edges)
    whole = np.issubdtype(sample.values.dtype, np.integer)  # compared as they are: no float copy of all values
    least = math.floor(bound) if whole else bound
    counts = np.array([np.count_nonzero(sample.values[begin:end] > least) for begin, end in pairwise(edges.tolist())])
    share = counts.sum() / sizes.sum()
    # a share of a random size, linearised
    return long_run((counts - share * sizes) / sizes.mean(), float(share * (1 - share)))


def inflation(share: LongRun, n: int, q: float) -> float:
    """Variance of the share, as a multiple of that of *n* independent values."""
    return share.variance * n / (q * (1 - q))


def too_few(sample: Sample, bulk: float, q: float) -> NotEstimable | None:
    """None if the sample supports an interval of the q-percentile.

    Judged by the bulk of the values, not by the few beyond the percentile: those are uncertain, so runs that happen to
    have few of them would seem good.
    """
    n = len(sample.values)
    beyond = min(BEYOND * math.sqrt(bulk), MOST_BEYOND)
    least = max(LEAST_INDEPENDENT, beyond / min(q, 1 - q)) * bulk
    if n >= least:
        return None
    needed = math.ceil(least / n * sample.units)
    worth = f"values are as good as {n / bulk:,.0f} independent ones" if bulk >= 1.5 else f"{n:,} values"
    return NotEstimable(f"P{100 * q:g} needs about {needed:,} {sample.called} like these; {worth}", needed)


def percentile_interval(sample: Sample, share: LongRun, q: float) -> Estimate:
    """Interval of the share above the percentile (1 - q), with the skewness of rare counts, read back as values."""
    n = len(sample.values) / max(inflation(share, len(sample.values), q), NARROWEST)
    t = t_of()
    beyond, spread = n * (1 - q), t * math.sqrt(n * q * (1 - q))
    skew = (t * t - 1) * (2 * q - 1) / 6
    low, high = 1 - (beyond + spread + skew) / n, 1 - (beyond - spread + skew) / n
    least = 0.5 / len(sample.values)
    if low < least or high > 1 - least:
        needed = math.ceil(sample.units * MOST_BEYOND / (n * min(q, 1 - q)))
        return NotEstimable(
            f"P{100 * q:g}: values beyond it come in clusters, too few of them", max(needed, sample.units + 1)
        )
    return ConfidenceInterval(sample.at(low), sample.at(high))


def mean_interval(sample: Sample, edges: Numbers, bulk: float) -> Estimate:
    """Interval of the mean of the values; of a ratio if units have several values each."""
    n, sizes = len(sample.values), np.diff(edges)
    # Whole ns stay whole: 2^63 ns are 292 years. A batch may be empty: requests whose events were lost have no gaps.
    sums = np.array([sample.values[begin:end].sum() for begin, end in pairwise(edges.tolist())])
    mean = float(sums.sum()) / n
    spread = long_run((sums - mean * sizes) / sizes.mean(), sample.scatter)
    inflated = max(bulk, spread.variance * n / sample.scatter) if sample.scatter > 0 else bulk
    if n < LEAST_INDEPENDENT * inflated:
        needed = math.ceil(LEAST_INDEPENDENT * inflated / n * sample.units)
        return NotEstimable(f"the mean needs about {needed:,} {sample.called} like these", needed)
    return skewed_interval(mean, spread)


def skewed_interval(mean: float, spread: LongRun) -> ConfidenceInterval:
    """Student's t after Hall's (1992) cubic, which takes the skewness of the batch means out."""
    t, error = t_of(spread.batches), math.sqrt(spread.variance)
    g = spread.skewness / math.sqrt(spread.batches)
    return ConfidenceInterval(mean - error * _unskewed(t, g), mean - error * _unskewed(-t, g))


def _unskewed(t: float, g: float) -> float:
    if abs(g) < 1e-4:
        return t
    return float(3 / g * (np.cbrt(1 + g * (t - g / 6)) - 1))


def share_interval(outcomes: Mask) -> Estimate:
    """Of the share of true *outcomes*, in order of time: Clopper and Pearson's, on as many independent ones as these
    are worth (Korn and Graubard 1998). Where all are alike nothing is known of their dependence: taken for independent.
    """
    n, true = len(outcomes), int(np.count_nonzero(outcomes))
    if n < LEAST_INDEPENDENT:
        return NotEstimable(f"{n} requests are too few to see how they depend on each other", LEAST_INDEPENDENT)
    share, tail = true / n, (1 - CONFIDENCE) / 2
    worth = float(n)
    if 0 < true < n:
        sizes = np.diff(batch_edges(n))
        sums = np.add.reduceat(outcomes.astype(np.int64), batch_edges(n)[:-1])
        spread = long_run((sums - share * sizes) / sizes.mean(), share * (1 - share))
        normal = t_quantile(1 - tail, math.inf) / t_of()  # few batches: as if there were fewer requests
        worth = n / max(1.0, inflation(spread, n, share)) * normal**2
    hits, misses = worth * share, worth * (1 - share)
    low = beta_quantile(tail, hits, misses + 1) if hits > 0 else 0.0
    high = beta_quantile(1 - tail, hits + 1, misses) if misses > 0 else 1.0
    return ConfidenceInterval(low, high)


def rate_interval(amounts: Floats, seconds: float, lasting_s: float = 0.0) -> Estimate:
    """Interval of a rate per second, from the *amounts* of BATCHES equal stretches of a window of *seconds*.

    *lasting_s*: duration over which events are correlated, such as the mean time of a request. If neighbouring
    stretches are correlated, pairs of them are merged.
    """
    least = SHORTEST_WINDOW * lasting_s
    if seconds < least:
        return NotEstimable(f"a window of {seconds:.3g} s holds too few of {lasting_s:.3g} s; run {least:.3g} s", None)
    if np.count_nonzero(amounts) < BATCHES:
        return NotEstimable(f"nothing happened in some twentieth of the {seconds:.3g} s; run longer", None)
    for stretches in (BATCHES, BATCHES // 2):
        spread = long_run(amounts.reshape(stretches, -1).sum(axis=1) / (seconds / stretches))
        if spread.correlation < DRIFTING:
            return skewed_interval(float(amounts.sum()) / seconds, spread)
    return NotEstimable("the rate drifts: neighbouring tenths of the window are alike; run longer", None)
