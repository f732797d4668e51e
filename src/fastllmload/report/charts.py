"""Charts as data: series over two axes. A chart is a block; only pages draw it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Values = Sequence[float] | Floats


@dataclass(frozen=True)
class Axis:
    """*unit*: "ms" is written in a suitable unit (µs, ms, s), "share" (0 to 1) in percent, any other unchanged.

    *scale*: linear; log; tail: percentiles as -log10(1 - q), so that P90 to P99 is as wide as P99 to P99.9; empty:
    logarithmic for durations that are far apart, else linear. *low*, *high*: its ends, round values around the data where
    None; *least*: it does not end below. *names*: categories in place of a scale.
    """

    label: str = ""
    unit: str = ""
    scale: Literal["", "linear", "log", "tail"] = ""
    low: float | None = None
    high: float | None = None
    least: float = 0.0
    names: Sequence[str] = ()


@dataclass(frozen=True)
class Series:
    """*x*, *y*: float[n] in the units of the axes, drawn in the given order; NaN breaks a line. On an axis of names *y* has
    one value for each, and there is no *x*.

    *style*: curve: a line with dots unless it has many; line, dash, thin, area, step; points; stems: a thin bar at each
    value, for rare events; columns: *x* has their n + 1 edges, they stand on *base* or 0; interval: only *low* to *high*.
    *low*, *high*: float[n], ends of an interval of each y, NaN where there is none. *labels*: text next to each point.
    *until*: dotted beyond that x. *tone*: a colour, c1 to c8; empty: the next one. Series of one name are switched together.
    """

    name: str
    y: Values
    x: Values = ()
    low: Values = ()
    high: Values = ()
    labels: Sequence[str] = ()
    style: Literal["curve", "line", "dash", "thin", "area", "step", "points", "stems", "columns", "interval"] = "line"
    tone: str = ""
    base: Floats | None = None
    until: float | None = None


@dataclass(frozen=True)
class Span:
    """A shaded part of the x axis; *loud*: in colour, and marked on the axis."""

    start: float
    end: float
    label: str = ""
    loud: bool = False


@dataclass(frozen=True)
class Rule:
    """A line across the chart at a value of *axis* ("x" or "y"): a limit, a knee."""

    axis: str
    at: float
    label: str = ""


@dataclass(frozen=True)
class Chart:
    """*note* is below it; it is the reason where no series has a value. *key*: its id on a page. Charts of a *group* share
    crosshair and zoom.
    """

    title: str
    series: Sequence[Series] = ()
    x: Axis = Axis()
    y: Axis = Axis()
    note: str = ""
    marks: Sequence[Rule] = ()
    spans: Sequence[Span] = ()
    key: str = ""
    group: str = ""


def is_known(values: Values) -> bool:
    """Whether there is anything to draw."""
    return bool(len(values)) and not bool(np.isnan(values).all())


def floats(values: Sequence[float | None] | Floats) -> Floats:
    """None is NaN."""
    found: Floats = np.asarray(values, np.float64)
    return found
