"""Instants of traces: a date and a time of day."""

from __future__ import annotations

import re

import numpy as np

LATEST_S = 4_000_000_000  # of seconds since 1970: the year 2096; instants are 64 bits of nanoseconds
MOMENT = re.compile(
    r"(?P<day>(?:19[7-9]|20\d)\d-\d\d-\d\d)[ T](?P<time>\d\d:\d\d:\d\d(?:\.\d{1,9})?)"
    r"(?:Z|(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)?)?",
    re.ASCII,
)


def moment(text: str) -> int:
    """A date and time of day, with up to nine digits of a second, in UTC unless it names a zone."""
    found = MOMENT.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        at = int(np.datetime64(f"{found['day']}T{found['time']}", "ns").astype(np.int64))
    except ValueError:
        raise ValueError(f"{text!r} is not a date and time such as 2023-11-16 18:17:03.9799600") from None
    if found["sign"] is None:
        return at
    minutes = int(found["hours"]) * 60 + int(found["minutes"] or 0)
    return at + (minutes if found["sign"] == "-" else -minutes) * 60_000_000_000
