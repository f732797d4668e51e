"""Does a series rise or fall? Mann-Kendall, and the least-squares slope (procedures 0.9)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Trend:
    """*s* = pairs that rise less pairs that fall; *z* and the two-sided *p* in the normal limit."""

    s: int
    z: float
    p: float


def mann_kendall(series: Sequence[float]) -> Trend:
    """Kendall's test of a monotone trend. Var = n (n - 1)(2 n + 5) / 18, less the same sum over groups of ties."""
    x = np.asarray(series, np.float64)
    n = len(x)
    s = sum(int(np.sign(x[i + 1 :] - x[i]).sum()) for i in range(n - 1))
    _, ties = np.unique(x, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    if s == 0 or variance <= 0:
        return Trend(s, 0.0, 1.0)
    z = (s - math.copysign(1, s)) / math.sqrt(variance)
    return Trend(s, z, math.erfc(abs(z) / math.sqrt(2)))


def slope(series: Sequence[float]) -> float:
    """Least-squares slope per step of an evenly spaced series; 0 for fewer than 2 values."""
    y = np.asarray(series, np.float64)
    if len(y) < 2:
        return 0.0
    t = np.arange(len(y)) - (len(y) - 1) / 2
    return float(np.dot(t, y - y.mean()) / np.dot(t, t))
