"""Tests arrivals: offered against planned rate, the schedule against the configured process, sends against the schedule.

Distribution tests judge the *schedule*. In the *sends* they can only find quantisation and clumping, because a Poisson
process with independent jitter is still a Poisson process. `lag` judges lateness.
"""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from fastllmload.certificate import distribution_fit
from fastllmload.certificate.evidence import ArrivalEvidence, Sends, Times, Window
from fastllmload.documents.certificate import ArrivalTests, GapTests

SHORT_GAP_NS = 20_000
DISPERSION_WINDOWS_NS = (1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
FEWEST = 100  # gaps or windows that a test needs
EDGE = 2  # requests that may fall on the other side of one of the window's two edges


class Rates(TypedDict):
    """Requests per second; *rate_error* is a share. What needs a plan is None without one."""

    planned_rate: float | None
    offered_rate: float | None
    rate_error: float | None


def rates(sends: Sends, window: Window) -> Rates:
    """Each release counts at its own instant."""
    offered = int(window.contains(sends.all_dispatch).sum())
    seconds = window.seconds
    if seconds <= 0 or (window.counted and offered < 2):  # a single request has no rate
        return {"planned_rate": None, "offered_rate": None, "rate_error": None}
    planned = len(sends.t_sched) + sends.not_sent
    known = sends.arrivals.open_loop and planned > 0
    off = max(0, abs(offered - planned) - EDGE)
    return {
        "planned_rate": planned / seconds if known else None,
        "offered_rate": offered / seconds,
        "rate_error": off / planned if known else None,
    }


def arrival_tests(sends: Sends) -> ArrivalTests:
    """Figures of `schedule` and `sends`, and their distance; none outside an open loop or below 100 gaps.

    Only releases whose instants were drawn form an arrival process; turns that follow replies are left out.
    """
    scheduled = sends.starts()
    if not sends.arrivals.open_loop or int(scheduled.sum()) <= FEWEST:
        return ArrivalTests()
    arrivals, released = sends.arrivals, np.sort(sends.t_dispatch[scheduled])
    t_sched, dispatch = at_constant_rate(sends.t_sched[scheduled], arrivals), at_constant_rate(released, arrivals)
    planned_gaps, actual_gaps = np.diff(t_sched), np.diff(dispatch)
    short = float(np.mean(actual_gaps < SHORT_GAP_NS)), float(np.mean(planned_gaps < SHORT_GAP_NS))
    return ArrivalTests(
        tested=len(t_sched),
        follow_replies=int((~scheduled).sum()),
        schedule=describe_classes(sends) if sends.classes else describe(t_sched, arrivals),
        sends=describe(dispatch, arrivals),
        gap_distance=distribution_fit.two_sample_distance(
            planned_gaps.astype(np.float64), actual_gaps.astype(np.float64)
        ),
        clumped=short[0] - short[1],
        dispersion_ratio=dispersion_ratio(dispatch, t_sched),
    )


def describe_classes(sends: Sends) -> GapTests:
    """`classes`: figures of each class against its own process; classes with too few arrivals are left out."""
    assert sends.request_class is not None
    found = {}
    for name, number, arrivals in sends.classes:
        selected = sends.t_sched[sends.starts() & (sends.request_class == number)]
        if arrivals.open_loop and len(selected) > FEWEST:
            found[name] = describe(at_constant_rate(selected, arrivals), arrivals)
    return GapTests(classes=found)


def at_constant_rate(instants: Times, arrivals: ArrivalEvidence) -> Times:
    """Instants rescaled as if the rate were constant: ns of expected arrivals at the mean rate."""
    if arrivals.curve is None or arrivals.rate is None:
        return instants
    expected = arrivals.curve.expected((instants - arrivals.zero_ns) / 1e9)
    return arrivals.zero_ns + np.rint(expected / arrivals.rate * 1e9).astype(np.int64)


def describe(instants: Times, arrivals: ArrivalEvidence) -> GapTests:
    """The autocorrelation is that of neighbours. KS and AD are None for constant gaps, which have gap_error_us instead, and
    for recorded gaps: neither has a continuous distribution.
    """
    gaps = np.diff(instants).astype(np.float64)
    u = uniform_gaps(instants, arrivals)
    ks_d, ks_p = (None, None) if u is None else distribution_fit.kolmogorov_smirnov(u)
    ad_a2, ad_p = (None, None) if u is None else distribution_fit.anderson_darling(u)
    r, z = autocorrelation(gaps)
    return GapTests(
        gaps=len(gaps),
        short_gap_share=float(np.mean(gaps < SHORT_GAP_NS)),
        ks_d=ks_d,
        ks_p=ks_p,
        ad_a2=ad_a2,
        ad_p=ad_p,
        gap_error_us=constant_error_us(gaps, arrivals),
        autocorrelation=r,
        autocorrelation_z=z,
        dispersion={f"{width / 1e9:g}": dispersion(instants, width) for width in DISPERSION_WINDOWS_NS},
        dispersion_z=poisson_dispersion_z(instants) if arrivals.process == "poisson" else None,
    )


def uniform_gaps(instants: Times, arrivals: ArrivalEvidence) -> distribution_fit.Sample | None:
    """The process's distribution function at each gap: uniform on [0, 1] if the instants follow the process.

    Instants are integer nanoseconds, and a bursty process has gaps of 0, so each gap is moved to a random point (fixed
    seed) within its nanosecond.
    """
    rate = arrivals.rate
    if rate is None or arrivals.process in ("constant", "trace", "classes"):
        return None
    if arrivals.process == "onoff":
        assert arrivals.on_s is not None and arrivals.off_s is not None
        instants = busy_time(instants - arrivals.zero_ns, arrivals.on_s, arrivals.off_s)
        rate *= (arrivals.on_s + arrivals.off_s) / arrivals.on_s
    gaps = np.diff(instants).astype(np.float64)
    low = distribution(np.maximum(gaps - 0.5, 0.0) * (rate / 1e9), arrivals)
    high = distribution((gaps + 0.5) * (rate / 1e9), arrivals)
    u: distribution_fit.Sample = low + (high - low) * np.random.default_rng(0).random(len(gaps))
    return u


def distribution(unit: distribution_fit.Sample, arrivals: ArrivalEvidence) -> distribution_fit.Sample:
    """P(gap <= unit) of the configured process, in units of its mean gap."""
    if arrivals.process == "uniform":
        return np.minimum(unit / 2, 1.0)
    if arrivals.shape is not None:
        return distribution_fit.gamma_cdf(unit * arrivals.shape, arrivals.shape)
    return -np.expm1(-unit)


def busy_time(since_zero: Times, on_s: float, off_s: float) -> Times:
    """Instants with the off periods removed; an instant in an off period counts as the end of the on period."""
    period, on = round((on_s + off_s) * 1e9), round(on_s * 1e9)
    busy: Times = since_zero // period * on + np.minimum(since_zero % period, on)
    return busy


def constant_error_us(gaps: distribution_fit.Sample, arrivals: ArrivalEvidence) -> float | None:
    """Largest distance of a gap from 1/rate, for constant arrivals."""
    if arrivals.process != "constant" or arrivals.rate is None:
        return None
    return float(np.abs(gaps - 1e9 / arrivals.rate).max()) / 1e3


def autocorrelation(gaps: distribution_fit.Sample) -> tuple[float | None, float | None]:
    """(r, z) of neighbouring gaps; z = r sqrt(n) is standard normal if gaps are independent. None without variance."""
    centred = gaps - gaps.mean()
    power = float(centred @ centred)
    if power <= 1.0 * len(gaps):  # the gaps differ only by rounding to a nanosecond
        return None, None
    r = float(centred[:-1] @ centred[1:]) / power
    return r, r * float(np.sqrt(len(gaps)))


def dispersion(instants: Times, width_ns: int) -> float | None:
    """Variance over mean of the counts in windows of *width_ns*: 1 for Poisson, 0 for constant; None below 100 windows."""
    counts = window_counts(instants, width_ns)
    return float(counts.var() / counts.mean()) if len(counts) >= FEWEST else None


def window_counts(instants: Times, width_ns: int) -> Times:
    windows = int((instants[-1] - instants[0]) // width_ns)
    if windows < FEWEST:
        return np.empty(0, np.int64)
    index = (instants - instants[0]) // width_ns
    return np.bincount(index[index < windows], minlength=windows)


def poisson_dispersion_z(instants: Times) -> float | None:
    """The largest |z| over the window widths with 5 arrivals or more on average: (n - 1) D is then close to chi-square."""
    found = []
    for width in DISPERSION_WINDOWS_NS:
        counts = window_counts(instants, width)
        if len(counts) >= FEWEST and counts.mean() >= 5:
            found.append(abs(cube_root_z(float(counts.var() / counts.mean()), len(counts) - 1)))
    return max(found) if found else None


def cube_root_z(reduced: float, degrees: int) -> float:
    """Standard normal of a chi-square divided by its degrees of freedom (Wilson and Hilferty)."""
    spread = 2 / (9 * degrees)
    return float((np.cbrt(reduced) - (1 - spread)) / np.sqrt(spread))


def dispersion_ratio(dispatch: Times, t_sched: Times) -> float | None:
    """The largest ratio of the sends' dispersion to the schedule's, over windows of 10 ms and more."""
    found = []
    for width in DISPERSION_WINDOWS_NS[1:]:
        planned, actual = dispersion(t_sched, width), dispersion(dispatch, width)
        if planned is not None and actual is not None and planned > 0.01:
            found.append(actual / planned)
    return max(found) if found else None
