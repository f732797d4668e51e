"""Constant cadences in virtual time."""

from __future__ import annotations

import itertools

import pytest

from fastllmload._ext.sim.cadence import Flood, Lockstep, Spread
from fastllmload._ext.sim.trial import Trial

MS = 1_000_000


def test_spread_gives_each_stream_a_phase_of_its_own_and_constant_gaps() -> None:
    trial = Trial(Spread(42, 40 * MS, 20 * MS))
    for _ in range(50):
        trial.arrive(MS, 1, 5)
    tokens = trial.run()
    firsts = set()
    for serial in range(50):
        times = [at for at, one, _ in tokens if one == serial]
        assert 41 * MS <= times[0] < 61 * MS
        assert [b - a for a, b in itertools.pairwise(times)] == [20 * MS] * 4
        firsts.add(times[0])
    assert len(firsts) == 50
    assert [at for at, _, _ in tokens] == sorted(at for at, _, _ in tokens)


def test_spread_depends_on_the_seed_and_on_nothing_else() -> None:
    def run(seed: int) -> list[tuple[int, int, int]]:
        trial = Trial(Spread(seed, 0, 20 * MS))
        for _ in range(20):
            trial.arrive(MS, 1, 3)
        return trial.run()

    assert run(0) == run(0)
    assert run(0) != run(1)


def test_lockstep_puts_all_tokens_on_one_grid() -> None:
    trial = Trial(Lockstep(30 * MS, 20 * MS))
    trial.arrive(5 * MS, 1, 3)  # may start at 35: step 40
    trial.arrive(12 * MS, 1, 3)  # at 42: step 60
    tokens = trial.run()
    assert [(at // MS, serial) for at, serial, _ in tokens] == [
        (40, 0),
        (60, 0),
        (60, 1),
        (80, 0),
        (80, 1),
        (100, 1),
    ]


def test_a_whole_reply_comes_with_its_last_token() -> None:
    for cadence in (Spread(1, 10 * MS, 20 * MS), Lockstep(10 * MS, 20 * MS)):
        trial = Trial(cadence)
        trial.arrive(10 * MS, 1, 4, whole=True)
        ((at, _, produced),) = trial.run()
        assert produced == 4
        assert 80 * MS <= at <= 100 * MS


def test_a_flood_serves_streams_in_turn() -> None:
    trial = Trial(Flood(2))
    trial.arrive(0, 1, 3)
    trial.arrive(0, 1, 4)
    assert [(serial, produced) for _, serial, produced in trial.run()] == [(0, 2), (1, 2), (0, 3), (1, 4)]


@pytest.mark.parametrize("cadence", [Spread(1, MS, 20 * MS), Lockstep(MS, 20 * MS), Flood(1)])
def test_an_aborted_stream_is_silent(cadence: Spread | Lockstep | Flood) -> None:
    trial = Trial(cadence)
    trial.arrive(0, 1, 5)
    trial.arrive(0, 1, 5)
    trial.abort(0)
    assert {serial for _, serial, _ in trial.run()} == {1}
    assert trial.running == 0


def test_lockstep_needs_a_distance() -> None:
    with pytest.raises(ValueError, match="itl_ns=0"):
        Lockstep(0, 0)
