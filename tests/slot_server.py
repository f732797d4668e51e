"""A fast discrete-event server of known capacity: N slots, first come first served, no token is looked at.

Capacity is N / mean service time, exactly. With exponential service the waiting time has Erlang's closed form.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SlotServer:
    """*service_s* mean of an exponential service time, or the time itself when *fixed*."""

    slots: int
    service_s: float
    fixed: bool = False

    @property
    def capacity(self) -> float:
        return self.slots / self.service_s

    def serve(self, rate: float, seconds: float, rng: np.random.Generator) -> Served:
        """Poisson arrivals over [0, seconds) to an idle server; everything is served to its end."""
        n = rng.poisson(rate * seconds)
        arrive = np.sort(rng.uniform(0.0, seconds, n))
        service = np.full(n, self.service_s) if self.fixed else rng.exponential(self.service_s, n)
        free = [0.0] * self.slots
        begin = np.empty(n)
        for k in range(n):
            begin[k] = max(arrive[k], free[0])
            heapq.heapreplace(free, begin[k] + service[k])
        return Served(seconds, arrive, begin, begin + service)

    def waits_longer(self, rate: float, limit_s: float) -> float:
        """Stationary P(wait > limit) with exponential service (Erlang C); 1 at or above capacity."""
        load = rate * self.service_s
        if load >= self.slots:
            return 1.0
        busy = erlang_c(self.slots, load)
        return busy * math.exp(-(self.slots - load) * limit_s / self.service_s)

    def rate_where(self, limit_s: float, share: float) -> float:
        """The rate at which exactly *share* of the requests wait longer than *limit_s*, by bisection."""
        low, high = 0.0, self.capacity
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.waits_longer(middle, limit_s) <= share else (low, middle)
        return low


@dataclass(frozen=True)
class Served:
    """Seconds since the start of the level; one item per request, by arrival."""

    seconds: float
    arrive: Floats
    begin: Floats
    end: Floats

    @property
    def wait(self) -> Floats:
        return self.begin - self.arrive


def erlang_c(slots: int, load: float) -> float:
    """Probability that all *slots* are busy at *load* erlangs."""
    blocked = 1.0
    for k in range(1, slots + 1):
        blocked = load * blocked / (k + load * blocked)
    return slots * blocked / (slots - load * (1 - blocked))
