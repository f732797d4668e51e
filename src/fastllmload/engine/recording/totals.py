"""The workers' counters and live histograms by phase: the difference between two readings."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastllmload._ext.record import counters as k
from fastllmload.engine.workers.fleet import Fleet

Words = npt.NDArray[np.int64]
HISTOGRAMS = (k.H_TTFT, k.H_TTFT_ANY, k.H_ITL, k.H_E2E, k.H_LAG)


@dataclass
class PhaseTotals:
    """*words* (counters.pxd) and *histograms*, by number, of all workers since the start of the phase.

    *start_ns*, *end_ns*: sending, CLOCK_MONOTONIC; 0 = not yet. *asked_rate* is None in a closed loop.
    """

    name: str
    asked_rate: float | None
    words: Words
    histograms: dict[int, Words]
    start_ns: int = 0
    end_ns: int = 0

    @property
    def achieved_rate(self) -> float | None:
        """Requests sent per second of sending; None before time zero."""
        until = self.end_ns or time.monotonic_ns()
        if not self.start_ns or until <= self.start_ns:
            return None
        return int(self.words[k.W_RELEASED]) * 1e9 / (until - self.start_ns)


class Totals:
    """Call `attach` once the workers' memory is mapped; `begin`, `started`, `ended` for each phase. `phases`: any thread."""

    def __init__(self) -> None:
        self._fleet: Fleet | None = None
        self._begun: list[PhaseTotals] = []  # with the counters at its start

    def attach(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def begin(self, name: str, asked_rate: float | None) -> None:
        words, histograms = self._now()
        self._begun.append(PhaseTotals(name, asked_rate, words, histograms))

    def started(self, start_ns: int) -> None:
        self._begun[-1].start_ns = start_ns

    def ended(self, end_ns: int) -> None:
        self._begun[-1].end_ns = end_ns

    def phases(self) -> list[PhaseTotals]:
        """Every phase that began, with its counts so far."""
        begun = tuple(self._begun)
        readings = [(phase.words, phase.histograms) for phase in begun[1:]] + ([self._now()] if begun else [])
        return [
            PhaseTotals(
                phase.name,
                phase.asked_rate,
                words - phase.words,
                {number: histograms[number] - phase.histograms[number] for number in HISTOGRAMS},
                phase.start_ns,
                phase.end_ns,
            )
            for phase, (words, histograms) in zip(begun, readings, strict=True)
        ]

    def current(self, word: int) -> int:
        """A counter that is a level, such as W_IN_FLIGHT, over all workers now."""
        return 0 if self._fleet is None else self._fleet.total(word)

    def _now(self) -> tuple[Words, dict[int, Words]]:
        assert self._fleet is not None
        return self._fleet.words(), {number: self._fleet.histogram(number) for number in HISTOGRAMS}
