"""The packet filter keeps every segment with news of a watched side, in the right direction, and nothing else."""

from __future__ import annotations

import itertools
import random
import struct

import pytest
from ext.test_ext_segment import HERE, HERE6, THERE, THERE6, ipv4, ipv6
from refusals import raises_code

from fastllmload.engine.recording.packet_filter import EXTENDED, INCOMING, OUTGOING, PACKET_TYPE, on_wire, packet_filter

pytestmark = pytest.mark.slow

ACK, PUSH, SYN, FIN, RST = 0x10, 0x18, 0x02, 0x11, 0x14


def bytes_kept(program: bytes, frame: bytes, packet_type: int) -> int:
    """Run classic BPF as the kernel does: a read beyond the end of the frame rejects it."""
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    a = x = at = 0
    scratch = [0] * 16
    while True:
        operation, true, false, k = code[at]
        at += 1
        where = k + (x if operation in (0x48, 0x50) else 0)
        size = {0x20: 4, 0x28: 2, 0x30: 1, 0x48: 2, 0x50: 1, 0xB1: 1}.get(operation)
        if size is not None and k != PACKET_TYPE and where + size > len(frame):
            return 0
        if operation in (0x20, 0x28, 0x30, 0x48, 0x50):
            a = packet_type if k == PACKET_TYPE else int.from_bytes(frame[where : where + size], "big")
        elif operation == 0xB1:
            x = 4 * (frame[k] & 15)
        elif operation == 0x00:
            a = k
        elif operation == 0x60:
            a = scratch[k]
        elif operation == 0x61:
            x = scratch[k]
        elif operation == 0x02:
            scratch[k] = a
        elif operation == 0x04:
            a += k
        elif operation == 0x0C:
            a += x
        elif operation == 0x54:
            a &= k
        elif operation == 0x74:
            a >>= k
        elif operation == 0x87:
            a = x
        elif operation == 0x05:
            at += k
        elif operation in (0x15, 0x1D, 0x45):
            holds = {0x15: a == k, 0x1D: a == x, 0x45: bool(a & k)}[operation]
            at += true if holds else false
        elif operation == 0x06:
            return k
        elif operation == 0x16:
            return a
        else:
            raise AssertionError(f"operation {operation:#x}")


def test_news_of_a_watched_side_is_kept_in_its_direction() -> None:
    program = packet_filter([THERE, THERE6])
    for make, here, there, kept in ((ipv4, HERE, THERE, 40), (ipv6, HERE6, THERE6, 60)):
        for source, target, kind in ((there, here, INCOMING), (here, there, OUTGOING)):
            for payload, flags in ((100, PUSH), (1, ACK), (0, SYN), (0, FIN), (0, RST)):
                assert bytes_kept(program, make(source, target, payload, flags=flags), kind) == kept
            assert bytes_kept(program, make(source, target, 0, flags=ACK), kind) == 0, "no news"
            for other in (1, 2, 3, INCOMING + OUTGOING - kind):
                assert bytes_kept(program, make(source, target, 100, flags=PUSH), other) == 0, other
            elsewhere = ("192.0.2.77", 8_000) if make is ipv4 else ("2001:db8::77", 8_000)
            assert bytes_kept(program, make(elsewhere, elsewhere, 9, flags=PUSH), kind) == 0
            port = (there[0], 8_001)
            assert bytes_kept(program, make(*((port, here) if kind == INCOMING else (here, port)), 9), kind) == 0


def test_over_the_loopback_interface_both_directions_come_in() -> None:
    program = packet_filter([THERE, THERE6, (THERE[0], 9_000)], looped=True)
    for make, here, there, kept in ((ipv4, HERE, THERE, 40), (ipv6, HERE6, THERE6, 60)):
        for source, target in ((there, here), (here, there)):
            for payload, flags in ((100, PUSH), (1, ACK), (0, SYN), (0, FIN), (0, RST)):
                assert bytes_kept(program, make(source, target, payload, flags=flags), INCOMING) == kept
            assert bytes_kept(program, make(source, target, 0, flags=ACK), INCOMING) == 0, "no news"
            assert bytes_kept(program, make(source, target, 100, flags=PUSH), OUTGOING) == 0, "it comes in as well"
        port = (there[0], 8_001)
        for source, target in ((port, here), (here, port), (here, here)):
            assert bytes_kept(program, make(source, target, 9), INCOMING) == 0
    assert bytes_kept(program, ipv4(HERE, (THERE[0], 9_000), 9, options=bytes(8)), INCOMING) == 48


@pytest.mark.parametrize("looped", [False, True])
def test_headers_of_any_length_are_kept_completely(looped: bool) -> None:
    program = packet_filter([THERE, THERE6], looped=looped)
    assert bytes_kept(program, ipv4(THERE, HERE, 5, options=bytes(40)), INCOMING) == 80
    extended = ipv6(THERE6, HERE6, 5, extensions=((0, b"\x00" + bytes(6)),))
    assert bytes_kept(program, extended, INCOMING) == EXTENDED
    big = ipv4(THERE, HERE, total=0)
    assert bytes_kept(program, big, INCOMING) == 40, "more than 64 KiB: the header does not say how much"
    assert bytes_kept(program, ipv4(THERE, HERE, 9, fragment=185), INCOMING) == 0


def test_each_of_many_sides_is_kept() -> None:
    four = [(f"10.1.{n // 250}.{n % 250}", port) for n in range(150) for port in (8_000, 8_001)]
    six = [(f"2001:db8::{n:x}", 9_000) for n in range(100)]
    program = packet_filter(four + six)
    draw = random.Random(5)
    for side in draw.sample(four, 40):
        assert bytes_kept(program, ipv4(side, HERE, 5), INCOMING) == 40
        assert bytes_kept(program, ipv4(HERE, side, 5), OUTGOING) == 40
    for side in draw.sample(six, 20):
        assert bytes_kept(program, ipv6(side, HERE6, 5), INCOMING) == 60
        assert bytes_kept(program, ipv6(HERE6, side, 5), OUTGOING) == 60
    assert bytes_kept(program, ipv4(("10.1.0.0", 8_002), HERE, 5), INCOMING) == 0


@pytest.mark.parametrize("looped", [False, True])
def test_any_bytes_are_accepted_or_dropped(looped: bool) -> None:
    program = packet_filter([THERE, THERE6], looped=looped)
    draw = random.Random(3)
    for _ in range(5_000):
        frame = bytearray(draw.choice((ipv4(THERE, HERE, 9), ipv6(THERE6, HERE6, 9), draw.randbytes(60))))
        frame[draw.randrange(len(frame))] = draw.randrange(256)
        assert 0 <= bytes_kept(program, bytes(frame[: draw.randrange(len(frame) + 1)]), INCOMING) <= EXTENDED


def test_more_sides_than_the_kernel_takes_are_rejected() -> None:
    sides = [(f"10.{a}.{b}.1", 80) for a, b in itertools.product(range(30), range(30))]
    with raises_code("tap-unavailable", "900 target addresses"):
        packet_filter(sides)


def test_the_address_on_the_wire() -> None:
    assert str(on_wire("::ffff:192.0.2.1")) == "192.0.2.1"
    assert str(on_wire("fe80::1%eth0")) == "fe80::1"
    assert str(on_wire("::1")) == "::1"
