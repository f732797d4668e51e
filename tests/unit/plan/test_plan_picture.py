"""Charts of a plan: bar heights proportional to counts, with scales."""

from __future__ import annotations

import re

import numpy as np
import pytest
from support.plan_builder import asked, build

from fastllmload.plan.description.picture import BLOCKS, HEIGHT, LABEL, WIDTH, _lengths, axis, bars, short, show, spell


def heights(lines):
    """Eighths of a line that each column's bar is high."""
    rows = [line[LABEL + 2 :] for line in lines[:-1]]
    width = max(map(len, rows))
    return [sum(BLOCKS.index(row.ljust(width)[column]) for row in rows) for column in range(width)]


def test_bars_are_proportional():
    """8 eighths a line, the highest fills the chart, zero is blank, and values above zero are visible."""
    assert heights(bars([0, 1, 5, 10, 2.5], 5, "")) == [0, 4, 20, 40, 10]
    assert heights(bars([1e-9, 1.0], 3, "")) == [1, 24]
    assert heights([*bars([0.0, 0.0], 2, "")[:2], ""]) == []
    assert bars([1.0], 1, "/s") == [f"{'1/s':>{LABEL}} │█", f"{'0':>{LABEL}} └─"]


def test_the_axis_fits_its_bars():
    line = axis("0 s", "30 s", "60 s", 64)
    assert len(line) == LABEL + 2 + 64 and line.endswith("60 s")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.001234, "0.00123"), (12.345, "12.3"), (999, "999"), (4096, "4,096"), (12_345, "12.3k"), (2e6, "2M")],
)
def test_short_numbers(value, text):
    assert short(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2e-6, "2 us"), (0.0125, "12.5 ms"), (60, "60 s"), (300, "5 min"), (9000, "2.5 h"), (0, "0 us")],
)
def test_times(seconds, text):
    assert spell(seconds) == text


def parts(text):
    """Title -> the lines under it."""
    return {block.split("  ")[0]: block.splitlines() for block in text.strip("\n").split("\n\n")}


def test_an_open_loop(tmp_path):
    """Four pictures in 80 columns; the bars of the rate count all requests."""
    plan = build(tmp_path, asked(rate=200.0))
    found = parts(show(plan))
    assert list(found) == ["rate", "gaps", "input length", "output length"]
    assert all(len(line) <= 80 for lines in found.values() for line in lines)
    counted = heights(found["rate"][1:-1])
    highest = float(re.search(r"highest ([\d.]+)/s", found["rate"][0])[1])
    assert len(counted) == WIDTH and max(counted) == 8 * HEIGHT
    assert sum(counted) / (8 * HEIGHT) * highest * 10.0 / WIDTH == pytest.approx(plan.requests, rel=0.02)


def test_a_ramp_rises(tmp_path):
    """The planned rate over time is the curve's."""
    plan = build(tmp_path, asked(rate=55.0, load__rate_curve="ramp:10,100"))
    counted = heights(parts(show(plan))["rate"][1:-1])
    quarter = len(counted) // 4
    assert sum(counted[-quarter:]) > 3 * sum(counted[:quarter])


@pytest.mark.parametrize(
    ("change", "titles"),
    [
        ({"rate": None, "load__concurrency": 4}, ["input length", "output length"]),
        ({"rate": float("inf"), "duration": None, "load__num_requests": 9}, ["input length", "output length"]),
        ({"load__num_requests": 1}, ["input length", "output length"]),
        ({"load__arrival": "constant"}, ["rate", "gaps", "input length", "output length"]),
    ],
)
def test_charts_without_data_are_left_out(tmp_path, change, titles):
    """No instants, no rate and no gaps; lengths and gaps that are all equal are one line."""
    text = show(build(tmp_path, asked(**change, workload__isl="9")))
    assert list(parts(text)) == titles
    assert "input length   mean 9.0 tokens, all equal" in text


@pytest.mark.parametrize(("low", "high"), [(64, 256), (128, 512), (1, 64), (5, 5000), (7, 8)])
def test_equally_frequent_lengths_have_bars_of_equal_height(low, high):
    """Each bar holds as many lengths as the others; only the last may hold fewer, and none more."""
    lines = _lengths("input length", np.arange(low, high + 1))
    counted = heights(lines[1:-1])
    assert len(counted) <= WIDTH and set(counted[:-1]) == {8 * HEIGHT}
    assert 4 * HEIGHT <= counted[-1] <= 8 * HEIGHT
