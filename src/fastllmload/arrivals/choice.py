"""Select an arrival process by its command-line name: `poisson`, `constant`, `uniform`, `gamma`, `bursty`, `onoff`."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import chain, repeat

from fastllmload import quantities
from fastllmload.arrivals.curve import RateCurve
from fastllmload.arrivals.process import AllAtOnce, ArrivalProcess, OnOff, Renewal, Varying
from fastllmload.errors import InputError

BURSTY_SHAPE = 0.25  # coefficient of variation 2
NAMES = ("poisson", "constant", "uniform", "gamma", "bursty", "onoff")
LOWEST_RATE, HIGHEST_RATE = 1e-6, 1e7


def choose_varying(arrival: str, curve: RateCurve, written: str, burstiness: float = 1.0) -> ArrivalProcess:
    """The process that `--arrival` and `--burstiness` name, with a rate that follows *curve*; *written*: its text."""
    return Varying(choose_arrivals(arrival, 1.0, burstiness), curve, written)


def choose_arrivals(arrival: str, rate: float, burstiness: float = 1.0) -> ArrivalProcess:
    """The process that `--arrival`, `--rate` and `--burstiness` name.

    Burstiness is the gamma shape, as in vLLM: with `poisson` (the default) any value but 1 means gamma gaps;
    `bursty` is gamma with shape 0.25 unless --burstiness sets another one. `onoff:ON,OFF` gives the periods in seconds
    (default 1,1). InputError for an unknown name, an invalid rate or shape.
    """
    _check_rate(rate)
    if not (math.isfinite(burstiness) and burstiness > 0):
        raise InputError(
            "value-out-of-range",
            f"--burstiness {burstiness:g} is not a gamma shape; give a number above 0 (1 is Poisson)",
        )
    name, _, rest = arrival.partition(":")
    if name not in NAMES or (rest and name != "onoff"):
        raise InputError(
            "choice-unknown", f"--arrival {arrival!r} is not an arrival process; choose one of {', '.join(NAMES)}"
        )
    if math.isinf(rate):
        return AllAtOnce()
    if name == "onoff":
        return OnOff(_renewal("poisson", 1.0), *_periods(arrival, rest))
    return _renewal(name, burstiness)


def _renewal(name: str, burstiness: float) -> Renewal:
    if name == "constant":
        return Renewal(name, constant_gaps)
    if name == "uniform":
        return Renewal(name, uniform_gaps)
    if name == "bursty":
        return _gamma(name, BURSTY_SHAPE if burstiness == 1.0 else burstiness)
    if name == "gamma" or burstiness != 1.0:
        return _gamma("gamma", burstiness)
    return Renewal("poisson", exponential_gaps)


def _gamma(name: str, shape: float) -> Renewal:
    return Renewal(name, lambda stream: gamma_gaps(stream, shape), shape)


# Gaps before each arrival, the first from time zero, in units of the mean gap, without end. A rate only scales them, so
# levels that share a seed differ in time scale alone. They are never truncated: cutting exponential gaps at three means
# would raise the rate by 5 %.


def exponential_gaps(stream: random.Random) -> Iterator[float]:
    """-ln(1 - u), u drawn again while it is 0."""
    u = stream.random
    while True:
        if x := u():
            yield -math.log(1.0 - x)


def constant_gaps(stream: random.Random) -> Iterator[float]:
    """The first arrival is at time zero, so that D seconds contain rate x D arrivals."""
    return chain((0.0,), repeat(1.0))


def uniform_gaps(stream: random.Random) -> Iterator[float]:
    """From U(0, 2): the second reading of "uniform arrivals"."""
    u = stream.random
    while True:
        yield 2.0 * u()


def gamma_gaps(stream: random.Random, shape: float) -> Iterator[float]:
    """Coefficient of variation 1/sqrt(shape); shape 1 is exponential."""
    gamma, scale = stream.gammavariate, 1.0 / shape
    while True:
        yield gamma(shape, scale)


def _check_rate(rate: float) -> None:
    if math.isinf(rate) and rate > 0:
        return
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise InputError(
            "value-out-of-range",
            f"--rate {rate:g} is not a rate; give requests per second from {LOWEST_RATE:g} to {HIGHEST_RATE:g}, or inf",
        )


def _periods(arrival: str, rest: str) -> tuple[float, float]:
    periods = [quantities.duration(part) for part in rest.split(",")] if rest else [1.0, 1.0]
    on, off = periods if len(periods) == 2 else (None, None)
    if on is None or off is None or on <= 0 or off < 0:
        raise InputError(
            "option-value-missing", f"--arrival {arrival!r} needs the on and off periods, for example onoff:2s,8s"
        )
    return on, off
