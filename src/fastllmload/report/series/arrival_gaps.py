"""Gaps between arrivals on the tail axis: requested, planned and sent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastllmload.certificate.arrivals import distribution
from fastllmload.certificate.evidence import ArrivalEvidence
from fastllmload.certificate.run_evidence import arrivals_of
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.report.series.axis import Floats
from fastllmload.report.series.curves import QuantileCurve, curve_of

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
    """Gaps of the measured phase; None with fewer than two sent requests."""
    rows = run.rows[run.rows["phase"] == layout.MEASURE]
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
