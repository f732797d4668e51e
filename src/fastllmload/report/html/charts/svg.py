"""Draws a chart as SVG: layers in a frame. It is complete without the script, so that it can be printed.

Colours, widths and dashes are classes of the style sheet. The parts that zoom are in the inner svg `plot`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastllmload.report.charts import Floats, Rule, Series, Span, floats
from fastllmload.report.html.charts.drawing import WIDTH, Drawing, middles
from fastllmload.report.html.charts.scales import Ticks
from fastllmload.report.html.markup import Markup, element, joined


def svg(chart: Drawing) -> Markup:
    """The chart as SVG. Text is outside of `plot`, which zooming stretches."""
    left, top, width, height = chart.frame
    plot = element(
        "svg",
        *(_span(chart, span) for span in chart.spans),
        *(_draw(chart, layer, number) for number, layer in enumerate(chart.layers)),
        *(_whisker(chart, series) for series in chart.intervals),
        *(_rule(chart, rule) for rule in chart.rules),
        class_="plot", x=left, y=top, width=width, height=height,
        viewBox=f"0 0 {width} {height}", preserveAspectRatio="none",
    )  # fmt: skip
    return element(
        "svg",
        _grid(chart),
        plot,
        element("g", *_texts(chart), *_point_labels(chart), class_="words"),
        _x_label(chart),
        element("line", class_="cross", x1=0, x2=0, y1=top, y2=top + height),
        element("rect", class_="pick", x=left, y=top, width=0, height=height),
        class_="chart", viewBox=f"0 0 {WIDTH} {chart.height}", role="img", aria_label=chart.label,
    )  # fmt: skip


def px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _grid(chart: Drawing) -> Markup:
    left, top, width, height = chart.frame
    parts = []
    for value, label in chart.y.ticks():
        y = top + float(chart.up(np.array([value]))[0])
        parts.append(element("line", class_="grid", x1=left, x2=left + width, y1=px(y), y2=px(y)))
        parts.append(element("text", label, class_="tick", x=left - 7, y=px(y + 3.8), text_anchor="end"))
    ticks = chart.x.ticks()
    ticks[-1:] = [(value, f"{label} {chart.x_unit}".rstrip()) for value, label in ticks[-1:]]
    marks = [_x_tick(chart, value, label) for value, label in _without_overlaps(chart, ticks)]
    base = element("line", class_="base", x1=left, x2=left + width, y1=top + height, y2=top + height)
    return joined(*parts, element("g", *marks, class_="xticks"), base)


def _without_overlaps(chart: Drawing, ticks: Ticks) -> Ticks:
    """*ticks* without the labels that would overlap the previous one; the marks are kept."""
    places = [float(chart.across(np.array([value]))[0]) for value, _ in ticks]
    kept, free = [], -1e9
    for (value, label), at in zip(ticks, places, strict=True):
        half = 3.3 * len(label)
        kept.append((value, label if at - half >= free else ""))
        free = at + half + 3 if at - half >= free else free
    return kept


def _x_tick(chart: Drawing, value: float, label: str) -> Markup:
    left, top, _, height = chart.frame
    x = left + float(chart.across(np.array([value]))[0])
    at = min(x, WIDTH - 2 - 3.1 * len(label))  # keeps a long label at the right end inside
    return joined(
        element("line", class_="mark", x1=px(x), x2=px(x), y1=top + height, y2=top + height + 4),
        element("text", label, class_="tick", x=px(at), y=top + height + 16, text_anchor="middle"),
    )


def _x_label(chart: Drawing) -> Markup | None:
    if chart.x_heading == "":
        return None
    left, _, width, _ = chart.frame
    middle = px(left + width / 2)
    return element("text", chart.x_heading, class_="tick", x=middle, y=chart.height - 5, text_anchor="middle")


def _texts(chart: Drawing) -> list[Markup]:
    """Labels of spans and rules."""
    left, top, width, _ = chart.frame
    found = []
    taken = -100.0
    for at, label, anchor in sorted(_labels(chart)):
        if at - taken > 6.2 * len(label):
            found.append(element("text", label, class_="aside", x=px(left + at), y=top + 11, text_anchor=anchor))
            taken = at
    for rule in chart.rules:
        if rule.axis == "y" and rule.label != "" and rule.at <= chart.y.high:
            y = top + float(chart.up(np.array([rule.at]))[0])
            x, baseline = (
                left + width - 4,
                y - 4 if y - top > 18 else y + 12,
            )  # below the rule if it is near the top labels
            found.append(element("text", rule.label, class_="aside", x=x, y=px(baseline), text_anchor="end"))
    return found


def _labels(chart: Drawing) -> list[tuple[float, str, str]]:
    """(px, text, anchor) of the labels along the top."""
    marked = [(span.start, span.label) for span in chart.spans]
    marked += [(rule.at, rule.label) for rule in chart.rules if rule.axis == "x"]
    found = []
    for value, label in marked:
        at = max(0.0, float(chart.across(np.array([value]))[0]))
        if label != "":
            fits = at + 6.2 * len(label) < chart.frame[2]
            found.append((at + 4, label, "start") if fits else (at - 4, label, "end"))
    return found


def _point_labels(chart: Drawing) -> list[Markup]:
    """Labels next to their points: to the right, to the left if the right side is too narrow, left out if they would
    overlap another label.
    """
    left, top, width, _ = chart.frame
    found: list[Markup] = []
    taken = [(at - 3, at + 6.2 * len(label), 3.0) if side == "start" else (at - 6.2 * len(label), at, 3.0)
             for at, label, side in _labels(chart)]  # fmt: skip
    for points in (layer for layer in chart.layers if layer.style == "points"):
        x_, y_ = chart.across(floats(points.x)), chart.up(floats(points.y))
        places = zip(x_.tolist(), y_.tolist(), points.labels, strict=False)
        for x, y, label in places:
            wide = 6.2 * len(label)
            start = x + 7 if x + 7 + wide <= width else x - 7 - wide
            if np.isnan(y) or any(start < b + 4 and a < start + wide + 4 and abs(y - h) < 12 for a, b, h in taken):
                continue
            taken.append((start, start + wide, y))
            at = max(9.0, y - 5)
            found.append(element("text", label, class_="aside", x=px(left + start), y=px(top + at)))
    return found


def _span(chart: Drawing, span: Span) -> Markup:
    width, height = chart.frame[2:]
    edges = np.clip(chart.across(np.array([span.start, span.end])), 0, width)
    if not span.loud:
        return element("rect", class_="span", x=px(edges[0]), y=0, width=px(edges[1] - edges[0]), height=height)
    x, wide = px(edges[0]), px(max(1.0, edges[1] - edges[0]))
    return joined(
        element("rect", class_="idle", x=x, y=0, width=wide, height=height),
        element("rect", class_="idle-axis", x=x, y=height - 4, width=wide, height=4),
    )


def _rule(chart: Drawing, rule: Rule) -> Markup | None:
    width, height = chart.frame[2:]
    if rule.axis == "x":
        x = px(float(chart.across(np.array([rule.at]))[0]))
        return element("line", class_="rule", x1=x, x2=x, y1=0, y2=height)
    if rule.at > chart.y.high:
        return None
    y = px(float(chart.up(np.array([rule.at]))[0]))
    return element("line", class_="rule", x1=0, x2=width, y1=y, y2=y)


def _draw(chart: Drawing, layer: Series, number: int) -> Markup:
    draw = {"columns": _columns, "stems": _stems, "points": _points}.get(layer.style, _line)
    return element("g", draw(chart, layer), class_=f"series {layer.tone}", data_series=number)


def _line(chart: Drawing, line: Series) -> Markup:
    x, y = floats(line.x), floats(line.y)
    if line.style == "step":
        x, y = np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]
    style = f"line {line.style}" if line.style in ("dash", "thin", "area") else "line"
    if line.style == "area":
        return element("path", d=_area(chart, x, y), class_=style)
    if line.until is None or not (x > line.until).any():
        lone = _isolated(y)
        dots = _dots(chart, x[lone], y[lone]) if lone.any() else None
        return joined(element("path", d=_path(chart, x, y), class_=style), dots)
    solid = x <= line.until
    edge = int(solid.sum())
    beyond = slice(max(0, edge - 1), None)
    return joined(
        element("path", d=_path(chart, x[solid], y[solid]), class_=style) if edge > 1 else None,
        element("path", d=_path(chart, x[beyond], y[beyond]), class_=f"{style} unsure"),
    )


def _path(chart: Drawing, x: Floats, y: Floats) -> str:
    """A path that is broken where y is NaN; an isolated value becomes a dot."""
    across, up = chart.across(x).tolist(), chart.up(np.maximum(y, chart.y.low)).tolist()
    known = (~np.isnan(y)).tolist()
    parts = []
    for k, is_known in enumerate(known):
        if is_known:
            begins = k == 0 or not known[k - 1]
            isolated = begins and (k + 1 == len(known) or not known[k + 1])
            parts.append(f"{'M' if begins else 'L'}{px(across[k])} {px(up[k])}{'h.1' if isolated else ''}")
    return "".join(parts)


def _isolated(y: Floats) -> npt.NDArray[np.bool_]:
    """Values whose neighbours are both NaN, so that no line reaches them."""
    known = np.concatenate([[False], ~np.isnan(y), [False]])
    found: npt.NDArray[np.bool_] = known[1:-1] & ~known[:-2] & ~known[2:]
    return found


def _area(chart: Drawing, x: Floats, y: Floats) -> str:
    filled = np.where(np.isnan(y), chart.y.low, y)
    if not len(x):
        return ""
    left, right = px(float(chart.across(x[:1])[0])), px(float(chart.across(x[-1:])[0]))
    floor = px(chart.frame[3])
    return f"M{left} {floor}" + _path(chart, x, filled).replace("M", "L", 1) + f"L{right} {floor}Z"


def _columns(chart: Drawing, columns: Series) -> Markup:
    y = floats(columns.y)
    base = np.full(len(y), chart.y.low) if columns.base is None else columns.base
    edges = chart.across(floats(columns.x))
    top, bottom = chart.up(np.maximum(y, chart.y.low)), chart.up(np.maximum(base, chart.y.low))
    parts = []
    for k in np.flatnonzero(y > base).tolist():
        wide = edges[k + 1] - edges[k]
        inset = min(0.6, wide / 8)
        x0, x1 = px(edges[k] + inset), px(edges[k + 1] - inset)
        parts.append(f"M{x0} {px(bottom[k])}V{px(min(top[k], bottom[k] - 1))}H{x1}V{px(bottom[k])}Z")
    return element("path", d="".join(parts), class_="columns")


def _stems(chart: Drawing, stems: Series) -> Markup:
    x, y = floats(stems.x), floats(stems.y)
    floor, has = px(chart.frame[3]), ~np.isnan(y)
    places = zip(chart.across(x[has]).tolist(), chart.up(np.maximum(y[has], chart.y.low)).tolist(), strict=True)
    lines = "".join(f"M{px(at)} {floor}V{px(up)}" for at, up in places)
    return joined(element("path", d=lines, class_="stems"), _dots(chart, x, y))


def _points(chart: Drawing, points: Series) -> Markup:
    return _dots(chart, floats(points.x), floats(points.y))


def _dots(chart: Drawing, x: Floats, y: Floats) -> Markup:
    has = ~(np.isnan(x) | np.isnan(y))
    places = zip(chart.across(x[has]).tolist(), chart.up(np.maximum(y[has], chart.y.low)).tolist(), strict=True)
    return element("path", d="".join(f"M{px(at)} {px(up)}h.1" for at, up in places), class_="heads")


def _whisker(chart: Drawing, series: Series) -> Markup:
    x = floats(series.x)
    across = chart.across(middles(x) if series.style == "columns" else x).tolist()
    low, high = chart.up(floats(series.low)).tolist(), chart.up(floats(series.high)).tolist()
    drawn = [
        f"M{px(a)} {px(b)}V{px(c)}M{px(a - 3)} {px(b)}h6M{px(a - 3)} {px(c)}h6"
        for a, b, c in zip(across, low, high, strict=True)
        if not (np.isnan(b) or np.isnan(c))
    ]
    return element("path", d="".join(drawn), class_=f"whiskers {series.tone}")
