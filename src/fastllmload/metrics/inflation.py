"""How much longer a class waits beside others than alone (IETF 5.6.4; metrics.md 7.3)."""

from __future__ import annotations

from collections.abc import Mapping

STATISTICS = ("p50", "p95", "p99", "mean")  # the first is the primary one


def ratio(mixed: float | None, isolated: float | None) -> float | None:
    """mixed / isolated; None without either, or for an isolated latency of 0."""
    return None if mixed is None or isolated is None or isolated == 0 else mixed / isolated


def latency_inflation(
    mixed: Mapping[str, float | None], isolated: Mapping[str, float | None]
) -> dict[str, float | None]:
    """Mixed / isolated TTFT of one class for P50, P95, P99 and mean, from two `metrics.ttft` of run.json."""
    return {name: ratio(mixed.get(name), isolated.get(name)) for name in STATISTICS}
