"""Block bootstrap: resamples stretches of time of a run with replacement.

Blocks are stretches of requests in order of time, so dependent requests stay together; requests are resampled, never
tokens. Percentiles are not sorted again for every resample: each block's counts of values below a fine grid around the
percentile are enough.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.statistics.student import CONFIDENCE, t_quantile

Floats = npt.NDArray[np.float64]
Weights = npt.NDArray[np.float64]

RESAMPLES = 2000
GRID = 400  # values around a percentile at which blocks are counted
REACH = 6.0  # half-width of the grid, in standard errors of the level


def block_weights(blocks: int, resamples: int = RESAMPLES, seed: int = 0) -> Weights:
    """float64[resamples, blocks]: how often each resample contains each block; *blocks* draws with replacement."""
    rng = np.random.default_rng(seed)
    drawn: Weights = rng.multinomial(blocks, np.full(blocks, 1 / blocks), resamples).astype(np.float64)
    return drawn


def widened(blocks: int) -> float:
    """Correction factor on bootstrap deviations for few blocks: Student's t for the normal, n - 1 for n."""
    normal = t_quantile((1 + CONFIDENCE) / 2, math.inf)
    return t_quantile((1 + CONFIDENCE) / 2, blocks - 1) / normal * math.sqrt(blocks / (blocks - 1))


def resampled_means(values: npt.NDArray[Any], edges: npt.NDArray[np.int64], weights: Weights) -> Floats:
    """float64[resamples] of the mean; block k has values[edges[k]:edges[k + 1]]."""
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])[edges]
    means: Floats = (weights @ np.diff(sums)) / (weights @ np.diff(edges).astype(np.float64))
    return means


def resampled_percentiles(values: npt.NDArray[Any], edges: npt.NDArray[np.int64], q: float, weights: Weights) -> Floats:
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


def _grid(ordered: Floats, edges: npt.NDArray[np.int64], q: float) -> Floats:
    """Order statistics around the percentile, over the range that resamples may reach; all of them if there are few."""
    n, blocks = len(ordered), len(edges) - 1
    share_spread = math.sqrt(q * (1 - q) / blocks)  # the widest case: every block is all above or all below
    reach = min(1.0, REACH * share_spread)
    low, high = max(0, math.floor((q - reach) * n)), min(n - 1, math.ceil((q + reach) * n))
    ranks = np.unique(np.round(np.linspace(low, high, GRID)).astype(np.int64))
    return ordered[ranks].astype(np.float64)
