"""Computes the shape of a gap distribution: tail ratio, number of modes, class of tail (IETF 5.4.4.3; spec/metrics 7.10).

All functions take gaps in ns in any order, because a sort would cost more than everything else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from msgspec.structs import replace

from fastllmload.arrays import Floats, Numbers
from fastllmload.documents.fields import known
from fastllmload.documents.metric import Metric, Value
from fastllmload.metrics.distribution.summary import number
from fastllmload.statistics.hdr_sample import HdrSample
from fastllmload.statistics.order_statistics import in_order, pieces

SHORTEST_NS = 100_000  # gaps below 0.1 ms lie inside one read and are not a mode
GRID = 512
CELLS = 16 * GRID  # of the histogram that represents the sample
PEAK_SHARE, VALLEY_SHARE = 0.10, 0.80
TAIL_SHARE = 0.05
LIGHT_BELOW, HEAVY_ABOVE = -0.15, 0.15
ENOUGH = 5000  # gaps (IETF 5.4.2)


@dataclass(frozen=True)
class Modality:
    """*peaks_ms*: where the density of ln(gap) has its modes; *bandwidth* in ln units; *n* gaps of 0.1 ms or more."""

    n: int
    peaks_ms: tuple[float, ...]
    bandwidth: float

    @property
    def label(self) -> str:
        return "multimodal" if len(self.peaks_ms) > 1 else "unimodal"


@dataclass(frozen=True)
class Tail:
    """*xi*: extreme value index over the *k* largest gaps, with its asymptotic standard error.

    *label* is None where that error exceeds the thresholds that it would be compared with.
    """

    k: int
    xi: float
    standard_error: float

    @property
    def label(self) -> str | None:
        if self.standard_error > HEAVY_ABOVE:
            return None
        if self.xi < LIGHT_BELOW:
            return "light"
        return "heavy" if self.xi > HEAVY_ABOVE else "exponential"


@dataclass(frozen=True)
class Cells:
    """*counts* of ln(gap in ns) in equal cells from *low* to *high*: they represent the sample."""

    low: float
    high: float
    counts: Floats

    @property
    def n(self) -> int:
        return int(self.counts.sum())

    @property
    def step(self) -> float:
        return (self.high - self.low) / len(self.counts)

    @property
    def centres(self) -> Floats:
        return np.asarray(self.low + self.step * (np.arange(len(self.counts)) + 0.5), np.float64)


def tail_ratio(p50: float | None, p99: float | None) -> float | None:
    """P99 / P50; None for no gap, or a median of 0, which chunks of several tokens easily produce."""
    return None if p50 is None or p99 is None or p50 == 0 else p99 / p50


def modality(gaps_ns: Numbers | HdrSample) -> Modality | None:
    """Modes of a Gaussian kernel density of ln(gap) on 512 points; None without a gap of 0.1 ms or more.

    A mode is higher than 10% of the highest, with a valley below 80% of the lower of two neighbours between them. The
    bandwidth is Silverman's, 0.9 min(std, IQR / 1.34) n^-0.2, but at least one step of the grid, so that no value
    between two points is lost.
    """
    cells = cells_of(gaps_ns)
    if cells is None:
        return None
    if cells.step == 0:
        return Modality(cells.n, (math.exp(cells.low) / 1e6,), 0.0)
    width = silverman(cells)
    width = max(width, (cells.high - cells.low + 6 * width) / (GRID - 1))
    grid = np.linspace(cells.low - 3 * width, cells.high + 3 * width, GRID)
    peaks = modes(kernel_density(cells, grid, width))
    return Modality(cells.n, tuple(math.exp(grid[peak]) / 1e6 for peak in peaks), width)


def cells_of(gaps_ns: Numbers | HdrSample) -> Cells | None:
    """Gaps of 0.1 ms or more, 16 cells for each point of the grid."""
    ends = [(int(long.min()), int(long.max())) for long, _ in at_least(gaps_ns, SHORTEST_NS)]
    if not ends:
        return None
    low, high = math.log(min(least for least, _ in ends)), math.log(max(most for _, most in ends))
    if low == high:
        n = sum(len(long) if times is None else int(times.sum()) for long, times in at_least(gaps_ns, SHORTEST_NS))
        return Cells(low, high, np.array([float(n)]))
    counts = np.zeros(CELLS)
    for long, times in at_least(gaps_ns, SHORTEST_NS):
        index = (np.log(long) - low) * (CELLS / (high - low))
        counts += np.bincount(np.clip(index.astype(np.int64), 0, CELLS - 1), times, CELLS)
    return Cells(low, high, counts)


def at_least(gaps_ns: Numbers | HdrSample, ns: int) -> Iterator[tuple[Numbers, Numbers | None]]:
    """The gaps of at least *ns*, in pieces that are not empty, and how often each occurs; None: once."""
    if isinstance(gaps_ns, HdrSample):
        kept = gaps_ns.values >= ns
        if kept.any():
            yield gaps_ns.values[kept], gaps_ns.counts[kept]
        return
    for piece in pieces(gaps_ns):
        long = piece[piece >= ns]
        if len(long):
            yield long, None


def total(values: Floats, times: Numbers | None) -> float:
    return float((values if times is None else values * times).sum())


def silverman(cells: Cells) -> float:
    """0.9 min(std, IQR / 1.34) n^-0.2 of ln(gap); std alone where the quartiles are equal."""
    n, centres = cells.n, cells.centres
    mean = float(np.dot(cells.counts, centres)) / n
    std = math.sqrt(float(np.dot(cells.counts, (centres - mean) ** 2)) / n)
    lower, upper = np.interp([0.25 * n, 0.75 * n], np.cumsum(cells.counts), centres)
    quartiles = float(upper - lower) / 1.34
    return 0.9 * (min(std, quartiles) if quartiles > 0 else std) * math.exp(-0.2 * math.log(n))


def kernel_density(cells: Cells, grid: Floats, width: float) -> Floats:
    """Gaussian kernel density (unnormalised) at the points of *grid*."""
    half = math.ceil(6 * width / cells.step)
    kernel = np.exp(-0.5 * (np.arange(-half, half + 1) * cells.step / width) ** 2)
    length = len(cells.counts) + 2 * half
    size = 1 << length.bit_length()
    spread = np.fft.irfft(np.fft.rfft(cells.counts, size) * np.fft.rfft(kernel, size), size)[:length]
    positions = cells.low + cells.step * (np.arange(length) - half + 0.5)
    return np.interp(grid, positions, np.maximum(spread, 0.0), left=0.0, right=0.0)


def modes(density: Floats) -> list[int]:
    """Positions of the modes of *density*, ascending."""
    padded = np.concatenate([[-1.0], density, [-1.0]])
    rising, not_rising = padded[1:-1] > padded[:-2], padded[1:-1] >= padded[2:]
    candidates = np.flatnonzero(rising & not_rising & (density > PEAK_SHARE * density.max()))
    kept: list[int] = []
    for candidate in candidates.tolist():
        if not kept:
            kept.append(candidate)
            continue
        valley = density[kept[-1] : candidate + 1].min()
        if valley < VALLEY_SHARE * min(density[kept[-1]], density[candidate]):
            kept.append(candidate)
        elif density[candidate] > density[kept[-1]]:
            kept[-1] = candidate
    return kept


def tail(gaps_ns: Numbers | HdrSample) -> Tail | None:
    """Moment estimate (Dekkers, Einmahl, de Haan) of the extreme value index on the largest 5% of the gaps.

    None for fewer than 2 of them, for a threshold of 0, or when they are all equal. The standard error is that of the
    estimate for independent gaps; gaps of one stream are not independent, so it tends to be too small.
    """
    n = len(gaps_ns)
    k = int(TAIL_SHARE * n)
    if k < 2:
        return None
    threshold = int(in_order(gaps_ns)[n - k - 1])
    if threshold <= 0:
        return None
    # ln(1) of those equal to it is 0
    over = [(np.log(long / threshold), times) for long, times in at_least(gaps_ns, threshold + 1)]
    first = math.fsum(total(part, times) for part, times in over) / k
    second = math.fsum(total(part * part, times) for part, times in over) / k
    if second == 0 or first * first >= second:
        return None
    xi = first + 1 - 0.5 / (1 - first * first / second)
    return Tail(k, xi, math.sqrt(variance(xi) / k))


def variance(xi: float) -> float:
    """Asymptotic variance of the moment estimate times k (Dekkers, Einmahl and de Haan 1989)."""
    if xi >= 0:
        return 1 + xi * xi
    return (
        (1 - xi) ** 2
        * (1 - 2 * xi)
        * (4 - 8 * (1 - 2 * xi) / (1 - 3 * xi) + (5 - 11 * xi) * (1 - 2 * xi) / ((1 - 3 * xi) * (1 - 4 * xi)))
    )


class ModalityMetric(Value, frozen=True, kw_only=True):
    WRITTEN: ClassVar[tuple[str, ...]] = (*Value.WRITTEN, "label", "peaks_ms", "bandwidth_ln")


class TailIndexMetric(Value, frozen=True, kw_only=True):
    WRITTEN: ClassVar[tuple[str, ...]] = (*Value.WRITTEN, "label", "standard_error", "k")


def shape_metrics(gaps_ns: Numbers | HdrSample, pooled_as: str, summary: Metric) -> dict[str, Metric]:
    """`tail_ratio`, `modality`, `tail_index` of the gaps with the metric name *pooled_as*, with their thresholds.

    *summary* is the distribution of the same gaps. `enough` is false below the 5000 gaps that IETF 5.4.2 requires.
    """
    found, end = modality(gaps_ns), tail(gaps_ns)
    of: dict[str, Any] = {"pooled_as": pooled_as, "n": len(gaps_ns), "enough": len(gaps_ns) >= ENOUGH}
    modal = ModalityMetric(
        unit="modes", gaps_at_least_ms=SHORTEST_NS / 1e6, peak_share=PEAK_SHARE, valley_share=VALLEY_SHARE, **of
    )
    if found is not None:
        number_of, peaks = float(len(found.peaks_ms)), found.peaks_ms
        modal = replace(modal, value=number_of, label=found.label, peaks_ms=peaks, bandwidth_ln=found.bandwidth)
    index = TailIndexMetric(unit="xi", tail_share=TAIL_SHARE, light_below=LIGHT_BELOW, heavy_above=HEAVY_ABOVE, **of)
    if end is not None:
        index = replace(index, value=number(end.xi), label=end.label, standard_error=end.standard_error, k=end.k)
    ratio = number(tail_ratio(known(summary.p50), known(summary.p99)))
    return {"tail_ratio": Value(unit="ratio", value=ratio, **of), "modality": modal, "tail_index": index}
