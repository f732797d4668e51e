"""Formats numbers for people: about four digits, and `n/a` for what is not known."""

from __future__ import annotations

import math

from fastllmload.documents.fields import WITHHELD, Number, known
from fastllmload.documents.metric import Metric

NOT_KNOWN = "n/a"
SAMPLES_NEEDED = {"p99": 1_000, "p999": 10_000}  # IETF 5.1.2.1
MILLISECONDS = {"s": 1e3, "us": 1e-3, "ns": 1e-6}  # by unit


def some(counted: Number) -> bool:
    """Whether a count is above 0; a withheld count is, as 0 is not withheld."""
    return counted is WITHHELD or bool(known(counted))


def unknown(value: Number) -> str:
    """The text in place of a number that is not known."""
    return WITHHELD.value if value is WITHHELD else NOT_KNOWN


def quantity(value: Number) -> str:
    """About four digits: 0.0312, 3.217, 48.32, 812.4, 12,345."""
    found = known(value)
    if found is None:
        return unknown(value)
    if math.isinf(found):
        return "inf" if found > 0 else "-inf"
    if found == 0:
        return "0"
    digits = next((digits for limit, digits in ((1, 4), (10, 3), (100, 2), (1000, 1)) if abs(found) < limit), 0)
    return f"{found:,.{digits}f}"


def count(value: Number) -> str:
    found = known(value)
    return unknown(value) if found is None else f"{found:,.0f}"


def two_decimals(value: Number, unit: str = "") -> str:
    """`12.30 ms`."""
    found = known(value)
    return unknown(value) if found is None else f"{found:.2f} {unit}".rstrip()


def milliseconds(metric: Metric, statistic: str) -> float | None:
    """A statistic of a duration, whatever its unit."""
    found = known(metric.statistic(statistic))
    return None if found is None else found * MILLISECONDS.get(metric.unit, 1.0)


def has_too_few_samples(metric: Metric, statistic: str, needed: int) -> bool:
    """Whether *statistic* of a distribution has fewer than *needed* samples; also where their number is withheld."""
    samples = known(metric.n)
    if samples is None:
        return metric.n is WITHHELD and statistic in metric.insufficient
    return samples < needed


def duration(ms: float, zeros: bool = False) -> str:
    """In a suitable unit: 0, 250 ns, 31 µs, 48.5 ms, 3.16 s; three significant digits, with *zeros* also trailing zeros."""
    size = abs(ms)
    if size == 0:
        return "0"
    for limit, factor, unit in ((1e-3, 1e6, "ns"), (1.0, 1e3, "µs"), (1e3, 1.0, "ms")):
        if size < limit * 0.9995:
            return f"{short(ms * factor, zeros)} {unit}"
    return f"{short(ms / 1e3, zeros)} s"


def short(value: float, zeros: bool = False) -> str:
    """Three significant digits without an exponent; with *zeros* 18.0 in place of 18."""
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:#.3g}" if zeros else f"{value:.3g}"


def percent(share: Number) -> str:
    found = known(share)
    return NOT_KNOWN if found is None else f"{100 * found:.1f} %"


def clock(seconds: Number) -> str:
    """0:07, 5:00, 1:02:03."""
    found = known(seconds)
    if found is None or math.isinf(found):
        return NOT_KNOWN
    total = max(0, int(found))
    hours, minutes = divmod(total // 60, 60)
    return f"{hours}:{minutes:02}:{total % 60:02}" if hours else f"{minutes}:{total % 60:02}"


def asked_rate(rate: float | str | None) -> str:
    """`500/s`, with all of its digits; "inf" and infinity send all at once."""
    found = math.inf if rate == "inf" else known(rate)
    if found is None:
        return NOT_KNOWN
    return "all at once" if found == math.inf else f"{found:,.10g}/s"


def redaction_notice(withheld: str | None) -> str | None:
    """One line on what redaction took away (`withheld` of a document), and why; None where nothing is missing."""
    return None if withheld is None else f"withheld (IETF 7.1): {withheld}"
