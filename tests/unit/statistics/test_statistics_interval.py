"""Intervals of one run: they cover the truth on dependent data as often as they say, or say that they cannot."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from fastllmload.statistics.batches import BATCHES, batch_edges, batch_means, long_run
from fastllmload.statistics.interval import (
    LEAST_INDEPENDENT,
    ConfidenceInterval,
    Estimate,
    NotEstimable,
    Sample,
    intervals,
    rate_interval,
    share_interval,
)

sys.path.insert(0, str(Path(__file__).parents[3] / "bench" / "statistical"))
from interval_coverage import Process, processes, simulate

pytestmark = pytest.mark.slow

LEVELS = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
NAMES = {process.name: process for process in processes()}
SLOW = pytest.mark.skipif(not os.environ.get("FASTLLMLOAD_SLOW"), reason="minutes; set FASTLLMLOAD_SLOW=1")


def of(values: np.ndarray, first: np.ndarray | None = None) -> dict[str, Estimate]:
    return intervals(Sample(values, np.sort(values), first), LEVELS)


def ends(found: Estimate) -> tuple[float, float]:
    assert isinstance(found, ConfidenceInterval)
    return found.low, found.high


def assert_covers(process: Process, n: int, runs: int, slack: float, figures: tuple[str, ...]) -> None:
    """At least three in four runs get an interval, and 93-97 % of those cover, give or take *slack* of chance."""
    tallies = simulate(process, n, runs)
    for name in figures:
        tally = tallies[name]
        assert tally.issued >= 0.75 * runs, (name, tally)
        assert tally.coverage is not None and 0.93 - slack <= tally.coverage <= 0.97 + slack, (name, tally)
        assert tally.misled <= 0.07 + slack


@pytest.mark.parametrize(
    ("name", "n", "figures"),
    [
        ("M/M/1 0.3", 20_000, ("p50", "p90", "p99", "mean")),
        ("M/M/1 0.5", 20_000, ("p50", "p90", "p95", "mean")),
        ("M/M/1 0.7", 20_000, ("p50", "p90", "mean")),
        ("AR(1) 0.9", 5_000, ("p50", "mean")),
        ("iid log-normal", 2_000, ("p50", "p90", "p95", "mean")),
    ],
)
def test_intervals_cover_what_they_claim(name: str, n: int, figures: tuple[str, ...]) -> None:
    """300 runs: three standard errors of a share of 0.95 are 0.038."""
    assert_covers(NAMES[name], n, 300, 0.038, figures)


def test_the_textbook_interval_does_not() -> None:
    """What these intervals are for: taken for independent, P99 of a half-loaded queue is covered half of the time."""
    tally = simulate(NAMES["M/M/1 0.5"], 20_000, 100)["p99"]
    assert tally.naive / tally.runs < 0.7
    assert tally.coverage is not None and tally.coverage > 0.87


@pytest.mark.parametrize("empty", [slice(0, 40), slice(160, 200), slice(360, 400)])
def test_requests_without_values_may_fill_a_whole_batch(empty: slice) -> None:
    """Such as those after the disk was full. The mean is that of the existing values."""
    rng = np.random.default_rng(3)
    each = np.full(400, 25)
    each[empty] = 0
    first = np.concatenate([[0], np.cumsum(each)])
    values = rng.integers(1_000, 2_000, int(first[-1]))
    low, high = ends(of(values, first)["mean"])
    assert low < values.mean() < high and high - low < 100


def test_a_nearly_saturated_queue_is_not_estimable_from_a_short_run() -> None:
    for name, tally in simulate(NAMES["M/M/1 0.9"], 2_000, 50).items():
        assert tally.issued <= 0.1 * tally.runs, (name, tally)


@SLOW
@pytest.mark.parametrize("n", [5_000, 20_000, 60_000])
@pytest.mark.parametrize("name", sorted(NAMES))
def test_at_most_one_run_in_fourteen_is_misled(name: str, n: int) -> None:
    """Wherever an interval is refused to some runs and given to others too: 1,000 runs, three standard errors more."""
    for figure, tally in simulate(NAMES[name], n, 1000, seed=7).items():
        assert tally.misled <= 0.07 + 0.024, (figure, tally)
        if tally.issued > 0.9 * tally.runs:
            assert tally.coverage is not None and 0.93 - 0.02 <= tally.coverage <= 0.97 + 0.016, (figure, tally)


def test_few_requests_carry_no_interval_and_say_how_many_would() -> None:
    found = of(np.random.default_rng(1).exponential(1, 50))["p50"]
    assert isinstance(found, NotEstimable)
    assert found.needed == LEAST_INDEPENDENT and "50 requests" in found.reason
    tail = of(np.random.default_rng(1).exponential(1, 50))["p99"]
    assert isinstance(tail, NotEstimable) and tail.needed == 400


def test_the_reported_number_of_requests_is_needed() -> None:
    """P99 of a run that is too short; a run of that length has it, one of half of that has it not."""
    rng = np.random.default_rng(2)
    values = rng.exponential(1, 40_000)
    short = of(values[:300])["p99"]
    assert isinstance(short, NotEstimable) and short.needed is not None
    assert isinstance(of(values[: 2 * short.needed])["p99"], ConfidenceInterval)
    assert isinstance(of(values[: short.needed // 2])["p99"], NotEstimable)


def test_correlated_requests_are_worth_fewer_than_they_are() -> None:
    """The same values in another order: sorted by their neighbourhood they carry a wider interval."""
    values = NAMES["AR(1) 0.9"].draw(np.random.default_rng(3), 20_000)
    shuffled = np.random.default_rng(4).permutation(values)
    own, mixed = ends(of(values)["p50"]), ends(of(shuffled)["p50"])
    assert own[1] - own[0] > 2.5 * (mixed[1] - mixed[0])


def test_a_trend_is_not_steady() -> None:
    """Values that rise all the way: every batch differs from the last, so nothing is known of a level."""
    rising = np.linspace(1, 2, 5000) + np.random.default_rng(5).normal(0, 0.01, 5000)
    assert all(isinstance(found, NotEstimable) for found in of(rising).values())


def test_constant_values_have_an_interval_without_width() -> None:
    found = of(np.full(5000, 7))
    assert ends(found["p50"]) == ends(found["mean"]) == (7.0, 7.0)


def test_tokens_of_one_request_are_not_independent() -> None:
    """Gaps that are alike within a request: 100 a request are worth little more than one."""
    rng = np.random.default_rng(6)
    per_request = rng.exponential(1, 2000)
    gaps = np.repeat(per_request, 100)
    units = ends(of(gaps, np.arange(2001) * 100)["p50"])
    tokens = ends(of(rng.permutation(gaps))["p50"])
    single = ends(of(per_request)["p50"])
    assert units[1] - units[0] == pytest.approx(single[1] - single[0], rel=0.25)
    assert units[1] - units[0] > 4 * (tokens[1] - tokens[0])


def test_integers_and_floats_say_the_same() -> None:
    whole = np.random.default_rng(7).integers(0, 1000, 5000)
    assert of(whole) == of(whole.astype(float))


def test_batches_hold_everything_once_in_order() -> None:
    for n in (20, 21, 39, 1001):
        edges = batch_edges(n)
        assert edges[0] == 0 and edges[-1] == n and len(edges) == BATCHES + 1
        assert np.diff(edges).min() >= 1 and np.ptp(np.diff(edges)) <= 1
    assert batch_means(np.arange(40)) == pytest.approx(np.arange(20) * 2 + 0.5)


def test_the_variance_of_batch_means_by_hand() -> None:
    """Alternating +1 and -1: mean 0, sum of squares 20, neighbours opposed, so nothing is added."""
    found = long_run(np.array([1.0, -1.0] * 10))
    assert found.variance == pytest.approx(20 / (20 * 19)) and found.correlation == 0.0


def test_long_batches_share_no_more_than_crosses_their_border() -> None:
    """Means that rise and fall slowly are used if values scatter little in comparison, taken as noise if much."""
    means = np.sin(np.arange(BATCHES) / 3)
    own = long_run(means)
    assert own.correlation > 0.7
    assert long_run(means, scatter=float(means.var())).correlation == own.correlation
    noisy = long_run(means, scatter=1000 * float(means.var(ddof=1)))
    assert noisy.correlation == pytest.approx(0.004)
    assert noisy.variance == pytest.approx(means.var(ddof=1) / BATCHES * 1.004 / 0.996)


def test_the_rate_of_poisson_events_is_covered() -> None:
    rng = np.random.default_rng(8)
    found = [rate_interval(rng.poisson(50, BATCHES).astype(float), 10.0) for _ in range(400)]
    issued = [one for one in found if isinstance(one, ConfidenceInterval)]
    held = sum(one.low <= 100.0 <= one.high for one in issued)
    assert len(issued) >= 390
    assert 0.93 - 0.033 <= held / len(issued) <= 0.97 + 0.026


@pytest.mark.parametrize(("seconds", "lasting"), [(18, 1.1), (54, 5.0)])
def test_the_rate_of_tokens_is_covered_though_streams_last(seconds: float, lasting: float) -> None:
    """Poisson requests at 60/s, each spread over *lasting* seconds, so that neighbouring stretches share them."""
    rng = np.random.default_rng(9)
    edges, held, issued = np.linspace(0, seconds, BATCHES + 1), 0, 0
    for _ in range(400):
        begun = rng.uniform(-lasting, seconds, rng.poisson(60 * (seconds + lasting)))
        amounts = np.diff([np.clip((edge - begun) / lasting, 0, 1).sum() for edge in edges])
        found = rate_interval(amounts, seconds, lasting)
        issued += isinstance(found, ConfidenceInterval)
        held += isinstance(found, ConfidenceInterval) and found.low <= 60 <= found.high
    assert issued > 350
    assert 0.93 - 0.033 <= held / issued <= 0.97 + 0.026


def bad_spells(rng: np.random.Generator, n: int) -> np.ndarray:
    """Which of *n* requests fail: spells of 20 on average, 980 good ones between them."""
    good, bad = rng.geometric(1 / 980, n // 200), rng.geometric(1 / 20, n // 200)
    states = np.repeat(np.tile([False, True], n // 200), np.stack([good, bad], axis=1).ravel())
    begin = int(rng.integers(0, len(states) - n))
    return states[begin : begin + n]


def test_shares_are_covered_also_when_failures_come_in_spells() -> None:
    """A fiftieth fails. Taken for independent, requests would make most intervals miss."""
    rng = np.random.default_rng(10)
    found = [ends(share_interval(~bad_spells(rng, 40_000))) for _ in range(300)]
    assert sum(low <= 0.98 <= high for low, high in found) / 300 > 0.9


def test_a_share_by_hand() -> None:
    """1,000 of 1,000: the lower end is 0.025^(1/1000); 10 of 40 is too little."""
    assert ends(share_interval(np.ones(1000, bool))) == pytest.approx((0.025 ** (1 / 1000), 1.0))
    assert ends(share_interval(np.zeros(1000, bool))) == pytest.approx((0.0, 1 - 0.025 ** (1 / 1000)))
    assert isinstance(share_interval(np.ones(40, bool)), NotEstimable)


def test_a_rate_that_drifts_or_stops_has_no_interval() -> None:
    drifting = rate_interval(np.arange(1.0, 21.0), 10.0)
    stopping = rate_interval(np.array([5.0] * 19 + [0.0]), 10.0)
    assert isinstance(drifting, NotEstimable) and "drifts" in drifting.reason
    short = rate_interval(np.full(20, 5.0), 10.0, lasting_s=2.0)
    assert isinstance(short, NotEstimable) and short.reason.endswith("run 20 s")
    assert isinstance(stopping, NotEstimable) and "nothing happened" in stopping.reason
