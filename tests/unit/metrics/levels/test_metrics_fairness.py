"""Jain's index and starvation: bounds, scale, and who is counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastllmload.metrics.levels import fairness
from fastllmload.metrics.request.durations import NULL

VALUES = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50)


@given(VALUES, st.floats(1e-3, 1e3))
def test_jain_lies_between_one_nth_and_1_and_knows_no_scale(values: list[float], factor: float) -> None:
    x = np.array(values)
    index = fairness.jain_index(x)
    assert index is not None and 1 / len(x) - 1e-9 <= index <= 1 + 1e-9
    assert fairness.jain_index(x * factor) == pytest.approx(index, rel=1e-9)


def test_jain_without_a_value() -> None:
    assert fairness.jain_index(np.array([np.nan, np.nan])) is None
    assert fairness.jain_index(np.zeros(3)) is None
    assert fairness.jain_index(np.array([1e-200, 1e-200, np.nan])) == 1.0
    assert fairness.judged(np.zeros(3), "none").significantly_unfair is None


def test_normalised_by_the_isolated_median_of_each_class() -> None:
    x = fairness.normalised(np.array([100.0, 600.0, 5.0]), np.array([0, 1, 2]), {0: 100.0, 1: 400.0})
    assert x[:2].tolist() == [1.0, 1.5] and np.isnan(x[2])


def test_no_first_token_gives_no_starvation_rate() -> None:
    assert fairness.starvation_rate(np.array([NULL, NULL]), np.array([10, 20])) is None
    assert fairness.starvation_rate(np.empty(0, np.int64), np.empty(0, np.int64)) is None


def test_a_request_that_was_never_submitted_is_not_starved_but_counted() -> None:
    wait, ended = np.array([10, 10, 10, NULL]), np.array([10, 10, 10, NULL])
    assert fairness.starvation_rate(wait, ended) == 0.0
