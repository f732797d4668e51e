"""Estimates the variance of the mean of an autocorrelated series by batch means with a correction, and by block bootstrap.

The series is cut into BATCHES stretches in order of time. Their means are nearly independent if a stretch is much longer
than the dependence lasts; the remaining correlation is estimated from neighbouring batches and added (the same factor as
in Skart by Tafazzoli, Wilson and others). The bootstrap resamples stretches with replacement, so dependent requests stay
together; requests are resampled, never tokens. Percentiles are not sorted again for every resample: each block's counts of
values below a fine grid around the percentile are enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fastllmload.arrays import Floats, Numbers, Values

BATCHES = 20
MOST_CORRELATED = 0.8  # correlation of neighbouring batch means; above it noise would make the factor explode
CARRIED = 4.0  # see `long_run`


@dataclass(frozen=True)
class LongRun:
    """*variance* of the mean of a series; *skewness* of its *batches* means, *correlation* of neighbouring ones."""

    variance: float
    skewness: float
    correlation: float
    batches: int


def batch_edges(n: int, batches: int = BATCHES) -> Numbers:
    """Positions 0 = edges[0] < ... < edges[batches] = n of nearly equal stretches of *n* >= batches units."""
    return np.round(np.linspace(0, n, batches + 1)).astype(np.int64)


def long_run(means: Floats, scatter: float | None = None) -> LongRun:
    """From the means of the batches of a series, in order of time.

    *scatter*: variance of the single values, None if unknown. Neighbouring batches correlate across their border only, so
    their correlation falls with the length of a batch: it is used up to CARRIED times the variance of the batch means
    over *scatter* (a quarter of that ratio if dependence decays exponentially). More in 20 batches is noise, which would
    only widen intervals.
    """
    b = len(means)
    deviations = means - means.mean()
    squares = float(np.dot(deviations, deviations))
    if squares <= 0:
        return LongRun(0.0, 0.0, 0.0, b)
    lagged = float(np.dot(deviations[1:], deviations[:-1])) / squares + 1 / b  # 1/b: its bias without correlation
    most = MOST_CORRELATED if not scatter else min(MOST_CORRELATED, CARRIED * squares / (b - 1) / scatter)
    correlation = min(max(lagged, 0.0), most)
    variance = squares / (b * (b - 1)) * (1 + correlation) / (1 - correlation)
    skewness = float((deviations**3).mean()) / (squares / b) ** 1.5
    return LongRun(variance, skewness, correlation, b)


def batch_means(values: Values) -> Floats:
    edges = batch_edges(len(values))
    return np.add.reduceat(np.asarray(values, np.float64), edges[:-1]) / np.diff(edges)


RESAMPLES = 2000
GRID = 400  # values around a percentile at which blocks are counted
REACH = 6.0  # half-width of the grid, in standard errors of the level


def block_weights(blocks: int, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
    """float64[resamples, blocks]: how often each resample contains each block; *blocks* draws with replacement."""
    rng = np.random.default_rng(seed)
    drawn: Floats = rng.multinomial(blocks, np.full(blocks, 1 / blocks), resamples).astype(np.float64)
    return drawn


def resampled_means(values: Values, edges: Numbers, weights: Floats) -> Floats:
    """float64[resamples] of the mean; block k has values[edges[k]:edges[k + 1]]."""
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])[edges]
    means: Floats = (weights @ np.diff(sums)) / (weights @ np.diff(edges).astype(np.float64))
    return means


def resampled_percentiles(values: Values, edges: Numbers, q: float, weights: Floats) -> Floats:
    """float64[resamples] of the q-percentile, read from a grid of at most GRID values of the sample."""
    ordered = np.sort(values)
    grid = _grid(ordered, edges, q)
    counts = np.array(
        [np.searchsorted(np.sort(values[a:b]), grid, "right") for a, b in pairwise(edges.tolist())], np.float64
    )
    below = weights @ counts
    below /= (weights @ np.diff(edges).astype(np.float64))[:, None]
    after = np.minimum((below < q).sum(axis=1), len(grid) - 1)
    before = np.maximum(after - 1, 0)
    rows = np.arange(len(weights))
    low, high = below[rows, before], below[rows, after]
    part = np.clip(np.divide(q - low, high - low, out=np.ones(len(rows)), where=high > low), 0, 1)
    found: Floats = grid[before] + part * (grid[after] - grid[before])
    return found


def _grid(ordered: Floats, edges: Numbers, q: float) -> Floats:
    """Order statistics around the percentile, over the range that resamples may reach; all of them if there are few."""
    n, blocks = len(ordered), len(edges) - 1
    share_spread = math.sqrt(q * (1 - q) / blocks)  # the widest case: every block is all above or all below
    reach = min(1.0, REACH * share_spread)
    low, high = max(0, math.floor((q - reach) * n)), min(n - 1, math.ceil((q + reach) * n))
    ranks = np.unique(np.round(np.linspace(low, high, GRID)).astype(np.int64))
    return ordered[ranks].astype(np.float64)
