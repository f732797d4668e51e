"""The distribution tests of the certificate agree with scipy, and their p-values are uniform where the answer is
yes.
"""

import itertools

import numpy as np
import pytest
import scipy

from fastllmload.certificate import distribution_fit


@pytest.mark.slow
@pytest.mark.parametrize("n", [100, 1_000, 50_000])
def test_kolmogorov_smirnov_is_scipys(n: int) -> None:
    """D exactly; p within 2 % of scipy's exact one wherever a p matters."""
    rng = np.random.default_rng(n)
    for power in (1.0, 1 + 1 / np.sqrt(n), 1 + 3 / np.sqrt(n)):
        u = rng.random(n) ** power
        d, p = distribution_fit.kolmogorov_smirnov(u)
        known = scipy.stats.kstest(u, "uniform")
        assert d == pytest.approx(known.statistic, abs=1e-12)
        assert p == pytest.approx(known.pvalue, rel=0.03, abs=0.005)


@pytest.mark.slow
def test_kolmogorovs_tail_is_scipys() -> None:
    for x in (0.1, 0.3, 0.5, 0.99, 1.0, 1.36, 2.0, 4.0):
        assert distribution_fit.kolmogorov_tail(x) == pytest.approx(scipy.special.kolmogorov(x), rel=1e-9, abs=1e-14)
    assert distribution_fit.kolmogorov_tail(0.0) == 1.0


def test_anderson_darlings_critical_values() -> None:
    """Stephens' table for known parameters."""
    for critical, p in (
        (1.248, 0.25),
        (1.610, 0.15),
        (1.933, 0.10),
        (2.492, 0.05),
        (3.070, 0.025),
        (3.857, 0.01),
    ):
        assert distribution_fit.anderson_darling_tail(critical) == pytest.approx(p, rel=0.03)
    assert distribution_fit.anderson_darling_tail(0.0) == 1.0


def test_anderson_darlings_tail_is_one_curve() -> None:
    """The three branches are continuous: the two published ones at 2, the second and the asymptotic one at 6."""
    assert distribution_fit.anderson_darling_tail(2 - 1e-9) == pytest.approx(
        distribution_fit.anderson_darling_tail(2), rel=1e-4
    )
    assert distribution_fit.anderson_darling_tail(6) == pytest.approx(
        distribution_fit.anderson_darling_tail(6 + 1e-9), rel=0.1
    )
    z = np.linspace(0.1, 40, 400)
    p = [distribution_fit.anderson_darling_tail(x) for x in z]
    assert all(a > b for a, b in itertools.pairwise(p) if a < 0.999999)


@pytest.mark.slow
def test_anderson_darling_statistic_is_scipys() -> None:
    rng = np.random.default_rng(3)
    sample = rng.exponential(2.0, 200)
    known = scipy.stats.goodness_of_fit(
        scipy.stats.expon, sample, known_params={"loc": 0, "scale": 2.0}, statistic="ad", n_mc_samples=2000, rng=rng
    )
    a2, p = distribution_fit.anderson_darling(1 - np.exp(-sample / 2.0))
    assert a2 == pytest.approx(known.statistic, rel=1e-9)
    assert p == pytest.approx(known.pvalue, abs=0.05)


def test_p_values_are_uniform_under_the_null() -> None:
    """2,000 samples of 200: the p-values of both tests are themselves uniform (KS of the p above 10^-3)."""
    rng = np.random.default_rng(11)
    p = np.array(
        [
            (distribution_fit.kolmogorov_smirnov(u)[1], distribution_fit.anderson_darling(u)[1])
            for u in rng.random((2_000, 200))
        ]
    )
    assert scipy.stats.kstest(p[:, 0], "uniform").pvalue > 1e-3
    assert scipy.stats.kstest(p[:, 1], "uniform").pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("shape", [0.05, 0.25, 1.0, 4.0, 100.0, 2_500.0])
def test_gamma_is_scipys(shape: float) -> None:
    x = np.concatenate([[0.0], np.geomspace(1e-6, 20, 300) * shape])
    assert distribution_fit.gamma_cdf(x, shape) == pytest.approx(scipy.special.gammainc(shape, x), abs=1e-9)


@pytest.mark.slow
def test_two_sample_distance_is_scipys() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.random(300), rng.random(500) ** 1.2
    assert distribution_fit.two_sample_distance(a, b) == pytest.approx(scipy.stats.ks_2samp(a, b).statistic, abs=1e-12)
