"""Slots of several classes next to arrivals: each sends requests of its class alone."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ext.reactor_drive import RESPONSE, Outcome, drive, read_request, scripted

from fastllmload._ext.record import counters as k
from fastllmload._ext.record.histogram import TOTAL, WORDS
from fastllmload.records.layout import HTTP_ERROR, OK

MS = 1_000_000
REFUSED = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}"


def plan(
    requests: int, slots: Sequence[int], numbers: Sequence[Sequence[int]], limits: Sequence[int]
) -> dict[str, Any]:
    """A plan of *requests* whose bodies say their number, and pools of *slots* with these *numbers*."""
    bodies = [b'{"n":%d}' % number for number in range(requests)]
    ends = np.cumsum([0, *map(len, bodies)]).astype(np.uint64)
    sizes = np.array([len(each) for each in numbers], np.uint32)
    joined = np.array([number for each in numbers for number in each], np.uint32)
    places = np.arange(sum(slots))
    opens = np.repeat(np.arange(len(slots)), slots).astype(np.uint32)
    closes = np.zeros(len(slots), np.uint32)
    owns = np.zeros(len(slots), np.uint32)
    pools = (np.array(slots, np.uint32), sizes, np.array(limits, np.uint64), joined, places, opens, closes, owns)
    return {"body_offset": ends, "bodies": np.frombuffer(b"".join(bodies), np.uint8), "pools": pools}


def answer(refused: Sequence[int] = ()) -> Any:
    def script(connection: socket.socket, number: int) -> None:
        while request := read_request(connection):
            asked = json.loads(request.partition(b"\r\n\r\n")[2])["n"]
            connection.sendall(REFUSED if asked in refused else RESPONSE)

    return script


def most(rows: np.ndarray) -> int:
    return max(int(((rows["t_dispatch"] <= t) & (rows["t_end_user"] > t)).sum()) for t in rows["t_dispatch"])


def of(outcome: Outcome, numbers: Sequence[int], requests: int) -> np.ndarray:
    rows: np.ndarray = outcome.rows[np.isin(outcome.rows["request"] % requests, numbers)]
    return np.sort(rows, order="t_dispatch")


def test_pools_and_arrivals_send_what_is_theirs(tmp_path: Path) -> None:
    """Each request of a pool once up to its limit, then again with numbers that are higher by the plan's size."""
    arrivals, one, two = list(range(6)), [6, 8, 9], [7, 10, 11, 12]
    with scripted(answer()) as address:
        found = drive(tmp_path, address, gaps_ms=[3.0] * 6, slots=3,
                      conversations=plan(13, [2, 1], [one, two], [9, 6]))  # fmt: skip
    assert found.statuses() == {("ok", "none"): 6 + 9 + 6}
    assert of(found, arrivals, 13)["request"].tolist() == arrivals
    assert sorted(of(found, one, 13)["request"].tolist()) == [n + 13 * turn for turn in range(3) for n in one]
    assert of(found, two, 13)["request"].tolist() == [7, 10, 11, 12, 20, 23]
    assert most(of(found, one, 13)) <= 2 and most(of(found, two, 13)) == 1
    start = int(found.rows["t_sched"].min())
    planned = (np.arange(1, 7) * 3 * MS).tolist()
    assert (of(found, arrivals, 13)["t_sched"] - start).tolist() == planned
    for numbers, slots in ((one, 2), (two, 1)):
        due = of(found, numbers, 13)["t_sched"]
        assert (due[:slots] == start).all() and (due[slots:] > start).all()


@pytest.mark.parametrize("mixed", [False, True])
def test_the_live_lag_of_a_mix_is_that_of_arrivals(tmp_path: Path, mixed: bool) -> None:
    """As the certificate's; where all classes are closed loops, it is of all."""
    made = plan(13, [2, 1], [[6, 8, 9], [7, 10, 11, 12]], [9, 6]) | {"mixed": mixed}
    with scripted(answer()) as address:
        found = drive(tmp_path, address, gaps_ms=[3.0] * 6, slots=3, conversations=made)
    histogram = found.words[k.WORDS :][k.H_LAG * WORDS :][:WORDS]
    assert len(found.rows) == 6 + 9 + 6 and histogram[TOTAL] == (6 if mixed else 6 + 9 + 6)


