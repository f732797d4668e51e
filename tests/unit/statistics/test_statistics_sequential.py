"""The sequential tests keep their stated error rates, on independent requests and on those of a queue."""

from __future__ import annotations

import os

import numpy as np
import pytest
from simulated_bench import evidence
from slot_server import SlotServer

from fastllmload.experiment.level.evidence import ALL
from fastllmload.statistics.sequential_tests import (
    Decision,
    Growth,
    SequentialPlan,
    Severities,
    cannot_grow,
    decide_growth,
    decide_share,
    ratio,
    requests_needed,
    share_interval,
    stays_in_band,
)

pytestmark = pytest.mark.slow

slow = pytest.mark.skipif(os.environ.get("FASTLLMLOAD_SLOW") != "1", reason="minutes of simulation; FASTLLMLOAD_SLOW=1")
ALPHA = SequentialPlan().alpha_per_trial


def independent(rng: np.random.Generator, n: int, share: float) -> Severities:
    """Requests that are bad with chance *share*, each by itself."""
    return Severities(rng.uniform(0, 60, n), np.where(rng.random(n) < share, 2.0, rng.random(n)), 60.0, 30)


def test_the_error_of_a_search_is_divided_among_its_trials() -> None:
    """16 trials that may decide, and 12 short ones, at 5%; without short trials each of 12 levels has 3 and a re-test."""
    assert SequentialPlan().alpha_per_trial == pytest.approx(0.9 * 0.05 / 16)
    assert SequentialPlan().for_short_trial.alpha_per_trial == pytest.approx(0.1 * 0.05 / 12)
    assert SequentialPlan(short=0).alpha_per_trial == pytest.approx(0.05 / 48)
    assert [SequentialPlan().length(number) for number in range(4)] == [
        0.25,
        1,
        2,
        4,
    ] and SequentialPlan().longest == 7.25
    assert [SequentialPlan(short=0).length(number) for number in range(3)] == [1, 2, 4]
    assert requests_needed(0.01, 0.001) == 688


def test_independent_requests_are_covered_by_their_bounds() -> None:
    """At a nominal 1% each bound is wrong at most twice in a hundred; it is a Clopper-Pearson one, so seldom."""
    rng = np.random.default_rng(1)
    found = [share_interval([independent(rng, 2_000, 0.02)], 0.01) for _ in range(100)]
    assert sum(share.low > 0.02 for share in found if share) <= 4
    assert sum(share.high < 0.02 for share in found if share) <= 4


def test_clustered_requests_are_worth_fewer() -> None:
    """Ten copies of each request say as much as one: the effective number falls to about a tenth."""
    rng = np.random.default_rng(2)
    at = np.repeat(rng.uniform(0, 60, 300), 10)
    copies = Severities(at, np.repeat(np.where(rng.random(300) < 0.1, 2.0, 0.5), 10), 60.0, 30)
    share = share_interval([copies], 0.01)
    assert share is not None and share.requests == 3_000
    assert 100 < share.effective < 600


def test_few_good_requests_prove_nothing() -> None:
    """100 good requests do not prove P99; 5,000 do, and a tenth of bad ones disproves it."""
    rng = np.random.default_rng(3)
    assert decide_share(share_interval([independent(rng, 100, 0.0)], ALPHA), 0.01) is Decision.UNDECIDED
    assert decide_share(share_interval([independent(rng, 5_000, 0.0)], ALPHA), 0.01) is Decision.PASS
    assert decide_share(share_interval([independent(rng, 1_000, 0.1)], ALPHA), 0.01) is Decision.FAIL
    assert decide_share(share_interval([], ALPHA), 0.01) is Decision.UNDECIDED


def test_every_request_failing_is_a_failure() -> None:
    """inf is worse than any limit and breaks no arithmetic."""
    at = np.linspace(0, 59.9, 200)
    dead = share_interval([Severities(at, np.full(200, np.inf), 60.0, 30)], ALPHA)
    assert dead is not None and dead.value == 1.0
    assert decide_share(dead, 0.1) is Decision.FAIL


def test_growth_is_distinguished_from_filling_up() -> None:
    """A steady rise fails; one that ends after a quarter is only filling up; a level queue passes."""
    rng = np.random.default_rng(4)
    noise = rng.normal(0, 1, 31)
    rising = Growth(10 + 3.0 * np.arange(31) + noise, 54.0)
    filling = Growth(10 + 3.0 * np.minimum(np.arange(31), 7) + 0.2 * noise, 54.0)
    level = Growth(20 + noise, 54.0)
    assert decide_growth([rising], ALPHA, 0.5)[0] is Decision.FAIL
    assert decide_growth([filling], ALPHA, 0.1)[0] is Decision.UNDECIDED
    assert decide_growth([level], ALPHA, 1.0)[0] is Decision.PASS
    assert decide_growth([level], ALPHA, 0.001)[0] is Decision.UNDECIDED


