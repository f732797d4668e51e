"""Renders figures of the page: title, legend, SVG, note, numbers for the script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastllmload.report.html.charts.chart import LEFT, TOP, WIDTH, Chart, Columns, Layer, Points, svg
from fastllmload.report.html.charts.scales import Floats, Names
from fastllmload.report.render.html import Markup, element, joined

Numbers = dict[str, Any]


@dataclass
class Figures:
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

    def add(self, key: str, title: str, chart: Chart, unit: str, note: str | Markup = "", wide: bool = False) -> Markup:
        """The figure. *unit* is the format of values in the script: ms, n or share; for x see `Chart.x_as`."""
        names = list(chart.x.names) if isinstance(chart.x, Names) else None
        self.charts[key] = {
            "x": {
                "kind": chart.x.kind,
                "low": chart.x.low,
                "high": chart.x.high,
                "unit": chart.x_as or chart.x_unit,
                "names": names,
            },
            "y": {"kind": chart.y.kind, "low": chart.y.low, "high": chart.y.high},
            "plot": [LEFT, TOP, chart.frame[2], chart.frame[3], WIDTH, chart.height],
            "group": chart.group,
            "unit": unit,
            "series": [self._series(layer) for layer in chart.layers],
        }
        return element(
            "figure",
            element("figcaption", element("h3", title, element("small", f" {chart.y_unit}")), legend(chart.layers)),
            svg(chart),
            element("p", note, class_="note"),
            element("details", element("summary", "numbers"), element("div", class_="numbers"), class_="data"),
            class_="card chart-card wide" if wide else "card chart-card", id=key,
        )  # fmt: skip

    def _series(self, layer: Layer) -> Numbers:
        x = (layer.edges[:-1] + layer.edges[1:]) / 2 if isinstance(layer, Columns) else layer.x
        base = layer.base if isinstance(layer, Columns) else None
        y = layer.y if base is None else layer.y - base
        found: Numbers = {"name": layer.name, "tone": layer.tone, "x": self.column(x), "y": self.column(y)}
        if isinstance(layer, Columns):
            found["from"], found["to"] = self.column(layer.edges[:-1]), self.column(layer.edges[1:])
        if isinstance(layer, Points):
            found["points"] = True
            found["labels"] = list(layer.labels)
        return found


def rounded_to(value: float, digits: int = 5) -> float | None:
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short == int(short) else short


def legend(layers: Sequence[Layer]) -> Markup | None:
    """One key per name; layers with the same name are switched together. None with fewer than two names."""
    named: dict[str, Layer] = {}
    for layer in layers:
        named.setdefault(layer.name, layer)
    if len(named) < 2:
        return None
    keys = []
    for name, layer in named.items():
        style = getattr(layer, "style", "block")
        swatch = element("i", class_=f"key {layer.tone} {style}".strip())
        numbers = ",".join(str(number) for number, other in enumerate(layers) if other.name == name)
        keys.append(element("button", swatch, name, type="button", aria_pressed="true", data_toggle=numbers))
    return element("div", joined(*keys), class_="legend")


def middles(edges: Floats) -> Floats:
    found: Floats = (edges[:-1] + edges[1:]) / 2
    return found


def known(values: Floats) -> bool:
    """Whether there is anything to draw."""
    return bool(len(values)) and not bool(np.isnan(values).all())


def grid(*figures: Markup | None) -> Markup | None:
    """Figures side by side; None without any."""
    present = [figure for figure in figures if figure is not None]
    return element("div", *present, class_="grid") if present else None


def empty(key: str, title: str, why: str) -> Markup:
    """A figure with a sentence in place of a chart without data."""
    return element("figure", element("figcaption", element("h3", title)), element("p", why, class_="nothing"),
                   class_="card chart-card none", id=key)  # fmt: skip
