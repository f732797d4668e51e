"""Protobuf messages, written and read by hand: a twin of what is compiled."""

from __future__ import annotations

from typing import Any


def number(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def whole(place: int, value: int) -> bytes:
    """A field with a number; protobuf leaves 0 out."""
    return number(place << 3) + number(value) if value else b""


def sized(place: int, value: bytes) -> bytes:
    return number(place << 3 | 2) + number(len(value)) + value


def ids_of(place: int, ids: list[int]) -> bytes:
    return sized(place, b"".join(map(number, ids)))


def read_number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data: bytes) -> dict[int, list[Any]]:
    """The values of each field of a message."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(data):
        tag, at = read_number(data, at)
        if tag & 7 == 0:
            value: Any
            value, at = read_number(data, at)
        else:
            size, at = (8, at) if tag & 7 == 1 else (4, at) if tag & 7 == 5 else read_number(data, at)
            value, at = data[at : at + size], at + size
        found.setdefault(tag >> 3, []).append(value)
    return found


def numbers(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        value, at = read_number(data, at)
        found.append(value)
    return found
