"""Compares one run a side, with intervals from the variation within the runs.

Blocks of requests in order of time are resampled. When both sides were sent the same plan, requests are paired
(`compare.paired`). Variation between runs (placement, caches, clocks, neighbours) does not appear in a single run: such
a comparison only shows that these two runs differ.
"""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import NormalDist

import numpy as np

from fastllmload.arrays import Floats
from fastllmload.compare.change import SIGNIFICANT, Change, Pair, plain, scaled, undecided
from fastllmload.compare.figure import LEVELS, ComparedFigure
from fastllmload.compare.paired import change_of_pairs, own, pairs_of_requests, resampled, weights
from fastllmload.compare.series import ValueSeries
from fastllmload.statistics.batches import BATCHES, MOST_CORRELATED, batch_edges, long_run, resampled_means
from fastllmload.statistics.interval import (
    BULK,
    DRIFTING,
    LEAST_INDEPENDENT,
    NotEstimable,
    Sample,
    above_share,
    inflation,
    intervals,
    rate_interval,
)
from fastllmload.statistics.student import t_quantile, t_two_sided

WITHIN = "block bootstrap within one run a side"
FEW_BLOCKS = math.sqrt(BATCHES / (BATCHES - 1))
APART = "every twentieth of one run beyond every twentieth of the other"
MOST_PAIRS = 2_000_000  # values used for the effect size


def change_within(figure: ComparedFigure, base: ValueSeries, new: ValueSeries, values: Pair, paired: bool) -> Change:
    """*values*: the figure of base and new, as in their run.json; *paired*: both were sent the same plan."""
    a, b = base.sample(figure), new.sample(figure)
    if a is not None and b is not None and figure.statistic is not None:
        pairs = pairs_of_requests(a, b, base.requests(figure), new.requests(figure)) if paired else None
        if pairs is not None:
            found = change_of_pairs(figure, pairs, values, superiority(a, b))
            return found if found.why_not is None else change_of_separated(figure, a, b, values) or found
        lacking = next(((series.name, why) for series in (base, new) if (why := _lacking(figure, series))), None)
        if lacking is None:
            return change_of_samples(figure, a, b, values, paired)
        name, why = lacking
        needs = None if why.needed is None else (name, why.needed)
        return change_of_separated(figure, a, b, values) or undecided(*values, f"{name}: {why.reason}", needs)
    if figure.metric in ("success_rate", "completion_rate", "fail_rate"):
        return _of_shares(figure, base, new, values, paired)
    return _of_rates(figure, base, new, values, paired)


def _lacking(figure: ComparedFigure, series: ValueSeries) -> NotEstimable | None:
    """Why the run has no interval of the figure; None when it has one."""
    sample, statistic = series.sample(figure), figure.statistic or "mean"
    if sample is None:
        return NotEstimable("not measured", None)
    found = intervals(sample, {} if statistic == "mean" else {statistic: LEVELS[statistic]})[statistic]
    return found if isinstance(found, NotEstimable) else None


def change_of_samples(figure: ComparedFigure, a: Sample, b: Sample, values: Pair, paired: bool) -> Change:
    drawn = [resampled(a, figure.level, weights(1)), resampled(b, figure.level, weights(1 if paired else 2))]
    if min(float(each.min()) for each in drawn) <= 0 or min(values) <= 0:
        differences = (drawn[1] - drawn[0]) / figure_unit(figure, a, values[0])
        low, high, p = expanded(differences, values[1] - values[0])
        ends, relative = (low, high), scaled((low, high), values[0])
        return Change(*plain(*values), ends, relative, WITHIN, p, None, superiority(a, b), "superiority")
    logs = np.log(drawn[1]) - np.log(drawn[0])
    low, high, p = expanded(logs, math.log(values[1] / values[0]), correlation_factor(figure, a, b))
    relative = (math.expm1(low), math.expm1(high))
    ends = (relative[0] * values[0], relative[1] * values[0])
    return Change(*plain(*values), ends, relative, WITHIN, p, None, superiority(a, b), "superiority")


def correlation_factor(figure: ComparedFigure, a: Sample, b: Sample) -> float:
    """Factor on the standard error for correlated blocks: the variance times (1 + r) / (1 - r), r of the difference."""
    blocks = [_by_block(figure, each) for each in (a, b)]
    centred = blocks[1] - blocks[0]
    centred -= centred.mean()
    squares = float(np.dot(centred, centred))
    r = min(max(float(np.dot(centred[1:], centred[:-1])) / squares, 0.0), MOST_CORRELATED) if squares > 0 else 0.0
    return math.sqrt((1 + r) / (1 - r))


def _by_block(figure: ComparedFigure, sample: Sample) -> Floats:
    """Contribution of each block to the figure: its share of values above it, or its mean, relative to all."""
    edges, q = sample.edges(), figure.level
    values = sample.values if q is None else sample.values > sample.at(q)
    blocks = [values[begin:end] for begin, end in pairwise(edges.tolist())]
    means = np.array(
        [block.mean() if len(block) else values.mean() for block in blocks]
    )  # an empty block gets the mean
    relative: Floats = means / means.mean() if means.any() else means
    return relative


