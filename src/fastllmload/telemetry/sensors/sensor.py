"""What every source of telemetry is to the sampler: something that is asked once a tick and answers with readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

GAUGE, COUNTER = "gauge", "counter"


class Key(NamedTuple):
    """One series of one source. *name* is ours, *source* what the source itself calls it; *labels* as `a="x"` or empty."""

    name: str
    source: str
    unit: str
    kind: str = GAUGE
    labels: str = ""


class Reading(NamedTuple):
    """A value of a series. *t_ns* (CLOCK_MONOTONIC): when it was taken, None: between the begin and end of the read. With
    *until_ns* it was taken between the two. *restarted*: a part of it began again, which the value itself does not show.
    """

    key: Key
    value: float
    t_ns: int | None = None
    until_ns: int | None = None
    restarted: bool = False


class SensorError(Exception):
    """A read that failed; one sentence in our own words. Counted, never fatal. *readings*: what it gave nevertheless."""

    def __init__(self, sentence: str, readings: Sequence[Reading] = ()) -> None:
        super().__init__(sentence)
        self.readings = tuple(readings)


@dataclass(frozen=True)
class Absent:
    """A sensor that cannot be had here, and why, in one sentence. Its series are null."""

    origin: str
    why: str


class Sensor(Protocol):
    """A source. *origin* names it in telemetry.json: `nvml`, `rapl`, a URL without credentials."""

    origin: str

    def read(self) -> list[Reading]:
        """What it says now; what it does not say is left out. SensorError when this read gave nothing at all."""

    def close(self) -> None:
        """Give back what it holds; called once, also after errors."""
