"""Objectives and servers of known answer for searches: two service times, a cliff, a falling capacity."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from slot_server import Served, SlotServer

from fastllmload.search.judges import all_limits, failures
from fastllmload.search.objectives import SearchObjective


def step(level: float) -> float:
    return 0.05 * level


SUSTAINED = SearchObjective("sustained", "", (failures(),), step, sustain=True)
P99 = SearchObjective("p99", "", (all_limits(0.01),), step)
ATTAINMENT = SearchObjective("attainment", "", (all_limits(0.1),), step)


@dataclass(frozen=True)
class TwoTimes(SlotServer):
    """*share* of the requests take *long_s*, the others *service_s*."""

    long_s: float = 1.0
    share: float = 0.1

    @property
    def capacity(self) -> float:
        return self.slots / ((1 - self.share) * self.service_s + self.share * self.long_s)

    def serve(self, rate: float, seconds: float, rng: np.random.Generator) -> Served:
        arrive = arrivals(rate, seconds, rng)
        service = np.where(rng.random(len(arrive)) < self.share, self.long_s, self.service_s)
        return first_come(arrive, service, self.slots, seconds)


@dataclass(frozen=True)
class Cliff:
    """Up to *edge* requests/s no request waits; above, every request waits 10 s, though all are served."""

    edge: float
    service_s: float = 0.2

    @property
    def capacity(self) -> float:
        return self.edge

    def serve(self, rate: float, seconds: float, rng: np.random.Generator) -> Served:
        arrive = arrivals(rate, seconds, rng)
        begin = arrive + (0.0 if rate <= self.edge else 10.0)
        return Served(seconds, arrive, begin, begin + rng.exponential(self.service_s, len(arrive)))


@dataclass
class Slowing:
    """*before* for its first *at_s* seconds of load, *after* from then on; *elapsed* of them so far. A level is all of one
    or of the other: *slowed* when the last one was *after*'s.
    """

    before: SlotServer
    after: SlotServer
    at_s: float
    elapsed: float = 0.0
    slowed: bool = False

    @property
    def now(self) -> SlotServer:
        """As it was in the last level."""
        return self.after if self.slowed else self.before

    def serve(self, rate: float, seconds: float, rng: np.random.Generator) -> Served:
        begun, self.elapsed = self.elapsed, self.elapsed + seconds
        self.slowed = begun + seconds / 2 >= self.at_s
        return self.now.serve(rate, seconds, rng)


def arrivals(rate: float, seconds: float, rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Poisson instants in [0, seconds)."""
    return np.sort(rng.uniform(0.0, seconds, rng.poisson(rate * seconds)))


def first_come(
    arrive: np.ndarray[tuple[int], np.dtype[np.float64]],
    service: np.ndarray[tuple[int], np.dtype[np.float64]],
    slots: int,
    seconds: float,
) -> Served:
    """Served by *slots* in the order in which they came."""
    free, begin = [0.0] * slots, np.empty(len(arrive))
    for k, (at, takes) in enumerate(zip(arrive.tolist(), service.tolist(), strict=True)):
        begin[k] = max(at, free[0])
        heapq.heapreplace(free, begin[k] + takes)
    return Served(seconds, arrive, begin, begin + service)
