"""The fit of a host's clock: whatever the delays do, the truth lies within the bound, and quick exchanges make it small."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.host_clocks import DRIVER_NS, HOST_NS, Clocks

from fastllmload.arrays import Floats, Numbers
from fastllmload.records.host_clock import BAND, WINDOW_NS, fit

BASE = DRIVER_NS - HOST_NS


def delays(draw: np.random.Generator, count: int, least_ns: float, jitter_ns: float, outliers: float) -> Floats:
    """Exponential jitter above the least, and now and then a queue of up to 50 ms."""
    found = least_ns + draw.exponential(jitter_ns, count)
    queued = draw.uniform(size=count) < outliers
    return np.where(queued, found + draw.uniform(0, 50e6, count), found)


def times(seconds: float, margin_s: float = 0.0) -> Numbers:
    return HOST_NS + np.linspace(-margin_s * 1e9, (seconds + margin_s) * 1e9, 2_000).astype(np.int64)


def outside(clocks: Clocks, exchanges: Numbers, at: Numbers) -> float:
    """The most by which the true offset exceeds the bound, in ns; negative when it does not."""
    found = fit(exchanges)
    error = np.abs((found.offset_ns(at) - BASE) - clocks.offset_ns(at))
    return float(np.max(error - found.bound_ns(at)))


@settings(max_examples=150)
@given(
    seed=st.integers(0, 1 << 32),
    seconds=st.floats(0.05, 40.0),
    rate=st.sampled_from([1.0, 8.0, 40.0]),
    ppm=st.floats(-400, 400),
    there=st.tuples(st.floats(1e3, 2e6), st.floats(1e2, 2e6)),
    back=st.tuples(st.floats(1e3, 2e6), st.floats(1e2, 2e6)),
    outliers=st.sampled_from([0.0, 0.05, 0.5]),
    lost=st.sampled_from([0.0, 0.1, 0.9]),
    symmetric=st.booleans(),
)
def test_the_truth_lies_within_the_bound(
    seed: int,
    seconds: float,
    rate: float,
    ppm: float,
    there: tuple[float, float],
    back: tuple[float, float],
    outliers: float,
    lost: float,
    symmetric: bool,
) -> None:
    """At all times from 3 s before the first exchange to 3 s after the last one, with any constant drift and any delays."""
    draw, count = np.random.default_rng(seed), max(1, int(seconds * rate))
    clocks = Clocks(ppm)
    delays_there = delays(draw, count, *there, outliers)
    delays_back = delays(draw, count, *(there if symmetric else back), outliers)
    exchanges = clocks.exchanges(draw, seconds, delays_there, delays_back, lost)
    assert outside(clocks, exchanges, times(seconds, 3.0)) <= 0


@settings(max_examples=150)
@given(
    seed=st.integers(0, 1 << 32),
    ppm=st.floats(-200, 200),
    change=st.floats(-BAND * 1e6, BAND * 1e6),
    at_s=st.floats(0.0, 20.0),
    least=st.floats(1e4, 1e6),
    jitter=st.floats(1e2, 1e6),
)
def test_a_rate_that_changes_within_the_band_keeps_the_truth_within_the_bound(
    seed: int, ppm: float, change: float, at_s: float, least: float, jitter: float
) -> None:
    """At one instant, as when a time daemon steers one of the clocks, and back after 6 s."""
    draw = np.random.default_rng(seed)
    clocks = Clocks(ppm, [(at_s, ppm + change), (at_s + 6.0, ppm)])
    there, back = (delays(draw, 160, least, jitter, 0.05) for _ in range(2))
    assert outside(clocks, clocks.exchanges(draw, 20.0, there, back, 0.1), times(20.0, 2.0)) <= 0


@pytest.mark.parametrize("ppm", [0.0, 50.0, -400.0])
def test_quick_exchanges_make_a_small_bound(ppm: float) -> None:
    """A round trip of 100 us at best, 8 per second: half of that, and some us for what the rate may do in between."""
    draw, clocks = np.random.default_rng(1), Clocks(ppm)
    exchanges = clocks.exchanges(draw, 60.0, *(delays(draw, 480, 50e3, 20e3, 0.05) for _ in range(2)))
    found = fit(exchanges)
    bound = found.bound_ns(times(59.0)[20:])
    assert np.median(bound) <= 80_000 and bound.max() <= 120_000
    assert found.bound_ns(times(59.0)).min() >= 50_000  # how the round trip is divided cannot be known
    assert found.drift_ppm == pytest.approx(ppm, abs=0.5)


def test_delays_that_differ_by_direction_move_the_estimate_and_not_the_bound() -> None:
    """1 ms there, 20 us back: the middle is wrong by half of the difference, and the bound says so."""
    draw, clocks = np.random.default_rng(2), Clocks(50.0)
    exchanges = clocks.exchanges(draw, 20.0, np.full(160, 1e6), np.full(160, 20e3))
    found, at = fit(exchanges), times(19.0)
    error = found.offset_ns(at) - BASE - clocks.offset_ns(at)
    assert np.median(error) == pytest.approx(490e3, rel=0.02)
    assert (np.abs(error) <= found.bound_ns(at)).all()


def test_a_rate_that_changes_by_more_widens_the_band_where_it_does() -> None:
    """By 900 ppm, which no line between the limits follows: the bound grows around that instant and nowhere else."""
    draw, clocks = np.random.default_rng(3), Clocks(-450.0, [(20.0, 450.0)])
    there, back = (delays(draw, 320, 20e3, 2e3, 0.0) for _ in range(2))
    found = fit(clocks.exchanges(draw, 40.0, there, back))
    at = times(39.0)
    seconds = (at - HOST_NS) / 1e9
    error = np.abs(found.offset_ns(at) - BASE - clocks.offset_ns(at))
    bound = found.bound_ns(at)
    assert (error <= bound).all()
    far = (np.abs(seconds - 20) > WINDOW_NS / 1e9) & (seconds > 1)
    assert bound[~far & (seconds > 1)].max() > 2 * np.median(bound[far])
    assert bound[far].max() < 60_000


def test_a_time_without_exchanges_has_a_bound_that_says_so() -> None:
    """30 s in which the network is away: the bound is largest in the middle, and the truth stays within."""
    draw, clocks = np.random.default_rng(4), Clocks(50.0)
    there, back = (delays(draw, 480, 50e3, 20e3, 0.0) for _ in range(2))
    exchanges = clocks.exchanges(draw, 60.0, there, back)
    since = exchanges[:, 0] - HOST_NS
    exchanges = exchanges[(since < 15e9) | (since > 45e9)]
    at = times(59.0)
    assert outside(clocks, exchanges, at) <= 0
    found = fit(exchanges)
    assert found.bound_ns(HOST_NS + 30_000_000_000) > 10 * found.bound_ns(HOST_NS + 10_000_000_000)


def test_times_of_both_clocks_are_inverse() -> None:
    """To the driver's clock and back, to the ns, also outside of the exchanges; one time as well as an array."""
    draw, clocks = np.random.default_rng(5), Clocks(-300.0, [(10.0, -250.0)])
    found = fit(clocks.exchanges(draw, 20.0, *(delays(draw, 160, 5e4, 3e5, 0.1) for _ in range(2))))
    at = times(20.0, 5.0)
    assert np.abs(found.to_host(found.to_driver(at)) - at).max() <= 1
    assert (np.diff(found.to_driver(at)) > 0).all()
    assert int(found.to_driver(int(at[7]))) == found.to_driver(at)[7]
    assert found.bound_ns(at.reshape(4, -1)).shape == (4, 500)


