"""Whether somebody set the wall clock while the run went on. No interval is taken from it; people read it."""

from __future__ import annotations

import time

LEAST_STEP_NS = 5_000_000
SLEW = 1e-3  # adjtime() and NTP move the clock by at most half of this; what is faster was a step
PAIRS = 3


class WallClock:
    """CLOCK_REALTIME against CLOCK_MONOTONIC, from look to look."""

    def __init__(self) -> None:
        self._at, self._offset = offset_ns()

    def step_s(self) -> float | None:
        """Seconds that the wall clock was set forward (or back, < 0) since the last look; None when it only ran."""
        (before, known), (self._at, self._offset) = (self._at, self._offset), offset_ns()
        step = self._offset - known
        return step / 1e9 if abs(step) > LEAST_STEP_NS + SLEW * (self._at - before) else None


def offset_ns() -> tuple[int, int]:
    """(monotonic now, realtime - monotonic), from the tightest of a few pairs: an interrupted one lies."""
    found: list[tuple[int, int, int]] = []
    for _ in range(PAIRS):
        begin = time.monotonic_ns()
        real = time.time_ns()
        end = time.monotonic_ns()
        found.append((end - begin, end, real - (begin + end) // 2))
    return min(found)[1:]
