"""Rate curves: rates that change with time. A curve gives the expected arrivals up to each instant, and the exact inverse.

An arrival process of rate 1 whose instants are mapped through that inverse follows the curve exactly (time change):
Poisson stays Poisson, with the curve as its intensity; constant gaps stay equal in expected arrivals. No thinning and
no time slices are needed. After its end a curve keeps its last rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
HALVINGS = 64  # of a period, until its float64 bounds meet


class RateCurve(Protocol):
    """Requests per second over seconds from time zero."""

    @property
    def seconds(self) -> float:
        """Where the curve ends."""

    @property
    def peak(self) -> float:
        """Highest rate."""

    def rate(self, t: Numbers) -> Numbers: ...

    def expected(self, t: Numbers) -> Numbers:
        """Integral of the rate over [0, t]."""

    def instant(self, expected: Numbers) -> Numbers:
        """Inverse of `expected`; inf where the curve never reaches that number."""

    def describe(self) -> dict[str, Any]:
        """Parameters as JSON; `described_curve` rebuilds the curve from them."""


@dataclass(frozen=True)
class LinearCurve:
    """Straight lines between knots (*t* ascending from 0, *r*); two knots at one time are a step."""

    t: tuple[float, ...]
    r: tuple[float, ...]

    @property
    def seconds(self) -> float:
        return self.t[-1]

    @property
    def peak(self) -> float:
        return max(self.r)

    def rate(self, t: Numbers) -> Numbers:
        piece = self._piece(t)
        times, rates = np.array(self.t), np.array(self.r)
        found: Numbers = rates[piece] + self._slopes()[piece] * (t - times[piece])
        return found

    def expected(self, t: Numbers) -> Numbers:
        piece = self._piece(t)
        since = t - np.array(self.t)[piece]
        found: Numbers = self._sums()[piece] + since * (np.array(self.r)[piece] + 0.5 * self._slopes()[piece] * since)
        return found

    def instant(self, expected: Numbers) -> Numbers:
        sums, times, rates = self._sums(), np.array(self.t), np.array(self.r)
        piece = np.clip(np.searchsorted(sums, expected, "left") - 1, 0, len(times) - 1)
        more, rate, slope = expected - sums[piece], rates[piece], self._slopes()[piece]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # The root of rate x + slope x^2 / 2 = more in the form that does not cancel.
            root = np.where(slope == 0, rate, np.sqrt(np.maximum(rate * rate + 2 * slope * more, 0.0)))
            since = 2 * more / (rate + root)
        found: Numbers = times[piece] + np.where(more <= 0, 0.0, since)
        return found

    def describe(self) -> dict[str, Any]:
        return {"kind": "linear", "t_s": list(self.t), "rate": list(self.r)}

    def _piece(self, t: Numbers) -> npt.NDArray[np.intp]:
        return np.clip(np.searchsorted(np.array(self.t), t, "right") - 1, 0, len(self.t) - 1)

    def _slopes(self) -> Numbers:
        """One for each knot; 0 after the last one and at a step."""
        wide, high = np.diff(self.t), np.diff(self.r)
        return np.append(np.divide(high, wide, out=np.zeros(len(wide)), where=wide > 0), 0.0)

    def _sums(self) -> Numbers:
        rates = np.array(self.r)
        return np.concatenate([[0.0], np.cumsum(np.diff(self.t) * 0.5 * (rates[1:] + rates[:-1]))])


@dataclass(frozen=True)
class ExponentialCurve:
    """From *start* to *end* by a constant factor per second, over *length* seconds."""

    start: float
    end: float
    length: float

    @property
    def seconds(self) -> float:
        return self.length

    @property
    def peak(self) -> float:
        return max(self.start, self.end)

    @property
    def _growth(self) -> float:
        return math.log(self.end / self.start) / self.length

    def rate(self, t: Numbers) -> Numbers:
        found: Numbers = self.start * np.exp(self._growth * np.minimum(t, self.length))
        return found

    def expected(self, t: Numbers) -> Numbers:
        inside = self.start * np.expm1(self._growth * np.minimum(t, self.length)) / self._growth
        found: Numbers = inside + self.end * np.maximum(t - self.length, 0.0)
        return found

    def instant(self, expected: Numbers) -> Numbers:
        total = (self.end - self.start) / self._growth
        inside = np.log1p(np.minimum(expected, total) * self._growth / self.start) / self._growth
        found: Numbers = inside + np.maximum(expected - total, 0.0) / self.end
        return found

    def describe(self) -> dict[str, Any]:
        return {"kind": "exponential", "start": self.start, "end": self.end, "length_s": self.length}


@dataclass(frozen=True)
class DayCurve:
    """A cosine from *low* at time zero to *high* half a *period* later and back, repeated."""

    low: float
    high: float
    period: float

    @property
    def seconds(self) -> float:
        return self.period

    @property
    def peak(self) -> float:
        return self.high

    @property
    def _middle(self) -> float:
        return (self.low + self.high) / 2

    def rate(self, t: Numbers) -> Numbers:
        found: Numbers = self._middle - (self.high - self.low) / 2 * np.cos(2 * np.pi / self.period * t)
        return found

    def expected(self, t: Numbers) -> Numbers:
        turn = 2 * np.pi / self.period
        found: Numbers = self._middle * t - (self.high - self.low) / 2 / turn * np.sin(turn * t)
        return found

    def instant(self, expected: Numbers) -> Numbers:
        """Bisection within one period: the integral has no inverse in closed form."""
        per_period = self._middle * self.period
        periods = np.floor(expected / per_period)
        wanted = expected - periods * per_period
        low, high = np.zeros(len(expected)), np.full(len(expected), self.period)
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            early = self.expected(middle) < wanted
            low, high = np.where(early, middle, low), np.where(early, high, middle)
        found: Numbers = periods * self.period + high
        return found

    def describe(self) -> dict[str, Any]:
        return {"kind": "day", "low": self.low, "high": self.high, "period_s": self.period}


def described_curve(described: dict[str, Any]) -> RateCurve:
    """The curve that `describe` gave *described* for."""
    if described["kind"] == "linear":
        return LinearCurve(tuple(described["t_s"]), tuple(described["rate"]))
    if described["kind"] == "exponential":
        return ExponentialCurve(described["start"], described["end"], described["length_s"])
    return DayCurve(described["low"], described["high"], described["period_s"])


def mean_rate(curve: RateCurve, seconds: float) -> float:
    """Expected requests per second over [0, *seconds*]."""
    return float(curve.expected(np.array([seconds]))[0]) / seconds
