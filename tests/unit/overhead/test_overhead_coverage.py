"""The interval over pairs contains the truth as often as stated, for the noise that runs on a host have."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from fastllmload.compare.between import change_between

TRIALS = 800
Noise = Callable[[np.random.Generator, int], npt.NDArray[np.float64]]
NOISES: dict[str, tuple[Noise, float, float]] = {  # with the shares of intervals that may contain the truth
    "normal": (lambda rng, n: rng.normal(size=n), 0.93, 0.97),
    "log-normal": (lambda rng, n: rng.lognormal(0.0, 1.0, n), 0.95, 1.0),
    "outliers": (lambda rng, n: rng.exponential(1.0, n) * np.where(rng.random(n) < 0.05, 50, 1), 0.95, 1.0),
}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("pairs", [4, 8])
def test_noise_that_is_the_same_both_ways_is_covered(noise: str, pairs: int) -> None:
    """Both ways have the same noise, so differences are symmetric, and outliers widen the interval rather than bias it."""
    draw, least, most = NOISES[noise]
    rng, contained = np.random.default_rng(1), 0
    for _ in range(TRIALS):
        direct, through = draw(rng, pairs) + 10.0, draw(rng, pairs) + 11.0
        low, high = change_between(direct.tolist(), through.tolist(), "paired", range(pairs)).interval or (0.0, 0.0)
        contained += low <= 1.0 <= high
    assert least <= contained / TRIALS <= most