def expanded(drawn: Floats, observed: float, wider: float = 1.0) -> tuple[float, float, float]:
    """(low, high, p): the expanded percentile interval (Hesterberg 2015), and the p that corresponds to it.

    Deviations are widened for n - 1 of n blocks and by *wider*, and the percentiles are those of Student's t.
    """
    deviations = np.sort(drawn - drawn.mean()) * (FEW_BLOCKS * wider)
    normal = NormalDist()
    reach = normal.cdf(t_quantile(0.975, BATCHES - 1))
    low, high = np.quantile(deviations, [1 - reach, reach])
    beyond = float((deviations <= -observed).mean() if observed > 0 else (deviations >= -observed).mean())
    z = -normal.inv_cdf(min(max(beyond, 0.5 / len(drawn)), 0.5))
    return observed + float(low), observed + float(high), t_two_sided(z, BATCHES - 1)


def superiority(a: Sample, b: Sample) -> float:
    """P(b > a) + P(b = a) / 2 over values drawn from each; every k-th of very long samples."""
    x, y = (each.ordered[:: max(1, len(each.ordered) // MOST_PAIRS)] for each in (a, b))
    below = np.searchsorted(x, y, "left").astype(np.float64) + np.searchsorted(x, y, "right")
    return float(below.mean()) / (2 * len(x))


def _of_shares(figure: ComparedFigure, base: ValueSeries, new: ValueSeries, values: Pair, paired: bool) -> Change:
    outcomes = [series.successes(figure) for series in (base, new)]
    if min(len(each) for each in outcomes) < 4 * BATCHES:
        return undecided(*values, "too few requests to estimate the correlation of their failures")
    if all(each.all() for each in outcomes) or not any(each.any() for each in outcomes):
        return Change(0.0, 0.0, (0.0, 0.0), None, "all alike", 1.0)
    drawn = [
        resampled_means(each, batch_edges(len(each)), weights(seed))
        for each, seed in zip(outcomes, (1, 1 if paired else 2), strict=True)
    ]
    sign = -1 if figure.metric == "fail_rate" else 1
    low, high, p = expanded(sign * (drawn[1] - drawn[0]), values[1] - values[0])
    return Change(*plain(*values), (low, high), scaled((low, high), values[0]), WITHIN, p)


def _of_rates(figure: ComparedFigure, base: ValueSeries, new: ValueSeries, values: Pair, paired: bool) -> Change:
    rates = []
    for series in (base, new):
        found = series.rates(figure)
        if found is None:
            return undecided(*values, "one run a side does not show how this figure varies; compare several runs")
        estimate = rate_interval(found.amounts, found.seconds, found.lasting_s)
        if isinstance(estimate, NotEstimable):
            return undecided(*values, f"{series.name}: {estimate.reason}")
        rates.append(found.amounts / (found.seconds / BATCHES))
    spread = sum(long_run(each).variance for each in ([rates[1] - rates[0]] if paired else rates))
    df = BATCHES - 1 if paired else 2 * (BATCHES - 1)
    error, difference = math.sqrt(spread), values[1] - values[0]
    half = t_quantile(0.975, df) * error
    p = t_two_sided(difference / error, df) if error > 0 else float(difference == 0)
    ends = (difference - half, difference + half)
    return Change(*plain(*values), ends, scaled(ends, values[0]), "t of twentieths within one run a side", p)


def change_of_separated(figure: ComparedFigure, a: Sample, b: Sample, values: Pair) -> Change | None:
    """The change where every twentieth of one run lies beyond every twentieth of the other, and there are too many for
    chance; else None. This shows large differences of runs that are too short for an interval: if both runs were equal,
    their twentieths would be mixed; of e independent ones a side, all of one side lie beyond all of the other with
    probability 2 / C(2e, e).

    The interval spans the differences of all twentieths: conservative, as the true value of a run lies below or above
    all of e independent twentieths with probability 2^(1 - e).
    """
    worth = [independent(sample) for sample in (a, b)]
    p = 2 / math.comb(sum(worth), worth[0])
    if min(worth) < 1 or p >= SIGNIFICANT:
        return None
    blocks = [by_twentieth(figure, sample) for sample in (a, b)]
    low, high = float(blocks[1].min() - blocks[0].max()), float(blocks[1].max() - blocks[0].min())
    if low <= 0 <= high or values[0] <= 0:
        return None
    unit = figure_unit(figure, a, values[0])
    ends = (low / unit, high / unit)
    return Change(*plain(*values), ends, scaled(ends, values[0]), APART, p, None, float(low > 0), "superiority")


def independent(sample: Sample) -> int:
    """Effective number of independent twentieths; 0 for too few requests, or a run that drifts."""
    if sample.units < LEAST_INDEPENDENT:
        return 0
    shares = [above_share(sample, sample.edges(), q) for q in BULK]
    if max(share.correlation for share in shares) >= DRIFTING:
        return 0
    most = max(1.0, *(inflation(share, len(sample.values), q) for share, q in zip(shares, BULK, strict=True)))
    return min(BATCHES, math.floor(len(sample.values) / most))


def by_twentieth(figure: ComparedFigure, sample: Sample) -> Floats:
    """float64[BATCHES]: the figure of each twentieth of the requests."""
    parts = np.split(sample.values, sample.edges()[1:-1])
    q = figure.level
    return np.array([part.mean() if q is None else np.quantile(part, q) for part in parts], np.float64)


def figure_unit(figure: ComparedFigure, sample: Sample, value: float) -> float:
    """Factor from the figure's unit to that of the series."""
    return own(sample, figure.level) / value if value else 1.0
