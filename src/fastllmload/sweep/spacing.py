"""Rates between what a target completes of one request at a time and of all at once: `--vary rate=spaced:N`.

The first of N runs has one slot, the second as many as requests may be under way; N - 2 rates follow. They end at the rate
that the second run completed, as those of GuideLLM's profile sweep do.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastllmload.errors import InputError

PREFIX = "spaced:"
FEWEST, MOST = 3, 1_000  # runs
MOST_AT_ONCE = 512  # requests under way of the second run without --max-concurrency
ONE_AT_A_TIME, ALL_AT_ONCE = "one at a time", "all at once"
OF_OPEN_LOOPS = ("arrival", "burstiness", "max_concurrency")  # options that closed loops do not have
DIGITS = 6  # of a rate, so that the rate shown is the rate sent


def names_of(text: str) -> list[str]:
    """What the runs of `spaced:N` are called before the rates are known. InputError for an N that is not in range."""
    count = text.removeprefix(PREFIX).strip()
    if not count.isdecimal() or len(count) > len(str(MOST)) or not FEWEST <= int(count) <= MOST:
        raise InputError(
            "value-invalid",
            f"--vary rate={text}: the number of runs must be {FEWEST} to {MOST:,} and stand alone; write rate=spaced:10",
        )
    rates = int(count) - 2
    return [ONE_AT_A_TIME, ALL_AT_ONCE, *(f"{number} of {rates} spaced rates" for number in range(1, rates + 1))]


@dataclass(frozen=True)
class Spaced:
    """The *place* of a combination among those of `spaced:N` on the option *axis*: 0 one at a time, 1 all at once, then the
    rates in ascending order.
    """

    axis: str
    place: int

    @property
    def has_rate(self) -> bool:
        return self.place > 1


def rates_between(lowest: float, highest: float, steps: int) -> list[float]:
    """*lowest* and, in equal *steps* from there to *highest*, the rates, in requests/s."""
    return [float(f"{lowest + (highest - lowest) * step / steps:.{DIGITS}g}") for step in range(steps + 1)]
