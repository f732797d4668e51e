"""A captured frame says exactly what its headers say; a frame that was cut or lies is named, whatever its bytes are."""

from __future__ import annotations

import ipaddress
import random
import struct

import pytest

from fastllmload._ext.tap.segment import Peers, read_frame, segment_dtype

SYN, FIN, RST = 2, 4, 8
HERE, THERE = ("192.0.2.9", 40_000), ("198.51.100.7", 8_000)
HERE6, THERE6 = ("2001:db8::9", 40_000), ("2001:db8::7", 8_000)


def tcp(source: int, target: int, seq: int = 1, flags: int = 0x10, options: bytes = b"") -> bytes:
    return struct.pack(">HHIIBBHHH", source, target, seq, 0, (5 + len(options) // 4) << 4, flags, 0, 0, 0) + options


def ipv4(
    source: tuple[str, int],
    target: tuple[str, int],
    payload: int = 0,
    *,
    options: bytes = b"",
    fragment: int = 0,
    protocol: int = 6,
    total: int | None = None,
    **more: object,
) -> bytes:
    """Headers of a packet with *payload* bytes, which are not there: the ring keeps headers only."""
    inner = tcp(source[1], target[1], **more)  # type: ignore[arg-type]
    length = 20 + len(options) + len(inner) + payload if total is None else total
    head = struct.pack(">BBHHHBBH", 0x45 + len(options) // 4, 0, length, 0, fragment, 64, protocol, 0)
    return head + ipaddress.ip_address(source[0]).packed + ipaddress.ip_address(target[0]).packed + options + inner


def ipv6(
    source: tuple[str, int],
    target: tuple[str, int],
    payload: int = 0,
    *,
    extensions: tuple[tuple[int, bytes], ...] = (),
    length: int | None = None,
    **more: object,
) -> bytes:
    """*extensions*: (header number, its bytes without the first, which names what follows)."""
    inner = tcp(source[1], target[1], **more)  # type: ignore[arg-type]
    numbers = [number for number, _ in extensions] + [6]
    chain = b"".join(bytes([after]) + rest for (_, rest), after in zip(extensions, numbers[1:], strict=True))
    rest = len(chain) + len(inner) + payload if length is None else length
    head = struct.pack(">IHBB", 6 << 28, rest, numbers[0], 64)
    return head + ipaddress.ip_address(source[0]).packed + ipaddress.ip_address(target[0]).packed + chain + inner


def test_a_segment_is_read_over_ipv4() -> None:
    frame = ipv4(THERE, HERE, 100, seq=0xFFFFFFF0)
    assert read_frame(frame, len(frame) + 100) == {
        "source": THERE,
        "target": HERE,
        "seq": 0xFFFFFFF0,
        "length": 100,
        "flags": 0,
    }


def test_options_of_both_headers_are_not_payload() -> None:
    frame = ipv4(THERE, HERE, 7, options=b"\x01" * 40, flags=0x11) + b""
    assert read_frame(frame, len(frame) + 7)["length"] == 7
    stamped = ipv4(THERE, HERE, 7, flags=0x12)[:20] + tcp(8_000, 40_000, options=b"\x01" * 12, flags=0x12)
    stamped = stamped[:2] + struct.pack(">H", len(stamped) + 7) + stamped[4:]
    found = read_frame(stamped, len(stamped) + 7)
    assert (found["length"], found["flags"]) == (7, SYN)


def test_padding_of_a_short_ethernet_frame_is_not_payload() -> None:
    frame = ipv4(THERE, HERE, 0)
    assert read_frame(frame + bytes(6), len(frame) + 6)["length"] == 0


def test_a_segment_of_more_than_64_kib_has_the_length_of_its_frame() -> None:
    frame = ipv4(THERE, HERE, total=0)
    assert read_frame(frame, 180_000)["length"] == 180_000 - 40
    six = ipv6(THERE6, HERE6, length=0)
    assert read_frame(six, 180_000)["length"] == 180_000 - 60


@pytest.mark.parametrize(("flags", "stated"), [(0x02, SYN), (0x11, FIN), (0x14, RST), (0x18, 0)])
def test_flags_of_a_connection_are_read(flags: int, stated: int) -> None:
    frame = ipv6(THERE6, HERE6, 3, flags=flags)
    found = read_frame(frame, len(frame) + 3)
    assert (found["flags"], found["source"], found["target"], found["length"]) == (stated, THERE6, HERE6, 3)


def test_ipv6_extension_headers_are_passed() -> None:
    hop = (0, b"\x00" + bytes(6))
    destination = (60, b"\x01" + bytes(14))
    authentication = (51, b"\x04" + bytes(22))
    first_fragment = (44, b"\x00" + struct.pack(">HI", 1, 7))
    frame = ipv6(THERE6, HERE6, 9, extensions=(hop, destination, authentication, first_fragment))
    assert read_frame(frame, len(frame) + 9)["length"] == 9
    later = (44, b"\x00" + struct.pack(">HI", 8, 7))
    frame = ipv6(THERE6, HERE6, 9, extensions=(later,))
    assert read_frame(frame, len(frame) + 9) == "other"


def test_a_packet_without_tcp_header_is_not_a_segment() -> None:
    for frame in (ipv4(THERE, HERE, 5, protocol=17), ipv4(THERE, HERE, 5, fragment=185)):
        assert read_frame(frame, len(frame) + 5) == "other"
    assert read_frame(b"\x00\x01\x08\x00", 60) == "other"


def test_every_cut_is_named() -> None:
    six = ipv6(THERE6, HERE6, 10, extensions=((0, b"\x00" + bytes(6)),))
    for frame, needed in ((ipv4(THERE, HERE, 10), 36), (six, len(six) - 4)):
        for size in range(len(frame)):
            stated = read_frame(frame[:size], len(frame) + 10)
            assert stated == "cut" if size < needed else isinstance(stated, dict), size


def test_lengths_that_contradict_each_other_are_named() -> None:
    short_head = b"\x44" + ipv4(THERE, HERE, 5)[1:]
    longer_than_the_frame = ipv4(THERE, HERE, total=1_500)
    head_past_the_end = ipv4(THERE, HERE, total=30)
    for frame in (short_head, longer_than_the_frame, head_past_the_end, ipv6(THERE6, HERE6, length=1_500)):
        assert read_frame(frame, 60 if frame is not short_head else 45) == "bad"
    endless = ipv6(THERE6, HERE6, 0, extensions=((0, b"\x00" + bytes(6)),) * 17)
    assert read_frame(endless, len(endless)) == "bad"
    too_long = ipv6(THERE6, HERE6, 0, extensions=((0, b"\xff" + bytes(6)),))
    assert read_frame(too_long, len(too_long)) == "bad"


def test_any_bytes_give_a_segment_or_a_name() -> None:
    """50,000 frames: noise, and good ones with some bytes changed, cut anywhere."""
    draw = random.Random(17)
    good = [
        ipv4(THERE, HERE, 50),
        ipv6(THERE6, HERE6, 50, extensions=((0, b"\x00" + bytes(6)), (60, b"\x01" + bytes(14)))),
    ]
    seen = set()
    for turn in range(50_000):
        frame = bytearray(draw.randbytes(draw.randrange(100)) if turn % 3 == 0 else draw.choice(good))
        if turn % 3 and frame:
            for _ in range(draw.randrange(4)):
                frame[draw.randrange(len(frame))] = draw.randrange(256)
        frame = frame[: draw.randrange(len(frame) + 1)] if turn % 2 else frame
        stated = read_frame(bytes(frame), draw.choice((len(frame), len(frame) + 50, 0, 0xFFFFFFFF)))
        seen.add(stated if isinstance(stated, str) else "segment")
        if isinstance(stated, dict):
            assert stated["length"] <= 0xFFFFFFFF - 40
    assert seen == {"segment", "other", "cut", "bad"}


def test_addresses_have_numbers_in_the_order_in_which_they_come() -> None:
    peers = Peers()
    sides = [(f"10.0.{n // 200}.{n % 200}", 8_000 + n % 3) for n in range(2_000)] + [
        ("::1", 8_000),
        ("2001:db8::1", 8_000),
    ]
    assert [peers.watch(*side) for side in sides] == list(range(len(sides)))
    assert [peers.watch(*side) for side in sides] == list(range(len(sides))), "and keep them"
    with pytest.raises(ValueError, match="port"):
        peers.watch("::1", 70_000)
    with pytest.raises(ValueError):
        peers.watch("localhost", 80)


def test_a_record_has_24_bytes() -> None:
    assert segment_dtype().itemsize == 24
