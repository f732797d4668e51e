"""Gaps between arrivals in units of the mean gap: infinite streams with mean 1, drawn from `random.Random`.

A rate only scales them, so levels that share a seed differ in time scale alone. Gaps are never
truncated: cutting exponential gaps at three means would raise the rate by 5 %.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from math import log
from typing import Protocol


class Gaps(Protocol):
    """`draw` gives the gap before each arrival; the first one counts from time zero."""

    @property
    def name(self) -> str: ...

    def draw(self, stream: random.Random) -> Iterator[float]: ...


@dataclass(frozen=True)
class ExponentialGaps:
    """Poisson arrivals: -ln(1 - u), u drawn again while it is 0."""

    name: str = "poisson"

    def draw(self, stream: random.Random) -> Iterator[float]:
        u = stream.random
        while True:
            if x := u():
                yield -log(1.0 - x)


@dataclass(frozen=True)
class ConstantGaps:
    """Equal spacing; the first arrival is at time zero, so that D seconds contain rate x D arrivals."""

    name: str = "constant"

    def draw(self, stream: random.Random) -> Iterator[float]:
        return chain((0.0,), repeat(1.0))


@dataclass(frozen=True)
class UniformGaps:
    """Gaps from U(0, 2): the second reading of "uniform arrivals"."""

    name: str = "uniform"

    def draw(self, stream: random.Random) -> Iterator[float]:
        u = stream.random
        while True:
            yield 2.0 * u()


@dataclass(frozen=True)
class GammaGaps:
    """Gamma gaps with *shape* and mean 1: coefficient of variation 1/sqrt(shape); shape 1 is exponential."""

    shape: float
    name: str = "gamma"

    def draw(self, stream: random.Random) -> Iterator[float]:
        gamma, shape, scale = stream.gammavariate, self.shape, 1.0 / self.shape
        while True:
            yield gamma(shape, scale)
