"""Exchanges with the responder: stamps that bound the truth, and no answer to a datagram of anybody else."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from fastllmload.engine.hosts.clock import exchange
from fastllmload.engine.hosts.clock.exchange import (
    ANSWERS,
    ASKS,
    REPLY,
    REQUEST,
    ClockResponder,
    ExchangeCounts,
    signed,
)
from fastllmload.engine.hosts.clock.exchanger import RECENT, ClockExchanger
from fastllmload.records.host_clock import fit

pytestmark = pytest.mark.slow

KEY = secrets.token_bytes(32)
PATIENCE_S = 30.0


def until(met: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not met():
        assert time.monotonic() < give_up
        time.sleep(0.005)


@contextmanager
def responding() -> Iterator[tuple[socket.socket, list[ExchangeCounts]]]:
    """A responder in a thread; yields a socket that is connected to it, and what it has counted at its end."""
    served, life = exchange.bound("127.0.0.1", 0), os.pipe()
    counted: list[ExchangeCounts] = []
    thread = threading.Thread(target=lambda: counted.append(exchange.respond(served, KEY, life[0])))
    thread.start()
    asking = exchange.bound("127.0.0.1", 0)
    asking.settimeout(PATIENCE_S)
    asking.connect(served.getsockname())
    try:
        yield asking, counted
    finally:
        os.close(life[1])
        thread.join()
        os.close(life[0])
        served.close()
        asking.close()


def ask(host: int, number: int, key: bytes = KEY) -> bytes:
    return signed(key, REQUEST.pack(ASKS, host, number))


def test_the_responder_answers_its_own_hosts_once() -> None:
    """Two hosts with numbers of their own; a repeated or an older request, another key and other texts get no answer."""
    with responding() as (asking, counted):
        for datagram in (
            b"", b"hello", ask(0, 1)[:-1], ask(0, 1) + b"x", signed(KEY, REPLY.pack(ANSWERS, 0, 1, 2, 3)),  # foreign
            ask(0, 1, bytes(32)), b"FLLq" + ask(0, 1)[4:-1] + b"x",  # forged
            ask(0, 5), ask(0, 5), ask(0, 4), ask(1, 4),  # two of these are replayed
        ):  # fmt: skip
            asking.send(datagram)
        found = [REPLY.unpack(asking.recv(100)[: REPLY.size]) for _ in range(2)]
        asking.send(ask(0, 6))
        found.append(REPLY.unpack(asking.recv(100)[: REPLY.size]))
        now = time.monotonic_ns()
    assert [reply[:3] for reply in found] == [(ANSWERS, 0, 5), (ANSWERS, 1, 4), (ANSWERS, 0, 6)]
    assert all(t2 <= t3 <= now for *_, t2, t3 in found)
    assert counted == [ExchangeCounts(answered=3, foreign=5, forged=2, replayed=2)]


def test_the_host_takes_a_reply_once_and_only_its_own() -> None:
    """Of four replies to each request, with another key, of another host, right, and right once more, one counts."""

    def answer() -> None:
        while True:
            datagram, sender = served.recvfrom(100)
            if datagram == b"over":
                return
            _, host, number = REQUEST.unpack(datagram[: REQUEST.size])
            now = time.monotonic_ns()
            right = REPLY.pack(ANSWERS, host, number, now, now)
            served.sendto(signed(bytes(32), right), sender)
            served.sendto(signed(KEY, REPLY.pack(ANSWERS, host + 1, number, now, now)), sender)
            served.sendto(b"hello", sender)
            for _ in range(2):
                served.sendto(signed(KEY, right), sender)

    with exchange.bound("127.0.0.1", 0) as served:
        thread = threading.Thread(target=answer)
        thread.start()
        exchanger = ClockExchanger(served.getsockname(), KEY, 3)
        exchanger.start()
        until(lambda: exchanger.counts.replayed >= 20)
        rows = exchanger.stop()
        with exchange.bound("127.0.0.1", 0) as other:
            other.sendto(b"over", served.getsockname())
        thread.join()
    counts = exchanger.counts
    assert len(rows) == counts.answered >= 10
    assert abs(counts.forged - counts.answered) <= 1 and abs(counts.foreign - counts.answered) <= 1
    assert abs(counts.replayed - 2 * counts.answered) <= 1


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_exchanges_bound_the_offset(address: str) -> None:
    """One machine has one clock, and the host's is made to differ by a second and 400 ppm: every exchange agrees."""
    zero = time.monotonic_ns()

    def host_clock() -> int:
        now = time.monotonic_ns()
        return now - 1_000_000_000 - (now - zero) // 2_500

    responder = ClockResponder(KEY, os.environ, address)
    exchanger = ClockExchanger((address, responder.port), KEY, 0, host_clock)
    exchanger.start()
    until(lambda: len(exchanger.exchanges()) >= 40)
    recent = exchanger.recent()
    rows = exchanger.stop()
    counts = responder.stop()
    t1, t2, t3, t4 = rows.T
    driver = np.array([[t2 - t1, t3 - t4], [t1, t4]])
    truth = 1_000_000_000 + (driver[1] + 1_000_000_000 - zero) * 400e-6
    assert (driver[0][0] >= truth[0] - 2_000).all() and (driver[0][1] <= truth[1] + 2_000).all()
    assert (t3 >= t2).all() and (t4 >= t1).all()
    found = fit(rows)
    assert np.abs(found.offset_ns(t1) - truth[0]).max() <= found.bound_ns(t1).max() + 2_000
    assert len(recent) <= RECENT and (recent[0] == rows[max(0, len(recent) - RECENT)]).all()
    assert counts.answered >= len(rows) >= 40
    assert (counts.foreign, counts.forged, counts.replayed, counts.unsent) == (0, 0, 0, 0)


