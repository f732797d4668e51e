"""Compares one run a side, both of the same plan: each request of one run with the same request of the other.

This removes the effects of the plan (lengths, bursts of arrivals) from the difference. What one run alone has (requests
or sessions that failed in the other) is in the block of its neighbours: figures are of it too. Neighbouring requests share
batches and queues, so blocks of consecutive requests are resampled, with both requests of a pair in the same block. The
correlation of neighbouring blocks widens the interval, and Student's t has few degrees of freedom where few parts of the
run are independent. A queue near its limit is correlated for longer than a block: correlated neighbours are therefore
also merged, and the widest interval is used. Where the levels of both runs wander, as with the backlog of a server near
its limit, the difference grows with the backlog and its scatter about one ratio is too small: the plain differences of
the blocks are judged as well. Runs that drift apart have no difference that one figure could state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from fastllmload.arrays import Floats, Numbers, Values
from fastllmload.compare.change import Change, Pair, plain, scaled, undecided
from fastllmload.compare.figure import ComparedFigure
from fastllmload.statistics.batches import (
    BATCHES,
    MOST_CORRELATED,
    batch_edges,
    batch_means,
    block_weights,
    long_run,
    resampled_means,
    resampled_percentiles,
)
from fastllmload.statistics.interval import BEYOND, BULK, DRIFTING, LEAST_INDEPENDENT, MOST_BEYOND, Sample
from fastllmload.statistics.student import t_quantile, t_two_sided
from fastllmload.statistics.trend import drift

PAIRED = "paired blocks of requests within one run a side"
LEAST_PARTNERED = 0.9  # share of each side's requests; with fewer, the pairs do not represent the figures
LEAST_DF = 3
# Relative standard error between runs of one server, which no single run shows. Equal runs of the simulated engine
# differ by 0.05 to 0.4 % in mean TPOT and E2E (`bench/statistical/compare_runs.py` makes such runs).
BETWEEN_RUNS = 0.005
FEW = 8  # blocks; the correlation of neighbours cannot be estimated from fewer
MERGED = (2, 4)  # blocks merged into one
CORRELATED = 0.2  # correlation of neighbouring blocks from which they are merged
MOST_BACKLOG_CORRELATION = 0.95  # of neighbouring blocks of a backlog; at 1 a run would contain no information
BACKLOG = 0.3  # standard deviation of the blocks' levels over their mean from which there is a backlog
LEAST_DRIFT = 0.2  # of the base's level: a difference that changes by as much within the runs is not one difference
DRIFT_P = 0.001  # p below which the difference changed; low, since every comparison is tested


@dataclass(frozen=True)
class Blocks:
    """All values of a side by block, and the borders of the blocks in them."""

    values: Values
    edges: Numbers

    @classmethod
    def of(cls, sample: Sample) -> Blocks:
        return cls(sample.values, sample.edges())

    def resampled(self, q: float | None, weights: Floats) -> Floats:
        """The mean (*q* None) or percentile of each resample."""
        if q is None:
            return resampled_means(self.values, self.edges, weights)
        return resampled_percentiles(self.values, self.edges, q, weights)

    def own(self, q: float | None) -> float:
        return float(self.values.mean() if q is None else np.quantile(self.values, q))


@dataclass(frozen=True)
class Pairs:
    """Values of the same requests on both sides, in the base's order of time. *blocks*: all values of each side, also of
    requests without a partner, which the figures of run.json are of; None where there are no others.
    """

    a: Sample
    b: Sample
    blocks: tuple[Blocks, Blocks] | None = None

    @property
    def n(self) -> int:
        return self.a.units

    @property
    def sides(self) -> tuple[Blocks, Blocks]:
        return self.blocks or (Blocks.of(self.a), Blocks.of(self.b))


def pairs_of_requests(a: Sample, b: Sample, of_a: Numbers, of_b: Numbers) -> Pairs | None:
    """Pair the units by request number (*of_a*, *of_b*). None where numbers repeat, or where a smaller share than
    LEAST_PARTNERED has a partner.
    """
    if min(len(of_a), len(of_b)) == 0 or any(len(np.unique(each)) < len(each) for each in (of_a, of_b)):
        return None
    found = common_units(a, b, of_a, of_b)
    return None if found.n / max(len(of_a), len(of_b)) < LEAST_PARTNERED else found


def common_units(a: Sample, b: Sample, of_a: Numbers, of_b: Numbers) -> Pairs:
    """Those whose number, which no side has twice, is on both sides."""
    _, at_a, at_b = np.intersect1d(of_a, of_b, assume_unique=True, return_indices=True)
    order = np.argsort(at_a)
    places = at_a[order], at_b[order]
    found = Pairs(_chosen(a, places[0]), _chosen(b, places[1]))
    others = found.n < max(a.units, b.units) and found.n >= BATCHES
    return replace(found, blocks=(in_blocks(a, places[0]), in_blocks(b, places[1]))) if others else found


def in_blocks(sample: Sample, paired: Numbers) -> Blocks:
    """All values of *sample*, whose units *paired* make the blocks in that order. Another unit is in the block of the last
    such unit before it in time, or of the first one.
    """
    block = np.full(sample.units, -1)
    block[paired] = np.repeat(np.arange(BATCHES), np.diff(batch_edges(len(paired))))
    latest = np.maximum.accumulate(np.where(block >= 0, np.arange(sample.units), -1))
    block = block[np.where(latest < 0, paired.min(), latest)]
    order = np.argsort(block, kind="stable")
    chosen, edges = _chosen(sample, order), np.searchsorted(block[order], np.arange(BATCHES + 1))
    return Blocks(chosen.values, edges if chosen.first is None else chosen.first[edges])


def _chosen(sample: Sample, units: Numbers) -> Sample:
    """The values of *units*, in their order."""
    if len(units) == sample.units and (np.diff(units) == 1).all():
        return sample
    if sample.first is None:
        values = sample.values[units]
        return Sample(values, np.sort(values), called=sample.called)
    sizes = np.diff(sample.first)[units]
    first = np.concatenate([[0], np.cumsum(sizes)])
    values = sample.values[np.arange(first[-1]) + np.repeat(sample.first[units] - first[:-1], sizes)]
    return Sample(values, np.sort(values), first, called=sample.called)


def change_of_pairs(figure: ComparedFigure, pairs: Pairs, values: Pair, effect: float) -> Change:
    """*values*: the figure of base and new, as in their run.json; *effect*: the superiority of the new side."""
    return replace(_change(figure, pairs, values, effect), pairs=pairs.n)


def _change(figure: ComparedFigure, pairs: Pairs, values: Pair, effect: float) -> Change:
    if pairs.n < LEAST_INDEPENDENT:
        return undecided(*values, f"{pairs.n} pairs of {pairs.a.called} are too few to estimate their correlation")
    q = figure.level
    dependence = max(dependence_of(pairs, each) for each in {None, *BULK, q})
    needed = beyond_needed(pairs, dependence, q)
    if needed is not None:
        why = f"{figure.statistic} needs about {needed:,} pairs of {pairs.a.called} like these; there are {pairs.n:,}"
        return undecided(*values, why, ("each side", needed))
    moved = drifted_apart(pairs)
    if moved is not None:
        first, then = (f"{100 * each:+,.0f} %" for each in moved)
        return undecided(*values, f"the runs drift apart: they differ by {first} on average, then by {then}")
    return _judged(pairs, q, values, pairs.n / (2 * dependence), effect)


def _judged(pairs: Pairs, q: float | None, values: Pair, most_df: float, effect: float) -> Change:
    """Interval and p, from logarithms (of a ratio) where all values are positive."""
    drawn = [side.resampled(q, weights(1)) for side in pairs.sides]
    without = [side.resampled(q, 1 - np.eye(BATCHES)) for side in pairs.sides]
    logs = min(float(each.min()) for each in (*drawn, *without)) > 0 and min(values) > 0
    if logs:
        drawn, without = [np.log(each) for each in drawn], [np.log(each) for each in without]
        observed, floor = math.log(values[1] / values[0]), BETWEEN_RUNS
    else:
        observed, floor = values[1] - values[0], BETWEEN_RUNS * max(map(abs, values))
        unit = pairs.sides[0].own(q) / values[0] if values[0] else 1.0
        drawn, without = [each / unit for each in drawn], [each / unit for each in without]
    spread = float((drawn[1] - drawn[0]).std())
    errors = _errors(spread, without[1] - without[0], floor, most_df)
    errors += [(math.hypot(spread * grown, floor), df) for grown, df in _backlog_errors(pairs)]
    half = max(t_quantile(0.975, df) * error for error, df in errors)
    p = max(t_two_sided(observed / error, df) if error > 0 else float(observed == 0) for error, df in errors)
    low, high = observed - half, observed + half
    if logs:
        relative = math.expm1(low), math.expm1(high)
        ends = relative[0] * values[0], relative[1] * values[0]
        return Change(*plain(*values), ends, relative, PAIRED, p, None, effect, "superiority")
    return Change(*plain(*values), (low, high), scaled((low, high), values[0]), PAIRED, p, None, effect, "superiority")


def _errors(spread: float, without: Floats, floor: float, most_df: float) -> list[Pair]:
    """Standard errors and their degrees of freedom, by blocks and by merged blocks.

    *spread*: of the resampled differences; *without*: the difference without each block.
    """
    error = spread * math.sqrt(BATCHES / (BATCHES - 1))
    df = min(max(min(most_df, effective_blocks(without)) - 1, LEAST_DF), BATCHES - 1)
    found = [
        (error * _correlation_factor(without), df),
        *((error * grown, float(n - 1)) for grown, n in _merged_blocks(without)),
    ]
    return [(math.hypot(each, floor), df) for each, df in found]


def drifted_apart(pairs: Pairs) -> Pair | None:
    """Relative differences of the means before and after a drift; None without drift, or where a block is empty."""
    means = _levels(pairs)
    if means is None:
        return None
    found = drift((means[1] - means[0]) / float(np.mean(means[0])))
    ways = ((found.p, found.first, found.second), (found.p_step, found.before, found.after))
    p, before, after = min(ways, key=lambda way: way[0])
    return (before, after) if p < DRIFT_P and abs(after - before) >= LEAST_DRIFT else None


def _levels(pairs: Pairs) -> tuple[Floats, Floats] | None:
    """Mean of each block of base and new; None where a block is empty or the base's mean is not positive."""
    sides = (pairs.a, pairs.b)
    if not all(np.diff(side.edges()).all() for side in sides):
        return None
    a, b = (np.array([part.mean() for part in np.split(side.values, side.edges()[1:-1])], np.float64) for side in sides)
    return (a, b) if a.mean() > 0 else None


