"""The peak of a noisy height: the interval holds it. On 4 seeds here, on 40 with FASTLLMLOAD_SLOW=1."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np
import pytest
from slot_server import SlotServer

from fastllmload.arrays import Floats
from fastllmload.search.peak_search import Height, PeakSearch
from fastllmload.statistics.sequential_tests import SequentialPlan, ratio

pytestmark = pytest.mark.slow

SEEDS = 40 if os.environ.get("FASTLLMLOAD_SLOW") == "1" else 4
PLAN = SequentialPlan(0.05, 12, 3)
LEVEL_S, RAMP, PARTS = 60.0, 0.1, 10
WAIT_S, GAIN, LOSS = 1.0, 100.0, -50.0  # a request that waits longer is worth less than none


@dataclass
class GoodputBench:
    """Goodput of *server* per second: a request counts GAIN when it ends, or LOSS where it had to wait."""

    server: SlotServer
    rng: np.random.Generator
    runs: dict[float, list[tuple[Floats, float]]] = field(default_factory=dict)

    def measured(self, level: float, seconds: float) -> tuple[Floats, float]:
        """Goodput in equal parts of the window, and how long a part is."""
        served, parts = self.server.serve(level, seconds, self.rng), max(PARTS, round(PARTS * seconds / LEVEL_S))
        worth = np.where(served.wait <= WAIT_S, GAIN, LOSS)
        sums, _ = np.histogram(served.end, bins=np.linspace(RAMP * seconds, seconds, parts + 1), weights=worth)
        return sums, (1 - RAMP) * seconds / parts

    def run_trial(self, level: float, number: int) -> Height:
        runs = self.runs.setdefault(level, [])
        runs.append(self.measured(level, LEVEL_S * 2**number))
        found = ratio(
            [sums for sums, _ in runs], [np.full(len(sums), part) for sums, part in runs], PLAN.alpha_per_trial
        )
        assert found is not None
        return Height(found.value, found.half)


def true_peak(server: SlotServer) -> float:
    """By levels of more than an hour on a fine grid."""
    runner = GoodputBench(server, np.random.default_rng(1))
    heights = {}
    for level in np.linspace(0.6, 1.1, 26) * server.capacity:
        sums, part = runner.measured(float(level), 4_000.0)
        heights[float(level)] = float(sums.mean()) / part
    return max(heights, key=lambda level: heights[level])


@pytest.mark.parametrize("server", [SlotServer(32, 1.0), SlotServer(8, 0.5)], ids=["32 slots", "8 slots"])
def test_the_interval_holds_the_peak(server: SlotServer) -> None:
    """At 95 % asked for; at most 12 levels. The level named best lies within a fifth of the peak."""
    peak = true_peak(server)
    missed, off = [], []
    for seed in range(SEEDS):
        runner = GoodputBench(server, np.random.default_rng(seed))
        found = PeakSearch(
            0.25 * server.capacity, 4 * server.capacity, lambda level: 0.05 * level, runner.run_trial, PLAN
        ).run()  # fmt: skip
        assert found.best is not None and len(found.heights) <= PLAN.levels
        if (found.low is not None and found.low > peak) or (found.high is not None and found.high < peak):
            missed.append(seed)
        off.append(abs(found.best - peak) / peak)
    assert len(missed) <= 0.05 * SEEDS, missed
    assert max(off) < 0.2


@dataclass
class Hill:
    """Highest at 20; from *limited* on the client is the limit."""

    limited: float
    asked: list[float] = field(default_factory=list)

    def run_trial(self, level: float, number: int) -> Height:
        self.asked.append(level)
        return Height(100 - abs(level - 20), 0.5, level < self.limited)


def test_where_the_client_limits_the_lowest_level_lower_ones_are_tried() -> None:
    """64 and 32 say nothing; 16 does, and the best level that is known lies between. A client that is always the limit
    ends the search after four halves.
    """
    hill = Hill(30)
    found = PeakSearch(64, 256, lambda level: 1.0, hill.run_trial, SequentialPlan(trials=1, levels=20)).run()
    assert hill.asked[:3] == [64, 32, 16] and found.best == 20 and found.ended_by == "client"
    found = PeakSearch(64, 256, lambda level: 1.0, Hill(0).run_trial, SequentialPlan(trials=1, levels=20)).run()
    assert sorted(found.heights) == [4, 8, 16, 32, 64] and found.best is None and found.ended_by == "client"
