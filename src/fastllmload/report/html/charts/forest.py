"""Draws a forest plot: one row per figure with its change, the interval as a line around 0, and the result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fastllmload.report.html.charts.scales import round_above
from fastllmload.report.render.html import Markup, element, joined, table, visible

WIDTH, HEIGHT, EDGE = 220.0, 22.0, 6.0
WIDEST = 200.0  # percent; intervals beyond end in an arrow
TONES = {"better": "c3", "worse": "c2"}


@dataclass(frozen=True)
class Effect:
    """One row. *change*, *low*, *high*: percent (for shares: percentage points), None where unknown; *texts*: change,
    interval and p as text; *result*: better, worse, or another text.
    """

    name: str
    base: str
    new: str
    change: float | None
    low: float | None
    high: float | None
    texts: tuple[str, str, str]
    result: str


@dataclass(frozen=True)
class Forest:
    """Rows and the names of both sides; *notes* are below the table."""

    effects: Sequence[Effect]
    sides: tuple[str, str]
    notes: Sequence[str] = ()


def render_forest(given: Forest) -> Markup:
    """A card with the table, which scrolls horizontally where it is too wide."""
    reach = reach_of(given.effects)
    scale = element("span", *(element("i", text) for text in (f"-{reach:g}", "0", f"+{reach:g}")), class_="axis")
    head: list[str | Markup] = ["figure", joined("change, %, with its 95 % interval", scale), "change", "interval"]
    head += [*(visible(side, 40) for side in given.sides), "p (Holm)", "result"]
    rows = [_row(effect, reach) for effect in given.effects]
    notes = (element("p", visible(note, 2000), class_="note") for note in given.notes)
    return element("div", table(head, rows, "forest"), *notes, class_="card")


def reach_of(effects: Sequence[Effect]) -> float:
    """The end of the axis on both sides, in percent."""
    ends = [abs(end) for one in effects for end in (one.change, one.low, one.high) if end is not None]
    return min(WIDEST, round_above(max([1.0, *(end for end in ends if math.isfinite(end))])))


def _row(one: Effect, reach: float) -> list[str | Markup]:
    tone = TONES.get(one.result, "c7")
    result = element("span", visible(one.result, 40), class_=f"result {tone}")
    change, interval, p = one.texts
    name = element("code", visible(one.name, 60))
    return [name, _line(one, reach, tone), change, interval, one.base, one.new, p, result]


def _line(one: Effect, reach: float, tone: str) -> Markup:
    """The interval, its middle, and the line of no change."""

    def place(value: float) -> float:
        return round(WIDTH / 2 + (WIDTH / 2 - EDGE) * min(max(value / reach, -1.0), 1.0), 1)

    middle = HEIGHT / 2
    parts = [element("line", x1=WIDTH / 2, x2=WIDTH / 2, y1=0, y2=HEIGHT, class_="none")]
    if one.low is not None and one.high is not None:
        parts.append(element("line", x1=place(one.low), x2=place(one.high), y1=middle, y2=middle, class_="reach"))
        parts += [_arrow(place(end), math.copysign(1, end)) for end in (one.low, one.high) if abs(end) > reach]
    if one.change is not None:
        parts.append(element("circle", cx=place(one.change), cy=middle, r=4))
    label = visible(f"{one.name}: {one.texts[0]}, interval {one.texts[1]}", 200)
    box = f"0 0 {WIDTH:g} {HEIGHT:g}"
    return element("svg", *parts, viewBox=box, class_=f"effect {tone}", role="img", aria_label=label)


def _arrow(x: float, way: float) -> Markup:
    y = HEIGHT / 2
    return element("path", d=f"M{x - 5 * way:g} {y - 4:g}L{x:g} {y:g}L{x - 5 * way:g} {y + 4:g}", class_="reach")
