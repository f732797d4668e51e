"""The saturation and steadiness rules: their definitions, and how often they fire on a server of known capacity.

The table of spec/procedures 0.9 is that of a 32-slot first-come-first-served server, exponential service of 4 s.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from slot_server import Served, SlotServer, erlang_c

from fastllmload.experiment.level import criteria as rule

SERVER = SlotServer(32, 4.0)
slow = pytest.mark.skipif(os.environ.get("FASTLLMLOAD_SLOW") != "1", reason="minutes of simulation; FASTLLMLOAD_SLOW=1")


def q_of(served: Served) -> rule.Floats:
    ns = 1e9
    begin, end = (1 + served.arrive * ns).astype(np.int64), (1 + served.end * ns).astype(np.int64)
    return rule.in_flight(begin, end, round(0.1 * served.seconds * ns), round(served.seconds * ns))


def shares(load: float, seconds: float, runs: int, seed: int = 5) -> tuple[float, float]:
    """Shares of runs called growing, and called incomplete."""
    rng = np.random.default_rng(seed)
    growing = incomplete = 0
    for _ in range(runs):
        served = SERVER.serve(load * SERVER.capacity, seconds, rng)
        growing += rule.queue_growing(q_of(served)) is True
        inside = (served.end >= 0.1 * seconds) & (served.end < seconds)
        rate = inside.sum() / (served.arrive >= 0.1 * seconds).sum()
        incomplete += bool(rule.incomplete(rate))
    return growing / runs, incomplete / runs


LOADS = (0.5, 0.7, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.5)
TABLE = {
    60: (0.02, 0.02, 0.07, 0.08, 0.18, 0.33, 0.48, 0.82, 1.0),
    300: (0.01, 0.01, 0.01, 0.02, 0.12, 0.46, 0.88, 1.0, 1.0),
}
INCOMPLETE = (0, 0, 0, 0, 0, 0.03, 0.30, 1.0, 1.0)


def agrees(found: float, stated: float, runs: int) -> bool:
    """Two shares of 200 and of *runs* draws: within four standard errors of their difference, and one draw of grace."""
    p = (found * runs + stated * 200 + 1) / (runs + 202)
    return abs(found - stated) <= 4 * np.sqrt(p * (1 - p) * (1 / runs + 1 / 200)) + 0.01


@slow
@pytest.mark.parametrize("seconds", [60, 300])
@pytest.mark.parametrize("position", range(len(LOADS)))
def test_table_of_the_methodology_is_reproduced(seconds: int, position: int) -> None:
    """All cells, 200 runs each."""
    growing, incomplete = shares(LOADS[position], seconds, 200, seed=100 + position)
    assert agrees(growing, TABLE[seconds][position], 200), growing
    if seconds == 300:
        assert agrees(incomplete, INCOMPLETE[position], 200), incomplete


@pytest.mark.parametrize(("load", "seconds", "runs"), [(0.7, 60, 60), (1.2, 60, 60), (1.1, 300, 20)])
def test_some_cells_of_the_table_are_reproduced(load: float, seconds: int, runs: int) -> None:
    """The same in few runs."""
    growing, incomplete = shares(load, seconds, runs)
    position = LOADS.index(load)
    assert agrees(growing, TABLE[seconds][position], runs), growing
    if seconds == 300:
        assert agrees(incomplete, INCOMPLETE[position], runs), incomplete


def test_slot_server_keeps_erlangs_formula() -> None:
    """The simulated share of waiting requests is that of the closed form: the yardstick itself is right."""
    server = SlotServer(4, 1.0)
    served = server.serve(3.0, 40_000.0, np.random.default_rng(1))
    assert np.mean(served.wait > 0) == pytest.approx(erlang_c(4, 3.0), abs=0.01)
    assert np.mean(served.wait > 1.0) == pytest.approx(server.waits_longer(3.0, 1.0), abs=0.01)
    assert server.waits_longer(server.rate_where(1.0, 0.1), 1.0) == pytest.approx(0.1)


def test_in_flight_counts_begun_less_ended_every_half_second() -> None:
    """A request that never ended stays; one that never began is not there; a border counts as begun and as ended."""
    s = 1_000_000_000
    begin = np.array([1 * s, 1 * s, 2 * s, 0, 3 * s])
    end = np.array([2 * s, 0, 2 * s + 1, 5 * s, 3 * s + 1])
    q = rule.in_flight(begin, end, 1 * s, 4 * s)
    assert q.tolist() == [2, 2, 2, 1, 2, 1]


def test_five_rising_segments_with_enough_rise_grow() -> None:
    """Strictly rising by at least 2 requests and 10%; a plateau, a small rise or a short series does not count as growth."""
    assert rule.queue_growing(np.repeat([1.0, 2, 3, 4, 5], 4)) is True
    assert rule.queue_growing(np.repeat([1.0, 2, 3, 3, 5], 4)) is False
    assert rule.queue_growing(np.repeat([1.0, 1.2, 1.4, 1.6, 2.9], 4)) is False
    assert rule.queue_growing(np.repeat([1.0, 1.2, 1.4, 1.6, 3.0], 4)) is True
    assert rule.queue_growing(np.repeat([100.0, 102, 104, 106, 109.9], 4)) is False
    assert rule.queue_growing(np.repeat([100.0, 102, 104, 106, 110], 4)) is True
    assert rule.queue_growing(np.ones(4)) is None


def test_completion_and_latency_criteria_are_strict() -> None:
    """Exactly 90% and exactly ten times do not fire; what cannot be compared is None."""
    assert rule.incomplete(0.9) is False
    assert rule.incomplete(0.89) is True
    assert rule.incomplete(None) is None
    assert rule.too_slow(500.0, 50.0, 100.0) is False
    assert rule.too_slow(500.1, 50.0, 100.0) is True
    assert rule.too_slow(9_000.0, 50.0, 501.0) is None
    assert rule.too_slow(None, 50.0, 100.0) is None
    assert rule.too_slow(1.0, None, None) is None


def test_closed_loop_gains_against_the_best_lower_level() -> None:
    """5% for a quarter more slots, from the best of those at least so far below."""
    lower = [(8.0, 100.0), (16.0, 190.0), (30.0, 400.0)]
    assert rule.no_gain(32, 199.4, lower) is True
    assert rule.no_gain(32, 199.6, lower) is False
    assert rule.no_gain(9, 1.0, lower) is None


def test_steady_throughput_is_seldom_called_drifting() -> None:
    """About 3% false alarms over ten windows of white noise of 20%; a rise of a third is found."""
    rng = np.random.default_rng(3)
    noise = [rule.throughput_drifts(100 + 20 * rng.standard_normal(10)) for _ in range(2_000)]
    assert 0.01 < np.mean(noise) < 0.055
    rising = [rule.throughput_drifts(np.linspace(100, 133, 10) + 2 * rng.standard_normal(10)) for _ in range(100)]
    assert np.mean(rising) == 1.0
    assert rule.throughput_drifts(np.zeros(10)) is None


def test_sub_window_rates_sum_to_all_tokens() -> None:
    """Tokens outside of the window are not counted."""
    t = np.array([0, 10, 15, 29, 30, 100], np.int64) * 100_000_000
    rates = rule.sub_window_rates(t, np.array([1.0, 2, 3, 4, 5, 6]), 1_000_000_000, 3_000_000_000, 2)
    assert rates.tolist() == [5.0, 9.0]  # the last edge belongs to the last part


def test_cascading_failure_is_any_hundred_in_a_row() -> None:
    """51 of 100 consecutive failures are one; 50, or fewer requests, are not."""
    failed = np.zeros(1_000, np.bool_)
    failed[300:350] = True
    assert not rule.cascading(failed)
    failed[399] = True
    assert rule.cascading(failed)
    assert not rule.cascading(np.ones(99, np.bool_))
