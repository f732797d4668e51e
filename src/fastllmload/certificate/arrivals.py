"""Tests arrivals: offered against planned rate, the schedule against the configured process, sends against the schedule.

Distribution tests judge the *schedule*. In the *sends* they can only find quantisation and clumping, because a Poisson
process with independent jitter is still a Poisson process: only the lag, t_dispatch - t_sched, shows lateness of any kind.
In a closed loop t_sched is the instant at which the slot became free, and the lag is the turn-around time (spec/procedures
0.5).
"""

from __future__ import annotations

import numpy as np

from fastllmload.arrays import Floats
from fastllmload.certificate import distribution_fit
from fastllmload.certificate.evidence import LATE_NS, ArrivalEvidence, MeasuredWindow, Sends, Times
from fastllmload.documents.certificate import ArrivalTests, ClosedClassSlots, GapTests, Percentiles, ScheduleLag

SHORT_GAP_NS = 20_000
DISPERSION_WINDOWS_NS = (1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
FEWEST = 100  # gaps or windows that a test needs
EDGE = 2  # requests that may fall on the other side of one of the window's two edges


def rates(sends: Sends, window: MeasuredWindow) -> dict[str, float | None]:
    """Requests per second; `rate_error` is a share. Each release counts at its own instant. What needs a plan is None
    without one.
    """
    offered = int(window.contains(sends.all_dispatch).sum())
    seconds = window.seconds
    if seconds <= 0 or (window.counted and offered < 2):  # a single request has no rate
        return {"planned_rate": None, "offered_rate": None, "offered": None, "rate_error": None}
    planned = len(sends.t_sched) + sends.not_sent
    known = sends.arrivals.open_loop and planned > 0
    off = max(0, abs(offered - planned) - EDGE)
    return {
        "planned_rate": planned / seconds if known else None,
        "offered_rate": offered / seconds,
        "offered": offered,
        "rate_error": off / planned if known else None,
    }


def arrival_tests(sends: Sends) -> ArrivalTests:
    """Figures of `schedule` and `sends`, and their distance; none outside an open loop, below 100 gaps, or of some hosts.

    Only releases whose instants were drawn form an arrival process; turns that follow replies are left out.
    """
    scheduled = sends.starts()
    if not sends.arrivals.open_loop or sends.partial or int(scheduled.sum()) <= FEWEST:
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


def uniform_gaps(instants: Times, arrivals: ArrivalEvidence) -> Floats | None:
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
    u: Floats = low + (high - low) * np.random.default_rng(0).random(len(gaps))
    return u


def distribution(unit: Floats, arrivals: ArrivalEvidence) -> Floats:
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


def constant_error_us(gaps: Floats, arrivals: ArrivalEvidence) -> float | None:
    if arrivals.process != "constant" or arrivals.rate is None:
        return None
    return float(np.abs(gaps - 1e9 / arrivals.rate).max()) / 1e3


def autocorrelation(gaps: Floats) -> tuple[float | None, float | None]:
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
            # Standard normal of a chi-square divided by its degrees of freedom (Wilson and Hilferty)
            spread = 2 / (9 * (len(counts) - 1))
            found.append(abs(float((np.cbrt(counts.var() / counts.mean()) - (1 - spread)) / np.sqrt(spread))))
    return max(found, default=None)


def dispersion_ratio(dispatch: Times, t_sched: Times) -> float | None:
    """The largest ratio of the sends' dispersion to the schedule's, over windows of 10 ms and more."""
    found = []
    for width in DISPERSION_WINDOWS_NS[1:]:
        planned, actual = dispersion(t_sched, width), dispersion(dispatch, width)
        if planned is not None and actual is not None and planned > 0.01:
            found.append(actual / planned)
    return max(found, default=None)


EARLY_NS = 1_000  # earlier than this counts as early
SECTIONS = 50


def schedule_lag(sends: Sends, window: MeasuredWindow) -> ScheduleLag:
    """Of all releases; the drift is a Theil-Sen slope over the medians of sections. Early is only what the clock's error
    does not explain.
    """
    lag = sends.t_dispatch - sends.t_sched
    if not len(lag):
        return ScheduleLag(n=0)
    p50, p99, p999 = np.percentile(lag, [50, 99, 99.9])
    slope = drift(sends.t_sched, lag)
    return ScheduleLag(
        n=len(lag),
        min=float(lag.min()) / 1e3,
        p50=float(p50) / 1e3,
        p99=float(p99) / 1e3,
        p999=float(p999) / 1e3,
        max=float(lag.max()) / 1e3,
        early_share=float(np.mean(lag < -EARLY_NS - sends.clock_ns)),
        drift_us_per_s=slope,
        drift_us=None if slope is None else slope * window.seconds,
    )


def drift(t_sched: Times, lag: Times) -> float | None:
    """Slope of the lag in us per second: the median of all slopes between the medians of up to 50 sections in time.

    Medians, so that a stall is not taken for a drift. None below 100 releases, or where all are due at one instant.
    """
    if len(lag) < 100 or t_sched[-1] == t_sched[0]:
        return None
    at, height = section_medians(t_sched) / 1e9, section_medians(lag) / 1e3
    i, j = np.triu_indices(len(at), 1)
    distinct = at[j] > at[i]
    if not distinct.any():
        return None
    return float(np.median((height[j] - height[i])[distinct] / (at[j] - at[i])[distinct]))


def section_medians(values: Times) -> Floats:
    """Median of each of SECTIONS parts, of which the first may have one value more (`np.array_split`)."""
    size, larger = divmod(len(values), SECTIONS)
    border = larger * (size + 1)
    parts = values[:border].reshape(larger, size + 1), values[border:].reshape(SECTIONS - larger, size)
    return np.concatenate([np.median(part, axis=1) for part in parts if len(part)])


def late_intervals(sends: Sends) -> Times:
    """Rows (t_sched, t_dispatch) of releases more than 1 ms late, of a mix also those of its closed loops."""
    spans = np.column_stack([sends.t_sched, sends.t_dispatch])
    if sends.arrivals.open_loop:  # else they are among these
        spans = np.concatenate([spans, *(np.column_stack([one.t_sched, one.t_dispatch]) for one in sends.closed)])
    found: Times = spans[spans[:, 1] - spans[:, 0] > LATE_NS]
    return found


def of_delays(delays_ns: Times) -> Percentiles:
    if not len(delays_ns):
        return Percentiles()
    p50, p99, p999, most = (float(each) / 1e3 for each in np.percentile(delays_ns, [50, 99, 99.9, 100]))
    return Percentiles(p50=p50, p99=p99, p999=p999, max=most)


def closed_classes(sends: Sends) -> dict[str, ClosedClassSlots]:
    """`closed_classes` of the certificate: by name, how a closed loop of a mix held its slots."""
    return {
        one.name: ClosedClassSlots(
            slots=one.slots,
            asked_mean=one.asked_mean,
            n=len(one.t_sched),
            turn_around_us=of_delays(one.t_dispatch - one.t_sched),
            first_fill_us=float(one.first_fill.max() - one.first_fill.min()) / 1e3 if len(one.first_fill) else None,
            empty_share=one.empty,
        )
        for one in sends.closed
    }


def first_fill_us(sends: Sends) -> float | None:
    """Time from the first to the last dispatch of releases due at one instant: the C requests that fill a closed loop
    (IETF 5.5.3), or all at rate inf. None where the load has no such burst.
    """
    burst = sends.t_dispatch if sends.arrivals.process == "inf" else sends.first_fill
    return float(burst.max() - burst.min()) / 1e3 if len(burst) else None
