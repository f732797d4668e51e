"""A step of the wall clock is detected; slewing or an interrupted reading is not reported as a step."""

from __future__ import annotations

import itertools

import pytest

from fastllmload.host import probe
from fastllmload.host.probe import WallClock, offset_ns

SECOND = 1_000_000_000


@pytest.fixture
def step_at(monkeypatch):
    """`step_at(at, offset)`: `step_s()` when the next reading is this, in ns; the first reading is (0, 0)."""
    found = [(0, 0)]
    monkeypatch.setattr(probe, "offset_ns", lambda: found[-1])
    clock = WallClock()

    def one(at, offset):
        found.append((at, offset))
        return clock.step_s()

    return one


@pytest.mark.parametrize("step", [7_000_000, SECOND, -SECOND, 3600 * SECOND])
def test_a_step_is_reported_once(step_at, step):
    assert step_at(SECOND, step) == step / 1e9
    assert step_at(2 * SECOND, step) is None


@pytest.mark.parametrize("seconds", [0.25, 60.0, 3600.0])
def test_the_fastest_slew_of_the_kernel_is_not_a_step(step_at, seconds):
    """adjtime() moves the clock by 500 ppm."""
    passed = round(seconds * SECOND)
    assert step_at(passed, passed // 2_000) is None
    assert step_at(2 * passed, 0) is None


def test_an_interrupted_reading_is_left_out(monkeypatch):
    """The tightest of three pairs is used: the others were interrupted for 10 ms between the two clocks."""
    monotonic = iter([0, 20_000_000, 20_000_000, 20_000_010, 30_000_000, 50_000_000])
    real = iter([10_000_000 + 7, 20_000_005 + 7, 49_000_000 + 7])
    monkeypatch.setattr(probe.time, "monotonic_ns", lambda: next(monotonic))
    monkeypatch.setattr(probe.time, "time_ns", lambda: next(real))
    assert offset_ns() == (20_000_010, 7)


def test_the_clock_of_this_host_never_runs_backwards():
    readings = [offset_ns() for _ in range(3)]
    assert all(later[0] >= earlier[0] for earlier, later in itertools.pairwise(readings))