def _backlog_errors(pairs: Pairs) -> list[Pair]:
    """For runs whose levels wander: factor on the standard error of a ratio, and degrees of freedom, from the plain
    differences of the blocks. Their correlation is corrected for bias (Kendall 1954), which is large near 1.
    """
    levels = _levels(pairs)
    if levels is None or not all(_has_backlog(each) for each in levels):
        return []
    a, b = levels
    differences, about_one_ratio = b - a, b / b.mean() * a.mean() - a
    scatter = float(about_one_ratio.var())
    if scatter <= 0:
        return []
    r = min(_neighbour_correlation(differences) / (1 - 4 / BATCHES), MOST_BACKLOG_CORRELATION)
    wider = (1 + r) / (1 - r)
    return [(math.sqrt(float(differences.var()) / scatter * wider), max(BATCHES / wider, LEAST_DF))]


def _has_backlog(level: Floats) -> bool:
    """Whether the levels wander widely. Batch sizes wander too, but change the time of a token by less."""
    return float(level.std() / level.mean()) >= BACKLOG and _neighbour_correlation(level) >= DRIFTING


@cache
def weights(seed: int) -> Floats:
    return block_weights(BATCHES, seed=seed)


def resampled(sample: Sample, q: float | None, weights: Floats) -> Floats:
    """The mean (*q* None) or percentile of each resample."""
    return Blocks.of(sample).resampled(q, weights)


