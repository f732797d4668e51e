"""Parameters of a test under `--quick`: durations and counts are reduced, and never above the requested ones."""

from __future__ import annotations

from typing import TypeVar

N = TypeVar("N", int, float)


def shorter(seconds: float, times: float, least: float) -> float:
    """*seconds* / *times*, but at least *least* unless *seconds* is less."""
    return min(seconds, max(least, seconds / times))


def fewer(count: int, times: int, least: int) -> int:
    """The same for a count."""
    return min(count, max(least, count // times))


def first(values: tuple[N, ...], standard: tuple[N, ...], many: int) -> tuple[N, ...]:
    """The first *many* of the *standard* values; a list given by the user is not shortened."""
    return values[:many] if values == standard else values
