"""The driver's clock on a host, as its agent needs it: when the load starts, and by how much its schedule shifts."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import numpy as np

from fastllmload.arrays import Numbers
from fastllmload.engine.hosts.clock.exchanger import ClockExchanger
from fastllmload.engine.hosts.link.messages import AgentConfig
from fastllmload.errors import HostLimitError
from fastllmload.records.host_clock import ClockFit, fit

KNOWN_S, AGAIN_S = 5.0, 0.02  # for the first exchange; until it is asked for again
NEAR_NS = 25_000


class DriverClock:
    """Compares clocks from now on until `close`."""

    def __init__(self, config: AgentConfig) -> None:
        self._exchanger = ClockExchanger((config.address, config.udp_port), bytes.fromhex(config.key), config.host)
        self._exchanger.start()
        self._where = f"{config.address}, UDP port {config.udp_port}"
        self._fit: ClockFit | None = None
        self._zero = (0, 0)  # the start of the phase, in this host's clock and in the driver's

    def wait(self) -> None:
        """Until the driver's clock is known. HostLimitError when it is not within KNOWN_S."""
        until = time.monotonic() + KNOWN_S
        while not self._update():
            if time.monotonic() > until:
                raise HostLimitError(
                    "host-clock-unknown",
                    f"no datagram was answered by the driver at {self._where} within {KNOWN_S:g} s",
                )
            time.sleep(AGAIN_S)

    def _update(self) -> bool:
        """Whether the driver's clock is known. Exchanges of which none was quick do not change what is known."""
        with contextlib.suppress(ValueError):
            recent = self._exchanger.recent()
            self._fit = fit(recent)
            self._exchanger.known = is_known(self._fit, recent)
        return self._fit is not None

    def start(self, driver_ns: int) -> int:
        """*driver_ns*, when a phase starts, in this host's clock."""
        self._update()
        assert self._fit is not None
        self._zero = int(self._fit.to_host(driver_ns)), driver_ns
        return self._zero[0]

    def shift_ns(self) -> int:
        """What to add to instants that count from the start in this host's clock, because the clocks drift."""
        self._update()
        assert self._fit is not None
        now = time.monotonic_ns()
        here, there = self._zero
        return (now - here) - (int(self._fit.to_driver(now)) - there)

    def exchanges(self) -> Numbers:
        """All exchanges so far, int64[n, 4], as in clock.npy."""
        return self._exchanger.exchanges()

    def save(self, path: Path) -> None:
        """Write all exchanges so far. A full disk keeps the file as it was."""
        part = path.with_suffix(".part")
        with contextlib.suppress(OSError):
            with part.open("wb") as file:
                np.save(file, self.exchanges())
            part.replace(path)

    def close(self) -> None:
        self._exchanger.stop()


def is_known(clock: ClockFit, exchanges: Numbers) -> bool:
    """Whether more exchanges than KNOWN_RATE per second would hardly reduce the bound of *clock*, their fit: at the newest
    one it is at most NEAR_NS above what the quickest allows.
    """
    t1, t2, t3, t4 = exchanges.T
    quickest = int(((t4 - t1) - (t3 - t2)).min())
    return float(clock.half[-1]) <= quickest / 2 + NEAR_NS
