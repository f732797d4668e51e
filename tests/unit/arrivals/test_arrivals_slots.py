"""Slots of a closed loop that follow a curve."""

from __future__ import annotations

import numpy as np
import pytest

from fastllmload.arrivals.curve import read_curve, slot_changes

CURVES = (
    "ramp:1,12", "ramp:12,0", "ramp:1,5,3", "exponential:1,64", "exponential:20,0.5,4", "steps:8,2,10", "steps:0x1,7x2,3x1",
    "day:0,9,4", "day:2,3", "spikes:2,9,2,0.5",
)  # fmt: skip


@pytest.mark.parametrize("text", CURVES)
def test_they_are_the_rounded_curve(text: str) -> None:
    """At any instant, and each change is one slot at the instant of the crossing, to the nanosecond."""
    curve = read_curve(text, 10.0)
    found = slot_changes(curve, 10.0)
    t = np.arange(0, 10_000_000_000, 7_777_777)
    assert np.array_equal(found.at(t), np.floor(curve.rate(t / 1e9) + 0.5))
    assert (np.diff(found.t_ns) >= 0).all() and set(np.diff(found.slots, prepend=0)) <= {-1, 1}


def test_a_ramp_opens_at_exact_instants() -> None:
    found = slot_changes(read_curve("ramp:1,5", 8.0), 8.0)
    assert found.t_ns.tolist() == [0, 1_000_000_000, 3_000_000_000, 5_000_000_000, 7_000_000_000]
    assert found.slots.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("text", CURVES)
def test_workers_have_all_of_them_together(text: str, workers: int) -> None:
    """The sum of their slots is the curve's at any instant, and none has more than its part of the most."""
    found = slot_changes(read_curve(text, 10.0), 10.0)
    t = np.arange(0, 10_000_000_000, 77_777_777)
    together = np.zeros(len(t), np.int64)
    for worker in range(workers):
        opens, closes = found.of_worker(worker, workers)
        mine = np.searchsorted(opens, t, "right") - np.searchsorted(closes, t, "right")
        assert mine.min() >= 0 and mine.max() <= -(-int(found.slots.max()) // workers)
        together += mine
    assert np.array_equal(together, found.at(t))
