"""The time axis of all series of a run: bins of equal width from the start of the measured phase."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.run.window import Window, window_of
from fastllmload.records import layout
from fastllmload.records.run import Run

Times = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SECONDS_WIDE = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30)
WIDTHS_S = (*SECONDS_WIDE, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600, 86400)
MOST_BINS, FEWEST_BINS, LEAST_BINS = 320, 40, 20
IN_A_BIN = 10  # requests in a bin that give a usable rate


@dataclass(frozen=True)
class TimeAxis:
    """Bin k is [zero_ns + k width_ns, zero_ns + (k + 1) width_ns). *sent_ns* is when sending stopped, None if
    unknown.
    """

    zero_ns: int
    width_ns: int
    bins: int
    window: Window | None = None
    sent_ns: int | None = None

    @property
    def width_s(self) -> float:
        return self.width_ns / 1e9

    @property
    def edges_s(self) -> Floats:
        """float64[bins + 1], s since zero."""
        edges: Floats = np.arange(self.bins + 1, dtype=np.float64) * self.width_s
        return edges

    @property
    def middles_s(self) -> Floats:
        """float64[bins]: the middle of each bin, s since zero."""
        edges = self.edges_s
        middles: Floats = (edges[:-1] + edges[1:]) / 2
        return middles

    @property
    def seconds(self) -> float:
        return self.bins * self.width_s

    def since_zero(self, t_ns: int) -> float:
        """Seconds."""
        return (t_ns - self.zero_ns) / 1e9

    def bin_of(self, t_ns: Times) -> Times:
        """Bin of each time; times outside are in the first or last bin."""
        return np.clip((t_ns - self.zero_ns) // self.width_ns, 0, self.bins - 1)

    def count(self, t_ns: npt.NDArray[Any]) -> Times:
        """int64[bins]: number of times in each bin; 0 means that the event did not occur."""
        return np.bincount(self.bin_of(t_ns[t_ns > 0]), minlength=self.bins)

    def per_second(self, t_ns: npt.NDArray[Any]) -> Floats:
        """float64[bins]: `count` over the width of a bin."""
        return self.count(t_ns) / self.width_s

    def coarser(self, samples: int, wanted: int, fewest: int = 12) -> TimeAxis:
        """The same span in wider bins, until each has *wanted* of *samples* or fewer than *fewest* bins would remain."""
        found = self
        for factor in (1, 2, 5, 10, 20, 50):
            bins = -(-self.bins // factor)
            if bins < fewest:
                break
            found = replace(self, width_ns=self.width_ns * factor, bins=bins)
            if samples >= wanted * bins:
                break
        return found


def time_axis(run: Run) -> TimeAxis | None:
    """From the start of the measured phase to the last event recorded in it; None when nothing was sent."""
    rows = run.rows[run.rows["phase"] == layout.MEASURE]
    sent = rows["t_dispatch"][rows["t_dispatch"] > 0]
    if not len(sent):
        return None
    phase = run.phase("measure")
    zero = int(sent.min()) if phase is None else min(phase.start_ns, int(sent.min()))
    last = max(int(sent.max()), int(rows["t_end"].max()), int(rows["t_last"].max()))
    width = width_ns(last - zero, len(sent))
    stop = None if phase is None or phase.end_ns is None else min(phase.end_ns, last)
    return TimeAxis(zero, width, max(1, -(-(last - zero + 1) // width)), window_of(run), stop)


def width_ns(span_ns: int, requests: int) -> int:
    """The smallest width that gives at most MOST_BINS bins, with enough requests in each unless bins are few."""
    few = min(max(requests, LEAST_BINS), 2 * FEWEST_BINS)
    for width_s in WIDTHS_S:
        width = round(width_s * 1e9)
        bins = -(-(span_ns + 1) // width)
        if bins <= MOST_BINS and (requests / bins >= IN_A_BIN or bins <= few):
            return width
    return -(-(span_ns + 1) // MOST_BINS)
