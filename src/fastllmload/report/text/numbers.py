"""Formats numbers for people: about four digits, and `n/a` for what is not known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

NOT_KNOWN = "n/a"
WITHHELD = "withheld"  # in a redacted document (report.redaction)


def part(document: object, *keys: str) -> Any:
    """The value at the path *keys*, None where a key is missing."""
    for key in keys:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document


def number(value: object) -> float | None:
    """*value* as a float; None for bool, text, None and NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        return None
    return float(value)


def some(counted: object) -> bool:
    """Whether a count is above 0; a withheld count is, as 0 is not withheld."""
    return counted == WITHHELD or bool(number(counted))


def quantity(value: object) -> str:
    """About four digits: 0.0312, 3.217, 48.32, 812.4, 12,345."""
    known = number(value)
    if known is None:
        return WITHHELD if value == WITHHELD else NOT_KNOWN
    if math.isinf(known):
        return "inf" if known > 0 else "-inf"
    if known == 0:
        return "0"
    digits = next((digits for limit, digits in ((1, 4), (10, 3), (100, 2), (1000, 1)) if abs(known) < limit), 0)
    return f"{known:,.{digits}f}"


def count(value: object) -> str:
    known = number(value)
    if known is None:
        return WITHHELD if value == WITHHELD else NOT_KNOWN
    return f"{known:,.0f}"


def has_too_few_samples(found: object, statistic: str, needed: int) -> bool:
    """Whether *statistic* of a distribution has fewer than *needed* samples; also where their number is withheld."""
    if not isinstance(found, Mapping):
        return False
    samples = number(found.get("n"))
    if samples is None:
        return found.get("n") == WITHHELD and statistic in (found.get("insufficient") or ())
    return samples < needed


def percent(share: object) -> str:
    known = number(share)
    return NOT_KNOWN if known is None else f"{100 * known:.1f} %"


def clock(seconds: object) -> str:
    """0:07, 5:00, 1:02:03."""
    known = number(seconds)
    if known is None or math.isinf(known):
        return NOT_KNOWN
    total = max(0, int(known))
    hours, minutes = divmod(total // 60, 60)
    return f"{hours}:{minutes:02}:{total % 60:02}" if hours else f"{minutes}:{total % 60:02}"


# Clearer names of error classes: what ended the request, rather than where that was detected
CLEARER_NAMES = {"deadline": "timeout", "drain": "cancelled at the end", "event": "stream_error"}


def errors(classes: object, most: int = 4) -> str:
    """`timeout 3, reset 1`, the most frequent first; empty without errors."""
    if not isinstance(classes, dict):
        return ""
    counted = [(name, number(times)) for name, times in classes.items()]
    ranked = sorted(((name, times) for name, times in counted if times), key=lambda entry: (-entry[1], entry[0]))
    texts = [f"{CLEARER_NAMES.get(name, name)} {times:,.0f}" for name, times in ranked[:most]]
    return ", ".join(texts + ([f"and {len(ranked) - most} more classes"] if len(ranked) > most else []))


def asked_rate(rate: object) -> str:
    """`500/s`, with all of its digits."""
    known = number(rate)
    if known is None:
        return NOT_KNOWN
    return "all at once" if known == math.inf else f"{known:,.10g}/s"
