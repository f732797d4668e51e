"""What happens over a run: trends, the cut of the transient, Little's law, requests that did not end."""

from __future__ import annotations

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from fastllmload.metrics.run.steadiness import Counted, littles_law
from fastllmload.statistics.kaplan_meier import bounds, survival
from fastllmload.statistics.trend import mann_kendall, mser5, slope

S = 1_000_000_000


@pytest.mark.slow
@given(st.lists(st.integers(0, 30), min_size=5, max_size=40))
def test_mann_kendall_is_kendalls_tau_against_time(series: list[int]) -> None:
    """S by pairs; the variance with ties as for one variable without ties (time) in the other."""
    n = len(series)
    s = sum(int(np.sign(series[j] - series[i])) for i in range(n) for j in range(i + 1, n))
    _, ties = np.unique(series, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    z = 0.0 if s == 0 else (s - np.sign(s)) / variance**0.5
    assert mann_kendall(series) == pytest.approx(2 * scipy.stats.norm.sf(abs(z)))


def test_a_rising_series_is_a_trend_and_a_constant_one_is_none() -> None:
    assert mann_kendall(range(10)) < 0.001
    assert mann_kendall([3.0] * 10) == 1.0


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=30))
def test_the_slope_is_that_of_least_squares(series: list[float]) -> None:
    expected = np.polynomial.polynomial.polyfit(np.arange(len(series)), series, 1)[1]
    assert slope(series) == pytest.approx(expected, abs=1e-8)


def test_mser_cuts_a_transient_where_it_ends() -> None:
    """300 values that fall from 10 above the level, then 2,700 of noise."""
    rng = np.random.default_rng(1)
    series = rng.normal(0, 1, 3000)
    series[:300] += np.linspace(10, 0, 300)
    found = mser5(series)
    assert found is not None and found.steady
    assert 200 <= found.cut <= 320


def test_mser_hardly_cuts_steady_noise_and_calls_a_ramp_unsteady() -> None:
    noise = mser5(np.random.default_rng(2).normal(0, 1, 3000))
    assert noise is not None and noise.share < 0.1
    ramp = mser5(np.arange(1000.0))
    assert ramp is not None and not ramp.steady
    assert mser5(np.arange(49.0)) is None


def test_mser_minimises_what_it_says() -> None:
    """Against the definition, one cut at a time."""
    series = np.random.default_rng(3).exponential(1, 500)
    means = series.reshape(100, 5).mean(axis=1)
    errors = [((means[d:] - means[d:].mean()) ** 2).sum() / (100 - d) ** 2 for d in range(95)]
    found = mser5(series)
    assert found is not None and found.cut == 5 * int(np.argmin(errors))


def test_littles_law_holds_for_what_was_counted_and_sees_what_is_missing() -> None:
    """100/s for 100 s, each in flight for 2 s; then with every tenth request unknown to the rows."""
    begun = np.arange(10_000, dtype=np.int64) * (S // 100) + S
    ended = begun + 2 * S
    at = np.arange(10 * S, 100 * S, S // 4, dtype=np.int64) + 1
    counted = np.array([((begun <= t) & (t < ended)).sum() for t in at])
    law = littles_law([Counted(at, counted, begun, ended)], 10 * S, 100 * S)
    assert law is not None and law.residual == 0.0
    assert law.in_flight == pytest.approx(200, abs=1) == pytest.approx(law.rate_per_s * law.time_s, abs=1)
    kept = np.arange(10_000) % 10 != 0
    lost = littles_law([Counted(at, counted, begun[kept], ended[kept])], 10 * S, 100 * S)
    assert lost is not None and lost.residual == pytest.approx(1 / 9, rel=0.02)


def test_littles_law_of_hosts_that_are_sampled_at_other_instants() -> None:
    """Half a second of 200 requests in flight and half a second of none: two hosts count in turn."""
    begun = np.repeat(np.arange(0, 100, 1, dtype=np.int64) * S, 200) + S // 100
    ended = begun + S // 2
    hosts = []
    for shift in (S // 8, 5 * S // 8):
        at = np.arange(10, 90, dtype=np.int64) * S + shift
        hosts.append(Counted(at, np.full(80, 200 if shift < S // 2 else 0), begun, ended))
    law = littles_law(hosts, 10 * S, 90 * S)
    assert law is not None and law.residual == 0.0 and law.in_flight == 200


def test_littles_law_without_anything_to_check() -> None:
    none = np.empty(0, np.int64)
    assert littles_law([], 0, S) is littles_law([Counted(none, none, none, none)], 0, S) is None


def test_survival_without_unfinished_requests_is_the_sample_itself() -> None:
    times = np.random.default_rng(4).permutation(np.arange(1, 101))
    curve = survival(times, np.ones(100, bool))
    assert [curve.percentile(q) for q in (0.5, 0.9, 0.99)] == [50, 90, 99]


@pytest.mark.slow
def test_survival_is_scipys() -> None:
    rng = np.random.default_rng(5)
    times, ended = rng.integers(1, 60, 200), rng.random(200) < 0.7
    sample = scipy.stats.CensoredData(uncensored=times[ended], right=times[~ended])
    expected = scipy.stats.ecdf(sample).sf
    found = survival(times, ended)
    assert found.share == pytest.approx(expected.evaluate(found.times), abs=1e-12)


def test_percentiles_beyond_what_was_seen_are_not_made_up() -> None:
    """10 % still waiting after 5 s: P50 is known, P95 is only at least 5 s."""
    times = np.array([1.0] * 90 + [5.0] * 10)
    ended = np.array([True] * 90 + [False] * 10)
    curve = survival(times, ended)
    assert curve.percentile(0.5) == 1.0 and curve.percentile(0.95) is None
    assert bounds(times, ended, 0.95) == (5.0, None)
    assert bounds(times, ended, 0.5) == (1.0, 1.0)


def test_truth_of_a_cut_off_exponential_is_recovered() -> None:
    """Requests seen for a random while, as at the end of a run: the sample alone says 0.39, the curve says ln 2."""
    rng = np.random.default_rng(6)
    truth, patience = rng.exponential(1, 20_000), rng.exponential(1.2, 20_000)
    seen, ended = np.minimum(truth, patience), truth <= patience
    found = survival(seen, ended).percentile(0.5)
    assert found == pytest.approx(np.log(2), rel=0.03)
    assert np.median(seen[ended]) < 0.45


def test_without_requests_nothing_is_known() -> None:
    assert survival(np.empty(0), np.empty(0, bool)).percentile(0.5) is None
    assert bounds(np.empty(0), np.empty(0, bool), 0.5) is None
