"""Cascading failure: when most of the last requests fail, sending more only makes it worse (IETF 7.4)."""

from __future__ import annotations

from collections import deque

LAST = 100  # requests


class Failures:
    """Told again and again how many requests ended and failed so far; knows when more than *share* of the last LAST
    did.

    Without a *share* it never says so. The look that is LAST requests old is the nearest one before them, so a slow
    looker judges some more than LAST.
    """

    def __init__(self, share: float | None = None) -> None:
        self.share = share
        self.cascading = False
        self._looks: deque[tuple[int, int]] = deque([(0, 0)])

    def seen(self, ended: int, failed: int) -> bool:
        """True from the look on that finds too many."""
        if self.share is None or self.cascading:
            return self.cascading
        self._looks.append((ended, failed))
        while len(self._looks) > 1 and ended - self._looks[1][0] >= LAST:
            self._looks.popleft()
        before, failed_before = self._looks[0]
        if ended - before >= LAST:
            self.cascading = failed - failed_before > self.share * (ended - before)
        return self.cascading
