"""Summarises a sample for run.json: moments, percentiles, their intervals, and the number of nulls."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.distribution.percentiles import NAMED, insufficient, percentile, ranks_of, stated, stated_all
from fastllmload.metrics.request.durations import NULL
from fastllmload.statistics.interval import Estimate, Sample, intervals
from fastllmload.statistics.order_statistics import Ranked, in_order, pieces

SCALES = {"ms": 1e6, "s": 1e9}  # ns per unit; other units are taken as they are


def known(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which *values* are neither NULL (integers) nor NaN (floats)."""
    found: npt.NDArray[np.bool_] = values != NULL if values.dtype == np.int64 else ~np.isnan(values)
    return found


def without_nulls(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The known values; *values* itself where all are known."""
    if all(known(piece).all() for piece in pieces(values)):
        return values
    kept: npt.NDArray[Any] = values[known(values)]
    return kept


def mean_of(ordered: npt.NDArray[Any] | Ranked) -> float:
    """The mean of a sample that is not empty."""
    return ordered.mean if isinstance(ordered, Ranked) else float(np.mean(ordered))


def std_of(ordered: npt.NDArray[Any] | Ranked) -> float:
    """The population standard deviation of a sample that is not empty."""
    return ordered.std() if isinstance(ordered, Ranked) else float(np.std(ordered))


def distribution(
    values: npt.NDArray[Any], unit: str, n_null: int | None = None, first: npt.NDArray[np.int64] | None = None
) -> dict[str, Any]:
    """`metrics.<name>` of run.json, from integer ns (NULL = null) or floats (NaN = null), in order of time.

    Request k has `values[first[k]:first[k + 1]]`, none of them null; without *first* it has one value.

    unit "ms" or "s" converts from ns. *n_null* replaces the number of nulls in *values*, when those were left out
    before. The standard deviation divides by n (spec/metrics 2). An empty sample has None everywhere. `ci95` has the 95%
    intervals of the percentiles and of the mean, None for those in `not_estimable`.
    """
    kept = without_nulls(values)
    ordered = in_order(kept)
    n, scale = len(ordered), SCALES.get(unit, 1.0)
    if isinstance(ordered, Ranked):
        ordered.prepare(ranks_of(n, NAMED.values()))
    mean, std = (mean_of(ordered), std_of(ordered)) if n else (None, None)

    def scaled(value: float | None) -> float | None:
        return None if value is None else float(value) / scale

    return {
        "unit": unit,
        "n": n,
        "n_null": len(values) - n if n_null is None else n_null,
        "mean": scaled(mean),
        "std": scaled(std),
        "min": scaled(float(ordered[0])) if n else None,
        "max": scaled(float(ordered[-1])) if n else None,
        **{name: scaled(percentile(ordered, q)) for name, q in NAMED.items()},
        **stated_all(intervals(Sample(kept, ordered, first, std), NAMED) if n else None, scale),
        "insufficient": insufficient(n),
    }


def scalar(value: float | None, unit: str, **more: Any) -> dict[str, Any]:
    """`metrics.<name>` of a single number; NaN becomes None."""
    return {"unit": unit, "value": None if value is None or np.isnan(value) else float(value), **more}


def estimated(value: float | None, unit: str, estimate: Estimate | None, **more: Any) -> dict[str, Any]:
    """`metrics.<name>` of a single number with its `ci95`, or the reason why it has none."""
    return {**scalar(value, unit, **more), **stated(estimate)}
