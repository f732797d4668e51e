"""Student's t and the incomplete beta function that it is computed from; standard library alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

TINY = 1e-300
PRECISION = 1e-15
STEPS = 10_000
CONFIDENCE = 0.95  # of every interval


def incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b), the regularised incomplete beta function, for 0 <= x <= 1 and a, b > 0; relative error about 1e-13."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):  # where the fraction converges fast; else by symmetry
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > TINY else TINY)
    result = d
    for m in range(1, STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 + term * d, 1 + term / c
            d = 1 / (d if abs(d) > TINY else TINY)
            c = c if abs(c) > TINY else TINY
            result *= c * d
        if abs(c * d - 1) < PRECISION:
            break
    return result


def t_two_sided(t: float, df: float) -> float:
    """P(|T| >= |t|) with *df* > 0 degrees of freedom, which need not be an integer; infinite *df* is the normal."""
    if math.isinf(t):
        return 0.0
    if math.isinf(df):
        return math.erfc(abs(t) / math.sqrt(2))
    if t * t < df:  # near the middle the complement keeps the precision
        return 1 - incomplete_beta(t * t / (df + t * t), 0.5, df / 2)
    return incomplete_beta(df / (df + t * t), df / 2, 0.5)


def t_quantile(p: float, df: float) -> float:
    """t with P(T <= t) = *p*, for 0 < p < 1."""
    if not 0 < p < 1:
        raise ValueError(f"a quantile needs a probability between 0 and 1, not {p}")
    if p < 0.5:
        return -t_quantile(1 - p, df)
    tail, high = 2 * (1 - p), 1.0
    while t_two_sided(high, df) > tail:
        high *= 2
    return _root(lambda t: tail - t_two_sided(t, df), lambda t: _density(t, df), high / 2, high)


def _density(t: float, df: float) -> float:
    """Density of |T|."""
    if math.isinf(df):
        return math.sqrt(2 / math.pi) * math.exp(-t * t / 2)
    top = (df + 1) / 2
    power = math.lgamma(top) - math.lgamma(df / 2) - top * math.log1p(t * t / df)
    return 2 * math.exp(power) / math.sqrt(df * math.pi)


def beta_quantile(p: float, a: float, b: float) -> float:
    """x with I_x(a, b) = *p*."""
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)

    def density(x: float) -> float:
        return math.exp(front + (a - 1) * math.log(x) + (b - 1) * math.log1p(-x))

    return _root(lambda x: incomplete_beta(x, a, b) - p, density, a / (a + b), 1.0)


def _root(rising: Callable[[float], float], slope: Callable[[float], float], x: float, high: float) -> float:
    """Zero between 0 and *high*, by Newton's method from *x* on, with bisection where a step would leave the bracket."""
    low = 0.0
    for _ in range(200):
        off, steep = rising(x), slope(x)
        if off == 0:
            break
        low, high = (x, high) if off < 0 else (low, x)
        new = x - off / steep if steep > 0 else low
        new = new if low < new < high else (low + high) / 2
        if abs(new - x) <= PRECISION * x or new in (low, high):
            return new
        x = new
    return x


def t_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Interval of the mean of independent *values*, such as one figure per run; None for fewer than 2."""
    n = len(values)
    if n < 2:
        return None
    sample = np.asarray(values, np.float64)
    half = t_quantile((1 + CONFIDENCE) / 2, n - 1) * float(sample.std(ddof=1)) / math.sqrt(n)
    mean = float(sample.mean())
    return mean - half, mean + half
