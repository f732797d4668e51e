"""Select an arrival process by its command-line name: `poisson`, `constant`, `uniform`, `gamma`, `bursty`, `onoff`."""

from __future__ import annotations

import math

from fastllmload import quantities
from fastllmload.arrivals.curve import RateCurve
from fastllmload.arrivals.gaps import ConstantGaps, ExponentialGaps, GammaGaps, UniformGaps
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
        return OnOff(Renewal(ExponentialGaps()), *_periods(arrival, rest))
    return Renewal(_gaps(name, burstiness))


def _gaps(name: str, burstiness: float) -> ExponentialGaps | ConstantGaps | UniformGaps | GammaGaps:
    if name == "constant":
        return ConstantGaps()
    if name == "uniform":
        return UniformGaps()
    if name == "bursty":
        return GammaGaps(BURSTY_SHAPE if burstiness == 1.0 else burstiness, name="bursty")
    if name == "gamma" or burstiness != 1.0:
        return GammaGaps(burstiness)
    return ExponentialGaps()


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
