"""One run a side, both sent one plan: each request of one run is compared with the same request of the other.

What the plan does to both (lengths, bursts of arrivals) then is no difference. Neighbouring requests share batches and
queues, so blocks of consecutive requests are resampled, pairs together; what neighbouring blocks still share widens the
interval, and where few stretches of the run are independent Student's t has as few degrees of freedom. A queue near its
limit remembers for longer than a block lasts: where neighbouring blocks look alike they are also taken together, and the
widest of the intervals stands. Where the levels of both runs wander, as the backlog of a server near its limit does, what
sets them apart grows with the backlog: its scatter about one ratio then is small by itself, and the plain differences of
the blocks are judged as well. Runs that drift apart have no difference that one figure could state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt

from fastllmload.compare.change import Change, plain, scaled, undecided
from fastllmload.compare.figure import LEVELS, ComparedFigure
from fastllmload.statistics.batches import BATCHES, MOST_CORRELATED, batch_means, long_run
from fastllmload.statistics.bootstrap import block_weights, resampled_means, resampled_percentiles
from fastllmload.statistics.interval import BEYOND, BULK, DRIFTING, LEAST_INDEPENDENT, MOST_BEYOND, Sample
from fastllmload.statistics.student import t_quantile, t_two_sided
from fastllmload.statistics.trend import drift

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

PAIRED = "paired blocks of requests within one run a side"
RESAMPLES = 2000
LEAST_PARTNERED = 0.9  # of the requests of each side; below it the pairs say too little of the figures
LEAST_DF = 3
# Standard error by which runs of one server differ as wholes, of the figure: no run holds it. Like runs of the
# simulated engine differ by 0.05 to 0.4 % in mean TPOT and E2E (docs/statistics.md).
BETWEEN_RUNS = 0.005
FEW = 8  # blocks, below which what neighbours share cannot be seen
TOGETHER = (2, 4)  # blocks taken as one
ALIKE = 0.2  # correlation of neighbouring blocks from which they are
MOST_REMEMBERED = 0.95  # correlation of neighbouring blocks of a backlog; at 1 one run would say nothing
BACKLOG = 0.3  # standard deviation of the blocks' levels over their mean from which they hold a backlog
APART = 0.2  # of the base's level: a difference that moves by as much within the runs is not one difference
MOVED = 0.001  # p below which it moved; it is asked of every comparison


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


def change_of_pairs(figure: ComparedFigure, pairs: Pairs, values: tuple[float, float], effect: float) -> Change:
    """*values*: the figure of base and new, as in their run.json; *effect*: the superiority of the new side."""
    return replace(_change(figure, pairs, values, effect), pairs=pairs.n)


def _change(figure: ComparedFigure, pairs: Pairs, values: tuple[float, float], effect: float) -> Change:
    if pairs.n < LEAST_INDEPENDENT:
        return undecided(*values, f"{pairs.n} pairs of requests are too few to see how they depend on each other")
    q = LEVELS.get(figure.statistic or "")
    dependence = max(shared(pairs, each) for each in {None, *BULK, q})
    needed = beyond_needed(pairs, dependence, q)
    if needed is not None:
        told = f"{figure.statistic} needs about {needed:,} pairs of requests like these; there are {pairs.n:,}"
        return undecided(*values, told, ("each side", needed))
    moved = drifted_apart(pairs)
    if moved is not None:
        first, then = (f"{100 * each:+,.0f} %" for each in moved)
        return undecided(*values, f"the runs drift apart: they differ by {first} on average, then by {then}")
    return _judged(pairs, q, values, pairs.n / (2 * dependence), effect)


def _judged(pairs: Pairs, q: float | None, values: tuple[float, float], most_df: float, effect: float) -> Change:
    """In logarithms where they exist: of a ratio."""
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
    spread = float((drawn[1] - drawn[0]).std())
    errors = _errors(spread, without[1] - without[0], floor, most_df)
    errors += [(math.hypot(spread * grown, floor), df) for grown, df in _wandering(pairs)]
    half = max(t_quantile(0.975, df) * error for error, df in errors)
    p = max(t_two_sided(observed / error, df) if error > 0 else float(observed == 0) for error, df in errors)
    low, high = observed - half, observed + half
    if logs:
        relative = math.expm1(low), math.expm1(high)
        ends = relative[0] * values[0], relative[1] * values[0]
        return Change(*plain(*values), ends, relative, PAIRED, p, None, effect, "superiority")
    return Change(*plain(*values), (low, high), scaled((low, high), values[0]), PAIRED, p, None, effect, "superiority")


def _errors(spread: float, apart: Floats, floor: float, most_df: float) -> list[tuple[float, float]]:
    """Standard errors and their degrees of freedom, by blocks and by blocks taken together.

    *spread*: of the resampled differences; *apart*: the difference without each block.
    """
    error = spread * math.sqrt(BATCHES / (BATCHES - 1))
    df = min(max(min(most_df, carrying(apart)) - 1, LEAST_DF), BATCHES - 1)
    found = [(error * _wider(apart), df), *((error * grown, float(n - 1)) for grown, n in _grown(apart))]
    return [(math.hypot(each, floor), df) for each, df in found]


def drifted_apart(pairs: Pairs) -> tuple[float, float] | None:
    """The relative differences of the means before and after they moved; None where they stayed, or a block is empty."""
    means = _levels(pairs)
    if means is None:
        return None
    found = drift((means[1] - means[0]) / float(np.mean(means[0])))
    ways = ((found.p, found.first, found.second), (found.p_step, found.before, found.after))
    p, before, after = min(ways, key=lambda way: way[0])
    return (before, after) if p < MOVED and abs(after - before) >= APART else None


def _levels(pairs: Pairs) -> tuple[Floats, Floats] | None:
    """Mean of each block, of base and new; None where a block is empty or the base's level is not positive."""
    sides = (pairs.a, pairs.b)
    if not all(np.diff(side.edges()).all() for side in sides):
        return None
    a, b = (np.array([part.mean() for part in np.split(side.values, side.edges()[1:-1])], np.float64) for side in sides)
    return (a, b) if a.mean() > 0 else None


