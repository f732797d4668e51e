"""Exchanges between a host and a driver whose clocks and delays are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastllmload.arrays import Floats, Numbers

HOST_NS = 7_000_000_000_000_000  # the host's clock at the start: up for 81 days
DRIVER_NS = 3_000_000_000


@dataclass(frozen=True)
class Clocks:
    """The driver's clock has the rate *ppm* against the host's clock; *changes*: from that second on, another rate."""

    ppm: float = 0.0
    changes: Sequence[tuple[float, float]] = ()

    def beyond_ns(self, since: Floats) -> Floats:
        """How far the driver's clock has run ahead, *since* ns of the host's clock after the start."""
        found = self.ppm * 1e-6 * since
        before = self.ppm
        for at_s, ppm in self.changes:
            found = found + (ppm - before) * 1e-6 * np.maximum(since - at_s * 1e9, 0)
            before = ppm
        return found

    def driver_ns(self, since: Floats) -> Numbers:
        return DRIVER_NS + np.floor(since + self.beyond_ns(since)).astype(np.int64)

    def offset_ns(self, t_host: Numbers) -> Floats:
        """The truth, without the part that is the same at all times."""
        return self.beyond_ns((t_host - HOST_NS).astype(np.float64))

    def exchanges(
        self, draw: np.random.Generator, seconds: float, there_ns: Floats, back_ns: Floats, lost: float = 0.0
    ) -> Numbers:
        """As many as *there_ns* and *back_ns*, the delays, over *seconds*; each is lost with a probability of *lost*."""
        t1 = np.sort(draw.uniform(0, seconds * 1e9, len(there_ns)))
        t2 = t1 + there_ns
        t3 = t2 + draw.uniform(1_000, 50_000, len(t1))
        t4 = t3 + back_ns
        rows = np.stack([
            HOST_NS + np.floor(t1).astype(np.int64), self.driver_ns(t2), self.driver_ns(t3),
            HOST_NS + np.ceil(t4).astype(np.int64),
        ], axis=1)  # fmt: skip
        kept = draw.uniform(size=len(t1)) >= lost
        kept[0] = True
        return rows[kept]
