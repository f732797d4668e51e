"""The simulated engine's own model as a server for searches, in virtual time: capacity is slots / (tokens x step)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from slot_server import Served

from fastllmload._ext.sim.engine import Batching
from fastllmload._ext.sim.trial import Trial
from fastllmload.simulator.profile import load_profile

NS = 1_000_000_000


@dataclass(frozen=True)
class EngineServer:
    """Profile "slots" with some fields replaced; every answer has *tokens* tokens."""

    tokens: int
    overrides: tuple[tuple[str, str], ...] = ()

    @property
    def capacity(self) -> float:
        profile = load_profile("slots", self.overrides)
        return profile.max_running / (self.tokens * profile.step_ms / 1e3)

    def serve(self, rate: float, seconds: float, rng: np.random.Generator) -> Served:
        n = rng.poisson(rate * seconds)
        arrive = np.sort(rng.integers(1, round(seconds * NS), n))
        trial = Trial(Batching(load_profile("slots", self.overrides), 42), capacity=max(1, n))
        for instant in arrive:
            trial.arrive(int(instant), 16, self.tokens)
        released = np.array(trial.run(), np.int64).reshape(-1, 3)
        first, last = np.zeros(n, np.int64), np.zeros(n, np.int64)
        first[released[::-1, 1]] = released[::-1, 0]  # the earliest of each serial is written last
        last[released[:, 1]] = released[:, 0]
        return Served(seconds, arrive / NS, first / NS, last / NS)
