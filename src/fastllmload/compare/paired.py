"""One run a side, both sent one plan: each request of one run is compared with the same request of the other.

What the plan does to both (lengths, bursts of arrivals) then is no difference. Neighbouring requests share batches and
queues, so blocks of consecutive requests are resampled, pairs together; what neighbouring blocks still share widens the
interval, and where few stretches of the run are independent Student's t has as few degrees of freedom.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt

from fastllmload.compare.change import Change, plain, scaled, undecided
from fastllmload.compare.figure import LEVELS, Figure
from fastllmload.statistics.batches import BATCHES, MOST_CORRELATED, batch_means, long_run
from fastllmload.statistics.bootstrap import block_weights, resampled_means, resampled_percentiles
from fastllmload.statistics.interval import BEYOND, BULK, LEAST_INDEPENDENT, MOST_BEYOND, Sample
from fastllmload.statistics.student import t_quantile, t_two_sided

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

PAIRED = "paired blocks of requests within one run a side"
RESAMPLES = 2000
LEAST_PARTNERED = 0.9  # of the requests of each side; below it the pairs say too little of the figures
LEAST_DF = 3
# Standard error by which runs of one server differ as wholes, of the figure: no run holds it. Like runs of the
# simulated engine differ by 0.05 to 0.4 % in mean TPOT and E2E (docs/statistics.md).
BETWEEN_RUNS = 0.005


@dataclass(frozen=True)
class Pairs:
    """Values of the same requests on both sides, in the base's order of time; *partnered*: share of the requests of
    the side that has more of its own.
    """

    a: Sample
    b: Sample
    partnered: float

    @property
    def n(self) -> int:
        return self.a.units


def pairs_of_requests(a: Sample, b: Sample, of_a: Numbers, of_b: Numbers) -> Pairs | None:
    """*of_a* and *of_b*: the request number of each unit. None where numbers repeat, or fewer than LEAST_PARTNERED have
    a partner.
    """
    if min(len(of_a), len(of_b)) == 0 or any(len(np.unique(each)) < len(each) for each in (of_a, of_b)):
        return None
    _, at_a, at_b = np.intersect1d(of_a, of_b, assume_unique=True, return_indices=True)
    partnered = len(at_a) / max(len(of_a), len(of_b))
    if partnered < LEAST_PARTNERED:
        return None
    order = np.argsort(at_a)
    return Pairs(_chosen(a, at_a[order]), _chosen(b, at_b[order]), partnered)


def _chosen(sample: Sample, units: Numbers) -> Sample:
    """The values of *units*, in their order."""
    if len(units) == sample.units and (np.diff(units) == 1).all():
        return sample
    if sample.first is None:
        values = sample.values[units]
        return Sample(values, np.sort(values))
    sizes = np.diff(sample.first)[units]
    first = np.concatenate([[0], np.cumsum(sizes)])
    values = sample.values[np.arange(first[-1]) + np.repeat(sample.first[units] - first[:-1], sizes)]
    return Sample(values, np.sort(values), first)


def change_of_pairs(figure: Figure, pairs: Pairs, values: tuple[float, float], effect: float) -> Change:
    """*values*: the figure of base and new, as in their run.json; *effect*: the superiority of the new side."""
    return replace(_change(figure, pairs, values, effect), pairs=pairs.n)


def _change(figure: Figure, pairs: Pairs, values: tuple[float, float], effect: float) -> Change:
    if pairs.n < LEAST_INDEPENDENT:
        return undecided(*values, f"{pairs.n} pairs of requests are too few to see how they depend on each other")
    q = LEVELS.get(figure.statistic or "")
    dependence = max(shared(pairs, each) for each in {None, *BULK, q})
    needed = beyond_needed(pairs, dependence, q)
    if needed is not None:
        told = f"{figure.statistic} needs about {needed:,} pairs of requests like these; there are {pairs.n:,}"
        return undecided(*values, told, ("each side", needed))
    drawn = [_resampled(sample, q, _weights()) for sample in (pairs.a, pairs.b)]
    without = [_resampled(sample, q, 1 - np.eye(BATCHES)) for sample in (pairs.a, pairs.b)]
    logs = min(float(each.min()) for each in (*drawn, *without)) > 0 and min(values) > 0
    if logs:
        drawn, without = [np.log(each) for each in drawn], [np.log(each) for each in without]
        observed, floor = math.log(values[1] / values[0]), BETWEEN_RUNS
    else:
        observed, floor = values[1] - values[0], BETWEEN_RUNS * max(map(abs, values))
        unit = _own(pairs.a, q) / values[0] if values[0] else 1.0
        drawn, without = [each / unit for each in drawn], [each / unit for each in without]
    spread = float((drawn[1] - drawn[0]).std()) * math.sqrt(BATCHES / (BATCHES - 1)) * _wider(without[1] - without[0])
    error = math.hypot(spread, floor)
    df = min(max(min(pairs.n / (2 * dependence), carrying(without[1] - without[0])) - 1, LEAST_DF), BATCHES - 1)
    half = t_quantile(0.975, df) * error
    p = t_two_sided(observed / error, df) if error > 0 else float(observed == 0)
    low, high = observed - half, observed + half
    if logs:
        relative = math.expm1(low), math.expm1(high)
        ends = relative[0] * values[0], relative[1] * values[0]
        return Change(*plain(*values), ends, relative, PAIRED, p, None, effect, "superiority")
    return Change(*plain(*values), (low, high), scaled((low, high), values[0]), PAIRED, p, None, effect, "superiority")


@cache
def _weights() -> Floats:
    return block_weights(BATCHES, RESAMPLES, seed=1)


def _resampled(sample: Sample, q: float | None, weights: Floats) -> Floats:
    if q is None:
        return resampled_means(sample.values, sample.edges(), weights)
    return resampled_percentiles(sample.values, sample.edges(), q, weights)


def _own(sample: Sample, q: float | None) -> float:
    return float(sample.values.mean()) if q is None else sample.at(q)


def _wider(without: Floats) -> float:
    """Factor on the standard error for what neighbouring blocks share, from the figure *without* each block."""
    apart = without - without.mean()
    squares = float(np.dot(apart, apart))
    if squares <= 0:
        return 1.0
    r = min(max(float(np.dot(apart[1:], apart[:-1])) / squares + 1 / BATCHES, 0.0), MOST_CORRELATED)
    return math.sqrt((1 + r) / (1 - r))


def carrying(without: Floats) -> float:
    """How many blocks the spread rests on: BATCHES where their deviations are normal, few where some outweigh the rest."""
    squares = (without - without.mean()) ** 2
    fourth = float(np.dot(squares, squares))
    return 3 * float(squares.sum()) ** 2 / fourth if fourth > 0 else float(BATCHES)


def shared(pairs: Pairs, q: float | None) -> float:
    """How many pairs are worth one independent pair, 1 at least: of the mean, or of the shares above a percentile."""
    apart = _contributions(pairs.b, q) - _contributions(pairs.a, q)
    scatter = float(apart.var())
    if scatter <= 0:
        return 1.0
    return max(1.0, long_run(batch_means(apart), scatter).variance * len(apart) / scatter)


def _contributions(sample: Sample, q: float | None) -> Floats:
    """What each unit adds to the figure, relative."""
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
    """Pairs that would do; None where these do: enough of them beyond the percentile, on its thinner side."""
    least = min(BEYOND * math.sqrt(dependence), MOST_BEYOND)
    if q is None or pairs.n * min(q, 1 - q) >= least:
        return None
    return math.ceil(least / min(q, 1 - q))
