"""Fits find the model that made the data, and say when they cannot tell."""

from __future__ import annotations

import numpy as np
import pytest

from fastllmload.metrics.levels.scaling import MODELS, scaling

pytestmark = pytest.mark.slow

LENGTHS = [1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072]


def noisy(values: np.ndarray, seed: int, spread: float = 0.01) -> list[float]:
    rng = np.random.default_rng(seed)
    return list(values * (1 + rng.normal(0, spread, len(values))))


@pytest.mark.parametrize("seed", range(3))
def test_the_model_that_made_the_data_is_chosen(seed: int) -> None:
    x = np.array(LENGTHS, float)
    assert scaling(LENGTHS, noisy(50 + 0.07 * x + 4e-6 * x**2, seed, 0.001)).best == "quadratic"
    straight = scaling(LENGTHS, noisy(1000 + 0.07 * x, seed, 0.001))
    assert straight.best == "linear" and straight.criterion == "f_test"
    fit = straight.fit("linear").coefficients
    assert fit is not None and fit[0] == pytest.approx(1000, rel=0.05) and fit[1] == pytest.approx(0.07, rel=0.01)


def test_an_exact_proportion_is_not_explained_by_more() -> None:
    """All three models fit to rounding: the one with the fewest parameters wins."""
    found = scaling(LENGTHS, [length * 0.1 for length in LENGTHS])
    assert found.best == "proportional"
    assert all(fit.r2 == pytest.approx(1.0) for fit in found.fits) and len(found.fits) == len(MODELS)


def test_few_lengths_are_flagged_and_a_curve_through_every_point_is_never_chosen() -> None:
    two = scaling([1024, 4096], [100, 390])
    assert two.exponent.few and two.exponent.k is not None and two.fit("quadratic").coefficients is None
    assert two.best is None and two.fit("linear").saturated
    three = scaling([1024, 2048, 4096], [100, 210, 390])
    assert not three.exponent.few and three.fit("quadratic").saturated and three.best is None
    one = scaling([1024], [100])
    assert one.exponent.k is one.best is None and one.ms_per_1k == (97.65625,)


@pytest.mark.parametrize("n", [4, 5, 6, 8])
def test_few_lengths_of_exact_data_are_named_for_what_they_are(n: int) -> None:
    """A line to the microsecond, as a report prints it, is not a curve; a curve is; a proportion is neither."""
    x = np.array(LENGTHS[:n], float)
    assert scaling(LENGTHS[:n], list(np.round(100 + 0.07 * x, 3))).best == "linear"
    assert scaling(LENGTHS[:n], list(100 + 0.07 * x + 4e-6 * x**2)).best == "quadratic"
    assert scaling(LENGTHS[:n], list(0.07 * x)).best == "proportional"


@pytest.mark.parametrize("n", [4, 5, 6, 8])
@pytest.mark.parametrize("relative", [False, True])
def test_a_noisy_line_is_seldom_called_a_curve(n: int, relative: bool) -> None:
    """Of 300 lines with the same error at each length, in ms or as a share, about 5 %; by AICc a third of these."""
    x, rng = np.array(LENGTHS[-n:], float), np.random.default_rng(7)
    line = 300 + 0.07 * x
    errors = [rng.normal(0, 0.01, n) * line if relative else rng.normal(0, 2, n) for _ in range(300)]
    found = [scaling(LENGTHS[-n:], list(line + error)).best for error in errors]
    assert found.count("quadratic") / 300 <= 0.08


def test_a_curve_of_eight_lengths_with_an_error_of_one_percent_is_found() -> None:
    x = np.array(LENGTHS, float)
    found = [scaling(LENGTHS, noisy(50 + 0.07 * x + 5e-7 * x**2, seed)).best for seed in range(50)]
    assert found.count("quadratic") >= 49


def test_a_clear_curve_of_five_noisy_lengths_is_found() -> None:
    """Twice as slow at the end as a line would be, at an error of 0.1 %."""
    x = np.array(LENGTHS[3:], float)
    found = [scaling(LENGTHS[3:], noisy(50 + 0.07 * x + 5e-7 * x**2, seed, 0.001)).best for seed in range(20)]
    assert found.count("quadratic") >= 18


def test_equal_latencies_have_no_r2() -> None:
    assert scaling([1000, 2000, 4000], [5, 5, 5]).exponent.r2_log is None


def test_order_of_lengths_does_not_matter() -> None:
    assert scaling([4096, 1024], [4, 1]) == scaling([1024, 4096], [1, 4])


@pytest.mark.parametrize(("lengths", "ttft"), [([1, 1], [2, 3]), ([0, 1], [2, 3]), ([1, 2], [0, 3]), ([1, 2], [3])])
def test_texts_other_than_a_table_of_lengths(lengths: list[float], ttft: list[float]) -> None:
    with pytest.raises(ValueError, match="must be different"):
        scaling(lengths, ttft)
