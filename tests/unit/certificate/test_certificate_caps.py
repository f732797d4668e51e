"""What each cap held back is exact: against a queue in which time advances by 0.1 ms and every wait is counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from evidence_maker import START_NS

from fastllmload.arrivals.curve import read_curve
from fastllmload.certificate import caps, slots
from fastllmload.certificate.evidence import MeasuredWindow
from fastllmload.documents.plan import LoadDescription
from fastllmload.records import layout
from fastllmload.records.run import Run

TICK = 100_000
NO_CAP = 10**9


def queue(seed: int, cap: int, prefill: int, count: int = 120) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of one worker that sends at once unless a cap is full, and the ns that each was due under each full cap."""
    rng = np.random.default_rng(seed)
    due = np.sort(rng.integers(0, 1_500, count))
    first, rest = rng.integers(5, 60, count), rng.integers(5, 200, count)
    fails = rng.random(count) < 0.1
    rows = np.zeros(count, layout.REQUEST)
    waits = np.zeros((2, count), np.int64)
    sent = 0
    begun: list[int] = []
    for tick in range(60_000):
        while True:
            flight = sum(tick < rows["t_end"][i] for i in begun)
            waiting = sum(tick < (rows["t_any"][i] or rows["t_end"][i]) for i in begun)
            full = flight >= cap, waiting >= prefill
            if sent == count or due[sent] > tick or any(full):
                break
            rows["t_dispatch"][sent] = tick
            rows["t_any"][sent] = 0 if fails[sent] else tick + first[sent]
            rows["t_end"][sent] = tick + first[sent] + (0 if fails[sent] else rest[sent])
            begun.append(sent)
            sent += 1
        if sent == count:
            break
        late = np.flatnonzero(due[sent:] <= tick) + sent
        waits[0, late] += full[0]
        waits[1, late] += full[1]
    rows["t_sched"] = START_NS + due * TICK
    for name in ("t_dispatch", "t_any", "t_end"):
        rows[name] = np.where((rows[name] > 0) | (name == "t_dispatch"), START_NS + rows[name] * TICK, 0)
    return rows, waits[0] * TICK, waits[1] * TICK


def run_of(workers: int) -> Run:
    return cast(Run, SimpleNamespace(document=SimpleNamespace(hosts=(), workers=(None,) * workers)))


@pytest.mark.parametrize(("cap", "prefill"), [(8, NO_CAP), (NO_CAP, 3), (8, 3), (5, 2), (40, 2)])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_cap_has_what_it_held_back(seed: int, cap: int, prefill: int) -> None:
    rows, by_cap, by_prefill = queue(seed, cap, prefill)
    flight = caps.spans_of_workers(run_of(1), rows, caps.ends(rows), cap)
    waiting = caps.spans_of_workers(run_of(1), rows, caps.first_tokens(rows), prefill)
    np.testing.assert_array_equal(caps.held_ns(rows, flight), by_cap)
    np.testing.assert_array_equal(caps.held_ns(rows, waiting), by_prefill)
    assert (by_cap.sum() > 0, by_prefill.sum() > 0) == (cap < 40, prefill < NO_CAP)


def test_what_the_client_sent_late_is_not_held() -> None:
    """5 ms late with a place free: held for 0, and it could be sent at its instant."""
    rows, *_ = queue(1, NO_CAP, NO_CAP)
    rows["t_dispatch"] += 5_000_000
    rows["t_any"][rows["t_any"] > 0] += 5_000_000
    rows["t_end"] += 5_000_000
    spans = caps.spans_of_workers(run_of(1), rows, caps.first_tokens(rows), 10_000)
    assert not caps.held_ns(rows, spans).any()
    np.testing.assert_array_equal(caps.let_go(rows, spans), rows["t_sched"])


def test_the_lag_after_a_cap_counts_from_when_it_let_go() -> None:
    """It is sent at the instant at which the place was free; one that was not held, at its own."""
    rows, _, held = queue(2, NO_CAP, 3)
    spans = caps.spans_of_workers(run_of(1), rows, caps.first_tokens(rows), 3)
    free = caps.let_go(rows, spans)
    np.testing.assert_array_equal(free, rows["t_dispatch"])
    assert (held > 0).any() and (free[held == 0] == rows["t_sched"][held == 0]).all()


def test_workers_have_their_parts() -> None:
    """Of a cap of 3, worker 0 of two has 2 places."""
    rows = np.zeros(4, layout.REQUEST)
    rows["worker"] = [0, 0, 1, 1]
    rows["t_sched"], rows["t_dispatch"] = [1, 5, 1, 5], [1, 9, 1, 9]
    rows["t_end"] = 9
    spans = caps.spans_of_workers(run_of(2), rows, caps.ends(rows), 3)
    np.testing.assert_array_equal(caps.held_ns(rows, spans), [0, 0, 0, 4])


def described(curve: dict[str, Any] | None) -> LoadDescription:
    return LoadDescription(loop="closed", duration_s=2.0, concurrency_curve=cast(Any, curve))


def test_the_slot_time_asked_for_is_the_area_of_the_curve() -> None:
    load = described(cast(Any, read_curve("steps:4x1,10x1", 2.0).describe()))
    for begin, end, area in ((0, 2, 14), (0.5, 1.5, 7), (1.5, 9, 5)):
        window = MeasuredWindow(START_NS + round(begin * 1e9), START_NS + round(end * 1e9))
        assert slots.asked_ns(load, START_NS, window) == area * 10**9
        assert slots.asked_ns(described(None), START_NS, window) == 0


def test_a_slot_is_empty_from_the_end_to_the_next_dispatch() -> None:
    """Two requests one after the other and a session of two turns: 3 + 2 + 4 by sends, 5 + 6 by reads that free a slot."""
    rows = np.zeros(4, layout.REQUEST)
    rows["session"] = [1, 2, 3, 3]
    rows["t_sched"], rows["t_dispatch"] = [100, 200, 100, 150], [103, 202, 100, 154]
    rows["t_end"], rows["t_end_user"] = [195, 290, 140, 280], [200, 290, 147, 286]
    window = MeasuredWindow(100, 1_000)
    assert slots.empty_ns(rows, rows["t_sched"].astype(np.int64), window) == 3 + 2 + 4 + 5 + 6
    assert slots.empty_ns(rows, rows["t_sched"].astype(np.int64), MeasuredWindow(199, 285)) == 2 + 6
    assert slots.empty_ns(rows[:0], np.empty(0, np.int64), window) == 0
