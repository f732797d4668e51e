"""Was the run steady, and did nothing get lost: MSER-5 beside the draft's cut, and Little's law."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.between import NULL
from fastllmload.metrics.e2e import e2e
from fastllmload.metrics.ttft import ttft
from fastllmload.metrics.window import Window
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.statistics.little import TOLERANCE, littles_law
from fastllmload.statistics.steady import mser5

Rows = npt.NDArray[Any]
MEASURED = {"ttft": ttft, "e2e": e2e}


def steadiness(run: Run, window: Window | None) -> dict[str, Any]:
    """`steadiness` of run.json: the transient by metric, and Little's law."""
    rows = run.rows[(run.rows["phase"] == layout.MEASURE) & (run.rows["status"] == layout.OK)]
    rows = rows[np.argsort(rows["t_sched"], kind="stable")]
    return {
        "transient": {name: transient(rows, of(rows), window) for name, of in MEASURED.items()},
        "littles_law": little(run, window),
    }


def transient(rows: Rows, values: npt.NDArray[np.int64], window: Window | None) -> dict[str, Any] | None:
    """Where MSER-5 would begin to measure, over the whole measure phase: its own cut, and the window's for comparison.

    *rows* in order of t_sched. None for too few requests. `steady` false: the best cut leaves less than half.
    """
    known = values != NULL
    found = mser5(values[known])
    if found is None or window is None:
        return None
    at = rows["t_sched"][known]
    begin = int(at[0])
    return {
        "cut_requests": found.cut,
        "cut_share": found.share,
        "cut_seconds": float(at[min(found.cut, len(at) - 1)] - begin) / 1e9,
        "window_cut_seconds": max(0.0, (window.w0_ns - begin) / 1e9),
        "steady": found.steady,
    }


def little(run: Run, window: Window | None) -> dict[str, Any] | None:
    """In flight as the workers counted it against what the rows say; None without counts."""
    counted = in_flight_counted(run)
    if window is None or counted is None:
        return None
    rows = run.rows[run.rows["phase"] == layout.MEASURE]
    law = littles_law(*counted, rows["t_dispatch"], rows["t_end"], window.w0_ns, window.w1_ns)
    if law is None:
        return None
    return {**asdict(law), "holds": None if law.residual is None else law.residual <= TOLERANCE}


def in_flight_counted(run: Run) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]] | None:
    """Instants at which every worker was looked at, and how many requests all of them had in flight.

    The supervisor looks at one worker after the other within microseconds: looks are matched by their number.
    """
    samples, phase = run.samples, run.phase("measure")
    if samples is None or phase is None or "in_flight" not in (samples.dtype.names or ()):
        return None
    mine = samples[(samples["worker"] >= 0) & (samples["t_ns"] >= phase.start_ns)]
    workers = np.unique(mine["worker"])
    looks = [mine[mine["worker"] == worker] for worker in workers]
    least = min((len(look) for look in looks), default=0)
    if least == 0:
        return None
    counts = np.sum([look["in_flight"][:least] for look in looks], axis=0).astype(np.float64)
    return looks[0]["t_ns"][:least].astype(np.int64), counts
