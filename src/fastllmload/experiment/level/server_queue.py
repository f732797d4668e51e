"""The server's own queue during a level, from its gauge of waiting requests in telemetry (procedures.md 0.9)."""

from __future__ import annotations

import numpy as np

from fastllmload.errors import RunFolderError
from fastllmload.experiment.level.criteria import SEGMENTS, Floats
from fastllmload.metrics.run.window import Window
from fastllmload.records.run import Run
from fastllmload.telemetry.series import Telemetry, TelemetrySeries, load

GAUGE = "waiting"
MOST_MISSING = 0.1  # of the reads in the window
WIDEST = 3.0  # sampling intervals between two reads, or the ends of the window, that count as covered


def waiting(run: Run, window: Window) -> tuple[Floats, str] | None:
    """Waiting requests of all servers at evenly spaced instants of *window*, and the gauge's name at the server.

    None without such a gauge, or if the reads of a server do not cover the window.
    """
    try:
        found = load(run.directory)
    except RunFolderError:
        return None
    return waiting_of(found, window)


def waiting_of(found: Telemetry, window: Window) -> tuple[Floats, str] | None:
    gauges = [series for series in found.named(GAUGE) if series.source_kind == "server"]
    step = round(found.interval_s * 1e9)
    instants = np.arange(window.w0_ns, window.w1_ns, step)
    if not gauges or len(instants) < SEGMENTS or not all(covers(series, window, step) for series in gauges):
        return None
    return sum_at(gauges, instants), ", ".join(sorted({series.source_name for series in gauges}))


def covers(series: TelemetrySeries, window: Window, step_ns: int) -> bool:
    """Whether the reads of *series* cover *window* without a gap of more than WIDEST steps."""
    inside = window.holds(series.t_ns)
    seen = inside & ~np.isnan(series.value)
    if not seen.any() or (~seen & inside).sum() > MOST_MISSING * inside.sum():
        return False
    edges = np.concatenate(([window.w0_ns], series.t_ns[seen], [window.w1_ns]))
    return bool(np.diff(edges).max() <= WIDEST * step_ns)


def sum_at(gauges: list[TelemetrySeries], instants: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Floats:
    """The sum of the gauges at each of *instants*, each by its latest read until then, or else by its first."""
    total = np.zeros(len(instants))
    for series in gauges:
        seen = ~np.isnan(series.value)
        t, value = series.t_ns[seen], series.value[seen]
        total += value[np.maximum(np.searchsorted(t, instants, side="right") - 1, 0)]
    return total
