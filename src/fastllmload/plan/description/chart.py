"""Bars of block characters for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

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