def _wandering(pairs: Pairs) -> list[tuple[float, float]]:
    """Where the levels of both runs wander by much: factor on the standard error of a ratio, and degrees of freedom, of the
    plain differences of the blocks. Their correlation is freed of its bias (Kendall 1954), which is large near 1.
    """
    levels = _levels(pairs)
    if levels is None or not all(_holds_a_backlog(each) for each in levels):
        return []
    a, b = levels
    plainly, about_one_ratio = b - a, b / b.mean() * a.mean() - a
    scatter = float(about_one_ratio.var())
    if scatter <= 0:
        return []
    r = min(_shared_by_neighbours(plainly) / (1 - 4 / BATCHES), MOST_REMEMBERED)
    wider = (1 + r) / (1 - r)
    return [(math.sqrt(float(plainly.var()) / scatter * wider), max(BATCHES / wider, LEAST_DF))]


def _holds_a_backlog(level: Floats) -> bool:
    """Levels that wander by much. The size of a batch wanders too, but moves the time of a token by less."""
    return float(level.std() / level.mean()) >= BACKLOG and _shared_by_neighbours(level) >= DRIFTING


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
    r = min(_shared_by_neighbours(without), MOST_CORRELATED)
    return math.sqrt((1 + r) / (1 - r))


def _shared_by_neighbours(blocks: Floats) -> float:
    """Their correlation, less its bias where there is none; 0 at least."""
    apart = blocks - blocks.mean()
    squares = float(np.dot(apart, apart))
    return max(float(np.dot(apart[1:], apart[:-1])) / squares + 1 / len(apart), 0.0) if squares > 0 else 0.0


def _grown(without: Floats) -> list[tuple[float, int]]:
    """Where neighbouring blocks look alike: factors on the standard error with some taken together, and how many blocks
    there are then. Of few blocks nothing is asked of what neighbours share: 5 of them cannot tell.
    """
    apart, found = without - without.mean(), []
    if _shared_by_neighbours(without) <= ALIKE:
        return []
    one = float(apart.var(ddof=1)) / BATCHES
    for many in TOGETHER:
        means = apart.reshape(-1, many).mean(axis=1)
        grown = math.sqrt(float(means.var(ddof=1)) / len(means) / one)
        found.append((grown * (_wider(means) if len(means) >= FEW else 1.0), len(means)))
    return found


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
