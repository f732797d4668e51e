"""Computes the spread between runs, without the spread between prompt types (ASIAI-M8, metrics.md 6.7)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

STABLE_BELOW, VARIABLE_BELOW = 5.0, 10.0  # percent

Groups = Sequence[Sequence[float]]  # one sequence of runs per prompt type


@dataclass(frozen=True)
class PooledSpread:
    """*mean* is over all runs; *pooled_std* over prompt types with at least 2 runs. None where undefined."""

    n: int
    mean: float | None
    pooled_std: float | None
    cv_percent: float | None
    stability: str | None


def pooled_std(groups: Groups) -> float | None:
    """Square root of the unweighted mean of each group's population variance; groups of one run are left out."""
    variances = [float(np.var(runs)) for runs in groups if len(runs) >= 2]
    return math.sqrt(sum(variances) / len(variances)) if variances else None


def cv_percent(std: float | None, mean: float | None) -> float | None:
    """100 std / mean; None without either, or for a mean of 0."""
    return None if std is None or mean is None or mean == 0 else 100 * std / mean


def stability(cv: float | None) -> str | None:
    """stable < 5 % <= variable < 10 % <= unstable; None for no figure."""
    if cv is None:
        return None
    if cv < STABLE_BELOW:
        return "stable"
    return "variable" if cv < VARIABLE_BELOW else "unstable"


def pooled_spread(groups: Groups) -> PooledSpread:
    """Mean, pooled spread, their ratio and its class, in the unit of the runs."""
    runs = [value for group in groups for value in group]
    mean = sum(runs) / len(runs) if runs else None
    std = pooled_std(groups)
    cv = cv_percent(std, mean)
    return PooledSpread(len(runs), mean, std, cv, stability(cv))
