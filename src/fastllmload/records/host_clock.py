"""The driver's clock as a function of a host's clock, with a bound, from exchanges of datagrams (`hosts/<h>/clock.npy`).

An exchange is a row t1 t2 t3 t4, in ns of CLOCK_MONOTONIC: the host sends (t1, its clock), the driver receives and
answers (t2 and t3, its clock), the host receives (t4, its clock). No datagram arrives before it was sent. So the
offset, driver's clock minus host's clock, is at most t2 - t1 at the host's time t1, and at least t3 - t4 at its time
t4. Nothing is assumed about the delays: they may differ by direction, change and have outliers. A quick exchange
limits the offset to a short interval.

The true offset is within the bound if both of these hold:

* It changes by at most LARGEST_RATE. NTP may steer a Linux clock by half of that.
* Within any WINDOW_NS the rate of its change stays in a band that is BAND wide. A constant rate does, whatever the
  drift, and so does one that a time daemon steers in normal operation.

How: with a band, the offset at time x is a line through the offset at t, o + b * (x - t), give or take BAND / 2 * |x
- t|. At each *knot* t (one for each BIN_NS with exchanges) all such lines are kept that pass between all limits of
the window around t. The least and the greatest o of them bound the offset; the estimate is the middle. If there is no
such line, the exchanges themselves show that the rate changed by more: the band of that window is doubled until there
is one, and once more. Between two knots the offset leaves the straight line by at most BAND * s * (d - s) / d, at
distances s and d - s from the two. Before the first knot and after the last one the bound grows with the range of b
and with BAND.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastllmload.arrays import Floats, Mask, Numbers
from fastllmload.host.probe import LARGEST_RATE

BAND = 100e-6
WINDOW_NS = 5_000_000_000
BIN_NS = 250_000_000
REACH = WINDOW_NS // 2 // BIN_NS  # bins on either side of a knot
SLOWEST_NS = 1_000_000_000  # a slower exchange is left out
DOUBLINGS = 40
AT_ONCE = 128  # knots: their pairs of limits stay in the processor's cache

Times = npt.ArrayLike  # ns: an int, or an array of any shape; the result has the same shape


@dataclass(frozen=True)
class ClockFit:
    """The offset of the driver's clock from the host's clock, piecewise linear. All times are ns of CLOCK_MONOTONIC."""

    origin: int  # host's clock; knots count from here
    offset: int  # driver - host at the origin, roughly; offsets count from here
    exchanges: int  # that the fit is made of
    knots: Floats  # ascending
    middle: Floats  # of each knot: the estimate of the offset
    half: Floats  # of each knot: the offset is the estimate, give or take this
    band: Floats  # of the rate around each knot
    rate: Floats  # of each knot: the middle of the rates that are possible
    half_rate: Floats

    def offset_ns(self, t_host: Times) -> Numbers:
        """Driver's clock minus host's clock at *t_host*."""
        return self.offset + np.rint(self._offset(self._since(t_host, self.origin))).astype(np.int64)

    def to_driver(self, t_host: Times) -> Numbers:
        """The time of the driver's clock when the host's clock shows *t_host*."""
        return np.asarray(t_host, np.int64) + self.offset_ns(t_host)

    def to_host(self, t_driver: Times) -> Numbers:
        """The time of the host's clock when the driver's clock shows *t_driver*."""
        t = self._since(t_driver, self.origin + self.offset)
        at = np.maximum.accumulate(self.knots + self.middle)
        found = np.interp(t, at, self.knots)
        found += np.minimum(t - at[0], 0) / (1 + self.rate[0]) + np.maximum(t - at[-1], 0) / (1 + self.rate[-1])
        return self.origin + np.rint(found).astype(np.int64)

    def bound_ns(self, t_host: Times) -> Numbers:
        """The true offset at *t_host* differs from `offset_ns` by at most this, if what the module assumes holds."""
        t, knots = self._since(t_host, self.origin), self.knots
        found = np.interp(t, knots, self.half)
        if len(knots) > 1:
            segment = np.clip(np.searchsorted(knots, t) - 1, 0, len(knots) - 2)
            length = np.diff(knots)
            changes = np.maximum(self.band[:-1], self.band[1:]) * np.ceil(length / WINDOW_NS)
            since = np.clip(t - knots[segment], 0, length[segment])
            found += changes[segment] * since * (length[segment] - since) / length[segment]
        for end, outside in ((0, np.maximum(knots[0] - t, 0)), (-1, np.maximum(t - knots[-1], 0))):
            change = self.half_rate[end] + self.band[end] * (0.5 + np.ceil(outside / WINDOW_NS))
            found += change * outside
        return np.ceil(found).astype(np.int64) + 1  # stamps are whole ns

    def shift_ns(self, start_driver: int, start_host: int, t_host: int) -> int:
        """What to add at *t_host* to instants that count from *start_host*, so that on the driver's clock they are as far
        from *start_driver* (W_CLOCK_SHIFT).
        """
        return int(self.to_host(start_driver + (t_host - start_host))) - t_host

    @property
    def drift_ppm(self) -> float:
        """The mean rate of the driver's clock against the host's clock, in parts per million."""
        if self.knots[-1] - self.knots[0] < BIN_NS:
            return float(self.rate[-1] * 1e6)
        x = (self.knots - self.knots.mean()) / 1e9
        return float(np.sum(x * self.middle) / np.sum(x * x) / 1e3)

    @staticmethod
    def _since(t: Times, origin: int) -> Floats:
        return (np.asarray(t, np.int64) - origin).astype(np.float64)

    def _offset(self, t: Floats) -> Floats:
        found: Floats = np.interp(t, self.knots, self.middle)
        found += np.minimum(t - self.knots[0], 0) * self.rate[0] + np.maximum(t - self.knots[-1], 0) * self.rate[-1]
        return found


def fit(exchanges: Numbers) -> ClockFit:
    """The fit of *exchanges*, int64[n, 4], in any order. Raises ValueError without one that took at most SLOWEST_NS.

    The fit at a time depends on the exchanges of the window around it alone. So for the present, while a run lasts, the
    newest 100 rows are enough, and take a millisecond; 28,800 rows (one hour) take 0.15 s.
    """
    t1, t2, t3, t4 = exchanges[np.argsort(exchanges[:, 0], kind="stable")].T
    if np.any((t4 < t1) | (t3 < t2)):
        raise ValueError("an exchange ends before it begins: its stamps are not of one clock each")
    quick = (t4 - t1) <= SLOWEST_NS
    if not quick.any():
        raise ValueError(f"none of {len(exchanges)} exchanges took less than {SLOWEST_NS / 1e9:g} s")
    t1, t2, t3, t4 = t1[quick], t2[quick], t3[quick], t4[quick]
    origin, offset = int(t1[0]), int(t2[0] - t1[0])
    upper = Limits((t1 - origin).astype(np.float64), (t2 - t1 - offset).astype(np.float64))
    lower = Limits((t4 - origin).astype(np.float64), (t3 - t4 - offset).astype(np.float64))
    knots, upper, lower = _thinned(upper, lower)
    return ClockFit(origin, offset, len(t1), knots, *_bounds(knots, upper, lower))


class Limits(NamedTuple):
    """Limits of the offset from one side: at times *x*, the offset *y*. Arrays of one shape."""

    x: Floats
    y: Floats

    def widened(self, slack: Floats) -> Limits:
        return Limits(self.x, self.y + slack * np.abs(self.x))


def _thinned(upper: Limits, lower: Limits) -> tuple[Floats, Limits, Limits]:
    """Of each bin the knot, which is the time of its quickest exchange, and its strictest limit from each side."""
    bins = upper.x // BIN_NS
    took = upper.y - lower.y
    drift = _coarse_rate(upper, took)
    above, below = upper.y - drift * upper.x, lower.y - drift * lower.x
    knots, up, low = (_least(bins, each) for each in (took, above, -below))
    return upper.x[knots], Limits(upper.x[up], upper.y[up]), Limits(lower.x[low], lower.y[low])


def _least(bins: Floats, values: Floats) -> Numbers:
    """Of each bin the index of its least value."""
    order = np.lexsort((values, bins))
    return order[np.unique(bins[order], return_index=True)[1]]


def _coarse_rate(upper: Limits, took: Floats) -> float:
    """The drift as the quickest exchanges of the first and of the last third show it: to compare limits within a bin."""
    third = len(took) // 3
    if not third:
        return 0.0
    first, last = np.argmin(took[:third]), len(took) - third + np.argmin(took[-third:])
    time = upper.x[last] - upper.x[first]
    rise = (upper.y[last] - took[last] / 2) - (upper.y[first] - took[first] / 2)
    return float(rise / time) if time > BIN_NS else 0.0


def _bounds(knots: Floats, upper: Limits, lower: Limits) -> Iterator[Floats]:
    """Of each knot: middle and half of the range of the offset, the band, middle and half of the range of the rate."""
    found = np.empty((5, len(knots)))
    for start in range(0, len(knots), AT_ONCE):
        some = np.arange(start, min(start + AT_ONCE, len(knots)))
        windows = Windows(_around(knots, upper, some, np.inf), _around(knots, lower, some, -np.inf))
        band, ranges, left = np.full(len(some), BAND), np.empty((4, len(some))), np.arange(len(some))
        for doubling in range(DOUBLINGS):
            ranges[:, left], fits = windows.of(left).ranges(band[left])
            if doubling:
                band[left[fits]] *= 2
                ranges[:, left[fits]], _ = windows.of(left[fits]).ranges(band[left[fits]])
            left = left[~fits]
            if not len(left):
                break
            band[left] *= 2
        else:
            raise ValueError("exchanges contradict each other: their stamps are not of one clock each")
        least, most, slowest, fastest = ranges
        found[:, some] = (least + most) / 2, (most - least) / 2, band, (slowest + fastest) / 2, (fastest - slowest) / 2
    return iter(found)


def _around(knots: Floats, limits: Limits, some: Numbers, none: float) -> Limits:
    """Of each of *some* knots the limits in its window, (n, m), with x from the knot; where there is none, y is *none*."""
    near = some[:, None] + np.arange(-REACH, REACH + 1)
    inside = (near >= 0) & (near < len(knots))
    near = np.clip(near, 0, len(knots) - 1)
    x = limits.x[near] - knots[some, None]
    return Limits(x, np.where(inside & (np.abs(x) <= WINDOW_NS / 2), limits.y[near], none))


class Windows(NamedTuple):
    """The limits in the windows around some knots."""

    upper: Limits
    lower: Limits

    def of(self, rows: Numbers) -> Windows:
        return Windows(*(Limits(limits.x[rows], limits.y[rows]) for limits in self))

    def ranges(self, band: Floats) -> tuple[Floats, Mask]:
        """(4, n): the least and the greatest offset at each knot, the least and the greatest rate, of all lines between the
        limits; and whether there is a line.
        """
        slack = band[:, None] / 2
        above, below = self.upper.widened(slack), self.lower.widened(-slack)
        # A line passes between two limits if its rate is on the right side of the slope from one to the other.
        run = above.x[:, :, None] - below.x[:, None, :]
        with np.errstate(divide="ignore", invalid="ignore"):  # of limits at one time, or that do not exist
            slope = (above.y[:, :, None] - below.y[:, None, :]) / run
        fastest = np.minimum(np.where(run > 0, slope, np.inf).min(axis=(1, 2)), LARGEST_RATE)
        slowest = np.maximum(np.where(run < 0, slope, -np.inf).max(axis=(1, 2)), -LARGEST_RATE)
        fits = slowest <= fastest
        most = _highest(above, slowest, fastest)
        least = -_highest(Limits(below.x, -below.y), -fastest, -slowest)
        return np.array([least, most, slowest, fastest]), fits


def _highest(above: Limits, slowest: Floats, fastest: Floats) -> Floats:
    """The greatest o, of each row, of the lines o + b * x that are nowhere above a limit, *slowest* <= b <= *fastest*.

    It is the least of what one limit and the range of b allow, and two limits, one before the knot and one after it.
    """
    x, y = above
    alone = np.min(y - np.where(x < 0, fastest[:, None], slowest[:, None]) * x, axis=1)
    middle = x.shape[1] // 2  # the knot's own bin: it has limits on either side
    before, after = x[:, : middle + 1, None], x[:, None, middle:]
    with np.errstate(divide="ignore", invalid="ignore"):
        chords = (y[:, : middle + 1, None] * after - y[:, None, middle:] * before) / (after - before)
    lowest = np.where((before < 0) & (after > 0), chords, np.inf).min(axis=(1, 2))
    found: Floats = np.minimum(alone, lowest)
    return found
