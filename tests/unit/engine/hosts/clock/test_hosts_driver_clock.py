"""An agent knows the driver's clock before the load starts, or refuses; on one machine both clocks are the same."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from refusals import raises_code

from fastllmload.engine.hosts.clock import driver_clock
from fastllmload.engine.hosts.clock.driver_clock import DriverClock, is_known
from fastllmload.engine.hosts.clock.exchange import ClockResponder
from fastllmload.engine.hosts.link.messages import AgentConfig
from fastllmload.engine.workers.fleet import environment
from fastllmload.records.host_clock import ClockFit, fit

pytestmark = pytest.mark.slow
KEY = bytes(range(32))
MS = 1_000_000


def config(port: int) -> AgentConfig:
    return AgentConfig(address="127.0.0.1", tcp_port=1, udp_port=port, key=KEY.hex(), host=0)


def test_an_instant_of_the_driver_is_found_in_the_clock_of_the_host(tmp_path: Path) -> None:
    responder = ClockResponder(KEY, environment(), "127.0.0.1")
    clock = DriverClock(config(responder.port))
    clock.wait()
    at = time.monotonic_ns() + 100 * MS
    assert abs(clock.start(at) - at) < 50 * MS and abs(clock.shift_ns()) < 50 * MS
    clock.save(tmp_path / "clock.npy")
    clock.close()
    responder.stop()
    exchanges = np.load(tmp_path / "clock.npy")
    assert fit(exchanges).exchanges > 0 and [path.name for path in tmp_path.iterdir()] == ["clock.npy"]
    clock.save(tmp_path / "missing" / "clock.npy")  # a disk that takes nothing


def drifting(ppm: float, origin_ns: int) -> ClockFit:
    """A driver's clock that runs faster than the host's, and is an hour ahead."""
    t = origin_ns + np.arange(0, 20_000 * MS, 250 * MS)
    ahead = 3_600_000 * MS + ((t - origin_ns) * ppm * 1e-6).astype(np.int64)
    return fit(np.column_stack([t, t + ahead, t + ahead, t]))


def test_the_schedule_follows_a_clock_that_drifts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 10 s of the driver's clock, which is 100 ppm faster, this host counts 1 ms less: instants come 1 ms earlier."""
    now = [1_000_000_000_000]
    known = drifting(100.0, now[0])
    monkeypatch.setattr(driver_clock.time, "monotonic_ns", lambda: now[0])
    clock = DriverClock.__new__(DriverClock)
    clock._fit = known
    monkeypatch.setattr(clock, "_update", lambda: True, raising=False)
    here = clock.start(now[0] + 3_600_000 * MS)
    assert abs(here - now[0]) < 1000 and abs(clock.shift_ns()) < 1000
    now[0] += 10_000 * MS
    assert clock.shift_ns() == pytest.approx(-1 * MS, abs=10_000)


@pytest.mark.parametrize(("newest_us", "known"), [(100, True), (400, False)])
def test_the_clock_is_known_while_the_newest_exchanges_are_about_as_quick_as_any(newest_us: int, known: bool) -> None:
    """Exchanges of 100 us, and the newest second of others: then eight exchanges per second are worth their cost."""
    sent = np.arange(0, 12_000 * MS, 500 * MS)
    took = np.where(sent < 11_000 * MS, 100, newest_us) * 1_000
    exchanges = np.column_stack([sent, sent + took // 2, sent + took // 2, sent + took])
    assert is_known(fit(exchanges), exchanges) is known


def test_a_host_without_the_drivers_clock_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_clock, "KNOWN_S", 0.1)
    responder = ClockResponder(bytes(32), environment(), "127.0.0.1")  # with another key
    clock = DriverClock(config(responder.port))
    with raises_code("host-clock-unknown", responder.port):
        clock.wait()
    clock.close()
    responder.stop()