def own(sample: Sample, q: float | None) -> float:
    return float(sample.values.mean()) if q is None else sample.at(q)


def _correlation_factor(without: Floats) -> float:
    """Factor on the standard error for the correlation of neighbours, from the figure *without* each block."""
    r = min(_neighbour_correlation(without), MOST_CORRELATED)
    return math.sqrt((1 + r) / (1 - r))


def _neighbour_correlation(blocks: Floats) -> float:
    """Correlation of neighbouring blocks, corrected for the bias of uncorrelated ones; 0 at least."""
    centred = blocks - blocks.mean()
    squares = float(np.dot(centred, centred))
    return max(float(np.dot(centred[1:], centred[:-1])) / squares + 1 / len(centred), 0.0) if squares > 0 else 0.0


def _merged_blocks(without: Floats) -> list[tuple[float, int]]:
    """For correlated neighbours: factors on the standard error with blocks merged, and the number of merged blocks. With
    fewer than FEW blocks their own correlation is not corrected for, as it cannot be estimated.
    """
    centred, found = without - without.mean(), []
    if _neighbour_correlation(without) <= CORRELATED:
        return []
    one = float(centred.var(ddof=1)) / BATCHES
    for many in MERGED:
        means = centred.reshape(-1, many).mean(axis=1)
        grown = math.sqrt(float(means.var(ddof=1)) / len(means) / one)
        found.append((grown * (_correlation_factor(means) if len(means) >= FEW else 1.0), len(means)))
    return found