def test_a_narrow_queue_proves_that_the_server_keeps_up() -> None:
    """A server that cannot keep up makes its queue a random walk; one that stays within 5 for a minute is none."""
    idle = Growth(np.zeros(31), 54.0, spread=5.0, jolt=20.0)
    assert stays_in_band([idle]) < 1e-10
    assert decide_growth([idle], ALPHA, 1e-9)[0] is Decision.PASS
    rng, overloaded = np.random.default_rng(8), SlotServer(1, 0.05)
    for _ in range(50):
        walk = evidence(overloaded.serve(1.01 * overloaded.capacity, 60.0, rng), 1.0, 54.0).growth
        assert stays_in_band([walk]) > 1e-3
    assert stays_in_band([Growth(np.zeros(31), 54.0)]) == 1.0  # nothing known of it


def test_a_ratio_takes_the_scale_at_which_it_varies_most() -> None:
    """Slow waves are seen at long parts: their error is above that of the same values shuffled."""
    wave = np.repeat(np.random.default_rng(5).normal(0, 1, 8), 4) + 5
    ones = np.ones(32)
    slow_one = ratio([wave], [ones], 0.05)
    fast = ratio([np.random.default_rng(6).permutation(wave)], [ones], 0.05)
    assert slow_one is not None and fast is not None
    assert slow_one.value == fast.value and slow_one.deviation > 1.3 * fast.deviation
    assert ratio([np.ones(4)], [np.ones(4)], 0.05) is None


@slow
@pytest.mark.parametrize(("times", "wrong"), [(0.97, Decision.FAIL), (1.03, Decision.PASS)])
@pytest.mark.parametrize(
    ("server", "limit_s", "allowed"),
    [(SlotServer(32, 1.0), 0.5, 0.01), (SlotServer(32, 1.0), 0.5, 0.1), (SlotServer(4, 0.1), 0.1, 0.01)],
)
def test_requests_of_a_queue_keep_the_error_rate(
    server: SlotServer, limit_s: float, allowed: float, times: float, wrong: Decision
) -> None:
    """3% from the true limit, three trials of 60, 120 and 240 s: at most 3 of 100 levels are decided wrongly."""
    rng, rate = np.random.default_rng(7), times * server.rate_where(limit_s, allowed)
    errors = 0
    for _ in range(100):
        runs = []
        for number in range(3):
            runs.append(evidence(server.serve(rate, 60.0 * 2**number, rng), limit_s, 54.0).severities[ALL])
            decision = decide_share(share_interval(runs, ALPHA), allowed)
            if decision is not Decision.UNDECIDED:
                errors += decision is wrong
                break
    assert errors <= 3


def waves(rng: np.random.Generator, n: int, share: float) -> Severities:
    """Of *n* requests in 60 s a *share* are bad; all others are 1 % about the same value, in waves of 4 s."""
    at = np.sort(rng.uniform(0, 60, n))
    quiet = 0.5 + 0.005 * np.repeat(rng.normal(0, 1, 15), n // 15 + 1)[:n]
    return Severities(at, np.where(rng.random(n) < share, 2.0, quiet), 60.0, 30)


def test_bad_requests_that_there_are_enough_of_show_themselves_how_they_cluster() -> None:
    """240 of 10,119 fail a limit of 1 %, though what happens far below the limit comes in waves."""
    found = share_interval([waves(np.random.default_rng(3), 10_119, 240 / 10_119)], ALPHA)
    assert found is not None and found.effective > 3_000
    assert decide_share(found, 0.01) is Decision.FAIL


def test_a_limit_far_above_all_requests_is_kept() -> None:
    """Waves at 1/200 of the limit are none that could reach it; those at half of it may be."""
    rng = np.random.default_rng(3)
    near = waves(rng, 3_000, 0.0)
    far = Severities(near.at_s, near.severity / 100, 60.0, 30)
    assert decide_share(share_interval([near], ALPHA), 0.01) is Decision.UNDECIDED
    assert decide_share(share_interval([far], ALPHA), 0.01) is Decision.PASS


def test_a_share_at_its_limit_is_seldom_decided() -> None:
    """Of 120 levels of a queue at exactly the limit, in trials of 60 and 120 s, at most 3 are decided."""
    server, rng, decided = SlotServer(32, 1.0), np.random.default_rng(11), 0
    for limit_s, allowed in ((0.5, 0.01), (0.5, 0.1)):
        rate = server.rate_where(limit_s, allowed)
        for _ in range(60):
            runs = [evidence(server.serve(rate, s, rng), limit_s, 54.0).severities[ALL] for s in (60.0, 120.0)]
            found = [decide_share(share_interval(runs[:many], ALPHA / 2), allowed) for many in (1, 2)]
            decided += any(one is not Decision.UNDECIDED for one in found)
    assert decided <= 3


def test_growth_and_band_together_prove_more_than_either() -> None:
    """A queue that rose by nothing and stayed narrow for two minutes did not grow by 1.5/s; for ever so little it may."""
    rng = np.random.default_rng(4)
    walk = evidence(SlotServer(32, 1.0).serve(24.0, 120.0, rng), 1.0, 54.0).growth
    alone, together = stays_in_band([walk]), cannot_grow([walk], 1.5, 60.0)
    assert together < alone / 5 and cannot_grow([walk], 1e-6, 60.0) == pytest.approx(alone, rel=1e-3)
    rising = Growth(np.linspace(0, 200, 31), 54.0, spread=200.0, jolt=30.0)
    assert cannot_grow([rising], 1.5, 60.0) == stays_in_band([rising])
