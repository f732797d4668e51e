"""Parses quantities with units: counts, durations, sizes, shares and tokens, for every option and file.

Each function returns the value, or None for a text that is not such a quantity: the caller knows which values it accepts
and words the error. Numbers may have a sign, a fraction and an exponent; a blank may precede the unit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import ROUND_DOWN, Decimal

THOUSANDS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6}
NANOSECONDS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "min": 60e9, "h": 3600e9, "d": 86400e9}
BYTES = {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1024.0, "MiB": 1048576.0, "GiB": 1073741824.0}
PARTS = {"": 1.0, "%": 0.01}
TOKENS = {"tok": 1.0, "token": 1.0, "tokens": 1.0, "ktok": 1e3}
QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?) ?([a-zA-Z%/]*)", re.ASCII)


def quantity(text: str, units: Mapping[str, float]) -> float | None:
    """A finite number times the factor of its unit. A plain number has the unit "", if *units* contains it."""
    found = split(text)
    if found is None or found[1] not in units:
        return None
    factor = units[found[1]]
    value = found[0] * factor if factor >= 1 else found[0] / round(1 / factor)  # 35% is 0.35, not 35 * 0.01
    return value if math.isfinite(value) else None


def split(text: str) -> tuple[float, str] | None:
    match = QUANTITY.fullmatch(text.strip())
    return None if match is None else (float(match[1]), match[2])


def number(text: str) -> float | None:
    """A number, with `k` and `M` for thousands and millions."""
    return quantity(text, THOUSANDS)


def duration(text: str, unit: str = "s", plain: bool = True) -> float | None:
    """`200ms`, `30s`, `5m`, `24h`, `1d` in *unit*, a key of NANOSECONDS. *plain*: a bare number is in *unit* too."""
    factors = {name: ns / NANOSECONDS[unit] for name, ns in NANOSECONDS.items()}
    return quantity(text, factors | ({"": 1.0} if plain else {}))


def nanoseconds(text: str) -> int | None:
    """An instant or a duration, exact: digits beyond the nanosecond are cut. A plain number is in seconds."""
    match = QUANTITY.fullmatch(text.strip())
    if match is None or (match[2] or "s") not in NANOSECONDS or duration(text) is None:
        return None
    return int((Decimal(match[1]) * int(NANOSECONDS[match[2] or "s"])).to_integral_value(ROUND_DOWN))


def size(text: str, plain: bool = False) -> float | None:
    """`2kB`, `1.5MiB` in bytes. *plain*: a bare number is in bytes too; else the unit is required."""
    return quantity(text, BYTES | ({"": 1.0} if plain else {}))


def share(text: str) -> float | None:
    """`0.05` or `5%`."""
    return quantity(text, PARTS)


def tokens(text: str) -> float | None:
    """`20tok`, `10ktok`; the unit is required."""
    return quantity(text, TOKENS)


def token_rate(text: str) -> float | None:
    """`20tok/s`, `1ktok/s` in tokens per second; a plain number is in that unit too."""
    amount = text.strip()
    return tokens(amount.removesuffix("/s")) if amount.endswith("/s") else number(amount)
