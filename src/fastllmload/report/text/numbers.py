"""Numbers as text for people: enough digits to compare, never more, and `n/a` for what is not known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

NOT_KNOWN = "n/a"
WITHHELD = "withheld"  # in a document whose figures are not public (report.withheld)


def part(document: object, *keys: str) -> Any:
    """What stands at *keys*, None where a step is missing."""
    for key in keys:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document


def number(value: object) -> float | None:
    """*value* when it is a number that can be shown; bool, text, None and NaN are not."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        return None
    return float(value)


def some(counted: object) -> bool:
    """Whether there was anything of what was counted; a count that is withheld was measured, and is not 0."""
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


def rests_on_too_few(found: object, statistic: str, needed: int) -> bool:
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
    whole = max(0, int(known))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


# Error classes whose status says more to people: what ended the request, not where that was noticed
SAID = {"deadline": "timeout", "drain": "cancelled at the end", "event": "stream_error"}


def errors(classes: object, most: int = 4) -> str:
    """`timeout 3, reset 1`, the most frequent first; empty when there were none."""
    if not isinstance(classes, dict):
        return ""
    counted = [(name, number(times)) for name, times in classes.items()]
    there = sorted(((name, times) for name, times in counted if times), key=lambda entry: (-entry[1], entry[0]))
    shown = [f"{SAID.get(name, name)} {times:,.0f}" for name, times in there[:most]]
    return ", ".join(shown + ([f"and {len(there) - most} more classes"] if len(there) > most else []))


def asked_rate(rate: object) -> str:
    """`500/s`; an asked rate is shown as it was asked."""
    known = number(rate)
    if known is None:
        return NOT_KNOWN
    return "all at once" if known == math.inf else f"{known:,.10g}/s"
