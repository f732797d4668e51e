"""Rate curves: the inverse is exact, and arrivals follow the curve at every scale."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastllmload.arrivals.choice import choose_varying
from fastllmload.arrivals.curve import (
    DayCurve,
    ExponentialCurve,
    LinearCurve,
    RateCurve,
    described_curve,
    mean_rate,
    read_curve,
)
from fastllmload.arrivals.process import draw_schedule
from fastllmload.documents.plan import Curve
from fastllmload.documents.read import convert
from fastllmload.documents.write import plain

pytestmark = pytest.mark.slow

CURVES = [
    LinearCurve((0.0, 100.0), (10.0, 90.0)),
    LinearCurve((0.0, 100.0), (90.0, 0.0)),
    LinearCurve((0.0, 50.0, 50.0, 100.0), (10.0, 10.0, 80.0, 80.0)),
    LinearCurve((0.0, 10.0, 10.0, 20.0, 20.0, 30.0), (50.0, 50.0, 0.0, 0.0, 50.0, 50.0)),
    ExponentialCurve(5.0, 80.0, 60.0),
    ExponentialCurve(80.0, 5.0, 60.0),
    DayCurve(0.0, 100.0, 20.0),
    DayCurve(5.0, 40.0, 50.0),
]


@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_the_integral_is_that_of_the_rate(curve: RateCurve) -> None:
    """Against the midpoint rule on a fine grid; a step costs it at most half a cell."""
    edges = np.linspace(0.0, curve.seconds * 1.2, 240_001)
    wide = edges[1]
    rough = np.concatenate([[0.0], np.cumsum(curve.rate((edges[1:] + edges[:-1]) / 2) * wide)])
    assert np.abs(curve.expected(edges) - rough).max() <= 2 * curve.peak * wide


@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_the_inverse_is_exact(curve: RateCurve) -> None:
    """To far below a nanosecond, wherever the rate is not 0."""
    wanted = np.linspace(0.0, float(curve.expected(np.array([curve.seconds]))[0]), 5_001)[1:-1]
    instants = curve.instant(wanted)
    assert np.all(np.diff(instants) >= 0)
    assert np.abs(curve.expected(instants) - wanted).max() < 1e-9 * max(1.0, wanted[-1])


@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_a_curve_is_rebuilt_from_its_description(curve: RateCurve) -> None:
    """Also after its JSON was written and read."""
    assert described_curve(convert(plain(curve.describe()), Curve)) == curve


def test_nothing_is_sent_while_the_rate_is_zero() -> None:
    curve = CURVES[3]
    instants = draw_schedule(choose_varying("poisson", curve, ""), 1.0, random.Random("a"), seconds=30.0) / 1e9
    assert len(instants) > 800
    assert not np.any((instants > 10.0) & (instants < 20.0))


def test_nothing_is_due_after_a_final_rate_of_zero() -> None:
    found = LinearCurve((0.0, 10.0), (10.0, 0.0)).instant(np.array([49.0, 51.0]))
    assert found[0] < 10.0 and np.isinf(found[1])


RATES = st.one_of(st.just(0.0), st.floats(1e-6, 1000))


@given(st.lists(st.tuples(st.floats(0.01, 50), RATES), min_size=1, max_size=8), st.floats(0, 500))
def test_any_piecewise_rate_is_inverted(pieces: list[tuple[float, float]], wanted: float) -> None:
    times = np.concatenate([[0.0], np.cumsum([length for length, _ in pieces])])
    curve = LinearCurve(tuple(times), (pieces[0][1], *(rate for _, rate in pieces)))
    instant = curve.instant(np.array([wanted]))
    if np.isfinite(instant[0]):
        assert curve.expected(instant)[0] == pytest.approx(wanted, rel=1e-7, abs=1e-6)


@pytest.mark.parametrize(
    "text", ["ramp:20,180", "steps:20,180,60,140", "day:20,180", "exponential:20,180", "spikes:50,500,20,2"]
)
def test_poisson_arrivals_follow_the_curve(text: str) -> None:
    """Counts in 20 slices of 40 schedules have the curve's mean and a Poisson variance: chi-square of all within 5
    sigma.
    """
    curve = read_curve(text, 100.0)
    process = choose_varying("poisson", curve, "")
    edges = np.linspace(0.0, 100.0, 21)
    expected = np.diff(curve.expected(edges))
    squares = []
    for seed in range(40):
        instants = draw_schedule(process, 1.0, random.Random(f"{text}/{seed}"), seconds=100.0)
        counts = np.histogram(instants / 1e9, edges)[0]
        squares.append((counts - expected) ** 2 / expected)
    total, degrees = np.sum(squares), 40 * 20
    assert abs(total - degrees) < 5 * np.sqrt(2 * degrees)


def test_constant_gaps_under_a_curve_give_one_arrival_per_expected_one() -> None:
    """No randomness: the k-th arrival comes when exactly k were expected."""
    curve = read_curve("ramp:1,9", 10.0)
    instants = draw_schedule(choose_varying("constant", curve, ""), 1.0, random.Random(0), seconds=10.0)
    assert len(instants) == 50
    assert curve.expected(instants / 1e9) == pytest.approx(np.arange(50), abs=1e-6)


def test_mean_rate() -> None:
    assert mean_rate(read_curve("ramp:10,30", 100.0), 100.0) == pytest.approx(20.0)
