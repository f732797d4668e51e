"""Detects steps of the wall clock during a run. No interval is computed from it; it is for display only."""

from __future__ import annotations

import time

LEAST_STEP_NS = 5_000_000
SLEW = 1e-3  # adjtime() and NTP move the clock by at most half of this; a faster change is a step
PAIRS = 3


class WallClock:
    """Compares CLOCK_REALTIME with CLOCK_MONOTONIC from one call of `step_s` to the next."""

    def __init__(self) -> None:
        self._at, self._offset = offset_ns()

    def step_s(self) -> float | None:
        """Seconds by which the wall clock was set forward (or back, < 0) since the last call; None when it was not set."""
        (before, known), (self._at, self._offset) = (self._at, self._offset), offset_ns()
        step = self._offset - known
        return step / 1e9 if abs(step) > LEAST_STEP_NS + SLEW * (self._at - before) else None


def offset_ns() -> tuple[int, int]:
    """(monotonic now, realtime - monotonic), from the tightest of a few pairs of readings: an interrupted pair is wrong."""
    found: list[tuple[int, int, int]] = []
    for _ in range(PAIRS):
        begin = time.monotonic_ns()
        real = time.time_ns()
        end = time.monotonic_ns()
        found.append((end - begin, end, real - (begin + end) // 2))
    return min(found)[1:]
