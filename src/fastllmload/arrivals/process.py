"""Arrival processes: infinite ascending instants in seconds from the start of a phase, in arrays.

Instants are the running float64 sum of unit gaps, divided by the rate. The error of n additions is at most
n x 2^-53 of the sum: for the last of 150,000 arrivals in 300 s less than 5 ns, typically about 0.01 ns.
Rounding to nanoseconds happens once, in `schedule`. Instants are never re-anchored, so nothing else drifts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from fastllmload.arrivals.curve import RateCurve
from fastllmload.documents.plan import ArrivalFacts

Seconds = npt.NDArray[np.float64]
CHUNK = 2048


class ArrivalProcess(Protocol):
    """`instants` draws from *stream*; chunks are never empty and join to one ascending sequence."""

    @property
    def name(self) -> str: ...

    def instants(self, stream: random.Random, rate: float) -> Iterator[Seconds]: ...

    def parameters(self) -> ArrivalFacts:
        """Its parameters, without name, rate and stream."""


@dataclass(frozen=True)
class Renewal:
    """Independent *gaps* with mean 1, scaled by 1/rate; of a gamma distribution with *shape*."""

    name: str
    gaps: Callable[[random.Random], Iterator[float]]
    shape: float | None = None

    def instants(self, stream: random.Random, rate: float) -> Iterator[Seconds]:
        drawn = self.gaps(stream)
        reached = 0.0
        while True:
            chunk = np.fromiter(islice(drawn, CHUNK), dtype=np.float64, count=CHUNK)
            chunk[0] += reached
            np.cumsum(chunk, out=chunk)
            reached = float(chunk[-1])
            yield chunk / rate

    def parameters(self) -> ArrivalFacts:
        return ArrivalFacts(burstiness=self.shape)


@dataclass(frozen=True)
class OnOff:
    """Another process that runs only in on-periods: *on* seconds with arrivals, *off* without; the mean rate is kept."""

    inner: ArrivalProcess
    on: float
    off: float

    name: ClassVar[str] = "onoff"

    def instants(self, stream: random.Random, rate: float) -> Iterator[Seconds]:
        period = self.on + self.off
        for busy in self.inner.instants(stream, rate * period / self.on):
            yield busy + np.floor(busy / self.on) * self.off

    def parameters(self) -> ArrivalFacts:
        return replace(self.inner.parameters(), on_s=self.on, off_s=self.off)


@dataclass(frozen=True)
class Varying:
    """Another process whose rate follows *curve*, by exact time change. `instants` ignores its *rate*."""

    inner: ArrivalProcess
    curve: RateCurve
    written: str  # as the user wrote the curve

    @property
    def name(self) -> str:
        return self.inner.name

    def instants(self, stream: random.Random, rate: float) -> Iterator[Seconds]:
        for expected in self.inner.instants(stream, 1.0):
            yield self.curve.instant(expected)

    def parameters(self) -> ArrivalFacts:
        return replace(self.inner.parameters(), changes=self.written, curve=self.curve.describe())


@dataclass(frozen=True)
class Recorded:
    """Recorded instants: *rounds* yields them in ascending seconds, chunk by chunk. Nothing is drawn."""

    rounds: Callable[[], Iterator[Seconds]]
    facts: ArrivalFacts

    name: ClassVar[str] = "trace"

    def instants(self, stream: random.Random, rate: float) -> Iterator[Seconds]:
        return self.rounds()

    def parameters(self) -> ArrivalFacts:
        return self.facts


@dataclass(frozen=True)
class AllAtOnce:
    """Everything at time zero (`--rate inf`)."""

    name: ClassVar[str] = "inf"

    def instants(self, stream: random.Random, rate: float) -> Iterator[Seconds]:
        while True:
            yield np.zeros(CHUNK)

    def parameters(self) -> ArrivalFacts:
        return ArrivalFacts()


Schedule = npt.NDArray[np.int64]
NS = 1e9
LATEST_NS = 9.2e18  # 292 years; later instants are clamped, and lie beyond any bound of a run


class GrowingSchedule:
    """The instants of *process*, each drawn once: more are drawn when a longer part of the schedule is needed."""

    def __init__(self, process: ArrivalProcess, rate: float, stream: random.Random) -> None:
        self._more = process.instants(stream, rate)
        self._drawn: Schedule = np.empty(0, np.int64)

    def part(self, *, count: int | None = None, seconds: float | None = None) -> Schedule:
        """The first *count* instants, those in [0, *seconds*), or the shorter of the two when both are given.

        The only rounding is here, to the nearest nanosecond; the bound is applied to rounded instants. ValueError
        without a bound.
        """
        if count is None and seconds is None:
            raise ValueError("a schedule needs a count, a duration or both")
        end = None if seconds is None else np.int64(round(seconds * NS))
        chunks, drawn = [self._drawn], len(self._drawn)
        last = self._drawn[-1] if drawn else np.int64(-1)
        while not ((count is not None and drawn >= count) or (end is not None and last >= end)):
            chunks.append(np.rint(np.minimum(next(self._more) * NS, LATEST_NS)).astype(np.int64))
            drawn += len(chunks[-1])
            last = chunks[-1][-1]
        if len(chunks) > 1:
            self._drawn = np.concatenate(chunks)
        schedule = self._drawn[:count]
        return schedule if end is None else np.ascontiguousarray(schedule[: np.searchsorted(schedule, end)])


def draw_schedule(
    process: ArrivalProcess,
    rate: float,
    stream: random.Random,
    *,
    count: int | None = None,
    seconds: float | None = None,
) -> Schedule:
    """A part of the schedule of *process*, see `GrowingSchedule.part`."""
    return GrowingSchedule(process, rate, stream).part(count=count, seconds=seconds)
