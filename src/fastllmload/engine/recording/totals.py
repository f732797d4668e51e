"""The workers' counters and live histograms by phase: the difference between two readings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastllmload._ext.record import counters as k
from fastllmload.engine.workers.fleet import Fleet, HostState

Words = npt.NDArray[np.int64]
HISTOGRAMS = (k.H_TTFT, k.H_TTFT_ANY, k.H_ITL, k.H_E2E, k.H_LAG)


@dataclass
class PhaseTotals:
    """Since the start of the phase: *words* (counters.pxd) and *lags* (H_LAG) of each host, *histograms* of all together.

    A run of one host has one row. *histograms*, by number, has no lags: those of all are the sum of the rows. *start_ns*,
    *end_ns*: sending, CLOCK_MONOTONIC; 0 = not yet. *asked_rate* is None in a closed loop.
    """

    name: str
    asked_rate: float | None
    words: Words  # int64[hosts, counters.WORDS]
    lags: Words  # int64[hosts, histogram.WORDS]
    histograms: dict[int, Words]
    start_ns: int = 0
    end_ns: int = 0

    @property
    def achieved_rate(self) -> float | None:
        """Requests sent per second of sending; None before time zero."""
        until = self.end_ns or time.monotonic_ns()
        if not self.start_ns or until <= self.start_ns:
            return None
        return int(self.words[:, k.W_RELEASED].sum()) * 1e9 / (until - self.start_ns)


class Totals:
    """Call `attach` once the workers' memory is mapped; `begin`, `started`, `ended` for each phase. `phases`: any thread."""

    def __init__(self) -> None:
        self._fleet: Fleet | None = None
        self._begun: list[PhaseTotals] = []  # with the counters at its start

    def attach(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def begin(self, name: str, asked_rate: float | None) -> None:
        self._begun.append(PhaseTotals(name, asked_rate, *self._now()))

    def started(self, start_ns: int) -> None:
        self._begun[-1].start_ns = start_ns

    def ended(self, end_ns: int) -> None:
        self._begun[-1].end_ns = end_ns

    def phases(self) -> list[PhaseTotals]:
        """Every phase that began, with its counts so far."""
        begun = tuple(self._begun)
        readings = [(phase.words, phase.lags, phase.histograms) for phase in begun[1:]] + (
            [self._now()] if begun else []
        )
        return [
            PhaseTotals(
                phase.name,
                phase.asked_rate,
                words - phase.words,
                lags - phase.lags,
                {number: histograms[number] - phase.histograms[number] for number in histograms},
                phase.start_ns,
                phase.end_ns,
            )
            for phase, (words, lags, histograms) in zip(begun, readings, strict=True)
        ]

    def levels(self) -> Words:
        """The counters of each host now, int64[hosts, counters.WORDS]; W_IN_FLIGHT, W_WAITING, W_CONNECTIONS are levels."""
        assert self._fleet is not None  # a phase has begun
        return self._fleet.words_by_host()

    def hosts(self) -> Sequence[HostState]:
        """The hosts of a run over many."""
        return () if self._fleet is None else self._fleet.hosts()

    def _now(self) -> tuple[Words, Words, dict[int, Words]]:
        assert self._fleet is not None
        histograms = {number: self._fleet.histogram(number) for number in HISTOGRAMS if number != k.H_LAG}
        return self._fleet.words_by_host(), self._fleet.lags_by_host().copy(), histograms