def effective_blocks(without: Floats) -> float:
    """Effective number of blocks in the spread: BATCHES for normal deviations, fewer where some outweigh the rest."""
    squares = (without - without.mean()) ** 2
    fourth = float(np.dot(squares, squares))
    return 3 * float(squares.sum()) ** 2 / fourth if fourth > 0 else float(BATCHES)


def dependence_of(pairs: Pairs, q: float | None) -> float:
    """How many pairs equal one independent pair, 1 at least: for the mean, or for the shares above a percentile."""
    differences = _contributions(pairs.b, q) - _contributions(pairs.a, q)
    scatter = float(differences.var())
    if scatter <= 0:
        return 1.0
    return max(1.0, long_run(batch_means(differences), scatter).variance * len(differences) / scatter)


def _contributions(sample: Sample, q: float | None) -> Floats:
    """Relative contribution of each unit to the figure."""
    values = np.asarray(sample.values, np.float64)
    mean = float(values.mean()) or 1.0
    each: Floats = (values - values.mean()) / mean
    if q is not None:
        each = np.where(values > sample.at(q), q, q - 1)
    if sample.first is None:
        return each
    sums = np.concatenate([[0.0], np.cumsum(each)])[sample.first]
    found: Floats = np.diff(sums) * (sample.units / len(sample.values))
    return found


def beyond_needed(pairs: Pairs, dependence: float, q: float | None) -> int | None:
    """Number of pairs needed for enough of them beyond the percentile, on its thinner side; None if *pairs* suffice."""
    least = min(BEYOND * math.sqrt(dependence), MOST_BEYOND)
    if q is None or pairs.n * min(q, 1 - q) >= least:
        return None
    return math.ceil(least / min(q, 1 - q))
