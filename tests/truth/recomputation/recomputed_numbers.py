"""Plain-Python figures of samples, by the definitions of spec/metrics 2, 5.9 and 7.10."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

Q = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}


def quantile(ordered: list[float], q: float) -> float:
    position = q * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def described(values: Iterable[float | None], scale: float = 1.0) -> dict[str, Any]:
    """n, n_null, moments and percentiles, as spec/metrics 2 defines them; *values* divided by *scale* at the end."""
    everything = list(values)
    known = sorted(value for value in everything if value is not None)
    n = len(known)
    found: dict[str, Any] = {"n": n, "n_null": len(everything) - n}
    if n == 0:
        return {**found, **dict.fromkeys(("mean", "std", "min", "max", *Q))}
    mean = math.fsum(known) / n
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in known) / n)
    figures = {
        "mean": mean,
        "std": std,
        "min": known[0],
        "max": known[-1],
        **{k: quantile(known, q) for k, q in Q.items()},
    }
    return {**found, **{name: value / scale for name, value in figures.items()}}


def over(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None or b <= 0 else a / b


def spread(gaps: list[int]) -> float | None:
    if len(gaps) < 2:
        return None
    mean = sum(gaps) / len(gaps)
    return math.sqrt(math.fsum((gap - mean) ** 2 for gap in gaps) / len(gaps))


def deadlines(gaps: list[int], targets: list[int], d_d: int) -> tuple[int, int]:
    """(met, missed deadlines) of spec/metrics 5.9."""
    slack = met = missed = 0
    for s, d in zip(gaps, targets, strict=True):
        if s <= d + slack:
            met, slack = met + 1, slack + d - s
        else:
            missed, slack = missed + (s - slack - d) // d_d + 1, 0
    return met, missed


def min_tbt(gaps: list[int]) -> int | None:
    """By bisection between 0 and the longest gap, until both ends are at most 0.1 ms apart: the upper one."""
    if not gaps:
        return None
    low, high = 0, max(gaps)
    while high - low > 100_000:
        middle = low + (high - low) // 2
        met, missed = deadlines(gaps, [middle] * len(gaps), middle)
        low, high = (low, middle) if 10 * missed <= met + missed else (middle, high)
    return high


def moment_tail(gaps: list[int]) -> float | None:
    """Dekkers, Einmahl and de Haan on the largest 5% (7.10)."""
    k = len(gaps) // 20
    ordered = sorted(gaps)[::-1]
    if k < 2 or ordered[k] <= 0:
        return None
    logs = [math.log(x / ordered[k]) for x in ordered[:k]]
    first, second = math.fsum(logs) / k, math.fsum(x * x for x in logs) / k
    if second == 0 or first * first >= second:
        return None
    return first + 1 - 0.5 / (1 - first * first / second)


def modes_within(gaps: list[int]) -> set[int | None]:
    """What `modes` finds give or take 2%: of two peaks at the edge of being one, another way to add up may decide."""
    return {modes(gaps, valley, wide) for valley in (0.784, 0.8, 0.816) for wide in (0.98, 1.0, 1.02)}


def modes(gaps: list[int], valley: float = 0.8, wide: float = 1.0) -> int | None:
    """Peaks of the kernel density of ln(gap) over gaps of at least 0.1 ms, on 512 points (7.10); no bandwidth is narrower
    than the step between two points.
    """
    x = sorted(math.log(gap) for gap in gaps if gap >= 100_000)
    if len(x) < 2 or x[0] == x[-1]:
        return 1 if x else None
    mean = math.fsum(x) / len(x)
    std = math.sqrt(math.fsum((v - mean) ** 2 for v in x) / len(x))
    iqr = (quantile(x, 0.75) - quantile(x, 0.25)) / 1.34
    h = 0.9 * (min(std, iqr) if iqr > 0 else std) * len(x) ** -0.2
    h = max(h, (x[-1] - x[0] + 6 * h) / 511) * wide
    grid = [x[0] - 3 * h + (x[-1] - x[0] + 6 * h) * k / 511 for k in range(512)]
    density = [math.fsum(math.exp(-0.5 * ((g - v) / h) ** 2) for v in x) for g in grid]
    top = max(density)
    peaks = [k for k in range(512) if density[k] > 0.1 * top
             and (k == 0 or density[k] > density[k - 1]) and (k == 511 or density[k] >= density[k + 1])]  # fmt: skip
    kept: list[int] = []
    for peak in peaks:
        if not kept or min(density[kept[-1] : peak + 1]) < valley * min(density[kept[-1]], density[peak]):
            kept.append(peak)
        elif density[peak] > density[kept[-1]]:
            kept[-1] = peak
    return len(kept)


def compared(stated: Any, expected: Any, path: str = "", rel: float = 1e-9) -> list[str]:
    """Where *stated* differs from *expected*, which may hold less."""
    if isinstance(expected, dict):
        if not isinstance(stated, dict):
            return [f"{path}: stated {stated!r}"]
        return [
            text for key, value in expected.items() for text in compared(stated.get(key), value, f"{path}.{key}", rel)
        ]
    if expected is None or stated is None or isinstance(expected, str):
        return [] if stated == expected else [f"{path}: stated {stated!r}, recomputed {expected!r}"]
    return (
        []
        if math.isclose(stated, expected, rel_tol=rel, abs_tol=1e-12)
        else [f"{path}: stated {stated!r}, recomputed {expected!r}"]
    )
