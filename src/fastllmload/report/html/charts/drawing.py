"""Prepares a chart for drawing: scales for its axes, series with colours and equal columns, the frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fastllmload.report.charts import Axis, Chart, Floats, Rule, Series, Span, floats, is_known
from fastllmload.report.html.charts.scales import Scale, scale_of
from fastllmload.report.html.markup import visible

TONES = ("c1", "c2", "c3", "c4", "c5", "c6", "c8", "c7")
MOST_DOTS = 60  # a curve with more points has no dots
MOST_DRAWN = 2000  # points drawn of a series, evenly chosen
GROUP = 0.76  # share of a category's width that its bars take
WIDTH, HEIGHT, HIGHER = 640, 250, 290  # the height of a chart without and with a heading below its x axis
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 8, 24
LABEL = 17  # of the x axis
IN_TICKS = ("ms", "share")  # units that each tick is written with


@dataclass(frozen=True)
class Drawing:
    """*layers*: what is drawn and may be switched off; *intervals*: series whose ends [low, high] are drawn. *x_unit*
    follows the last tick, *y_heading* the title. *label* is the text for screen readers.
    """

    x: Scale
    y: Scale
    layers: Sequence[Series]
    intervals: Sequence[Series]
    spans: Sequence[Span]
    rules: Sequence[Rule]
    x_unit: str
    x_heading: str
    y_heading: str
    label: str

    @property
    def height(self) -> int:
        return HIGHER if self.x_heading else HEIGHT

    @property
    def frame(self) -> tuple[float, float, float, float]:
        """Left, top, width and height of the plot, in px."""
        below = BOTTOM + (LABEL if self.x_heading else 0)
        return LEFT, TOP, WIDTH - LEFT - RIGHT, self.height - TOP - below

    def across(self, values: Floats) -> Floats:
        """px inside the plot."""
        return self.x.place(values) * self.frame[2]

    def up(self, values: Floats) -> Floats:
        """px inside the plot, 0 at its top."""
        return (1 - self.y.place(values)) * self.frame[3]


def drawing_of(chart: Chart) -> Drawing | None:
    """None where no series has a value. ValueError for a series with uneven columns."""
    series = [one for one in chart.series if one.style == "interval" or is_known(floats(one.y))]
    if not any(one.style != "interval" for one in series):
        return None
    drawn = [_prepared(chart, one, number, len(series)) for number, one in enumerate(series)]
    heights = [end for one in drawn for end in (one.y, one.low, one.high)]
    rules = [np.array([rule.at]) for rule in chart.marks if rule.axis == "y"]
    x = replace(chart.x, names=[visible(name, 40) for name in chart.x.names])
    heading = _heading(chart.y)
    labelled = chart.x.label != ""
    return Drawing(
        scale_of(x, [floats(one.x) for one in drawn], from_zero=False),
        scale_of(chart.y, [*map(floats, heights), *rules]),
        [layer for one in drawn for layer in _layers(one)],
        [one for one in drawn if len(one.low)],
        chart.spans,
        chart.marks,
        "" if labelled or chart.x.unit in IN_TICKS else chart.x.unit,
        _heading(chart.x) if labelled else "",
        "" if heading == chart.title else heading,
        visible(f"{chart.title}: {', '.join(dict.fromkeys(one.name for one in series if one.name))}", 300),
    )


def _heading(axis: Axis) -> str:
    """`offered rate, requests/s`; durations have their unit at each tick."""
    unit = "" if axis.unit in IN_TICKS or axis.label.endswith(axis.unit) else axis.unit
    return visible(", ".join(text for text in (axis.label, unit) if text != ""), 120)


def _prepared(chart: Chart, one: Series, number: int, of: int) -> Series:
    """Columns as arrays of equal length, with a colour."""
    places = len(chart.x.names)
    wanted = places or len(one.x) - (one.style == "columns")
    lengths = {len(one.y), *(len(values) for values in (one.low, one.high, one.labels) if len(values))}
    if lengths != {wanted}:
        raise ValueError(
            f"{chart.title}: series {one.name!r} has columns of {sorted(lengths)} values, expected {wanted}"
        )
    x, y, low, high = (floats(values) for values in (one.x, one.y, one.low, one.high))
    labels, style = [visible(label, 40) for label in one.labels], one.style
    if places:
        edges, style = _edges(number, of, places), "columns"
        x = edges.reshape(-1)
        y, low, high = (
            np.column_stack([v, np.full(places, np.nan)]).reshape(-1)[:-1] if len(v) else v for v in (y, low, high)
        )
    elif wanted > MOST_DRAWN and style != "columns":
        kept = np.linspace(0, wanted - 1, MOST_DRAWN).astype(np.int64)
        x, y, low, high = (v[kept] if len(v) else v for v in (x, y, low, high))
        labels = [labels[k] for k in kept.tolist()] if labels else []
    return replace(
        one, name=visible(one.name, 80), x=x, y=y, low=low, high=high, labels=labels, style=style,
        tone=one.tone or TONES[number % len(TONES)],
    )  # fmt: skip


def _layers(one: Series) -> Iterator[Series]:
    """A curve is a line and its dots under one name."""
    if one.style == "curve":
        yield replace(one, style="line", labels=())
        if len(one.x) <= MOST_DOTS:
            yield replace(one, style="points")
    elif one.style != "interval":
        yield one


def middles(edges: Floats) -> Floats:
    found: Floats = (edges[:-1] + edges[1:]) / 2
    return found


def _edges(number: int, of: int, places: int) -> Floats:
    """float64[places, 2]: left and right of bar *number* of each group."""
    width = GROUP / of
    left = np.arange(places) + (1 - GROUP) / 2 + number * width
    return np.column_stack([left, left + width])
