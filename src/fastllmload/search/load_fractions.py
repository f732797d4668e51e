"""Validates a declared capacity and load levels given as fractions of a capacity."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from fastllmload.errors import InputError


class KnownCapacity(Protocol):
    """Parameters of a test that takes a capacity."""

    @property
    def capacity(self) -> float | None: ...

    @property
    def capacity_source(self) -> str | None: ...


def validate_capacity_source(asked: KnownCapacity) -> None:
    """InputError if a capacity is declared without its source (spec/procedures 5.3, 5.8), or a source without a capacity."""
    if asked.capacity is not None and asked.capacity_source is None:
        raise InputError(
            "option-missing",
            f"--capacity {asked.capacity:g} needs --capacity-source TEXT: say where the figure is from, because "
            "another workload has another capacity; or leave --capacity out to have it measured (spec/procedures 5.3, 5.8)",
        )
    if asked.capacity is None and asked.capacity_source is not None:
        raise InputError(
            "option-missing",
            "--capacity-source says where the figure of --capacity is from; add that, or leave both out",
        )


def validate_levels(levels: tuple[float, ...], example: tuple[float, ...], most: float | None = None) -> None:
    """InputError if *levels* are empty or contain duplicates, or if one is above *most*."""
    if not levels:
        raise InputError(
            "option-value-missing", f"--levels names no level; write for example --levels {listed(example)}"
        )
    twice = [level for level, count in Counter(levels).items() if count > 1]
    if twice:
        raise InputError("value-repeated", f"--levels names {listed(tuple(twice))} twice; every level is measured once")
    above = tuple(level for level in levels if most is not None and level > most)
    if above:
        raise InputError(
            "value-out-of-range",
            f"--levels {listed(above)} lies above the capacity; this test measures at shares of it, at most {most:g}",
        )


def listed(levels: tuple[float, ...]) -> str:
    return ",".join(f"{level:g}" for level in levels)
