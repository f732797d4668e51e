"""Summarises a sample for run.json: moments, percentiles, their intervals, and the number of nulls."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from fastllmload.arrays import Mask, Numbers, Values
from fastllmload.documents.metric import Distribution, EstimatedValue, NotEstimableFacts, Reason, Value
from fastllmload.documents.write import plain
from fastllmload.errors import coded
from fastllmload.metrics.distribution.percentiles import NAMED, ends, insufficient, percentile, ranks_of
from fastllmload.metrics.request.durations import NULL
from fastllmload.statistics.hdr_sample import HdrSample
from fastllmload.statistics.interval import Estimate, NotEstimable, Sample, intervals
from fastllmload.statistics.order_statistics import Ranked, in_order, pieces

UNORDERED = "the values stayed on their hosts"
MERGED = coded("merged-histograms", "percentiles are those of the hosts' merged histograms, to three digits")
SCALES = {"ms": 1e6, "s": 1e9}  # ns per unit; other units are taken as they are


def known(values: Values) -> Mask:
    """Which *values* are neither NULL (integers) nor NaN (floats)."""
    found: Mask = values != NULL if values.dtype == np.int64 else ~np.isnan(values)
    return found


def without_nulls(values: Values) -> Values:
    """The known values; *values* itself where all are known."""
    if all(known(piece).all() for piece in pieces(values)):
        return values
    kept: Values = values[known(values)]
    return kept


def mean_of(ordered: Values | Ranked) -> float:
    return ordered.mean if isinstance(ordered, Ranked) else float(np.mean(ordered))


def distribution(
    values: Values | HdrSample, unit: str, n_null: int | None = None, first: Numbers | None = None,
    of_sessions: bool = False,
) -> Distribution:  # fmt: skip
    """`metrics.<name>` of run.json, from integer ns (NULL = null) or floats (NaN = null), in order of time.

    Request k (session k if *of_sessions*) has `values[first[k]:first[k + 1]]`, none of them null; without *first* it has
    one value.

    unit "ms" or "s" converts from ns. *n_null* replaces the number of nulls in *values*, when those were left out
    before. The standard deviation divides by n (spec/metrics 2). An empty sample has None everywhere. `ci95` has the 95%
    intervals of the percentiles and of the mean, None for those in `not_estimable`. Of a histogram there are none, because
    they need the order of the values.
    """
    kept = values if isinstance(values, HdrSample) else without_nulls(values)
    ordered = in_order(kept)
    n, scale = len(ordered), SCALES.get(unit, 1.0)
    if isinstance(ordered, Ranked):
        ordered.prepare(ranks_of(n, NAMED.values()))
    mean, std = (mean_of(ordered), float(ordered.std())) if n else (None, None)

    def scaled(value: float | None) -> float | None:
        return None if value is None else float(value) / scale

    at = {name: scaled(percentile(ordered, q)) for name, q in NAMED.items()}
    found: dict[str, Estimate] | None = None
    if isinstance(kept, HdrSample):
        found = dict.fromkeys((*NAMED, "mean"), NotEstimable(UNORDERED, None)) if n else None
    elif n:
        found = intervals(Sample(kept, ordered, first, std, "sessions" if of_sessions else "requests"), NAMED)
    missing = {name: each for name, each in (found or {}).items() if isinstance(each, NotEstimable)}
    summary = Distribution(
        unit=unit,
        n=n,
        n_null=len(values) - n if n_null is None else n_null,
        mean=scaled(mean),
        std=scaled(std),
        min=scaled(float(ordered[0])) if n else None,
        max=scaled(float(ordered[-1])) if n else None,
        ci95=None if found is None else {name: ends(each, scale) for name, each in found.items()},
        not_estimable={
            name: NotEstimableFacts(
                reason=each.reason,
                requests_needed=None if of_sessions else each.needed,
                sessions_needed=each.needed if of_sessions else None,
            )
            for name, each in missing.items()
        },
        insufficient=insufficient(n),
        note=MERGED if isinstance(kept, HdrSample) and n else None,
    )
    return replace(summary, **at)


def summarize(
    values: Values | HdrSample, unit: str, n_null: int | None = None, first: Numbers | None = None
) -> dict[str, Any]:
    """`distribution` as plain values."""
    return plain(distribution(values, unit, n_null, first))


def number(value: float | None) -> float | None:
    """NaN becomes None."""
    return None if value is None or np.isnan(value) else float(value)


def scalar(value: float | None, unit: str) -> Value:
    """`metrics.<name>` of a single number; NaN becomes None."""
    return Value(unit=unit, value=number(value))


def estimated(
    value: float | None, unit: str, estimate: Estimate | None, input_counting: str | None = None
) -> EstimatedValue:
    """`metrics.<name>` of a single number with its `ci95`, or the reason why it has none."""
    missing: dict[str, Reason] = {}
    if isinstance(estimate, NotEstimable):
        missing = {"reason": estimate.reason, "requests_needed": estimate.needed}
    return EstimatedValue(
        unit=unit, value=number(value), input_counting=input_counting, ci95=ends(estimate), not_estimable=missing
    )
