"""A schedule that is shifted while it runs, as for a host whose clock drifts: later releases follow, each sent once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ext.reactor_drive import Outcome, answer_all, drive, scripted

from fastllmload._ext.record import counters as k
from fastllmload._ext.send.reactor import Reactor

MS = 1_000_000
HOUR_NS = 3_600_000_000_000


def when(released: int, *shifts: int) -> Callable[[Reactor], None]:
    """Shifts by each of *shifts* in turn, from the check on that finds *released* requests or more."""
    left = list(shifts)

    def check(reactor: Reactor) -> None:
        if left and reactor.released >= released:
            reactor.shift(left.pop(0))

    return check


def shifted_ms(outcome: Outcome, gaps_ms: list[float]) -> np.ndarray:
    """How far each request was shifted, in the plan's order, from the first one."""
    rows = outcome.rows[np.argsort(outcome.rows["request"])]
    assert rows["request"].tolist() == list(range(len(gaps_ms)))
    planned = np.cumsum(np.array(gaps_ms) * 1e6).astype(np.int64)
    found = rows["t_sched"] - planned
    return np.asarray((found - found[0]) / MS)


@pytest.mark.parametrize("by_ms", [30, -30])
def test_later_releases_are_shifted_and_each_is_sent_once(tmp_path: Path, by_ms: int) -> None:
    """100 requests, 2 ms apart: those that were sent stay, the others move, and none is sent before its instant."""
    gaps = [2.0] * 100
    with scripted(answer_all) as address:
        outcome = drive(tmp_path, address, gaps_ms=gaps, preconnect=4, during=when(30, by_ms * MS))
    shifted = shifted_ms(outcome, gaps)
    first = int(np.argmax(shifted != 0))
    assert first >= 30
    assert (shifted[:first] == 0).all() and (shifted[first:] == by_ms).all()
    assert outcome.words[k.W_EARLY] == 0 and (outcome.lags_us >= 0).all()
    assert (np.diff(outcome.rows["t_dispatch"]) >= 0).all()


def test_a_shift_counts_from_the_planned_instant_and_not_from_the_shift_before(tmp_path: Path) -> None:
    """5 ms, the same again, 8 ms, and back to nothing."""
    gaps = [3.0] * 100
    shifts = when(10, 5 * MS, 5 * MS, 8 * MS, 0)
    with scripted(answer_all) as address:
        outcome = drive(tmp_path, address, gaps_ms=gaps, preconnect=4, during=shifts)
    shifted = shifted_ms(outcome, gaps)
    assert set(shifted) <= {0, 5, 8} and shifted[-1] == 0
    assert outcome.words[k.W_EARLY] == 0


def test_the_timer_is_set_for_the_shifted_instant(tmp_path: Path) -> None:
    """The second release is an hour away, then two, then due, and the third with it: the kernel's timer says so."""
    remaining: list[int] = []
    shifts = [0, HOUR_NS, -HOUR_NS]

    def during(reactor: Reactor) -> None:
        if reactor.released and shifts:
            reactor.shift(shifts.pop(0))
            text = Path(f"/proc/self/fdinfo/{reactor.pacer.fd}").read_text()
            value = next(line for line in text.splitlines() if line.startswith("it_value"))
            remaining.append(int(value.partition("(")[2].partition(",")[0]))

    with scripted(answer_all) as address:
        outcome = drive(tmp_path, address, gaps_ms=[1.0, HOUR_NS / MS - 1, 0.0], during=during)
    assert 3500 < remaining[0] <= 3600 and 7100 < remaining[1] <= 7200
    assert remaining[2] == 0
    assert len(outcome.rows) == 3 and (outcome.lags_us >= 0).all()


def test_a_shift_before_the_first_release_moves_all_of_them(tmp_path: Path) -> None:
    gaps = [500.0, *[1.0] * 20]
    starts: list[int] = []

    def during(reactor: Reactor) -> None:
        if not starts:
            starts.append(reactor.pacer.start)
            reactor.shift(200 * MS)

    with scripted(answer_all) as address:
        outcome = drive(tmp_path, address, gaps_ms=gaps, preconnect=2, during=during)
    assert outcome.rows["t_sched"].min() - starts[0] == 700 * MS
    assert (shifted_ms(outcome, gaps) == 0).all() and outcome.words[k.W_EARLY] == 0


def test_the_end_of_a_closed_loop_is_shifted(tmp_path: Path) -> None:
    """It would send for an hour; after the shift it sends until 50 ms after its start, or no more if that has passed."""
    over: list[int] = []

    def during(reactor: Reactor) -> None:
        if not over and reactor.released >= 10:
            start = reactor.pacer.start
            reactor.shift(-HOUR_NS)
            over.append(max(start + 50 * MS, time.monotonic_ns()))

    with scripted(answer_all) as address:
        outcome = drive(tmp_path, address, gaps_ms=[], slots=2, stop_ns=HOUR_NS + 50 * MS, preconnect=2, during=during)
    assert len(outcome.rows) >= 10 and outcome.rows["t_sched"].max() <= over[0]


def test_at_a_cap_the_shifted_release_waits_for_the_end_of_another(tmp_path: Path) -> None:
    """One in flight at most: a shift sends nothing by itself, and the requests follow each other."""
    with scripted(answer_all) as address:
        outcome = drive(tmp_path, address, gaps_ms=[1.0, *[20.0] * 9], cap=1, preconnect=1, during=when(2, -100 * MS))
    rows = outcome.rows
    assert rows["request"].tolist() == list(range(10))
    assert (rows["t_dispatch"][1:] >= rows["t_end_user"][:-1]).all()
