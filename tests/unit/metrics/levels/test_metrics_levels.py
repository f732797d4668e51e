"""Operating points are found among tested levels; what cannot be found is None."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastllmload.metrics.levels import operating_points

LEVEL = st.tuples(st.floats(0.1, 1e3), st.floats(1, 1e4), st.floats(0, 1e5))


def test_levels_come_in_any_order() -> None:
    assert operating_points.knee_point([3, 1, 2], [300, 100, 150]) == 3
    assert operating_points.saturation_point([3, 1, 2], [9, 10, 12]) == 3


def test_no_level_has_no_point() -> None:
    assert (
        operating_points.knee_point([], [])
        is operating_points.saturation_point([], [])
        is operating_points.peak_level([], [])
        is None
    )
    assert operating_points.optimal_point([], [], []) is operating_points.slo_capacity([], []) is None
    assert operating_points.fluid_token_generation_rate([], []) is None


def test_a_level_without_a_figure_is_left_out() -> None:
    """No request got a first token at 3: no P99, so it is not the knee."""
    assert operating_points.knee_point([1, 2, 3, 4], [100, 120, math.nan, 500]) == 4


def test_highest_load_that_meets_an_objective() -> None:
    assert operating_points.slo_capacity([1, 2, 3], [1.0, 0.9, 0.89]) == 2
    assert operating_points.slo_capacity([1, 2, 3], [1.0, 0.9, 0.89], least=0.95) == 1


def test_fluid_rates() -> None:
    """One of 100 requests may stutter or fail; two may not."""
    assert operating_points.fluid_token_generation_rate([800, 1500, 2000], [1.0, 0.99, 0.98]) == 1500
    assert operating_points.fluid_token_generation_rate([800], [0.98]) is None


@given(st.lists(LEVEL, max_size=8, unique_by=lambda level: level[0]), st.randoms())
def test_the_order_of_levels_does_not_matter(table: list[tuple[float, float, float]], random: object) -> None:
    def points(rows: list[tuple[float, float, float]]) -> tuple[float | None, ...]:
        offered, p99, achieved = ([row[i] for row in rows] for i in range(3))
        meets = [value <= 500 for value in p99]
        return (
            operating_points.knee_point(offered, p99),
            operating_points.saturation_point(offered, achieved),
            operating_points.peak_level(offered, achieved),
            operating_points.optimal_point(offered, achieved, meets),
        )

    assert points(table) == points(sorted(table, key=lambda row: -row[1]))


def test_no_slo_no_optimum() -> None:
    assert operating_points.optimal_point([1, 2], [5, 6], None) is None
    assert operating_points.optimal_point([1, 2, 3], [5, 6, 6], [True, True, True]) == pytest.approx(2)
