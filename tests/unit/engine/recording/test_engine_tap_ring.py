"""Interfaces of a packet ring: the loopback interface only if it carries all the traffic, else every interface."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest

from fastllmload._ext.tap.ring import Ring
from fastllmload.engine.recording import tap

NEAR, NEAR6 = ("127.0.0.1", 8_000), ("::1", 8_000)
FAR, FAR6 = ("198.51.100.7", 8_000), ("2001:db8::7", 8_000)
LO = socket.if_nametoindex("lo")
needs_ring = pytest.mark.skipif(not tap.permitted(), reason="CAP_NET_RAW is missing")


def test_only_targets_of_this_host_are_reached_over_loopback() -> None:
    assert tap.loopback([NEAR, NEAR6, ("127.9.9.9", 80)]) == LO
    assert tap.loopback([FAR]) == tap.loopback([FAR6]) == 0
    assert tap.loopback([NEAR, FAR]) == 0, "one that is not is enough"


@needs_ring
def test_the_ring_is_on_loopback_where_that_is_enough() -> None:
    for sides, looped in (([NEAR, NEAR6], True), ([NEAR, FAR], False)):
        ring = tap.open_ring(sides, tap.SMALLEST)
        assert ring.looped == looped
        ring.close()


@needs_ring
def test_too_many_addresses_for_the_loopback_filter_get_a_ring_on_every_interface() -> None:
    sides = [(f"127.1.{n // 250}.{n % 250 + 1}", 8_000) for n in range(300)]
    ring = tap.open_ring(sides, tap.SMALLEST)
    assert not ring.looped
    ring.close()


@needs_ring
def test_a_kernel_that_cannot_ignore_outgoing_frames_gets_the_other_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Ring.open

    class Older:
        @staticmethod
        def open(*given: Any, loopback: int = 0) -> Ring:
            if loopback:
                raise OSError(errno.ENOPROTOOPT, "the packet socket takes what goes out too")
            return opened(*given)

    monkeypatch.setattr(tap, "Ring", Older)
    ring = tap.open_ring([NEAR], tap.SMALLEST)
    assert not ring.looped
    ring.close()