def test_the_shift_follows_the_drift() -> None:
    """50 ppm for 100 s are 5 ms: so much earlier on the host's clock, which is the slower one, is what the driver means."""
    draw, clocks = np.random.default_rng(6), Clocks(50.0)
    there, back = (delays(draw, 960, 20e3, 5e3, 0.0) for _ in range(2))
    exchanges = clocks.exchanges(draw, 120.0, there, back)
    start_host = HOST_NS + 1_000_000_000
    start_driver = int(fit(exchanges[:30]).to_driver(start_host))
    now = start_host + 100_000_000_000
    recent = fit(exchanges[exchanges[:, 0] <= now][-100:])
    assert recent.shift_ns(start_driver, start_host, now) == pytest.approx(-5_000_000, abs=120_000)


def test_the_newest_exchanges_are_enough_for_the_present() -> None:
    draw, clocks = np.random.default_rng(7), Clocks(20.0)
    exchanges = clocks.exchanges(draw, 60.0, *(delays(draw, 480, 5e4, 1e5, 0.1) for _ in range(2)))
    at = exchanges[-40:, 3]
    few, all_of_them = fit(exchanges[-100:]), fit(exchanges)
    assert np.abs(few.offset_ns(at) - all_of_them.offset_ns(at)).max() <= all_of_them.bound_ns(at).min() // 2


def test_an_hour_takes_a_fraction_of_a_second() -> None:
    draw, clocks = np.random.default_rng(8), Clocks(20.0)
    exchanges = clocks.exchanges(draw, 3600.0, *(delays(draw, 28_800, 5e4, 1e5, 0.1) for _ in range(2)))
    before = time.process_time()
    fit(exchanges)
    assert time.process_time() - before < 2.0


def test_one_exchange_is_enough_and_the_order_does_not_matter() -> None:
    draw, clocks = np.random.default_rng(9), Clocks(30.0)
    exchanges = clocks.exchanges(draw, 10.0, *(delays(draw, 80, 5e4, 1e5, 0.1) for _ in range(2)))
    alone = fit(exchanges[:1])
    assert alone.bound_ns(exchanges[0, 0]) <= (exchanges[0, 3] - exchanges[0, 0]) // 2 + 2
    assert alone.drift_ppm == 0 and alone.exchanges == 1
    mixed = fit(draw.permutation(exchanges))
    assert (mixed.offset_ns(times(10.0)) == fit(exchanges).offset_ns(times(10.0))).all()


def test_what_is_not_an_exchange_is_refused() -> None:
    second = 1_000_000_000
    for backward in ([10, 5, 6, 9], [10, 6, 5, 11]):
        with pytest.raises(ValueError, match="before"):
            fit(np.array([backward]))
    with pytest.raises(ValueError, match="none of 1 exchanges"):
        fit(np.array([[0, 0, 0, 2 * second]]))
    with pytest.raises(ValueError, match="none of 0 exchanges"):
        fit(np.empty((0, 4), np.int64))