def test_slots_without_arrivals_end_with_the_time(tmp_path: Path) -> None:
    """Nothing of a pool is due from the end on, however much its limit leaves."""
    with scripted(answer()) as address:
        found = drive(tmp_path, address, gaps_ms=[], slots=3, stop_ns=60 * MS,
                      conversations=plan(5, [1, 2], [[0, 1], [2, 3, 4]], [1 << 30, 1 << 30]))  # fmt: skip
    start = int(found.rows["t_sched"].min())
    for numbers in ([0, 1], [2, 3, 4]):
        mine = of(found, numbers, 5)
        assert len(mine) > 20 and (mine["t_dispatch"] < start + 61 * MS).all()
        assert len(set(mine["request"].tolist())) == len(mine)


def test_slots_open_and_close_among_arrivals(tmp_path: Path) -> None:
    """Two pools, each with instants of its own: every arrival is sent at its instant, slots of a pool open at theirs and
    close when their request has ended, and one that closed opens again.
    """
    opens_ms, opens_of = [0.0, 0.0, 12.5, 25.5, 60.5], [0, 1, 0, 1, 0]  # of pool 0: 1, 2, and 2 again
    closes_ms, closes = [40.5, 45.5], [1, 1]
    schedule = np.concatenate([np.array(opens_ms), np.arange(1, 31) * 3.0]) * MS
    order = np.argsort(schedule, kind="stable")
    made = plan(36, [2, 2], [[30, 31, 32], [33, 34, 35]], [1 << 30, 1 << 30])
    made["pools"] = (*made["pools"][:4], np.flatnonzero(order < 5), np.array(opens_of, np.uint32),
                     np.array(closes, np.uint32), made["pools"][7])  # fmt: skip
    made |= {"schedule": schedule[order].astype(np.int64), "closings": (np.array(closes_ms) * MS).astype(np.int64)}
    with scripted(answer()) as address:
        found = drive(tmp_path, address, gaps_ms=[], slots=4, stop_ns=80 * MS, conversations=made)
    start = int(found.rows["t_sched"].min())
    arrived = of(found, range(30), 36)
    assert arrived["request"].tolist() == list(range(30))
    assert (arrived["t_sched"] - start).tolist() == (np.arange(1, 31) * 3 * MS).tolist()
    for number, spans_ms in enumerate(([(0, 12.5, 1), (12.5, 40.5, 2), (40.5, 60.5, 1), (60.5, 80, 2)],
                                      [(0, 25.5, 1), (25.5, 45.5, 2), (45.5, 80, 1)])):  # fmt: skip
        mine = of(found, [30, 31, 32] if number == 0 else [33, 34, 35], 36)
        due, t_end = mine["t_sched"] - start, mine["t_end_user"] - start
        opened = {int(at * MS) for at, pool in zip(opens_ms, opens_of, strict=True) if pool == number}
        lasted = ((due < closes_ms[number] * MS) & (t_end > 60.5 * MS)).any()  # then it is not closed and opened again
        assert opened - ({int(60.5 * MS)} if lasted else set()) <= set(due.tolist()) <= opened | set(t_end.tolist())
        for begin, end, slots in spans_ms:
            inside = mine[(due >= begin * MS) & (due < end * MS)]
            assert most(inside) <= slots, (begin, end)
        assert len(set(mine["request"].tolist())) == len(mine)


def test_only_slots_that_fail_rest(tmp_path: Path) -> None:
    """A class that the server refuses is sent ten times at once by each slot, then every 100 ms; the other at full speed."""
    with scripted(answer(refused=[0, 1])) as address:
        found = drive(tmp_path, address, gaps_ms=[], slots=3, stop_ns=250 * MS,
                      conversations=plan(4, [2, 1], [[0, 1], [2, 3]], [1 << 30, 1 << 30]))  # fmt: skip
    refused, answered = of(found, [0, 1], 4), of(found, [2, 3], 4)
    assert (refused["status"] == HTTP_ERROR).all() and (answered["status"] == OK).all()
    assert 2 * 10 < len(refused) <= 2 * (10 + 3)
    assert len(answered) > 100 and most(answered) == 1


def test_pools_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """Fewer requests than the pools say that they have."""
    made = plan(4, [2, 1], [[0, 1], [2, 3]], [1, 1])
    made["pools"] = (*made["pools"][:3], made["pools"][3][:3], *made["pools"][4:])
    with pytest.raises(ValueError, match="4 requests"):
        drive(tmp_path, ("127.0.0.1", 9), gaps_ms=[], slots=3, conversations=made)
    made = plan(4, [2, 1], [[0, 1], [2, 3]], [1, 1]) | {"closings": np.array([MS], np.int64)}
    (tmp_path / "closing").mkdir()
    with pytest.raises(ValueError, match="close 0 slots"):
        drive(tmp_path / "closing", ("127.0.0.1", 9), gaps_ms=[], slots=3, conversations=made)
