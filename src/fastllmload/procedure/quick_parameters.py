"""What `--quick` makes of a test's parameters: shorter and fewer, never longer or more than was asked for."""

from __future__ import annotations

from typing import TypeVar

N = TypeVar("N", int, float)


def shorter(seconds: float, times: float, least: float) -> float:
    """One *times*-th of *seconds*, not below *least* where more was asked for."""
    return min(seconds, max(least, seconds / times))


def fewer(count: int, times: int, least: int) -> int:
    """The same for a count."""
    return min(count, max(least, count // times))


def first(values: tuple[N, ...], standard: tuple[N, ...], many: int) -> tuple[N, ...]:
    """The first *many* of the *standard* values; a list of the tester's own stays whole."""
    return values[:many] if values == standard else values
