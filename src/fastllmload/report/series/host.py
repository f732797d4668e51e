"""The load generator over time: CPU of each process, stalls of the host, late releases, and its histograms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload._ext.record import histogram
from fastllmload.certificate.evidence import LATE_NS
from fastllmload.certificate.monitor import HICCUP, HISTOGRAMS, STALLS, WATCHED, read_worker_stalls
from fastllmload.metrics.run.window import on_schedule
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.records.samples import SIMULATOR
from fastllmload.report.series.axis import Floats, TimeAxis, Times

INT64 = np.dtype(np.int64)
HALF = 1024  # HDR sub-buckets of one octave
PER_DECADE = 8
Words = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Bars:
    """A histogram on a logarithmic axis: counts[k] values in [edges_us[k], edges_us[k + 1]); *n* in total."""

    edges_us: Floats
    counts: Times
    n: int


def cpu_over_time(run: Run, axis: TimeAxis) -> dict[int, Floats]:
    """Worker number (SIMULATOR for the embedded engine, the last): float64[bins], share of one core that it used, NaN
    before its first and after its last sample.
    """
    found: dict[int, Floats] = {}
    edges = axis.zero_ns + np.arange(axis.bins + 1) * axis.width_ns
    samples = run.samples
    if samples is None:
        return found
    for worker in np.unique(samples["worker"]).tolist():
        own = samples[(samples["worker"] == worker) & (samples["cpu_ns"] > 0)]
        if len(own) < 2 or not (np.diff(own["t_ns"]) > 0).all():
            continue
        used = np.interp(edges, own["t_ns"], own["cpu_ns"], left=np.nan, right=np.nan)
        found[worker] = np.maximum(np.diff(used) / axis.width_ns, 0.0)
    if SIMULATOR in found:
        found[SIMULATOR] = found.pop(SIMULATOR)
    return found


def worst_in_bins(axis: TimeAxis, t_ns: Times, values: npt.NDArray[Any]) -> Floats:
    """float64[bins]: the largest of *values* in each bin, NaN where there is none."""
    worst = np.full(axis.bins, -np.inf)
    np.maximum.at(worst, axis.bin_of(t_ns), values.astype(np.float64))
    return np.where(np.isneginf(worst), np.nan, worst)


def lag_over_time(run: Run, axis: TimeAxis) -> Floats:
    """ms: the latest release of each bin, t_dispatch - t_sched by t_sched, NaN where nothing was due; of a mix, of its open
    loops.
    """
    rows = run.rows[run.rows["phase"] == layout.MEASURE]
    rows = rows[on_schedule(run.document.plan.description, rows["request_class"])]
    both = rows[(rows["t_dispatch"] > 0) & (rows["t_sched"] > 0)]
    return worst_in_bins(axis, both["t_sched"], (both["t_dispatch"] - both["t_sched"]) / 1e6)


def stalls_over_time(run: Run, axis: TimeAxis) -> Floats | None:
    """ms: the longest stall of the host in each bin, NaN without one above 5 ms; None where stalls were not recorded."""
    stalls = run.array(STALLS, INT64, (None, 2))
    if stalls is None:
        return None
    return worst_in_bins(axis, stalls[:, 0], stalls[:, 1] / 1e6)


def worker_stalls_over_time(run: Run, axis: TimeAxis) -> Floats | None:
    """ms: the longest stall of any worker in each bin, NaN without one above 5 ms; None where they were not recorded."""
    stalls = read_worker_stalls(run)
    if stalls is None:
        return None
    chosen = stalls[(stalls[:, 1] >= axis.zero_ns) & (stalls[:, 2] > LATE_NS)]
    return worst_in_bins(axis, chosen[:, 1], chosen[:, 2] / 1e6)


def histograms(run: Run) -> dict[str, Words]:
    """HDR histograms of `monitor.WATCHED`, summed over all workers, and of `hiccup`, as far as the folder has them."""
    found: dict[str, Words] = {}
    words = run.array(HISTOGRAMS, INT64, (None, len(WATCHED), histogram.WORDS))
    if words is not None and len(words):
        for number, name in enumerate(WATCHED):
            found[name] = words[0, number].copy()
            for worker in words[1:]:
                histogram.add(found[name], worker[number])
    stalls = run.array(HICCUP, INT64, (histogram.WORDS,))
    if stalls is not None:
        found["hiccup"] = stalls
    return {name: values for name, values in found.items() if histogram.total(values)}


def hdr_values_ns() -> Floats:
    """float64[COUNTS]: the middle of each HDR bucket."""
    index = np.arange(histogram.COUNTS)
    octave = np.maximum((index >> 10) - 1, 0)
    sub = np.where(index < 2 * HALF, index, (index & (HALF - 1)) + HALF)
    middle: Floats = (sub + 0.5) * 2.0**octave
    return middle


def bars(words: Words) -> Bars:
    """The histogram in PER_DECADE bars per decade, from its smallest to its largest value; below 1 us in one bar."""
    counts, middle = words[: histogram.COUNTS], hdr_values_ns() / 1e3
    place = np.floor(np.log10(np.maximum(middle, 1.0)) * PER_DECADE + 1e-9).astype(np.int64)
    place[middle >= 1.0] += 1
    summed = np.bincount(place, counts.astype(np.float64)).astype(np.int64)
    used = np.flatnonzero(summed)
    low, high = int(used[0]), int(used[-1])
    edges = 10.0 ** ((np.arange(low, high + 2) - 1) / PER_DECADE)
    return Bars(edges, summed[low : high + 1], int(summed.sum()))
