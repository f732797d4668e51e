"""Requirements on schedules: distribution to workers, rates, and distributions over a thousand seeds."""

from __future__ import annotations

import random

import numpy as np
import pytest
import scipy

from fastllmload.arrivals.choice import choose_arrivals
from fastllmload.arrivals.process import draw_schedule

pytestmark = pytest.mark.slow

SEEDS = 1000
ALARM = 0.001  # p below which p-values count as not uniform


def schedule(rate, seed, count=None, seconds=None, arrival="poisson"):
    stream = random.Random(f"{seed}/arrivals")
    return draw_schedule(choose_arrivals(arrival, rate), rate, stream, count=count, seconds=seconds)


@pytest.mark.parametrize("workers", [1, 2, 7, 64])
@pytest.mark.parametrize("arrival", ["poisson", "bursty", "constant"])
def test_any_number_of_workers_gets_the_same_instants(workers, arrival):
    """Request i goes to worker i mod W: together they have the same multiset of instants, each ascending."""
    whole = schedule(500.0, 42, seconds=20.0, arrival=arrival)
    dealt = [whole[worker::workers] for worker in range(workers)]
    assert np.array_equal(np.sort(np.concatenate(dealt)), whole)
    assert all(np.all(np.diff(part) >= 0) for part in dealt)
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


@pytest.mark.parametrize("rate", [0.001, 0.05, 1.0, 40.0, 500.0, 8_000.0, 50_000.0])
@pytest.mark.parametrize("arrival", ["poisson", "gamma", "uniform", "bursty"])
def test_rates_are_exact_in_expectation(rate, arrival):
    """The mean of n instants' last one over many seeds is n / rate, within its own standard error."""
    n, seeds = 200, 60
    spread = {"poisson": 1.0, "gamma": 1.0, "uniform": 3**-0.5, "bursty": 2.0}[arrival]
    last = np.array([schedule(rate, seed, count=n, arrival=arrival)[-1] / 1e9 * rate for seed in range(seeds)])
    assert abs(last.mean() - n) < 4 * spread * np.sqrt(n / seeds)


@pytest.mark.parametrize("rate", [0.001, 40.0, 50_000.0])
def test_constant_rates_are_exact(rate):
    """To the nanosecond, at every instant."""
    instants = schedule(rate, 1, count=1000, arrival="constant")
    assert np.array_equal(instants, np.rint(np.arange(1000) / rate * 1e9).astype(np.int64))


def anderson_darling(u):
    """A^2 of *u* against the uniform distribution, all parameters known."""
    u = np.sort(u)
    k = np.arange(1, len(u) + 1)
    return -len(u) - np.mean((2 * k - 1) * (np.log(u) + np.log1p(-u[::-1])))


def p_values():
    """(Kolmogorov-Smirnov, dispersion) p-values and Anderson-Darling statistics of Poisson schedules over all seeds."""
    ks, dispersion, ad = [], [], []
    for seed in range(SEEDS):
        t = schedule(100.0, seed, count=1000) / 1e9
        u = np.exp(-100.0 * np.diff(t, prepend=0.0))
        ks.append(scipy.stats.kstest(u, "uniform", method="asymp").pvalue)
        ad.append(anderson_darling(u))
        windows = np.histogram(t, bins=40, range=(0.0, 9.0))[0]
        dispersion.append(scipy.stats.chi2.sf(39 * windows.var(ddof=1) / windows.mean(), 39))
    return np.array(ks), np.array(dispersion), np.array(ad)


def test_p_values_over_many_seeds_are_uniform():
    """Of 1,000 seeds: gaps by Kolmogorov-Smirnov and Anderson-Darling, counts by their dispersion."""
    ks, dispersion, ad = p_values()
    assert scipy.stats.kstest(ks, "uniform").pvalue > ALARM
    assert scipy.stats.kstest(dispersion, "uniform").pvalue > ALARM
    for point, share in ((1.933, 0.10), (2.492, 0.05), (3.857, 0.01)):
        assert scipy.stats.binomtest(int((ad > point).sum()), SEEDS, share).pvalue > ALARM
