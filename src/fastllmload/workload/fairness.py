"""Short and long requests of Synthetic-Skewed for the test of scheduling fairness (IETF 5.6).

The class is drawn first; then lengths are drawn as in Synthetic-Skewed until they lie in its rectangle.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from fastllmload.errors import InputError
from fastllmload.workload.lengths import MOST_TRIES, Lengths, LogNormal, RandomStream
from fastllmload.workload.synthetic import draw_index


@dataclass(frozen=True)
class Rectangle:
    """A class of requests: bounds of input and output tokens, both included."""

    name: str
    input: tuple[int, int]
    output: tuple[int, int]

    def holds(self, size: int, answer: int) -> bool:
        return self.input[0] <= size <= self.input[1] and self.output[0] <= answer <= self.output[1]

    def __str__(self) -> str:
        (a, b), (c, d) = self.input, self.output
        return f"{self.name} {a}-{b} in, {c}-{d} out"


SHORT = Rectangle("short", (64, 256), (32, 128))
LONG = Rectangle("long", (1024, 4096), (256, 1024))
MIXES: dict[str, tuple[tuple[Rectangle, float], ...]] = {  # workload: classes and their shares
    "fairness": ((SHORT, 0.8), (LONG, 0.2)),
    "fairness-short": ((SHORT, 1.0),),
    "fairness-long": ((LONG, 1.0),),
}


def mean_tokens(isl: LogNormal, osl: LogNormal, mix: Sequence[tuple[Rectangle, float]]) -> float:
    """Expected input and output tokens of a request of *mix*, as `Classes` draws them: exact, not sampled."""
    return sum(share * (isl.mean_within(*each.input) + osl.mean_within(*each.output)) for each, share in mix)


class Classes:
    """Requests of *mix*, whose lengths come from *isl* and *osl* by rejection; classes are numbered in its order."""

    def __init__(self, isl: Lengths, osl: Lengths, mix: Sequence[tuple[Rectangle, float]], seed: int | str) -> None:
        self._isl, self._osl = isl, osl
        self._rectangles = [rectangle for rectangle, _ in mix]
        self._cumulative = [*list(accumulate(share for _, share in mix))[:-1], 1.0]
        self._choice = random.Random(f"{seed}/class")

    def draw(self, stream: RandomStream) -> tuple[int, int, int]:
        kind = draw_index(self._cumulative, self._choice.random())
        rectangle = self._rectangles[kind]
        for _ in range(MOST_TRIES):
            size, answer = self._isl.draw(stream), self._osl.draw(stream)
            if rectangle.holds(size, answer):
                return size, answer, kind
        raise InputError(
            "length-invalid",
            f"no lengths of --isl {self._isl} and --osl {self._osl} lie in the class {rectangle}; leave both out",
        )
