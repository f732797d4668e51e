"""Chart colours are distinct also with colour blindness, and contrast with the background."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from fastllmload.report.html.page import asset

Colour = npt.NDArray[np.float64]

# What remains of linear RGB (Machado, Oliveira, Fernandes 2009, severity 1).
SIGHT = {
    "all": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])
APART = 15.0  # CIE 1976; 2.3 can just be told apart side by side
STANDS_OUT = 3.0  # WCAG: graphics against their background
# Lines that one chart shows together: percentiles, sent and completed and failed; failures; workers, sides of a plot.
TOGETHER = (("c1", "c2", "c3"), ("c1", "c2"), ("c2", "c5", "c4", "c6"), ("c1", "c2", "c3", "c4", "c5"))


def linear(text: str) -> Colour:
    digits = text.removeprefix("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    value = np.array([int(digits[k : k + 2], 16) for k in (0, 2, 4)]) / 255
    found: Colour = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    return found


def experiment(rgb: Colour) -> Colour:
    ratio = TO_XYZ @ np.clip(rgb, 0, 1) / WHITE
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def schemes() -> dict[str, dict[str, str]]:
    """Variables of the style sheet in light, in dark and on paper."""
    found: dict[str, dict[str, str]] = {}
    blocks = re.findall(r"\{[^{}]*--bg:[^{}]*\}", asset("page.css"))
    for name, block in zip(("light", "dark", "dark by the system", "paper"), blocks, strict=True):
        found[name] = dict(re.findall(r"--([\w-]+): (#[0-9a-f]+)", block))
    return found


def test_dark_colours_are_equal_by_setting_and_by_choice() -> None:
    assert schemes()["dark"] == schemes()["dark by the system"]


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("scheme", ["light", "dark", "paper"])
def test_lines_of_one_chart_have_distinct_colours(scheme: str, sight: str) -> None:
    colours, seen = schemes()[scheme], np.array(SIGHT[sight])
    for tones in TOGETHER:
        for a, b in combinations(tones, 2):
            distance = np.linalg.norm(experiment(seen @ linear(colours[a])) - experiment(seen @ linear(colours[b])))
            assert distance >= APART, (a, b)


@pytest.mark.parametrize("scheme", ["light", "dark", "paper"])
def test_lines_contrast_with_the_card(scheme: str) -> None:
    colours = schemes()[scheme]
    card = float(TO_XYZ[1] @ linear(colours["card"]))
    for tone in ("c1", "c2", "c3", "c4", "c7", "c8"):
        own = float(TO_XYZ[1] @ linear(colours[tone]))
        assert (max(own, card) + 0.05) / (min(own, card) + 0.05) >= STANDS_OUT, tone
