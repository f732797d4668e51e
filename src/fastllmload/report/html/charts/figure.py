"""Renders charts as figures of a page: title, legend, SVG, note, numbers for the script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fastllmload.report.charts import Chart, Floats, Series, floats
from fastllmload.report.html.charts.drawing import IN_TICKS, LEFT, TOP, WIDTH, Drawing, drawing_of, middles
from fastllmload.report.html.charts.scales import Names
from fastllmload.report.html.charts.svg import svg
from fastllmload.report.html.markup import Markup, element, visible

Numbers = dict[str, Any]
LONGEST_NOTE = 2000  # characters


@dataclass
class ChartNumbers:
    """Numbers of all charts so far, by key; equal columns are stored once."""

    charts: dict[str, Numbers] = field(default_factory=dict)
    columns: list[list[float | None]] = field(default_factory=list)
    _known: dict[str, int] = field(default_factory=dict)

    def column(self, values: Floats) -> int:
        """Number of the column that holds *values*, to four significant digits; NaN is null."""
        rounded = [rounded_to(value) for value in values.tolist()]
        key = repr(rounded)
        if key not in self._known:
            self._known[key] = len(self.columns)
            self.columns.append(rounded)
        return self._known[key]

    def figure(self, chart: Chart, key: str) -> Markup:
        """The chart, or a sentence in its place where there is nothing to draw; *key* is its id."""
        title, note, drawing = visible(chart.title, 200), visible(chart.note, LONGEST_NOTE), drawing_of(chart)
        if drawing is None:
            why = element("p", note or "There is nothing to show.", class_="nothing")
            return element(
                "figure", element("figcaption", element("h3", title)), why, class_="card chart-card none", id=key
            )
        self.charts[key] = self._numbers(chart, drawing)
        heading = element("h3", title, element("small", f" {drawing.y_heading}"))
        return element(
            "figure",
            element("figcaption", heading, legend(drawing.layers)),
            svg(drawing),
            element("p", note, class_="note"),
            element("details", element("summary", "numbers"), element("div", class_="numbers"), class_="data"),
            class_="card chart-card", id=key,
        )  # fmt: skip

    def _numbers(self, chart: Chart, drawing: Drawing) -> Numbers:
        x, y = drawing.x, drawing.y
        names = list(x.names) if isinstance(x, Names) else None
        return {
            "x": {"kind": x.kind, "low": x.low, "high": x.high, "unit": chart.x.unit, "names": names},
            "y": {"kind": y.kind, "low": y.low, "high": y.high},
            "plot": [LEFT, TOP, drawing.frame[2], drawing.frame[3], WIDTH, drawing.height],
            "group": chart.group,
            "unit": chart.y.unit if chart.y.unit in IN_TICKS else "n",
            "series": [self._series(layer) for layer in drawing.layers],
        }

    def _series(self, layer: Series) -> Numbers:
        edges, y = floats(layer.x), floats(layer.y)
        x = middles(edges) if layer.style == "columns" else edges
        y = y if layer.base is None else y - layer.base
        found: Numbers = {"name": layer.name, "tone": layer.tone, "x": self.column(x), "y": self.column(y)}
        if layer.style == "columns":
            found["from"], found["to"] = self.column(edges[:-1]), self.column(edges[1:])
        if layer.style == "points":
            found["points"] = True
            found["labels"] = list(layer.labels)
        return found


def rounded_to(value: float, digits: int = 5) -> float | None:
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short == int(short) else short


def legend(layers: Sequence[Series]) -> Markup | None:
    """One key per name; layers with the same name are switched together. None with fewer than two names."""
    named: dict[str, Series] = {}
    for layer in layers:
        named.setdefault(layer.name, layer)
    if len(named) < 2:
        return None
    keys = []
    for name, layer in named.items():
        style = "block" if layer.style in ("columns", "stems") else layer.style
        swatch = element("i", class_=f"key {layer.tone} {style}")
        numbers = ",".join(str(number) for number, other in enumerate(layers) if other.name == name)
        keys.append(element("button", swatch, name, type="button", aria_pressed="true", data_toggle=numbers))
    return element("div", *keys, class_="legend")
