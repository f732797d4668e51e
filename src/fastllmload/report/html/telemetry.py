"""What was sampled beside the run: the server's own metrics, power, the host. On the time axis of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from fastllmload.errors import RunFolderError
from fastllmload.report.html.chart import Layer, Line
from fastllmload.report.html.figure import grid, known
from fastllmload.report.html.markup import Markup, element, visible
from fastllmload.report.html.overtime import time_chart
from fastllmload.report.html.scales import Label, percent, plain, up_to
from fastllmload.report.html.scene import Scene
from fastllmload.report.series.axis import Floats
from fastllmload.telemetry import Series, load

MOST_LINES, MOST_CHARTS = 6, 24
TONES = ("c1", "c2", "c3", "c4", "c5", "c6")


def section(scene: Scene) -> Markup | None:
    """None when the run has no telemetry."""
    try:
        found = load(scene.run.directory)
    except RunFolderError as problem:
        return _section(element("p", visible(problem), class_="card"))
    if scene.axis is None or not found.series:
        return None
    named = sorted(enumerate(found.series), key=lambda entry: first_of(found.series, entry[1]))
    groups = [[series for _, series in group] for _, group in groupby(named, key=lambda entry: shown_as(entry[1]))]
    charts = [chart for number, group in enumerate(groups) if (chart := _chart(scene, number, group)) is not None]
    left = len(charts) - MOST_CHARTS
    more = element("p", f"{left} more series are in telemetry.npy.", class_="note") if left > 0 else None
    return _section(grid(*charts[:MOST_CHARTS]), more, _sources([source.origin for source in found.sources]))


def _section(*blocks: Markup | None) -> Markup:
    return element("section", element("h2", "Telemetry"), *blocks, id="telemetry")


def _sources(origins: Sequence[str]) -> Markup:
    return element("p", "Sampled from " + ", ".join(visible(origin, 120) for origin in origins) + ".", class_="note")


def first_of(series: Sequence[Series], one: Series) -> int:
    """Where the first series with the same name and unit stands."""
    return next(number for number, other in enumerate(series) if shown_as(other) == shown_as(one))


def shown_as(series: Series) -> tuple[str, str, str]:
    """What shares a chart: `gpu0.power_w` and `gpu1.power_w` do."""
    owner, dot, name = series.name.rpartition(".")
    return (name if dot and owner[-1:].isdigit() else series.name, series.unit, series.kind)


def _chart(scene: Scene, number: int, group: Sequence[Series]) -> Markup | None:
    axis = scene.axis
    assert axis is not None
    name, unit, kind = shown_as(group[0])
    layers: list[Layer] = []
    for series, tone in zip(group, TONES, strict=False):
        x, y = values(series, axis.zero_ns, axis.zero_ns + axis.bins * axis.width_ns)
        if known(y):
            layers.append(Line(_line_name(series, len(group)), x, y, tone))
    if not layers:
        return None
    share = unit in ("share", "ratio", "1") and kind == "gauge"
    label: Label = percent if share else plain
    per = "share" if share else f"{unit}/s" if kind == "counter" else unit
    chart = time_chart(
        scene, up_to([layer.y for layer in layers], label, 1e-6), layers, f"{name} over time", visible(per, 30)
    )
    rest = len(group) - MOST_LINES
    note = f"{rest} more in telemetry.npy." if rest > 0 else ""
    return scene.figures.add(f"telemetry-{number}", visible(name, 60), chart, "share" if share else "n", note)


def _line_name(series: Series, of: int) -> str:
    """Short where the chart's title says enough."""
    owner = series.name.rpartition(".")[0]
    told = " ".join(text for text in (owner, series.labels) if text != "")
    return visible(told or (series.origin if of > 1 else series.name), 60)


def values(series: Series, start_ns: int, end_ns: int, most: int = 400) -> tuple[Floats, Floats]:
    """(s since *start_ns*, value); a counter as its increase per second. At most about *most* points, means of equal
    parts.
    """
    inside = (series.t_ns >= start_ns) & (series.t_ns <= end_ns)
    t, y = (series.t_ns[inside] - start_ns) / 1e9, series.value[inside]
    if series.kind == "counter":
        passed = np.diff(t)
        rising = np.diff(y)
        t, y = t[1:], np.where((passed > 0) & (rising >= 0), rising / np.maximum(passed, 1e-9), np.nan)
    if len(t) <= most:
        return t, y
    parts = np.arange(0, len(t), -(-len(t) // most))
    size = np.diff(np.append(parts, len(t)))
    return np.add.reduceat(t, parts) / size, np.add.reduceat(y, parts) / size
