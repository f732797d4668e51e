"""Detects cascading failure: most of the latest requests fail, and sending more makes it worse (IETF 7.4)."""

from __future__ import annotations

from collections import deque

LAST = 100  # requests


class FailureMonitor:
    """Receives the totals of ended and failed requests repeatedly; detects that more than *share* of the last LAST failed.

    Without a *share* nothing is detected. The comparison is with the latest totals that are at least LAST requests old, so
    it covers somewhat more than LAST requests when updates are rare.
    """

    def __init__(self, share: float | None = None) -> None:
        self.share = share
        self.cascading = False
        self._totals: deque[tuple[int, int]] = deque([(0, 0)])

    def update(self, ended: int, failed: int) -> bool:
        """True from the first update with too many failures on."""
        if self.share is None or self.cascading:
            return self.cascading
        self._totals.append((ended, failed))
        while len(self._totals) > 1 and ended - self._totals[1][0] >= LAST:
            self._totals.popleft()
        before, failed_before = self._totals[0]
        if ended - before >= LAST:
            self.cascading = failed - failed_before > self.share * (ended - before)
        return self.cascading
