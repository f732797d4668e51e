"""Parse rate curves: `ramp:10,100`, `steps:10x60,20x60`, `spikes:50,500,60,5`, `day:5,80,24h`, a file of times and rates."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable
from pathlib import Path

from fastllmload import quantities
from fastllmload.arrivals.curve import DayCurve, ExponentialCurve, LinearCurve, RateCurve
from fastllmload.errors import InputError
from fastllmload.files import read_text

SHAPES = {
    "ramp": "ramp:FROM,TO[,SECONDS]",
    "exponential": "exponential:FROM,TO[,SECONDS]",
    "steps": "steps:RATE,RATE,... or steps:RATExSECONDS,...",
    "spikes": "spikes:BASE,PEAK,EVERY,LENGTH",
    "day": "day:LOW,HIGH[,PERIOD]",
    "series": "series:FILE",
}
HIGHEST = 1e7


def read_curve(text: str, seconds: float | None) -> RateCurve:
    """The curve that *text* names. *seconds*: duration of sending, None when only a count bounds the run.

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
            "rate-curve-invalid", f"--rate {text!r} is not a valid {shape}: {problem}; write {SHAPES[shape]}"
        ) from None
    if curve.peak <= 0:
        raise InputError("schedule-empty", f"--rate {text!r} never sends anything: its highest rate is 0")
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
