"""The profile "slots" has the capacity that it states, and searches over the engine's own model find it."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from engine_server import EngineServer
from simulated_bench import SlotBench

from fastllmload._ext.sim.engine import Batching
from fastllmload._ext.sim.trial import Trial
from fastllmload.search.interval_search import IntervalSearch
from fastllmload.search.judges import failures
from fastllmload.search.objectives import SearchObjective
from fastllmload.simulator.profile import load_profile
from fastllmload.statistics.sequential_tests import SequentialPlan

slow = pytest.mark.skipif(os.environ.get("FASTLLMLOAD_SLOW") != "1", reason="minutes of simulation; FASTLLMLOAD_SLOW=1")


def step(level: float) -> float:
    return 0.05 * level


SUSTAINED = SearchObjective("sustained", "", (failures(),), step, sustain=True)


def test_a_hundred_requests_take_four_rounds_of_32() -> None:
    """20 tokens of 10 ms each: the last of 100 ends after 4 x 200 ms, to the nanosecond."""
    trial = Trial(Batching(load_profile("slots"), 42))
    for _ in range(100):
        trial.arrive(1, 16, 20)
    assert max(at for at, _, _ in trial.run()) == 1 + 4 * 20 * 10_000_000


def test_an_overloaded_engine_ends_requests_at_its_capacity() -> None:
    """At 1.3 times the capacity of 160 requests/s exactly these end, whatever comes."""
    server = EngineServer(20)
    assert server.capacity == 160.0
    served = server.serve(1.3 * server.capacity, 20.0, np.random.default_rng(1))
    inside = np.count_nonzero((served.end > 5.0) & (served.end <= 20.0))
    assert inside / 15.0 == pytest.approx(160.0, rel=0.01)


def search(server: EngineServer, seconds: float, seed: int) -> tuple[float, float, int]:
    """Both ends of the answer and the number of levels."""
    rng = np.random.default_rng(seed)
    runner = SlotBench(server, SUSTAINED, SequentialPlan(), seconds, 1.0, rng)  # type: ignore[arg-type]
    found = IntervalSearch(4, 256, step, runner, SequentialPlan()).run()
    low = 0.0 if found.best is None else SUSTAINED.lower_bound(found.best)
    return low, math.inf if found.above is None else found.above, len(found.decisions)


def test_a_search_over_the_engines_model_holds_its_capacity() -> None:
    """8 slots x 20 tokens: 40 requests/s; first trials of 20 s."""
    server = EngineServer(20, (("max_running", "8"),))
    low, high, levels = search(server, 20.0, 1)
    assert low <= server.capacity == 40.0 <= high and levels <= 12


@slow
def test_38_of_40_searches_over_the_engines_model_hold_its_capacity() -> None:
    """32 slots x 64 tokens: 50 requests/s; first trials of 30 s, at most 12 levels."""
    server = EngineServer(64)
    found = [search(server, 30.0, seed) for seed in range(40)]
    assert sum(low <= server.capacity <= high for low, high, _ in found) >= 38
    assert max(levels for _, _, levels in found) <= 12
    assert np.median([high - low for low, high, _ in found]) < 0.25 * server.capacity
