"""Parse the options of user behavior; the message of a ValueError follows the option and its text in a sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from fastllmload import quantities
from fastllmload.errors import InvalidValue

LONGEST_S = 1e6
FORMS = "2s, uniform:1s,5s, exponential:3s or lognormal:MEDIAN,SIGMA"


class TimeStream(Protocol):
    def random(self) -> float: ...

    def uniform(self, a: float, b: float, /) -> float: ...

    def expovariate(self, lambd: float, /) -> float: ...

    def lognormvariate(self, mu: float, sigma: float, /) -> float: ...


@dataclass(frozen=True)
class Pause:
    """A distribution of seconds; *kind* is constant, uniform, exponential or lognormal."""

    kind: str
    a: float
    b: float = 0.0

    def draw(self, stream: TimeStream) -> float:
        """Seconds, at most LONGEST_S."""
        if self.kind == "constant":
            return self.a
        if self.kind == "uniform":
            return stream.uniform(self.a, self.b)
        if self.kind == "exponential":
            return min(LONGEST_S, stream.expovariate(1.0 / self.a))
        return min(LONGEST_S, stream.lognormvariate(math.log(self.a), self.b))

    @property
    def mean(self) -> float:
        if self.kind == "uniform":
            return (self.a + self.b) / 2
        return self.a * math.exp(self.b * self.b / 2) if self.kind == "lognormal" else self.a


def read_pause(text: str) -> Pause:
    kind, colon, rest = text.strip().partition(":")
    parts = rest.split(",")
    if not colon:
        return Pause("constant", seconds(kind, above=0.0, inclusive=True))
    if kind == "uniform" and len(parts) == 2:
        low, high = (seconds(part, above=0.0, inclusive=True) for part in parts)
        if low <= high:
            return Pause(kind, low, high)
    if kind == "exponential" and len(parts) == 1:
        return Pause(kind, seconds(rest, above=0.0))
    sigma = quantities.number(parts[1]) if kind == "lognormal" and len(parts) == 2 else None
    if sigma is not None and sigma >= 0:
        return Pause(kind, seconds(parts[0], above=0.0), sigma)
    raise InvalidValue("time-invalid", f"is not a think time; write {FORMS}")


def seconds(text: str, *, above: float, inclusive: bool = False) -> float:
    value = quantities.duration(text)
    if value is None or not (value > above or (inclusive and value == above)) or value > LONGEST_S:
        raise InvalidValue("time-invalid", f"is not a think time; write {FORMS}")
    return value


def read_turns(text: str) -> str | None:
    """Length specification of the number of turns (`3-8` is `uniform:3,8`); None for `all` turns of a data set."""
    from fastllmload.errors import InputError
    from fastllmload.workload.lengths import parse_lengths

    if text.strip() == "all":
        return None
    low, dash, high = text.strip().partition("-")
    spec = f"uniform:{low},{high}" if dash and low.isdigit() and high.isdigit() else text.strip()
    try:
        parse_lengths(spec, "--turns")
    except InputError:
        raise InvalidValue(
            "count-invalid", "is not a number of turns; write 4, 3-8, normal:6,2 or all (of a data set)"
        ) from None
    return spec


@dataclass(frozen=True)
class Cancellation:
    """The user cancels after *tokens* chunks, or *ns* after submission; the other is 0."""

    tokens: int = 0
    ns: int = 0


def read_cancel_after(text: str) -> Cancellation:
    tokens, ns = quantities.tokens(text), quantities.duration(text, "ns", plain=False)
    if tokens is not None and tokens == int(tokens) >= 1:
        return Cancellation(tokens=int(tokens))
    if ns is not None and 0 < ns <= LONGEST_S * 1e9:
        return Cancellation(ns=max(1, round(ns)))
    raise InvalidValue("time-invalid", "is neither a number of tokens nor a time; write for example 20tok or 2s")


@dataclass(frozen=True)
class SlowReading:
    """*share* of the users read at most *rate* tokens/s, or bytes/s if *in_bytes*."""

    share: float
    rate: float
    in_bytes: bool


def read_slow_readers(text: str) -> SlowReading:
    """`0.05:20tok/s`, `5%:2kB/s`."""
    share_text, _, rate = text.strip().partition(":")
    share, amount = quantities.share(share_text), rate.removesuffix("/s")
    tokens, size = quantities.tokens(amount), quantities.size(amount)
    value = size if tokens is None else tokens
    if share is None or value is None or value <= 0 or not rate.endswith("/s"):
        raise InvalidValue("share-invalid", "is not a share and a rate; write for example 0.05:20tok/s or 5%:2kB/s")
    if not 0 < share <= 1:
        raise InvalidValue(
            "share-invalid", "has a share that is not above 0 and at most 1; write for example 0.05:20tok/s"
        )
    return SlowReading(share, value, size is not None)


@dataclass(frozen=True)
class Abandonment:
    """Every user leaves when the first token, or with *e2e* the end, has not arrived *ns* after submission."""

    ns: int
    e2e: bool


def read_abandon(text: str) -> Abandonment:
    """`ttft:5s`, `e2e:30s`."""
    name, _, limit = text.strip().lower().partition(":")
    after_s = quantities.duration(limit)
    if name not in ("ttft", "e2e", "e2el") or after_s is None or not 0 < after_s <= LONGEST_S:
        raise InvalidValue(
            "time-invalid", "is not a deadline at which users leave; write for example ttft:5s or e2e:30s"
        )
    return Abandonment(max(1, round(after_s * 1e9)), name != "ttft")
