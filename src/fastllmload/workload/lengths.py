"""Length distributions in tokens: `256`, `uniform:a,b`, `normal:mean,std`, `lognormal:mu,sigma,min,max`,
`choice:a,b,c` (equally likely), `list:a,b,c` (in turn, repeated).

Draw conventions: uniform lengths by `randint`; normal ones by the inverse CDF of a u in (0, 1), one draw per length;
log-normal ones rounded half up, then clamped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, pairwise
from statistics import NormalDist
from typing import Protocol

from fastllmload import quantities
from fastllmload.errors import InputError

LONGEST = 16_000_000  # tokens of one prompt or answer; more is taken for a typing error
FORMS = "a number, uniform:a,b, normal:mean,std[,min,max], lognormal:mu,sigma,min,max, choice:a,b,... or list:a,b,..."
VARIANTS = {  # of the long-context workload (IETF 4.3.2.5 and A.5)
    "uniform_range": "uniform:8192,32768",
    "target_lengths": "choice:8192,16384,32768,65536,131072",
}
MOST_TRIES = 10_000  # rejected draws in a row after which no length is considered to fit
_STANDARD = NormalDist()


class RandomStream(Protocol):
    """Random stream: `random.Random` or its compiled equivalent `Mersenne`."""

    def random(self) -> float: ...

    def randint(self, low: int, high: int, /) -> int: ...


class Lengths(Protocol):
    """A distribution of lengths; `draw` returns 1 or more tokens."""

    def draw(self, stream: RandomStream) -> int: ...

    def __str__(self) -> str: ...


def standard_normal(stream: RandomStream) -> float:
    """z = inv_cdf(u), u drawn again while it is 0."""
    u = stream.random()
    while u == 0.0:
        u = stream.random()
    return _STANDARD.inv_cdf(u)


@dataclass(frozen=True)
class Fixed:
    tokens: int

    def draw(self, stream: RandomStream) -> int:
        return self.tokens

    def __str__(self) -> str:
        return str(self.tokens)


@dataclass(frozen=True)
class Uniform:
    low: int
    high: int

    def draw(self, stream: RandomStream) -> int:
        return stream.randint(self.low, self.high)

    def __str__(self) -> str:
        return f"uniform:{self.low},{self.high}"


@dataclass(frozen=True)
class Normal:
    """int(N(mean, std)), not below *low* and not above *high*."""

    mean: float
    std: float
    low: int = 1
    high: int = LONGEST

    def draw(self, stream: RandomStream) -> int:
        return min(self.high, max(self.low, int(self.mean + self.std * standard_normal(stream))))

    def __str__(self) -> str:
        bounds = "" if (self.low, self.high) == (1, LONGEST) else f",{self.low},{self.high}"
        return f"normal:{self.mean:g},{self.std:g}{bounds}"


@dataclass(frozen=True)
class LogNormal:
    mu: float
    sigma: float
    low: int
    high: int

    def draw(self, stream: RandomStream) -> int:
        exponent = self.mu + self.sigma * standard_normal(stream)
        if exponent > 30.0:  # beyond LONGEST, and exp() overflows far above
            return self.high
        return min(self.high, max(self.low, int(math.exp(exponent) + 0.5)))

    def below(self, tokens: float) -> float:
        """Probability of a draw below *tokens*, before it is clamped."""
        return _STANDARD.cdf((math.log(tokens) - self.mu) / self.sigma) if tokens > 0 else 0.0

    def mean_within(self, low: int, high: int) -> float:
        """Mean of the draws that lie from *low* to *high*, both included. ValueError when none can lie there."""
        first, last = max(low, self.low), min(high, self.high)
        edges = [
            0.0 if k == self.low else 1.0 if k > self.high else self.below(k - 0.5) for k in range(first, last + 2)
        ]
        shares = [after - before for before, after in pairwise(edges)]
        total = sum(shares)
        if total <= 0:
            raise ValueError(f"{self} has no lengths from {low} to {high}")
        return sum(k * share for k, share in enumerate(shares, first)) / total

    def __str__(self) -> str:
        return f"lognormal:{self.mu:g},{self.sigma:g},{self.low},{self.high}"


@dataclass(frozen=True)
class Choice:
    values: tuple[int, ...]

    def draw(self, stream: RandomStream) -> int:
        return self.values[stream.randint(0, len(self.values) - 1)]

    def within(self, most: int) -> Choice:
        return Choice(tuple(value for value in self.values if value <= most))

    def __str__(self) -> str:
        return "choice:" + ",".join(map(str, self.values))


class InTurn:
    """*values* in their order, repeated. Stateful: one object serves one sequence."""

    def __init__(self, values: tuple[int, ...]) -> None:
        self.values = values
        self._next = cycle(values)

    def draw(self, stream: RandomStream) -> int:
        return next(self._next)

    def within(self, most: int) -> InTurn:
        return InTurn(tuple(value for value in self.values if value <= most))

    def __str__(self) -> str:
        return "list:" + ",".join(map(str, self.values))


class Limited:
    """*lengths* without those above *most*: such values of a list are left out, such draws are repeated.

    `left_out`: the values; `redrawn`: the number of repeated draws. InputError when no length remains.
    """

    def __init__(self, lengths: Lengths, most: int) -> None:
        self.left_out: tuple[int, ...] = ()
        self.redrawn = 0
        self.most, self._lengths = most, lengths
        if isinstance(lengths, Choice | InTurn):
            fitting = lengths.within(most)
            self.left_out = tuple(value for value in lengths.values if value > most)
            if not fitting.values:
                raise self._no_fit()
            self._lengths = fitting

    def draw(self, stream: RandomStream) -> int:
        for _ in range(MOST_TRIES):
            drawn = self._lengths.draw(stream)
            if drawn <= self.most:
                return drawn
            self.redrawn += 1
        raise self._no_fit()

    def _no_fit(self) -> InputError:
        return InputError(
            "context-exceeded",
            f"no input length of {self._lengths} fits: with the answer, the model accepts at most {self.most} prompt "
            "tokens; use shorter lengths with --isl",
        )

    def __str__(self) -> str:
        return str(self._lengths)


def parse_lengths(spec: str, option: str) -> Lengths:
    """The distribution that *spec* names. InputError names *option* and the value."""
    name, colon, rest = VARIANTS.get(spec.strip(), spec.strip()).partition(":")
    try:
        if not colon:
            return Fixed(_tokens(name))
        values = [part.strip() for part in rest.split(",")]
        return _BY_NAME[name](values)
    except (KeyError, ValueError) as error:
        why = f": {error}" if isinstance(error, ValueError) else ""
        raise InputError("length-invalid", f"{option} {spec!r} is not a length; give {FORMS} in tokens{why}") from None


def _tokens(text: str) -> int:
    """A whole number of tokens. ValueError states the cause."""
    number = _number(text)
    if number != int(number) or not 1 <= number <= LONGEST:
        raise ValueError(f"{text!r} is not a whole number from 1 to {LONGEST}")
    return int(number)


def _number(text: str) -> float:
    number = quantities.number(text)
    if number is None:
        raise ValueError(f"{text!r} is not a number")
    return number


def _spread(text: str) -> float:
    number = _number(text)
    if number < 0:
        raise ValueError(f"the spread {text!r} is negative")
    return number


def _range(low: str, high: str) -> tuple[int, int]:
    bounds = _tokens(low), _tokens(high)
    if bounds[0] > bounds[1]:
        raise ValueError(f"{low} is above {high}")
    return bounds


def _fields(values: list[str], count: int) -> list[str]:
    if len(values) != count:
        raise ValueError(f"expected {count} values, found {len(values)}")
    return values


def _values(values: list[str]) -> tuple[int, ...]:
    return tuple(_tokens(value) for value in values)


def _uniform(values: list[str]) -> Lengths:
    low, high = _fields(values, 2)
    return Uniform(*_range(low, high))


def _normal(values: list[str]) -> Lengths:
    mean, std, *bounds = values if len(values) == 4 else _fields(values, 2)
    if not 1 <= _number(mean) <= LONGEST:
        raise ValueError(f"the mean {mean} is not from 1 to {LONGEST}")
    return Normal(_number(mean), _spread(std), *(_range(*bounds) if bounds else ()))


def _lognormal(values: list[str]) -> Lengths:
    mu, sigma, low, high = _fields(values, 4)
    return LogNormal(_number(mu), _spread(sigma), *_range(low, high))


_BY_NAME: dict[str, Callable[[list[str]], Lengths]] = {
    "uniform": _uniform,
    "normal": _normal,
    "lognormal": _lognormal,
    "choice": lambda values: Choice(_values(values)),
    "list": lambda values: InTurn(_values(values)),
}
