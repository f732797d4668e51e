"""Tests whether a sample follows a known continuous distribution: Kolmogorov-Smirnov and Anderson-Darling, with numpy only.

Both take the distribution function at the sample's values, which is uniform on [0, 1] if the sample follows it. No parameter
is estimated from the sample (Stephens' "case 0"), because the configured process is known.
"""

from __future__ import annotations

import math

import numpy as np

from fastllmload.arrays import Floats

SMALLEST = 1e-300  # keeps log() finite; a u of 0 or 1 then rejects the distribution, as it should


def kolmogorov_smirnov(u: Floats) -> tuple[float, float]:
    """(D, p) of *u* against the uniform distribution. p by Kolmogorov's limit with Stephens' correction for finite n."""
    n = len(u)
    ordered = np.sort(u)
    above = np.arange(1, n + 1) / n - ordered
    below = ordered - np.arange(n) / n
    d = float(max(above.max(), below.max()))
    root = math.sqrt(n)
    return d, kolmogorov_tail(d * (root + 0.12 + 0.11 / root))


def kolmogorov_tail(x: float) -> float:
    """P(K > x) of Kolmogorov's limiting distribution: the alternating series, and its dual for small x."""
    if x <= 0:
        return 1.0
    if x < 1.0:
        k = np.arange(1, 8, 2)
        return float(1 - math.sqrt(2 * math.pi) / x * np.exp(-(k**2) * math.pi**2 / (8 * x * x)).sum())
    j = np.arange(1, 20)
    return float(2 * ((-1.0) ** (j - 1) * np.exp(-2 * j**2 * x * x)).sum())


def two_sample_distance(a: Floats, b: Floats) -> float:
    """Largest difference of the two empirical distribution functions. No p: the samples need not be independent."""
    both = np.concatenate([a, b])
    at_a = np.searchsorted(np.sort(a), both, side="right") / len(a)
    at_b = np.searchsorted(np.sort(b), both, side="right") / len(b)
    return float(np.abs(at_a - at_b).max())


def anderson_darling(u: Floats) -> tuple[float, float]:
    """(A2, p) of *u* against the uniform distribution, parameters known."""
    n = len(u)
    ordered = np.clip(np.sort(u), SMALLEST, 1 - 1e-16)
    weights = 2 * np.arange(1, n + 1) - 1
    a2 = float(-n - (weights * (np.log(ordered) + np.log1p(-ordered[::-1]))).sum() / n)
    return a2, anderson_darling_tail(a2)


def anderson_darling_tail(z: float) -> float:
    """P(A2 > z) in the limit: Marsaglia and Marsaglia, Evaluating the Anderson-Darling Distribution (2004), error < 2e-6.

    Critical values: 1.933 (10 %), 2.492 (5 %), 3.857 (1 %). A2 is the sum of Z_j^2 / (j (j + 1)) over independent
    standard normals, so its tail is that of Z_1^2 / 2 times the product of (1 - 2 / (j (j + 1)))^-1/2 = sqrt(3).
    """
    if z <= 0:
        return 1.0
    if z < 2:
        poly = np.polyval([0.00168691, -0.0116720, 0.0347962, -0.0649821, 0.247105, 2.00012], z)
        return float(1 - math.exp(-1.2337141 / z) / math.sqrt(z) * poly)
    if z > 6:
        return math.sqrt(3) * math.erfc(math.sqrt(z))
    poly = np.polyval([-0.0003146, 0.008056, -0.082433, 0.43424, -2.30695, 1.0776], z)
    return float(-math.expm1(-math.exp(poly)))


def gamma_cdf(x: Floats, shape: float) -> Floats:
    """P(X <= x) of a gamma distribution with *shape* and scale 1: series below shape + 1, continued fraction above."""
    x = np.maximum(x, SMALLEST)
    front = np.exp(shape * np.log(x) - x - math.lgamma(shape))
    low = x < shape + 1
    result = np.empty_like(x)
    result[low] = front[low] * _series(x[low], shape)
    result[~low] = 1 - front[~low] * _fraction(x[~low], shape)
    return np.clip(result, 0.0, 1.0)


def _series(x: Floats, shape: float) -> Floats:
    term = np.full_like(x, 1 / shape)
    total = term.copy()
    for k in range(1, 2000):
        term = term * x / (shape + k)
        total += term
        if not len(x) or term.max() <= 1e-15 * total.min():
            break
    return total


def _fraction(x: Floats, shape: float) -> Floats:
    """Modified Lentz evaluation of the continued fraction of the upper incomplete gamma function."""
    b = x + 1 - shape
    c = np.full_like(x, 1 / SMALLEST)
    d = 1 / b
    total = d.copy()
    for k in range(1, 2000):
        factor = -k * (k - shape)
        b = b + 2
        d = factor * d + b
        d = 1 / np.where(np.abs(d) < SMALLEST, SMALLEST, d)
        c = b + factor / c
        c = np.where(np.abs(c) < SMALLEST, SMALLEST, c)
        total = total * c * d
        if not len(x) or np.abs(c * d - 1).max() < 1e-15:
            break
    return total
