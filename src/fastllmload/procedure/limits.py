"""Objectives that a level must meet: limits of the P99 of TTFT and TPOT (IETF 5.2.2, 5.3.2)."""

from __future__ import annotations

from typing import Protocol

from fastllmload.procedure.level import Level


class Objectives(Protocol):
    """Parameters of a test that takes them; ms, None: none."""

    @property
    def slo_ttft_p99_ms(self) -> float | None: ...

    @property
    def slo_tpot_p99_ms(self) -> float | None: ...


def limits_of(asked: Objectives) -> dict[str, float]:
    """Metric → limit of its P99 in ms, of those that are given."""
    both = {"ttft": asked.slo_ttft_p99_ms, "tpot": asked.slo_tpot_p99_ms}
    return {name: limit for name, limit in both.items() if limit is not None}


def meets(level: Level, limits: dict[str, float]) -> bool:
    """Whether the P99 of each metric is at most its limit; one without a value is not."""
    return all((value := level.figure(name, "p99")) is not None and value <= limit for name, limit in limits.items())
