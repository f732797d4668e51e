"""Rules that decide whether a level is saturated, steady, or limited by the client (spec/procedures 0.9).

Each rule is a pure function of arrays. A client cannot see the server's queue; requests in flight are used instead.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastllmload.errors import RunFolderError
from fastllmload.metrics.run.window import Window
from fastllmload.records.run import Run
from fastllmload.statistics.trend import mann_kendall, slope
from fastllmload.telemetry.series import TelemetryRecord, TelemetrySeries, load

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

SAMPLE_S = 0.5  # between two samples of the requests in flight
SEGMENTS = 5
LEAST_RISE, RISE_SHARE = 2.0, 0.10  # of the first segment's mean, for a queue to grow
COMPLETION = 0.90  # IETF 5.2.3.1
TTFT_FACTOR = 10.0  # IETF 5.2.3.1
GAIN, MORE_SLOTS = 0.05, 1.25  # closed loop: tokens/s by 5% for 25% more in flight
SUB_WINDOWS = 10
DRIFT_SHARE, DRIFT_P = 0.10, 0.05
LAG_NS = 1_000_000  # spec/procedures 0.4.4
FAILED_SHARE, FAILED_AMONG = 0.5, 100  # IETF 7.4


def in_flight(begin_ns: Numbers, end_ns: Numbers, w0_ns: int, w1_ns: int) -> Floats:
    """q(t) = begun - ended at w0, w0 + 0.5 s, ... before w1. A begin or end of 0 has not happened."""
    samples = np.arange(w0_ns, w1_ns, round(SAMPLE_S * 1e9))
    begun = np.sort(begin_ns[begin_ns > 0])
    ended = np.sort(end_ns[(begin_ns > 0) & (end_ns > 0)])
    count = np.searchsorted(begun, samples, side="right") - np.searchsorted(ended, samples, side="right")
    return count.astype(np.float64)


def queue_growing(q: Floats) -> bool | None:
    """Five rising segment means, the last at least 10% and 2 requests above the first; None below five samples."""
    if len(q) < SEGMENTS:
        return None
    means = np.array([part.mean() for part in np.array_split(q, SEGMENTS)])  # of lengths as equal as possible
    rise = float(means[-1] - means[0])
    return bool(np.all(np.diff(means) > 0)) and rise >= max(LEAST_RISE, RISE_SHARE * float(means[0]))


def incomplete(rate: float | None) -> bool | None:
    """The completion criterion; None without a rate."""
    return None if rate is None else rate < COMPLETION


def too_slow(ttft_p99: float | None, lowest_p50: float | None, lowest_p99: float | None) -> bool | None:
    """The latency criterion: P99 TTFT here above ten times the P50 TTFT of the lowest level.

    None (inapplicable) if the lowest level's own P99 is that far above its P50: then input lengths are the cause, not load.
    None also if a figure is missing.
    """
    if ttft_p99 is None or lowest_p50 is None or lowest_p99 is None or lowest_p99 > TTFT_FACTOR * lowest_p50:
        return None
    return ttft_p99 > TTFT_FACTOR * lowest_p50


def no_gain(slots: float, tok_s: float, lower: list[tuple[float, float]]) -> bool | None:
    """Closed loop: output tokens/s rose by less than 5% from the best lower level with at most slots / 1.25 in flight.

    *lower*: (concurrency, output tokens/s) of tested levels. None if no tested level is low enough.
    """
    below = [found for count, found in lower if slots >= MORE_SLOTS * count]
    return tok_s < (1 + GAIN) * max(below) if below else None


def throughput_drifts(rates: Floats) -> bool | None:
    """Output tokens/s of ten sub-windows: |slope x window| / mean above 0.10 and a trend with p < 0.05.

    None if nothing was received.
    """
    mean = float(rates.mean()) if len(rates) else 0.0
    if mean <= 0:
        return None
    series = rates.tolist()
    return abs(slope(series)) * len(series) / mean > DRIFT_SHARE and mann_kendall(series) < DRIFT_P


def sub_window_rates(t_ns: Numbers, tokens: Floats, w0_ns: int, w1_ns: int, parts: int = SUB_WINDOWS) -> Floats:
    """Tokens per second of *parts* equal parts of the window, from instants and tokens of events."""
    edges = np.linspace(w0_ns, w1_ns, parts + 1)
    sums, _ = np.histogram(t_ns, bins=edges, weights=tokens)
    return sums / ((w1_ns - w0_ns) / 1e9 / parts)


def cascading(failed: npt.NDArray[np.bool_]) -> bool:
    """Whether more than half of any 100 requests in a row failed, in the order in which they ended (IETF 7.4)."""
    if len(failed) < FAILED_AMONG:
        return False
    sums = np.cumsum(np.concatenate([[0], failed]))
    return bool((sums[FAILED_AMONG:] - sums[:-FAILED_AMONG]).max() > FAILED_SHARE * FAILED_AMONG)


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


def waiting_of(found: TelemetryRecord, window: Window) -> tuple[Floats, str] | None:
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
