"""Tests of a difference, Holm and effect sizes against scipy and against their own definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from fastllmload.statistics.two_samples import hedges_g, holm, mann_whitney, paired_t, welch

pytestmark = pytest.mark.slow

SAMPLES = st.lists(st.integers(-500, 500).map(float), min_size=2, max_size=25)
DISTINCT = st.lists(st.floats(-1e3, 1e3), min_size=5, max_size=16, unique=True)


def spread_out(*samples: list[float]) -> bool:
    return all(len(set(sample)) > 1 for sample in samples)


@given(SAMPLES, SAMPLES)
def test_welch_is_scipys(a: list[float], b: list[float]) -> None:
    if not spread_out(a, b):
        return
    found, expected = welch(a, b), scipy.stats.ttest_ind(b, a, equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-7, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-7, abs=1e-7)


@given(st.lists(st.tuples(st.integers(-99, 99), st.integers(-99, 99)), min_size=3, max_size=20))
def test_the_paired_t_is_scipys(pairs: list[tuple[int, int]]) -> None:
    a, b = [float(x) for x, _ in pairs], [float(y) for _, y in pairs]
    if len({y - x for x, y in pairs}) == 1:
        return
    found, expected = paired_t(a, b), scipy.stats.ttest_rel(b, a)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-7, abs=1e-12)
    interval = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-7, abs=1e-9)


def test_figures_without_any_spread() -> None:
    assert welch([2.0, 2.0], [2.0, 2.0]).p == 1.0
    differ = paired_t([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])
    assert (differ.value, differ.low, differ.high, differ.p) == (1.0, 1.0, 1.0, 0.0)
    assert hedges_g([1.0, 1.0], [2.0, 2.0]) is None


@given(DISTINCT)
def test_mann_whitney_counted_out_is_scipys(values: list[float]) -> None:
    a, b = values[:2], values[2:]
    found = mann_whitney(a, b)
    expected: Any = scipy.stats.mannwhitneyu(b, a, method="exact")
    assert found == pytest.approx(expected.pvalue, rel=1e-9)


@given(SAMPLES, SAMPLES)
def test_mann_whitney_with_ties_is_scipys(a: list[float], b: list[float]) -> None:
    a, b = [*a, 7.0], [*b, 7.0]
    found = mann_whitney(a, b)
    expected: Any = scipy.stats.mannwhitneyu(b, a, method="asymptotic")
    assert found == pytest.approx(expected.pvalue, rel=1e-7, abs=1e-12)


def test_three_runs_against_three_can_never_be_significant() -> None:
    assert mann_whitney([1.0, 2.0, 3.0], [11.0, 12.0, 13.0]) == pytest.approx(0.1)


def test_holm_by_hand() -> None:
    """Holm's own scheme: smallest times 3, then times 2, then times 1, never falling."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_keeps_the_order_and_never_lowers_a_p(p: list[float]) -> None:
    adjusted = holm(p)
    assert all(q >= raw and q <= 1 for raw, q in zip(p, adjusted, strict=True))
    order = np.argsort(p, kind="stable")
    assert all(np.diff(np.array(adjusted)[order]) >= 0)


def test_hedges_g_by_hand() -> None:
    """d = 2 / sqrt(2.5) for these two, times 1 - 3 / 31."""
    a, b = [1.0, 2.0, 3.0, 4.0, 5.0], [3.0, 4.0, 5.0, 6.0, 7.0]
    assert hedges_g(a, b) == pytest.approx(2 / 2.5**0.5 * (1 - 3 / 31))


def test_too_few_figures_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 figures"):
        welch([1.0], [2.0, 3.0])
    with pytest.raises(ValueError, match="as many figures"):
        paired_t([1.0, 2.0], [1.0, 2.0, 3.0])