def test_a_datagram_that_waits_to_be_read_arrived_when_the_kernel_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies there for 50 ms. If the wall clock is set meanwhile, or was not compared before, the time now is used."""
    with exchange.bound("127.0.0.1", 0) as reading, exchange.bound("127.0.0.1", 0) as sending:
        receiver = exchange.StampedReceiver(reading, time.monotonic_ns)

        def waited() -> tuple[float, float]:
            """ms from the send to the arrival, and to the end of the call."""
            begin = time.monotonic_ns()
            sending.sendto(b"x", reading.getsockname())
            time.sleep(0.05)
            arrived = receiver.receive()[2]
            return (arrived - begin) / 1e6, (time.monotonic_ns() - begin) / 1e6

        first = waited()[0]
        stamped = [waited() for _ in range(5)]
        real = time.time_ns
        monkeypatch.setattr(exchange.time, "time_ns", lambda: real() + 40_000_000)
        after_a_step = waited()[0]
    assert first >= 50 and after_a_step >= 50
    assert all(arrived >= 0 for arrived, _ in stamped)
    assert min(arrived - read for arrived, read in stamped) <= -45


def test_a_stamp_is_not_too_early_for_a_clock_that_is_slower() -> None:
    """By 900 ppm, which are 90 us in the 100 ms that the datagram lies there."""

    def slower() -> int:
        return time.monotonic_ns() * 9991 // 10_000

    with exchange.bound("127.0.0.1", 0) as reading, exchange.bound("127.0.0.1", 0) as sending:
        receiver = exchange.StampedReceiver(reading, slower)
        for _ in range(3):
            begin = slower()
            sending.sendto(b"x", reading.getsockname())
            time.sleep(0.1)
            arrived = receiver.receive()[2]
            assert arrived >= begin


def test_a_responder_that_is_away_is_counted_and_missed_only_until_it_is_back() -> None:
    exchanger: ClockExchanger
    with exchange.bound("127.0.0.1", 0) as free:
        address = free.getsockname()
    exchanger = ClockExchanger(address, KEY, 0)
    exchanger.start()
    until(lambda: exchanger.counts.unsent >= 3)
    responder = ClockResponder(KEY, os.environ, *address)
    until(lambda: len(exchanger.exchanges()) >= 2)
    exchanger.stop()
    assert responder.stop().answered >= 2


PARENT = """
import os, time
from fastllmload.engine.hosts.clock.exchange import ClockResponder
print(ClockResponder(bytes(32), os.environ, "127.0.0.1").port, flush=True)
time.sleep(60)
"""


def test_the_responder_ends_with_its_parent() -> None:
    """The parent is killed: the port is free again."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline())
        with pytest.raises(OSError, match="in use"):
            exchange.bound("127.0.0.1", port)
        parent.kill()

    def free() -> bool:
        try:
            exchange.bound("127.0.0.1", port).close()
        except OSError:
            return False
        return True

    until(free)


def test_the_responder_imports_no_numpy() -> None:
    """It starts while the agents do, and numpy takes longer to import than all else."""
    code = f"import sys, {exchange.__name__}; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_key_is_not_in_the_process_list() -> None:
    responder = ClockResponder(KEY, {**os.environ}, "127.0.0.1")
    try:
        shown = b"".join(Path(f"/proc/{responder.pid}", name).read_bytes() for name in ("cmdline", "environ"))
        assert responder.alive
    finally:
        responder.stop()
    assert KEY not in shown and KEY.hex().encode() not in shown
