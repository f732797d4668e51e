"""Draws plots of given numbers, for reports of procedures, searches and sweeps; `figure_of` renders one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fastllmload.report.html.charts.chart import Chart, Columns, Layer, Line, Points, Rule, Span, Whiskers
from fastllmload.report.html.charts.figure import Figures, empty, known
from fastllmload.report.html.charts.scales import (
    Floats,
    Label,
    Linear,
    Log,
    Names,
    Scale,
    Tail,
    duration,
    for_durations,
    in_one_unit,
    percent,
    plain,
    round_above,
    round_below,
    spread,
)
from fastllmload.report.render.html import Markup, visible
from fastllmload.report.series.curves import curve_of

TONES = ("c1", "c2", "c3", "c4", "c5", "c6", "c8", "c7")
MOST_DOTS = 60  # a line with more points has no dots
MOST_DRAWN = 2000  # points drawn of a series, evenly chosen
GROUP = 0.76  # share of a category's width that its bars take


@dataclass(frozen=True)
class PlotAxis:
    """*unit*: "ms" is written in a suitable unit (µs, ms, s), "share" (0 to 1) in percent, any other unchanged.

    *log*: None: logarithmic for durations that are far apart, else linear.
    """

    label: str = ""
    unit: str = ""
    log: bool | None = None


@dataclass(frozen=True)
class PlotSeries:
    """*x*, *y*: float[n] in the units of the axes, drawn in the given order; NaN breaks a line.

    *low*, *high*: float[n], ends of an interval of each y, NaN where there is none. *labels*: text next to each point.
    *style*: "" for the default of the plot's kind, else line, dash, step, points. In a cdf *y* are the values, *x* is not
    used. In bars *y* has one value for each of `Plot.names`.
    """

    name: str
    y: Sequence[float] | Floats
    x: Sequence[float] | Floats = ()
    low: Sequence[float] | Floats = ()
    high: Sequence[float] | Floats = ()
    labels: Sequence[str] = ()
    style: Literal["", "line", "dash", "step", "points"] = ""


@dataclass(frozen=True)
class Plot:
    """*kind*: line (joined points, e.g. a throughput-latency curve), scatter (points; a fit is a Series of style line
    or dash), cdf (percentiles of each series' values on a tail axis), bars (one group for each of *names*).

    *marks*: `Rule("x" or "y", at, label)` for limits and knees. *spans*: `Span(start, end, label)` along x.
    """

    kind: Literal["line", "scatter", "cdf", "bars"]
    title: str
    series: Sequence[PlotSeries]
    x: PlotAxis = PlotAxis()
    y: PlotAxis = PlotAxis()
    names: Sequence[str] = ()
    marks: Sequence[Rule] = ()
    spans: Sequence[Span] = ()
    note: str = ""
    wide: bool = False


def figure_of(figures: Figures, key: str, plot: Plot) -> Markup:
    """The plot as a figure of the page, its numbers added to *figures* under *key*. ValueError for uneven columns."""
    series = [one for one in plot.series if known(_floats(one.y))]
    title = visible(plot.title, 200)
    if not series:
        return empty(key, title, plot.note or "There is nothing to show.")
    chart = _of_percentiles(plot, series) if plot.kind == "cdf" else _of_points(plot, series)
    unit = plot.y.unit if plot.y.unit in ("ms", "share") else "n"
    return figures.add(key, title, chart, unit, visible(plot.note, 2000), plot.wide)


def _floats(values: Sequence[float] | Floats) -> Floats:
    found: Floats = np.asarray(values, np.float64)
    return found


def _of_percentiles(plot: Plot, series: Sequence[PlotSeries]) -> Chart:
    layers = []
    for one, tone in zip(series, _tones(), strict=False):
        values = _floats(one.y)
        curve = curve_of(values[~np.isnan(values)])
        layers.append(Line(visible(one.name, 80), curve.tail, curve.value, tone, "", curve.solid_until))
    high = max(2.0, *(float(layer.x[-1]) for layer in layers))
    y = scale_of(plot.y, [layer.y for layer in layers])
    return Chart(Tail(high), y, layers, _described(plot), y_unit=_y_heading(plot), rules=plot.marks)


def _of_points(plot: Plot, series: Sequence[PlotSeries]) -> Chart:
    checked = [_checked(plot, one) for one in series]
    heights = [ends for one in checked for ends in (one.y, one.low, one.high)]
    rules = [np.array([rule.at]) for rule in plot.marks if rule.axis == "y"]
    across: Scale = Names([visible(name, 40) for name in plot.names])
    if plot.kind != "bars":
        across = scale_of(plot.x, [_floats(one.x) for one in checked], from_zero=False)
    layers: list[Layer] = []
    whiskers = []
    for number, (one, tone) in enumerate(zip(checked, _tones(), strict=False)):
        x = _middles(number, len(checked), len(plot.names)) if plot.kind == "bars" else _floats(one.x)
        layers += _bars(one, number, len(checked), tone) if plot.kind == "bars" else _layers(plot, one, tone)
        if len(one.low):
            whiskers.append(Whiskers(x, _floats(one.low), _floats(one.high), tone))
    return Chart(
        across,
        scale_of(plot.y, [_floats(height) for height in heights] + rules),
        layers,
        _described(plot),
        x_unit="",
        y_unit=_y_heading(plot),
        spans=plot.spans,
        rules=plot.marks,
        whiskers=whiskers,
        x_as=plot.x.unit,
        x_label=_heading(plot.x),
        height=290,
    )


def _checked(plot: Plot, one: PlotSeries) -> PlotSeries:
    wanted = len(plot.names) if plot.kind == "bars" else len(one.x)
    lengths = {len(one.y), *(len(values) for values in (one.low, one.high, one.labels) if len(values))}
    if lengths != {wanted}:
        raise ValueError(
            f"{plot.title}: series {one.name!r} has columns of {sorted(lengths)} values, expected {wanted}"
        )
    if wanted <= MOST_DRAWN:
        return one
    kept = np.linspace(0, wanted - 1, MOST_DRAWN).astype(np.int64)
    x, y, low, high = (_floats(v)[kept] if len(v) else () for v in (one.x, one.y, one.low, one.high))
    labels = [one.labels[k] for k in kept.tolist()] if one.labels else ()
    return PlotSeries(one.name, y, x, low, high, labels, one.style)


def _layers(plot: Plot, one: PlotSeries, tone: str) -> list[Layer]:
    """A line, its dots, or both under one name."""
    x, y, name = _floats(one.x), _floats(one.y), visible(one.name, 80)
    style = one.style or ("points" if plot.kind == "scatter" else "line")
    labels = [visible(label, 40) for label in one.labels]
    layers: list[Layer] = []
    if style != "points":
        layers.append(Line(name, x, y, tone, "dash" if style == "dash" else "", step=style == "step"))
    if style == "points" or (style == "line" and plot.kind == "line" and len(x) <= MOST_DOTS):
        layers.append(Points(name, x, y, tone, labels))
    return layers


def _edges(number: int, of: int, places: int) -> Floats:
    """float64[2 places]: left and right of bar *number* of each group."""
    width = GROUP / of
    left = np.arange(places) + (1 - GROUP) / 2 + number * width
    return np.column_stack([left, left + width]).reshape(-1)


def _middles(number: int, of: int, places: int) -> Floats:
    found: Floats = _edges(number, of, places).reshape(-1, 2).mean(axis=1)
    return found


def _bars(one: PlotSeries, number: int, of: int, tone: str) -> list[Layer]:
    """Columns of a series, with an empty one between each two bars."""
    y = _floats(one.y)
    heights = np.column_stack([y, np.full(len(y), np.nan)]).reshape(-1)[:-1]
    return [Columns(visible(one.name, 80), _edges(number, of, len(y)), heights, tone)]


def _tones() -> Iterator[str]:
    while True:
        yield from TONES


def _heading(axis: PlotAxis) -> str:
    """`offered rate, requests/s`; durations have their unit at each tick."""
    unit = "" if axis.unit in ("ms", "share") or axis.label.endswith(axis.unit) else axis.unit
    return visible(", ".join(text for text in (axis.label, unit) if text != ""), 120)


def _y_heading(plot: Plot) -> str:
    """The y heading after the title; empty where it repeats the title."""
    heading = _heading(plot.y)
    return "" if heading == plot.title else heading


def _described(plot: Plot) -> str:
    names = ", ".join(one.name for one in plot.series)
    return visible(f"{plot.title}: {names}", 300)


def scale_of(axis: PlotAxis, values: Sequence[Floats], from_zero: bool = True) -> Scale:
    """The axis for all of *values*. Without *from_zero* it may begin above 0 when all are far from 0."""
    found = np.concatenate([np.empty(0), *values])
    found = found[np.isfinite(found)]
    positive = found[found > 0]
    label: Label = duration if axis.unit == "ms" else percent if axis.unit == "share" else plain
    if axis.log and len(positive):
        low, high = round_below(float(positive.min())), round_above(float(positive.max()))
        return Log(low, high if high > low else low * 10, label)
    if axis.unit == "ms" and not (len(found) and found.min() < 0):
        return for_durations([found]) if axis.log is None else in_one_unit(float(positive.max(initial=1e-3)))
    return spread(found, label, from_zero)


def cdf(title: str, values: Mapping[str, Sequence[float] | Floats], unit: str = "ms", note: str = "") -> Plot:
    """A plot of the percentiles of each of *values*."""
    return Plot("cdf", title, [PlotSeries(name, y) for name, y in values.items()], y=PlotAxis(unit=unit), note=note)


__all__ = ["Linear", "Plot", "PlotAxis", "PlotSeries", "Rule", "Span", "cdf", "figure_of"]
