"""Scales of axes: the position of a value from 0 to 1, and labelled ticks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fastllmload.report.charts import Axis, Floats
from fastllmload.report.text.numbers import duration

Label = Callable[[float], str]
Ticks = list[tuple[float, str]]

LOG_BEYOND = 30.0  # ratio of largest to smallest value from which a duration gets a logarithmic axis


class Scale(Protocol):
    """Maps values to positions; *kind* is its name in the page's script."""

    @property
    def kind(self) -> str: ...

    @property
    def low(self) -> float: ...

    @property
    def high(self) -> float: ...

    def place(self, values: Floats) -> Floats: ...

    def ticks(self) -> Ticks: ...


def plain(value: float) -> str:
    """0, 0.25, 1,200, 80k, 1.2M."""
    for limit, mark in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if mark == 'k' else limit):.4g}{mark}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def step_for(span: float, ticks: int) -> float:
    """A step of 1, 2 or 5 times a power of ten that gives about *ticks* steps."""
    raw = span / max(1, ticks)
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)


@dataclass(frozen=True)
class Linear:
    low: float
    high: float
    label: Label = plain
    steps: int = 5
    kind: str = "linear"

    def place(self, values: Floats) -> Floats:
        return (values - self.low) / (self.high - self.low)

    def ticks(self) -> Ticks:
        step = step_for(self.high - self.low, self.steps)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [(k * step, self.label(round(k * step, 12))) for k in range(first, last + 1)]


@dataclass(frozen=True)
class LogScale:
    """*low* and *high* are above 0; smaller values are drawn at *low*."""

    low: float
    high: float
    label: Label = plain
    kind: str = "log"

    def place(self, values: Floats) -> Floats:
        span = math.log10(self.high / self.low)
        found: Floats = np.log10(np.maximum(values, self.low) / self.low) / span
        return found

    def ticks(self) -> Ticks:
        decades = math.log10(self.high / self.low)
        factors: Sequence[int] = (1, 2, 5) if decades <= 2.4 else (1, 3) if decades <= 4 else (1,)
        every = max(1, math.ceil(decades / 7))
        exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        values = [factor * 10.0**e for e in exponents if e % every == 0 for factor in factors]
        return [(v, self.label(v)) for v in values if self.low * 0.999 <= v <= self.high * 1.001]


@dataclass(frozen=True)
class TailScale:
    """Percentiles by -log10(1 - q): P90 to P99 is as wide as P99 to P99.9."""

    high: float
    low: float = 0.0
    kind: str = "tail"

    def place(self, values: Floats) -> Floats:
        return values / self.high

    def ticks(self) -> Ticks:
        places = [(0.0, "min")] * (self.high < 6) + [(-math.log10(0.5), "P50"), (1.0, "P90")]
        places += [
            (float(k), "P99" + "." * (k > 2) + "9" * (k - 2)) for k in range(2, math.floor(self.high + 1e-9) + 1)
        ]
        return [(place, name) for place, name in places if place <= self.high + 1e-9]


@dataclass(frozen=True)
class Names:
    """Categories side by side; category k is centred at k + 0.5."""

    names: Sequence[str]
    low: float = 0.0
    kind: str = "names"

    @property
    def high(self) -> float:
        return float(max(1, len(self.names)))

    def place(self, values: Floats) -> Floats:
        return values / self.high

    def ticks(self) -> Ticks:
        room = max(4, round(90 / self.high))  # characters
        cut = [name if len(name) <= room else name[: room - 1] + "…" for name in self.names]
        return [(k + 0.5, name) for k, name in enumerate(cut)]


def up_to(values: Sequence[Floats], label: Label = plain, least: float = 1.0, most: float = math.inf) -> Linear:
    """From 0 to a round value above the largest of *values*, at least *least*, 1 when all are 0; NaN does not count.
    *most*: a round value that is never exceeded unless a value is above it, such as 1 for shares.
    """
    highest = max([0.0, *(float(np.nanmax(v)) for v in values if len(v) and not np.isnan(v).all())])
    highest = max(highest, least) if highest > 0 else max(least, 1.0)
    step = step_for(highest * 1.04, 5)
    top = math.ceil(highest * 1.04 / step) * step
    return Linear(0.0, most if highest <= most < top else top, label)


def spread(
    values: Floats, label: Label = plain, from_zero: bool = True, least: float = 0.0, most: float = math.inf
) -> Linear:
    """Between round values around *values*, from 0 unless some are negative; *least* and *most* as in `up_to`. Without
    *from_zero*, from just below the smallest value when that is above half of the largest.
    """
    if not len(values):
        return Linear(0.0, 1.0, label)
    lowest, highest = float(values.min()), float(values.max())
    if lowest >= 0 and (from_zero or lowest <= highest / 2):
        return up_to([values], label, max(least, 1e-9 if highest > 0 else 1.0), most)
    step = step_for(max(highest - lowest, abs(highest) * 0.05), 5)
    return Linear(math.floor(lowest / step) * step, math.ceil(highest / step + 1e-9) * step, label)


def for_durations(values: Sequence[Floats]) -> Linear | LogScale:
    """For ms: logarithmic between round values where the values are far apart, else linear from 0."""
    known = np.concatenate([np.empty(0), *(v[~np.isnan(v) & (v > 0)] for v in values)])
    if len(known) and known.max() / known.min() > LOG_BEYOND:
        return LogScale(round_below(max(float(known.min()), 1e-4)), round_above(float(known.max())), duration)
    return in_one_unit(float(known.max()) if len(known) else 1.0)


def in_one_unit(highest_ms: float) -> Linear:
    """From 0 to a round value above *highest_ms*; all ticks in the unit of the largest."""
    scale = up_to([np.array([highest_ms])], least=1e-4)
    factor, unit = next(
        (factor, unit)
        for limit, factor, unit in ((1e-3, 1e6, "ns"), (1.0, 1e3, "µs"), (1e3, 1.0, "ms"), (math.inf, 1e-3, "s"))
        if scale.high <= limit
    )
    return Linear(0.0, scale.high, lambda ms: "0" if ms == 0 else f"{ms * factor:,.4g} {unit}")


def round_below(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (5, 2, 1) if factor * power <= value * 1.001)


def round_above(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value * 0.999)


def scale_of(axis: Axis, values: Sequence[Floats], from_zero: bool = True) -> Scale:
    """The scale of *axis* for all of *values*. Without *from_zero* it may begin above 0 when all are far from 0."""
    if axis.names:
        return Names(axis.names)
    label: Label = duration if axis.unit == "ms" else percent if axis.unit == "share" else plain
    if axis.scale == "tail":
        return TailScale(axis.high or 1.0)
    if axis.low is not None and axis.high is not None:
        return (
            LogScale(axis.low, axis.high, label) if axis.scale == "log" else Linear(axis.low, axis.high, label, steps=8)
        )
    found = np.concatenate([np.empty(0), *values])
    found = found[np.isfinite(found)]
    positive = found[found > 0]
    if axis.scale == "log" and len(positive):
        low, high = round_below(float(positive.min())), round_above(float(positive.max()))
        return LogScale(low, high if high > low else low * 10, label)
    if axis.unit == "ms" and not (len(found) and found.min() < 0):
        longest = max(axis.least, float(positive.max(initial=1e-3)))
        return for_durations([found]) if axis.scale == "" else in_one_unit(longest)
    return spread(found, label, from_zero, axis.least, 1.0 if axis.unit == "share" else math.inf)
