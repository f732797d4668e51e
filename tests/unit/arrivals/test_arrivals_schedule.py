"""Schedules: published vectors, bounds, error of the instants, scaling, and golden hashes."""

import hashlib
import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest

from fastllmload.arrivals.choice import NAMES, choose_arrivals
from fastllmload.arrivals.process import CHUNK, draw_schedule

STREAM = "42/arrivals"


def schedule(arrival="poisson", rate=1.0, burstiness=1.0, seed=STREAM, **bounds):
    return draw_schedule(choose_arrivals(arrival, rate, burstiness), rate, random.Random(seed), **bounds)


def sha(array):
    return hashlib.sha256(array.tobytes()).hexdigest()


def test_poisson_vectors():
    """The stream "42/arrivals" at rate 1 gives the specified gaps, mean and maximum."""
    gaps = np.diff(schedule(count=10_000), prepend=0) / 1e9
    assert gaps[:5] == pytest.approx(
        [1.088391262, 1.232560968, 0.105976574, 0.035856198, 0.670143563],
        abs=1.5e-9,  # two roundings
    )
    assert gaps.mean() == pytest.approx(0.989830, abs=1e-6)
    assert gaps.max() == pytest.approx(8.725152, abs=1e-6)


def test_golden_hash_of_the_default_load():
    """500/s for 300 s with seed 42: the same int64 array, and so the same SHA-256, everywhere."""
    drawn = schedule(rate=500.0, seconds=300.0)
    assert drawn.dtype == np.int64
    assert len(drawn) == 150_314
    assert sha(drawn) == "2637582f440f74ff2bbb4d6072ffe4c7b67a24258fbb2a7835a3c4816279da48"


@pytest.mark.parametrize("arrival", NAMES)
def test_same_seed_same_schedule(arrival):
    """The same seed gives an equal schedule; another seed a different one, except where nothing is random."""
    first, again, other = (schedule(arrival, 20.0, seed=s, count=20_000) for s in ("1/a", "1/a", "2/a"))
    assert np.array_equal(first, again)
    assert np.array_equal(first, other) == (arrival == "constant")


@pytest.mark.parametrize("arrival", NAMES)
@pytest.mark.parametrize("rate", [0.05, 3.0, 50_000.0])
def test_ascending_from_zero(arrival, rate):
    """Instants ascend, start at or after time zero, and a count bound is exact."""
    drawn = schedule(arrival, rate, count=10_000)
    assert len(drawn) == 10_000
    assert drawn[0] >= 0
    assert bool(np.all(np.diff(drawn) >= 0))


def test_instants_are_the_exact_sums_within_the_stated_bound():
    """Against exact rational sums of the same gaps: half a ns of rounding and under 5 ns of summing."""
    rate, stream = 500, random.Random(STREAM)
    drawn = schedule(rate=float(rate), count=100_000)
    exact, worst = Fraction(0), Fraction(0)
    for i in range(100_000):
        exact += Fraction(-math.log(1.0 - stream.random()))
        if i % 10_000 == 0 or i == 99_999:
            worst = max(worst, abs(exact * 10**9 / rate - int(drawn[i])))
    assert worst < Fraction(1, 2) + 5


def test_chunk_boundaries_do_not_change_the_sequence():
    """A longer schedule starts with the shorter one, whatever its bound."""
    long = schedule(rate=7.0, count=30_000)
    for count in (1, CHUNK - 1, CHUNK, CHUNK + 1, 20_000):
        assert np.array_equal(schedule(rate=7.0, count=count), long[:count])


def test_levels_differ_only_in_time_scale():
    """The same stream at twice the rate gives half the instants, to the rounding."""
    slow, fast = schedule(rate=10.0, count=5000), schedule(rate=20.0, count=5000)
    assert np.abs(slow - 2 * fast).max() <= 2


def test_duration_is_half_open():
    """Requests lie in [0, D); both bounds together take the one that ends first."""
    assert schedule("constant", 10.0, seconds=1.0).tolist() == [k * 100_000_000 for k in range(10)]
    assert len(schedule("constant", 10.0, seconds=1.000000001)) == 11
    assert len(schedule("constant", 10.0, seconds=1.0, count=4)) == 4
    assert len(schedule("constant", 10.0, seconds=1.0, count=40)) == 10
    assert len(schedule(rate=0.05, seed="7/arrivals", seconds=0.001)) == 0
    with pytest.raises(ValueError, match="bound|count"):
        schedule()


@pytest.mark.parametrize("rate", [0.001, 0.05, 0.1, 1 / 3, 3.0, 499.5, 50_000.0])
def test_constant_has_no_drift(rate):
    """Arrival k is at k/rate to the nanosecond, also the last one, and D seconds hold rate x D of them."""
    drawn = schedule("constant", rate, count=20_000)
    k = 19_999
    assert abs(int(drawn[k]) - Fraction(k) / Fraction(rate) * 10**9) <= max(1, k / rate * 1e9 * 2**-52)
    assert len(schedule("constant", rate, seconds=1000 / rate)) == 1000


def test_unlimited_rate_is_all_at_once():
    """`inf` puts everything at time zero."""
    assert schedule(rate=math.inf, count=9000).tolist() == [0] * 9000


def test_gaps_are_never_truncated():
    """Exponential gaps beyond three means are there, as often as they should be (5 % of them)."""
    gaps = np.diff(schedule(count=50_000)) / 1e9
    assert np.mean(gaps > 3.0) == pytest.approx(math.exp(-3), abs=0.005)
    assert gaps.max() > 8.0


def test_onoff_is_silent_in_off_periods():
    """Arrivals of onoff:2,8 lie in the first 2 s of every 10 s, five times as dense, so that the mean rate is
    kept.
    """
    drawn = schedule("onoff:2,8", 50.0, seconds=2000.0) / 1e9
    assert (drawn % 10.0).max() < 2.0 + 1e-9
    assert len(drawn) == pytest.approx(100_000, rel=0.02)
    assert len(np.unique(drawn // 10.0)) == 200


def test_impossibly_slow_rates_do_not_wrap():
    """Instants beyond what int64 nanoseconds hold stay at the far end, ascending."""
    drawn = schedule("gamma", 1e-6, 0.01, count=100_000)
    assert drawn.min() >= 0
    assert bool(np.all(np.diff(drawn) >= 0))


def test_zero_draws_are_drawn_again():
    """A u of exactly 0 never makes a gap."""

    class Zeros(random.Random):
        def __init__(self):
            super().__init__(1)
            self.values = itertools.chain((0.0, 0.5, 0.0, 0.0, 0.25), itertools.repeat(0.5))

        def random(self):
            return next(self.values)

    drawn = draw_schedule(choose_arrivals("poisson", 1.0), 1.0, Zeros(), count=2)
    assert drawn.tolist() == [round(-math.log(0.5) * 1e9), round((-math.log(0.5) - math.log(0.75)) * 1e9)]
