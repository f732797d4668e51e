"""Distribution of schedules over many seeds: p-values must be uniform, not merely above 0.05.

Seeds are fixed, so these tests give the same answer every time.
"""

import random

import numpy as np
import pytest
import scipy

from fastllmload.arrivals.choice import choose_arrivals
from fastllmload.arrivals.process import draw_schedule

pytestmark = pytest.mark.slow

SEEDS = 200
UNIFORM = 0.001  # p below which p-values count as not uniform: one such alarm in a thousand sets of seeds


def schedules(arrival, rate=100.0, burstiness=1.0, seeds=SEEDS, seconds=10.0):
    process = choose_arrivals(arrival, rate, burstiness)
    for seed in range(seeds):
        yield draw_schedule(process, rate, random.Random(f"{seed}/arrivals"), seconds=seconds) / 1e9


def uniform(p_values):
    return scipy.stats.kstest(p_values, "uniform").pvalue > UNIFORM


@pytest.mark.parametrize(
    ("arrival", "burstiness", "expected"),
    [
        ("poisson", 1.0, lambda: scipy.stats.expon(scale=0.01)),
        ("gamma", 1.0, lambda: scipy.stats.expon(scale=0.01)),
        ("gamma", 4.0, lambda: scipy.stats.gamma(4.0, scale=0.0025)),
        ("bursty", 1.0, lambda: scipy.stats.gamma(0.25, scale=0.04)),
        ("uniform", 1.0, lambda: scipy.stats.uniform(0, 0.02)),
    ],
)
def test_gaps_follow_their_distribution(arrival, burstiness, expected):
    """Kolmogorov-Smirnov of the gaps against the known distribution, p-values over all seeds."""
    p = [
        scipy.stats.kstest(np.diff(t[:400], prepend=0.0), expected().cdf, method="asymp").pvalue
        for t in schedules(arrival, burstiness=burstiness)
    ]
    assert uniform(p)


@pytest.mark.parametrize("wrong", [0.9, 1.1])
def test_the_test_detects_wrong_gaps(wrong):
    """Gaps 10 % too short or too long fail the same test."""
    expected = scipy.stats.expon(scale=0.01)
    p = [
        scipy.stats.kstest(np.diff(t[:400]) * wrong, expected.cdf, method="asymp").pvalue for t in schedules("poisson")
    ]
    assert not uniform(p)


def test_tails_of_poisson_gaps():
    """Anderson-Darling of exp(-gap), which is uniform: the statistic's known 5 % and 1 % points are exceeded
    as often.
    """
    statistics = []
    for t in schedules("poisson"):
        u = np.sort(np.exp(-100.0 * np.diff(t[:500], prepend=0.0)))
        n, k = len(u), np.arange(1, len(u) + 1)
        statistics.append(-n - np.mean((2 * k - 1) * (np.log(u) + np.log1p(-u[::-1]))))
    exceeded = np.array(statistics)
    assert scipy.stats.binomtest(int((exceeded > 2.492).sum()), SEEDS, 0.05).pvalue > UNIFORM
    assert scipy.stats.binomtest(int((exceeded > 3.857).sum()), SEEDS, 0.01).pvalue > UNIFORM


def test_counts_of_poisson_are_poisson():
    """Counts in [0, 10 s) over seeds have mean and variance 1,000; their dispersion over windows is 1."""
    counts, p = [], []
    for t in schedules("poisson"):
        counts.append(len(t))
        windows = np.histogram(t, bins=50, range=(0.0, 10.0))[0]
        p.append(scipy.stats.chi2.sf(49 * windows.var(ddof=1) / windows.mean(), 49))
    assert abs(np.mean(counts) - 1000) < 3.5 * np.sqrt(1000 / SEEDS)
    spread = (SEEDS - 1) * np.var(counts, ddof=1) / 1000
    assert scipy.stats.chi2.cdf(spread, SEEDS - 1) == pytest.approx(0.5, abs=0.4995)
    assert uniform(p)


def test_poisson_gaps_are_independent():
    """Lag-1 autocorrelation of the gaps is normal around 0 with standard deviation 1/sqrt(n)."""
    z = []
    for t in schedules("poisson"):
        gaps = np.diff(t[:800])
        gaps = gaps - gaps.mean()
        z.append(float((gaps[1:] * gaps[:-1]).sum() / (gaps * gaps).sum()) * np.sqrt(len(gaps)))
    assert abs(np.mean(z)) < 4 / np.sqrt(SEEDS)
    assert np.std(z) == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("arrival", ["constant", "uniform", "gamma", "bursty", "onoff"])
def test_mean_rate(arrival):
    """Every process keeps the requested rate: counts over seeds are within four standard errors of rate x D.

    A renewal process that starts with a fresh gap holds (CV^2 - 1)/2 more than rate x D in the long run.
    """
    extra = {"constant": 0.0, "uniform": -1 / 3, "gamma": 0.0, "bursty": 1.5, "onoff": 0.0}[arrival]
    counts = [len(t) for t in schedules(arrival)]
    error = np.std(counts, ddof=1) / np.sqrt(SEEDS)
    assert abs(np.mean(counts) - 1000 - extra) <= 4 * error


@pytest.mark.parametrize("rate", [0.001, 0.05])
def test_fractional_rates_have_their_expected_count(rate):
    """Rates far below 1/s: the total over seeds is Poisson with mean rate x D x seeds."""
    total = sum(len(t) for t in schedules("poisson", rate, seconds=20 / rate, seeds=100))
    assert abs(total - 2000) < 4 * np.sqrt(2000)
