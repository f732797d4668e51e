"""Draw a plan for a terminal: rate over time, gaps, lengths. All are counted from the plan's arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.plan.description.facts import generating
from fastllmload.plan.description.session_picture import draw_sessions
from fastllmload.plan.plan import Plan

BLOCKS = " ▁▂▃▄▅▆▇█"
LABEL = 10  # columns of the scale on the left


def bars(values: Sequence[float], height: int, unit: str) -> list[str]:
    """*values* (0 or more) as bars of *height* lines, the scale on the left, zero at the bottom."""
    highest = max(values, default=0.0)
    lines = []
    for line in range(height, 0, -1):
        row = "".join(_cell(value, highest, line, height) for value in values)
        label = f"{short(highest)}{unit}" if line == height else ""
        lines.append(f"{label:>{LABEL}} │{row}".rstrip())
    return [*lines, f"{'0':>{LABEL}} └{'─' * len(values)}"]


def axis(left: str, middle: str, right: str, width: int) -> str:
    """The line below the bars, with labels at its left, middle and right."""
    gap = max(1, width // 2 - len(left) - len(middle) // 2)
    text = left + " " * gap + middle
    return " " * (LABEL + 2) + text + " " * max(1, width - len(text) - len(right)) + right


def _cell(value: float, highest: float, line: int, height: int) -> str:
    """The part of a bar that lies in *line*, counted from 1 at the bottom. Values above 0 are always visible."""
    if highest <= 0 or value <= 0:
        return " "
    eighths = max(1, round(value / highest * height * 8))
    return BLOCKS[min(8, max(0, eighths - 8 * (line - 1)))]


def short(value: float) -> str:
    """Three significant digits, k and M for thousands and millions."""
    for scale, mark in ((1e6, "M"), (1e4, "k")):
        if value >= scale:
            return f"{value / (1e6 if mark == 'M' else 1e3):.3g}{mark}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


WIDTH, HEIGHT = 64, 5
FEWEST = 2  # requests that a chart needs
LEFT = 0.005  # share of the gaps, the shortest, that are drawn as the first bar
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
Numbers = npt.NDArray[Any]


def show(plan: Plan) -> str:
    parts: list[list[str]] = []
    if plan.t_start is not None and len(plan.t_start) >= FEWEST and plan.t_start[-1] > 0:
        instants = np.asarray(plan.t_start) / 1e9
        parts += [_rate(instants, plan.duration_s), _gaps(instants)]
    if plan.requests:
        parts.append(_lengths("input length", np.asarray(plan.input_tokens)))
        if plan.description.workload.osl is not None:
            parts.append(_lengths("output length", np.asarray(plan.output_tokens)[generating(plan)]))
    parts += draw_sessions(plan)
    return "\n".join("\n".join(lines) + "\n" for lines in parts)


def _rate(instants: Numbers, seconds: float | None) -> list[str]:
    """Requests per second, as planned, in equal slices of the time that is planned."""
    end = max(float(instants[-1]), 0.0) if seconds is None else seconds
    columns = min(WIDTH, max(8, len(instants) // 4))
    counts, _ = np.histogram(instants, bins=columns, range=(0.0, end))
    rates = counts / (end / columns)
    mean, highest = len(instants) / end, float(rates.max())
    title = f"rate           mean {mean:.4g}/s, highest {highest:.4g}/s in a slice of {spell(end / columns)}"
    return [title, *bars(rates.tolist(), HEIGHT, "/s"), axis("0 s", spell(end / 2), spell(end), columns)]


def _gaps(instants: Numbers) -> list[str]:
    """Gaps between sends, on a logarithmic scale; gaps of 0 are counted separately."""
    gaps = np.diff(instants, prepend=0.0)
    positive = gaps[gaps > 0]
    zero = len(gaps) - len(positive)
    title = f"gaps           mean {spell(float(gaps.mean()))}, longest {spell(float(gaps.max()))}"
    title += f", {zero:,} of zero length" if zero else ""
    low, high = float(np.quantile(positive, LEFT)), float(positive.max())
    if high < low * 1.001:
        return [f"{title}, all equal"]
    exponents = np.log10(np.maximum(positive, low))
    counts, _ = np.histogram(exponents, bins=WIDTH, range=(np.log10(low), np.log10(high)))
    middle = float(np.sqrt(low * high))
    left = f"{spell(low)}{' or less' if positive.min() < low else ''}"
    return [title, *bars(counts.tolist(), HEIGHT, ""), axis(left, spell(middle), spell(high), WIDTH)]


def _lengths(name: str, tokens: Numbers) -> list[str]:
    low, high = int(tokens.min()), int(tokens.max())
    title = f"{name:<14} mean {float(tokens.mean()):,.1f} tokens"
    if low == high:
        return [f"{title}, all equal"]
    wide = _wide(high - low + 1)
    counts = np.bincount((tokens - low) // wide)
    columns = len(counts)
    middle = short((low + high) / 2)
    return [title, *bars(counts.tolist(), HEIGHT, ""), axis(short(low), middle, f"{short(high)} tokens", columns)]


def _wide(lengths: int) -> int:
    """Number of lengths per bar, the same for all bars, and such that the last one is as full as possible."""
    least = math.ceil(lengths / WIDTH)
    return min(range(least, 2 * least + 1), key=lambda wide: (-lengths % wide) / wide)


def spell(seconds: float) -> str:
    """`12.5 ms`; minutes and hours above two minutes."""
    if seconds >= 7200:
        return f"{seconds / 3600:.3g} h"
    if seconds >= 120:
        return f"{seconds / 60:.3g} min"
    scale, unit = next((pair for pair in UNITS if seconds >= pair[0]), UNITS[-1])
    return f"{seconds / scale:.3g} {unit}"
