"""The one table of thresholds: which figure makes a run suspect or invalid, in what words, and why.

`docs/certificate.md` has a row per entry here; a test compares the two. A figure of None is not judged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

VALID, SUSPECT, INVALID, NOTE = "valid", "suspect", "invalid", "note"
SEVERITY = (NOTE, SUSPECT, INVALID)
CAUSES = {  # of the criteria whose cause is not the generator, or the host where it accounts for what was late
    "host_hiccups": "host",
    "host_steal": "host",
    "run_queue": "host",
    "schedule_shape": "plan",
    "batched_delivery": "path",
}


@dataclass(frozen=True)
class Criterion:
    """*figure* above a level (below it when *below*) is a reason of that severity.

    *text* may use {value} and {limit}, both with the unit. *host_may_explain*: the same thing happens when the whole
    host stalls. *limits_generator*: the run then cannot stand for saturation of the system under test (procedures
    0.4.4). *explains*: it says why figures are uncertain, and the verdict speaks of those (`figures`); so its own
    severity is one less.
    """

    code: str
    figure: str
    unit: str
    text: str
    why: str
    note: float | None = None
    suspect: float | None = None
    invalid: float | None = None
    below: bool = False
    host_may_explain: bool = False
    limits_generator: bool = False
    explains: bool = False

    def severity(self, value: float) -> tuple[str, float] | None:
        """The worst level that *value* passes and its limit; None when it passes none."""
        for name, limit in ((INVALID, self.invalid), (SUSPECT, self.suspect), (NOTE, self.note)):
            if limit is not None and (value < limit if self.below else value > limit):
                return name, limit
        return None


CRITERIA: tuple[Criterion, ...] = (
    Criterion(
        "no_releases",
        "releases",
        "",
        "no request was released inside the measurement window",
        "nothing to judge is nothing proven",
        invalid=1,
        below=True,
    ),
    Criterion(
        "nothing_measured",
        "ok",
        "",
        "no request succeeded: nothing was measured",
        "figures of no answer describe no target",
        invalid=1,
        below=True,
    ),
    Criterion(
        "no_samples",
        "sampled_workers",
        "",
        "a worker left no samples of the window, so its CPU and collections are not known",
        "what is not known is not valid",
        suspect=1,
        below=True,
    ),
    Criterion(
        "schedule_lag",
        "lag_p99_us",
        "us",
        "releases were late: P99 of t_dispatch - t_sched is {value}, allowed is {limit}",
        "procedures 0.4.4; later than 1 ms the generator is measured, not the server",
        suspect=1_000,
        invalid=10_000,
        host_may_explain=True,
        limits_generator=True,
    ),
    Criterion(
        "late_release",
        "lag_max_us",
        "us",
        "a release was {value} late, allowed is {limit}",
        "a stop of 20 ms is caught by any release that falls into its first 5 ms",
        suspect=15_000,
        invalid=1_000_000,
        host_may_explain=True,
        explains=True,
    ),
    Criterion(
        "early_release",
        "early_share",
        "share",
        "{value} of the releases came more than 1 us before their instant",
        "early means a broken clock or timer, never load",
        suspect=0.0,
        invalid=0.01,
    ),
    Criterion(
        "drift",
        "drift_us",
        "us",
        "the lag grew by {value} over the window: the generator was falling behind",
        "a growing lag has no steady state; stalls do not move medians",
        suspect=1_000,
        invalid=100_000,
        host_may_explain=True,
        limits_generator=True,
    ),
    Criterion(
        "rate",
        "rate_error",
        "share",
        "the offered rate is off the planned one by {value}, allowed is {limit}",
        "default command: within 0.5 %",
        suspect=0.005,
        invalid=0.02,
        host_may_explain=True,
        limits_generator=True,
    ),
    Criterion(
        "capped",
        "capped_share",
        "share",
        "--max-concurrency held back {value} of the releases: the loop was not open",
        "a held release is a closed loop's arrival (architecture 4)",
        suspect=0.001,
    ),
    Criterion(
        "schedule_shape",
        "schedule_surprise",
        "decades",
        "the schedule does not look like the asked process: its worst test has p = 10^-{value}",
        "a fair schedule passes 10^-6 once in a million draws for each of four tests",
        suspect=6,
    ),
    Criterion(
        "quantised_sends",
        "quantised",
        "share",
        "sends were quantised: the distribution of their gaps is {value} away from the schedule's",
        "timers of whole milliseconds give 0.1 to 0.4; counted only where lags spread over 0.5 ms",
        suspect=0.08,
        host_may_explain=True,
    ),
    Criterion(
        "clumped_sends",
        "clumped",
        "share",
        "{value} more of the gaps than scheduled are below 20 us: sends came in bursts",
        "millisecond timers give 0.4; counted only where lags spread over 0.5 ms",
        suspect=0.05,
        host_may_explain=True,
    ),
    Criterion(
        "dispersion",
        "dispersion_ratio",
        "x",
        "sends are {value} as bursty as the schedule over 10 ms or more",
        "paired with its own schedule a faithful sender stays within a few percent",
        suspect=1.5,
        host_may_explain=True,
    ),
    Criterion(
        "worker_died",
        "workers_died",
        "workers",
        "{value} ended before the run did",
        "its requests are missing",
        invalid=0,
    ),
    Criterion(
        "gc",
        "gc_runs",
        "runs",
        "the garbage collector ran {value} while the clock ran",
        "a collection stops the reactor for up to 245 ms",
        suspect=0,
    ),
    Criterion(
        "cpu",
        "cpu_share_max",
        "share",
        "a worker used {value} of its core, allowed is {limit}",
        "queueing in the client grows without bound near 1",
        suspect=0.8,
        invalid=0.97,
        limits_generator=True,
        explains=True,
    ),
    Criterion(
        "worker_stall",
        "stall_max_us",
        "us",
        "a worker looked at none of its sockets and not at the clock for {value}, allowed is {limit}",
        "measured between two looks; a worker with nothing to do looks every 5 ms, so a stop of 50 ms shows as 45 or more; "
        "releases that all fall on one instant are a burst, not a stop",
        suspect=30_000,
        invalid=1_000_000,
        host_may_explain=True,
        explains=True,
    ),
    Criterion(
        "user_stamps_late",
        "user_delay_p99_us",
        "us",
        "receive times were taken by the process, which saw them late: P99 {value}, allowed is {limit}",
        "parse lag P99 <= 1 ms (procedures 0.4.4)",
        suspect=1_000,
        invalid=10_000,
        host_may_explain=True,
        limits_generator=True,
        explains=True,
    ),
    Criterion(
        "kernel_stamps_missing",
        "kernel_missing_share",
        "share",
        "kernel stamps were asked for, but {value} of the events have none and no bounds",
        "99.9 % of the events must be exact or bounded",
        note=0.001,
        suspect=0.5,
        explains=True,
    ),
    Criterion(
        "coalesced",
        "coalesced_read_share",
        "share",
        "{value} of the events came in a read of several segments: their times lie between two bounds",
        "the bounds of the figures say what this amounts to",
        note=0.1,
    ),
    Criterion(
        "batched_delivery",
        "batched_share",
        "share",
        "{value} of the tokens arrived together with the one before: the server or a proxy on the path collects them, so "
        "the gaps between tokens are those of its deliveries",
        "tokens that one segment brought, or that came within 1 ms in one read, were sent together; a proxy that collects "
        "them also delays the first one",
        note=0.05,
    ),
    Criterion(
        "clamped",
        "clamped_share",
        "share",
        "{value} of the requests had a first byte stamped before their submission ended",
        "possible on loopback only: the answer starts before send() returns",
        note=0.01,
    ),
    Criterion(
        "clock_step",
        "clock_steps",
        "steps",
        "CLOCK_REALTIME was stepped: {value}",
        "kernel stamps are mapped from it",
        suspect=0,
    ),
    Criterion(
        "host_hiccups",
        "hiccup_p99_us",
        "us",
        "the host itself was late: its hiccup P99 is {value}, allowed is {limit}",
        "a thread that only sleeps met this, so any server on this host met it too",
        suspect=2_000,
        explains=True,
    ),
    Criterion(
        "host_steal",
        "steal_share",
        "share",
        "the hypervisor took {value} of this host's CPU time",
        "time that neither the client nor a server on this host had",
        suspect=0.05,
        explains=True,
    ),
    Criterion(
        "run_queue",
        "run_delay_share_max",
        "share",
        "a worker waited for a CPU during {value} of the window",
        "other processes compete for its core",
        suspect=0.1,
        explains=True,
    ),
    Criterion(
        "no_fd",
        "no_fd",
        "requests",
        "{value} failed for want of file descriptors",
        "procedures 0.4.4",
        invalid=0,
        limits_generator=True,
    ),
    Criterion(
        "no_port",
        "no_port",
        "requests",
        "{value} failed for want of local ports",
        "procedures 0.4.4",
        invalid=0,
        limits_generator=True,
    ),
    Criterion(
        "fd_headroom",
        "fd_headroom",
        "x",
        "open files came within {value} of their limit",
        "the next burst would fail",
        note=1.5,
        suspect=1.1,
        below=True,
    ),
    Criterion(
        "port_headroom",
        "port_headroom",
        "x",
        "connections came within {value} of the local ports there are",
        "the next burst would fail",
        note=1.5,
        suspect=1.1,
        below=True,
    ),
    Criterion(
        "disk_full",
        "disk_full",
        "",
        "the disk was full or too slow: rows are missing",
        "what was not written was not measured",
        invalid=0,
    ),
    Criterion(
        "headroom",
        "headroom",
        "x",
        "the busiest second left a headroom of {value} to what this host was calibrated for",
        "below 2 a claim about capacity is refused; near 1 the generator may be the limit",
        note=2.0,
        suspect=1.1,
        below=True,
        limits_generator=True,
    ),
)


@dataclass(frozen=True)
class Reason:
    """One entry of `certificate.reasons`. *cause* is "generator", "host", "timestamps" (reads that nothing stamped in time),
    "path" (the server, or what is between it and the client) or "plan". *limits_generator*: the generator may have been the
    limit.
    """

    code: str
    severity: str
    figure: str
    value: float
    limit: float
    unit: str
    text: str
    cause: str
    limits_generator: bool


def reasons(
    figures: Mapping[str, float | int | None], of_the_host: Collection[str] = (), throttled: bool = False
) -> list[Reason]:
    """Every criterion that a known figure breaks, worst first. *of_the_host*: codes of what its stalls account for.
    *throttled*: the client's own CPU quota did, also for what else looks like the host.
    """
    found = []
    for criterion in CRITERIA:
        value = figures[criterion.figure]
        passed = None if value is None else criterion.severity(value)
        if value is not None and passed is not None:
            found.append(_reason(criterion, value, *passed, criterion.code in of_the_host, throttled))
    return sorted(found, key=lambda reason: -SEVERITY.index(reason.severity))


def _reason(
    criterion: Criterion, value: float, severity: str, limit: float, of_the_host: bool, throttled: bool
) -> Reason:
    text = criterion.text.format(value=beside(value, limit, criterion.unit), limit=shown(limit, criterion.unit))
    cause = CAUSES.get(criterion.code, "generator")
    if criterion.host_may_explain and of_the_host:
        cause = "host"
        text += "; the host gave the client no processor then"
    elif throttled and cause == "host":
        cause = "generator"
        text += "; the CPU quota of the client's cgroup was used up"
    return Reason(
        criterion.code,
        SEVERITY[max(0, SEVERITY.index(severity) - criterion.explains)],
        criterion.figure,
        float(value),
        limit,
        criterion.unit,
        text,
        cause,
        criterion.limits_generator and severity != NOTE,
    )


def beside(value: float, limit: float, unit: str) -> str:
    """A value beside the *limit* that it breaks, with as many digits as it takes to see that."""
    text = shown(value, unit)
    for digits in range(4, 10):
        if text != shown(limit, unit):
            break
        text = shown(value, unit, digits)
    return text


def shown(value: float, unit: str, digits: int = 3) -> str:
    """A value with its unit, for people."""
    if unit == "us":
        for size, name in ((1e6, "s"), (1e3, "ms")):
            if abs(value) >= size:
                return f"{value / size:.{digits}g} {name}"
        return f"{value:.{digits}g} us"
    if unit == "share":
        return f"{100 * value:.{digits}g} %"
    if unit == "x":
        return f"{value:.{digits}g}x"
    if unit in ("decades", ""):
        return f"{value:.{digits}g}"
    return f"{value:g} {unit[:-1] if value == 1 else unit}"


def verdict(found: list[Reason]) -> str:
    """The worst severity; notes leave a run valid."""
    worst = {reason.severity for reason in found}
    return INVALID if INVALID in worst else SUSPECT if SUSPECT in worst else VALID
