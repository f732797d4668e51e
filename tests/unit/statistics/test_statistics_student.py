"""Student's t and the incomplete beta function against scipy."""

from __future__ import annotations

import math

import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from fastllmload.statistics.student import beta_quantile, incomplete_beta, t_interval, t_quantile, t_two_sided

pytestmark = pytest.mark.slow

SHAPES = st.floats(0.1, 5000)


@given(st.floats(0, 1), SHAPES, SHAPES)
def test_the_incomplete_beta_function_is_scipys(x: float, a: float, b: float) -> None:
    assert incomplete_beta(x, a, b) == pytest.approx(float(scipy.special.betainc(a, b, x)), rel=1e-8, abs=1e-12)


@given(st.floats(-60, 60), st.floats(0.5, 1e5))
def test_the_tails_of_t_are_scipys(t: float, df: float) -> None:
    assert t_two_sided(t, df) == pytest.approx(float(2 * scipy.stats.t.sf(abs(t), df)), rel=1e-7, abs=1e-14)


@given(st.floats(0.001, 0.999), st.floats(1, 1000))
def test_the_quantiles_of_t_are_scipys(p: float, df: float) -> None:
    assert t_quantile(p, df) == pytest.approx(float(scipy.stats.t.ppf(p, df)), rel=1e-7, abs=1e-9)


@given(st.floats(0.01, 0.99), st.floats(0.5, 500), st.floats(0.5, 500))
def test_the_quantiles_of_beta_are_scipys(p: float, a: float, b: float) -> None:
    assert beta_quantile(p, a, b) == pytest.approx(float(scipy.stats.beta.ppf(p, a, b)), rel=1e-6, abs=1e-9)


def test_infinite_degrees_of_freedom_are_the_normal() -> None:
    assert t_quantile(0.975, math.inf) == pytest.approx(1.959964, abs=1e-6)
    assert t_two_sided(math.inf, 3) == 0.0


def test_a_quantile_of_0_or_1_is_refused() -> None:
    for p in (0.0, 1.0, 1.5):
        with pytest.raises(ValueError, match="between 0 and 1"):
            t_quantile(p, 5)


@given(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=30, unique=True))
def test_the_interval_of_a_mean_over_runs_is_scipys(values: list[float]) -> None:
    found = t_interval(values)
    expected = scipy.stats.t.interval(
        0.95, len(values) - 1, loc=scipy.stats.tmean(values), scale=scipy.stats.sem(values)
    )
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_one_run_has_no_interval() -> None:
    assert t_interval([3.0]) is None
