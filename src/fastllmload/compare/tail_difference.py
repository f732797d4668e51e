"""Tests whether every twentieth of one run lies beyond every twentieth of the other.

This shows large differences of runs that are too short for an interval. If both runs were equal, their twentieths would
be mixed: of e independent ones a side, all of one side lie beyond all of the other with probability 2 / C(2e, e).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from fastllmload.compare.change import SIGNIFICANT, Change, plain, scaled
from fastllmload.compare.figure import LEVELS, ComparedFigure
from fastllmload.statistics.batches import BATCHES
from fastllmload.statistics.interval import BULK, DRIFTING, LEAST_INDEPENDENT, Sample, above_share, inflation

APART = "every twentieth of one run beyond every twentieth of the other"


def change_of_separated(figure: ComparedFigure, a: Sample, b: Sample, values: tuple[float, float]) -> Change | None:
    """The change where all twentieths are separated, and there are too many for chance; else None.

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


def by_twentieth(figure: ComparedFigure, sample: Sample) -> npt.NDArray[np.float64]:
    """float64[BATCHES]: the figure of each twentieth of the requests."""
    parts = np.split(sample.values, sample.edges()[1:-1])
    q = LEVELS.get(figure.statistic or "")
    return np.array([part.mean() if q is None else np.quantile(part, q) for part in parts], np.float64)


def figure_unit(figure: ComparedFigure, sample: Sample, value: float) -> float:
    """Factor from the figure's unit to that of the series."""
    q = LEVELS.get(figure.statistic or "")
    own = float(sample.values.mean()) if q is None else sample.at(q)
    return own / value if value else 1.0
