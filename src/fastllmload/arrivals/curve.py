"""Rate curves: rates that change with time. A curve gives the expected arrivals up to each instant, and the exact inverse.

An arrival process of rate 1 whose instants are mapped through that inverse follows the curve exactly (time change):
Poisson stays Poisson, with the curve as its intensity; constant gaps stay equal in expected arrivals. No thinning and
no time slices are needed. After its end a curve keeps its last rate.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fastllmload import quantities
from fastllmload.documents.fields import Number, known
from fastllmload.documents.plan import Curve, LoadDescription
from fastllmload.errors import InputError
from fastllmload.files import read_text

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

    def describe(self) -> Curve:
        """Its parameters; `described_curve` rebuilds the curve from them."""

    def turns(self, seconds: float) -> list[float]:
        """Instants up to *seconds* between which the rate only rises or only falls, without a step."""


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

    def describe(self) -> Curve:
        return Curve(kind="linear", t_s=self.t, rate=self.r)

    def turns(self, seconds: float) -> list[float]:
        return [at for at in self.t if at <= seconds]

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

    def describe(self) -> Curve:
        return Curve(kind="exponential", start=self.start, end=self.end, length_s=self.length)

    def turns(self, seconds: float) -> list[float]:
        return [min(self.length, seconds)]


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

    def describe(self) -> Curve:
        return Curve(kind="day", low=self.low, high=self.high, period_s=self.period)

    def turns(self, seconds: float) -> list[float]:
        return [number * self.period / 2 for number in range(int(2 * seconds / self.period) + 1)]


@dataclass(frozen=True)
class SlotChanges:
    """Slots of a closed loop that follow a curve: int64 ns of each change, and the number of slots after it (± 1)."""

    t_ns: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]

    def of_worker(self, worker: int, workers: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Instants at which its slots open, and those at which they close: slot s is worker s % workers's."""
        before = np.concatenate([[0], self.slots[:-1]])
        rises = self.slots > before
        mine = np.minimum(self.slots, before) % workers == worker
        return self.t_ns[rises & mine], self.t_ns[~rises & mine]

    def at(self, t_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The number of slots at each instant."""
        after = np.concatenate([[0], self.slots])
        found: npt.NDArray[np.int64] = after[np.searchsorted(self.t_ns, t_ns, side="right")]
        return found


def slot_changes(curve: RateCurve, seconds: float) -> SlotChanges:
    """The slots of *curve* over [0, *seconds*): its value, rounded; they change when it passes a half."""
    times: list[Numbers] = []
    levels: list[npt.NDArray[np.int64]] = []
    now = 0
    ends = sorted({0.0, seconds, *curve.turns(seconds)})
    for begin, end in pairwise(ends):
        first, last = (rounded(curve, at) for at in (begin, math.nextafter(end, 0.0)))
        for level, inside in ((first, False), (last, True)):
            step = 1 if level > now else -1
            after = np.arange(now + step, level + step, step) if level != now else np.empty(0, np.int64)
            half = (after - 0.5 * step).astype(np.float64)
            times.append(_passing(curve, begin, end, half, step) if inside else np.full(len(after), begin))
            levels.append(after)
            now = level
    return SlotChanges(np.round(np.concatenate(times) * 1e9).astype(np.int64), np.concatenate(levels).astype(np.int64))


def changing_slots(load: LoadDescription) -> SlotChanges | None:
    """The slots of a closed loop whose number changes; None where it does not."""
    seconds = known(load.duration_s)
    if load.concurrency_curve is None or not seconds:
        return None
    return slot_changes(described_curve(load.concurrency_curve), seconds)


def rounded(curve: RateCurve, t: float) -> int:
    return math.floor(float(curve.rate(np.array([t]))[0]) + 0.5)


def _passing(curve: RateCurve, begin: float, end: float, values: Numbers, step: int) -> Numbers:
    """When the curve passes each of *values*, from *begin* to *end*, where it rises (*step* 1) or falls."""
    low, high = np.full(len(values), begin), np.full(len(values), end)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        before = (curve.rate(middle) - values) * step < 0
        low, high = np.where(before, middle, low), np.where(before, high, middle)
    return high


def described_curve(found: Curve) -> RateCurve:
    """The curve that `describe` gave *found* for."""
    if found.kind == "linear":
        return LinearCurve(found.t_s, found.rate)
    if found.kind == "exponential":
        return ExponentialCurve(_known(found.start), _known(found.end), _known(found.length_s))
    return DayCurve(_known(found.low), _known(found.high), _known(found.period_s))


def _known(value: Number) -> float:
    found = known(value)
    assert found is not None  # a plan withholds nothing
    return found


def mean_rate(curve: RateCurve, seconds: float) -> float:
    """Expected requests per second over [0, *seconds*]."""
    return float(curve.expected(np.array([seconds]))[0]) / seconds


SHAPES = {
    "ramp": "ramp:FROM,TO[,SECONDS]",
    "exponential": "exponential:FROM,TO[,SECONDS]",
    "steps": "steps:RATE,RATE,... or steps:RATExSECONDS,...",
    "spikes": "spikes:BASE,PEAK,EVERY,LENGTH",
    "day": "day:LOW,HIGH[,PERIOD]",
    "series": "series:FILE",
}
HIGHEST = 1e7


def read_curve(text: str, seconds: float | None, flag: str = "--rate") -> RateCurve:
    """The curve that *text* names, the value of *flag*. *seconds*: duration of sending, None when only a count bounds the
    run.

    InputError for an invalid shape, one whose rate is 0 throughout, and one that needs a duration where there is none.
    """
    shape, _, rest = text.partition(":")
    shape = shape.strip().lower()
    try:
        curve = READERS[shape](rest, seconds)
    except ValueError as problem:
        if shape == "series":
            raise InputError(
                "rate-curve-invalid", f"--rate-series {problem}; write one TIME,RATE a line, such as 60,12.5"
            ) from None
        raise InputError(
            "rate-curve-invalid", f"{flag} {text!r} is not a valid {shape}: {problem}; write {SHAPES[shape]}"
        ) from None
    if curve.peak <= 0:
        raise InputError("schedule-empty", f"{flag} {text!r} never sends anything: its highest value is 0")
    return curve


def _ramp(rest: str, seconds: float | None) -> RateCurve:
    start, end, length = _two_rates(rest, seconds)
    return LinearCurve((0.0, length), (start, end))


def _exponential(rest: str, seconds: float | None) -> RateCurve:
    start, end, length = _two_rates(rest, seconds)
    if start <= 0 or end <= 0 or start == end:
        raise ValueError("both rates must be above 0 and differ")
    return ExponentialCurve(start, end, length)


def _two_rates(rest: str, seconds: float | None) -> tuple[float, float, float]:
    parts = rest.split(",")
    if len(parts) not in (2, 3):
        raise ValueError(f"it has {len(parts)} values and takes two rates and an optional length")
    return _rate(parts[0]), _rate(parts[1]), _length(parts[2]) if len(parts) == 3 else _required(seconds)


def _steps(rest: str, seconds: float | None) -> RateCurve:
    parts = rest.split(",")
    timed = ["x" in part for part in parts]
    if any(timed) != all(timed):
        raise ValueError("either every step has a length or none has")
    if all(timed):
        steps = [(_rate(part.partition("x")[0]), _length(part.partition("x")[2])) for part in parts]
    else:
        steps = [(_rate(part), _required(seconds) / len(parts)) for part in parts]
    t, r, at = [0.0], [steps[0][0]], 0.0
    for number, (rate, length) in enumerate(steps):
        if number:
            t, r = [*t, at], [*r, rate]
        at += length
        t, r = [*t, at], [*r, rate]
    return LinearCurve(tuple(t), tuple(r))


def _spikes(rest: str, seconds: float | None) -> RateCurve:
    parts = rest.split(",")
    if len(parts) != 4:
        raise ValueError(f"it has {len(parts)} values and takes 4")
    base, peak, every, length = _rate(parts[0]), _rate(parts[1]), _length(parts[2]), _length(parts[3])
    if length >= every:
        raise ValueError(f"a spike of {length:g} s does not fit into {every:g} s")
    spikes = max(1, math.ceil(_required(seconds) / every))
    if spikes > 100_000:
        raise ValueError(f"{spikes:,} spikes are too many")
    t: list[float] = []
    for number in range(spikes):
        start = number * every
        t += [start, start + every - length, start + every - length, start + every]
    return LinearCurve(tuple(t), (base, base, peak, peak) * spikes)


def _day(rest: str, seconds: float | None) -> RateCurve:
    low, high, period = _two_rates(rest, seconds)
    if low > high:
        raise ValueError(f"the low rate {low:g} is above the high rate {high:g}")
    return DayCurve(low, high, period)


def _series(rest: str, seconds: float | None) -> RateCurve:
    """A file of `time,rate` lines, seconds ascending; straight lines between them, constant before the first."""
    path = Path(rest.strip())
    try:
        text = read_text(path, encoding="utf-8-sig")
    except OSError as problem:
        raise ValueError(f"{path} cannot be read ({problem.strerror})") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text") from None
    t: list[float] = []
    r: list[float] = []
    try:
        rows = list(csv.reader(text.splitlines()))
    except csv.Error as problem:
        raise ValueError(f"{path} cannot be read as CSV ({problem})") from None
    for number, row in enumerate(rows, 1):
        cells = [cell.strip() for cell in row]
        if cells in ([], [""]) or cells[0].startswith("#") or (not t and _is_header(cells)):
            continue
        try:
            if len(cells) != 2:
                raise ValueError(f"expected a time and a rate, found {len(cells)} values")
            at, rate = _length(cells[0], zero=True), _rate(cells[1])
            if t and at < t[-1]:
                raise ValueError(f"time {at:g} is earlier than the previous line's {t[-1]:g}")
        except ValueError as problem:
            raise ValueError(f"{path} line {number}: {problem}") from None
        t, r = [*t, at], [*r, rate]
    if not t:
        raise ValueError(f"{path} holds no rate")
    if t[0] > 0:
        t, r = [0.0, *t], [r[0], *r]
    return LinearCurve(tuple(t), tuple(r)) if len(t) > 1 else LinearCurve((0.0, 1.0), (r[0], r[0]))


def _is_header(cells: list[str]) -> bool:
    return len(cells) == 2 and all(re.fullmatch(r"[A-Za-z_ ()/]+", cell) is not None for cell in cells)


def _rate(text: str) -> float:
    value = quantities.number(text)
    if value is None or not 0 <= value <= HIGHEST:
        raise ValueError(f"{text.strip()!r} is not a rate from 0 to {HIGHEST:g} per second")
    return value


def _length(text: str, zero: bool = False) -> float:
    value = quantities.duration(text)
    if value is None or value < 0 or (value == 0 and not zero):
        raise ValueError(f"{text.strip()!r} is not a time such as 90, 30s or 5m")
    return value


def _required(seconds: float | None) -> float:
    if seconds is None:
        raise ValueError("it spans the duration of the run, which is not set; add --duration")
    return seconds


READERS: dict[str, Callable[[str, float | None], RateCurve]] = {
    "ramp": _ramp,
    "exponential": _exponential,
    "steps": _steps,
    "spikes": _spikes,
    "day": _day,
    "series": _series,
}
