"""Computes quantile curves on the tail axis, from samples or bucket counts; percentiles over time; gaps between arrivals.

The tail axis is x = -log10(1 - q): 0 is the smallest value, 1 is P90, 2 is P99, 3 is P99.9.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.certificate.arrivals import distribution
from fastllmload.certificate.evidence import ArrivalEvidence
from fastllmload.certificate.run_evidence import arrivals_of
from fastllmload.metrics.run.window import on_schedule
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.report.charts import Axis, Chart, Series, Values, floats, is_known
from fastllmload.report.series.axis import Floats, TimeAxis, Times

POINTS = 240
BEYOND = 10  # samples beyond a quantile; with fewer the curve depends on single requests
OCTAVE_BITS = 6
# Bits of a float32 that stay: sign, exponent and OCTAVE_BITS of the mantissa.
SHIFT = 23 - OCTAVE_BITS
FIRST = 127 << OCTAVE_BITS  # bucket number of 1 ns
BUCKETS = 1 + (43 << OCTAVE_BITS)  # one for 0, then 1 ns to 2 h

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True)
class QuantileCurve:
    """*n* values; at tail[k] = -log10(1 - q) the q-quantile is value[k], both ascending. *solid_until*: see BEYOND."""

    n: int
    tail: Floats
    value: Floats

    @property
    def solid_until(self) -> float:
        return math.log10(self.n / BEYOND) if self.n > BEYOND else 0.0


def tail_points(n: int, points: int = POINTS) -> Floats:
    """Points on the tail axis for *n* values: even steps up to q = 1 - 1/n, with few values one for each. A single value
    is drawn as a line to P90, as it is every quantile.
    """
    if n <= 1:
        return np.arange(2 * n, dtype=np.float64)
    if n <= points:
        return -np.log10(1 - np.arange(n) / n)
    return np.linspace(0.0, math.log10(n), points)


def curve_of(values: npt.NDArray[Any], scale: float = 1.0) -> QuantileCurve:
    """Exact: type 7 quantiles of *values* divided by *scale*."""
    ordered = np.sort(values).astype(np.float64) / scale
    tail = tail_points(len(ordered))
    if not len(ordered):
        return QuantileCurve(0, tail, tail)
    q = 1 - 10.0**-tail
    value = np.interp(q * (len(ordered) - 1), np.arange(len(ordered)), ordered)
    value[-1] = ordered[-1]
    return QuantileCurve(len(ordered), tail, value)


def cdf(title: str, values: Mapping[str, Values], unit: str = "ms", note: str = "", label: str = "") -> Chart:
    """A chart of the percentiles of each of *values*."""
    curves = {name: curve_of(known[~np.isnan(known)]) for name, y in values.items() if is_known(known := floats(y))}
    series = [Series(name, one.value, one.tail, until=one.solid_until) for name, one in curves.items()]
    high = max([2.0, *(float(one.tail[-1]) for one in curves.values())])
    return Chart(title, series, Axis(scale="tail", high=high), Axis(label, unit), note)


def bucket_of(ns: Times) -> Times:
    """Bucket of each duration: 0 for 0 ns, then 64 buckets per octave, each 0.8 % to 1.6 % wide."""
    bits = ns.astype(np.float32).view(np.int32) >> SHIFT
    bits -= FIRST - 1
    return np.clip(bits, 0, BUCKETS - 1, out=bits)


def bucket_values(scale: float = 1.0) -> Floats:
    """float64[BUCKETS]: the middle of each bucket in ns, divided by *scale*."""
    bits = ((np.arange(BUCKETS + 1) + FIRST - 1) << SHIFT).astype(np.int32)
    edges = bits.view(np.float32).astype(np.float64)
    middle = (edges[:-1] + edges[1:]) / 2
    middle[0] = 0.0
    return middle / scale


def curve_of_buckets(counts: Times, scale: float = 1.0) -> QuantileCurve:
    """The same from counts in `bucket_of` buckets, exact to 0.8 %."""
    n = int(counts.sum())
    tail = tail_points(n)
    if n == 0:
        return QuantileCurve(0, tail, tail)
    rank = np.floor((1 - 10.0**-tail) * (n - 1)).astype(np.int64)
    rank[-1] = n - 1
    return QuantileCurve(n, tail, bucket_values(scale)[np.searchsorted(np.cumsum(counts), rank, side="right")])


def needed(q: float) -> int:
    """Values needed to draw a q-quantile: at least one beyond it."""
    return 1 if q >= 1 else math.ceil(1 / (1 - q) - 1e-9)


def percentiles_over_time(
    axis: TimeAxis, t_ns: Times, values: npt.NDArray[Any], scale: float = 1.0
) -> dict[str, Floats]:
    """float64[bins] for each of PERCENTILES: of the *values* (over *scale*) whose time falls into the bin; NaN: too
    few.
    """
    where = axis.bin_of(t_ns)
    order = np.lexsort((values, where))
    ordered = np.concatenate([values[order].astype(np.float64) / scale, [np.nan]])
    count = np.bincount(where, minlength=axis.bins)
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    found = {}
    for name, q in PERCENTILES.items():
        place = q * np.maximum(count - 1, 0)
        below = np.floor(place).astype(np.int64)
        low = ordered[first + below]
        high = ordered[first + np.minimum(below + 1, np.maximum(count - 1, 0))]
        found[name] = np.where(count >= needed(q), low + (place - below) * (high - low), np.nan)
    return found


def percentiles_of_buckets(counts: Times, scale: float = 1.0) -> dict[str, Floats]:
    """The same from counts[bins, BUCKETS]."""
    n = counts.sum(axis=1)
    running = np.cumsum(counts, axis=1)
    values = bucket_values(scale)
    found = {}
    for name, q in PERCENTILES.items():
        rank = np.floor(q * np.maximum(n - 1, 0)).astype(np.int64)
        bucket = np.minimum((running <= rank[:, None]).sum(axis=1), BUCKETS - 1)
        found[name] = np.where(n >= needed(q), values[bucket], np.nan)
    return found


MOST_GAPS = 60.0  # upper end of the quantile search, in mean gaps


@dataclass(frozen=True)
class ArrivalGaps:
    """Curves in ms; *asked* is None where the process has no distribution of gaps (closed loop, on and off, all at
    once).
    """

    process: str
    rate: float | None
    asked: QuantileCurve | None
    planned: QuantileCurve | None
    sent: QuantileCurve


def arrival_gaps(run: Run) -> ArrivalGaps | None:
    """Gaps of the measured phase, of a mix those of its open loops; None with fewer than two sent requests."""
    rows = run.rows[run.rows["phase"] == layout.MEASURE]
    rows = rows[on_schedule(run.document.plan.description, rows["request_class"])]
    dispatched = np.sort(rows["t_dispatch"][rows["t_dispatch"] > 0])
    if len(dispatched) < 2:
        return None
    arrivals = arrivals_of(run)
    sent = curve_of(np.diff(dispatched), 1e6)
    planned = curve_of(np.diff(np.sort(rows["t_sched"][rows["t_sched"] > 0])), 1e6) if arrivals.open_loop else None
    return ArrivalGaps(arrivals.process, arrivals.rate, asked_curve(arrivals, sent.tail), planned, sent)


def asked_curve(arrivals: ArrivalEvidence, tail: Floats) -> QuantileCurve | None:
    """Quantiles of the requested process at *tail*, interpolated from its distribution function."""
    if not arrivals.open_loop or arrivals.rate is None or arrivals.process == "onoff":
        return None
    mean_ms = 1e3 / arrivals.rate
    if arrivals.process == "constant":
        return QuantileCurve(len(tail), tail, np.full(len(tail), mean_ms))
    if arrivals.process not in ("poisson", "uniform") and arrivals.shape is None:
        return None
    unit = np.concatenate([[0.0], np.geomspace(1e-9, MOST_GAPS, 4000)])
    reached = np.maximum.accumulate(distribution(unit, arrivals))
    return QuantileCurve(len(tail), tail, np.interp(1 - 10.0**-tail, reached, unit) * mean_ms)
