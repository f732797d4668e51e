"""Defines the certificate's thresholds: which figure makes a run suspect or invalid, and the message.

`docs/certificate.md` has a row per criterion, with the reason for its limits. A figure of None is not judged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from fastllmload.documents.certificate import Reason

VALID, SUSPECT, INVALID, NOTE = "valid", "suspect", "invalid", "note"
SEVERITY = (NOTE, SUSPECT, INVALID)

SOME_CLASS = "a class that is a closed loop"


@dataclass(frozen=True)
class Criterion:
    """*figure* above a level (below it when *below*) is a reason of that severity.

    *text* may use {value} and {limit}, both with the unit. *host_may_explain*: a stall of the host has the same effect.
    *limits_generator*: the run then does not show saturation of the system under test (spec/procedures 0.4.4). *explains*:
    it is a cause of uncertain figures, which are judged themselves (`figures`), so its own severity is one less. *cause*:
    if no other is given, the generator, or the host where that explains the lateness.
    """

    code: str
    figure: str
    unit: str
    text: str
    note: float | None = None
    suspect: float | None = None
    invalid: float | None = None
    below: bool = False
    host_may_explain: bool = False
    limits_generator: bool = False
    explains: bool = False
    cause: str = "generator"

    def severity(self, value: float) -> tuple[str, float] | None:
        """The worst level whose limit *value* exceeds, and the limit; None when it exceeds none."""
        for name, limit in ((INVALID, self.invalid), (SUSPECT, self.suspect), (NOTE, self.note)):
            if limit is not None and (value < limit if self.below else value > limit):
                return name, limit
        return None


CRITERIA: tuple[Criterion, ...] = (
    Criterion("no_releases", "releases", "",
        "no request was released inside the measurement window",
        invalid=1, below=True),
    Criterion("nothing_measured", "ok", "",
        "no request succeeded: nothing was measured",
        invalid=1, below=True),
    Criterion("no_samples", "sampled_workers", "",
        "a worker has no samples of the window: its CPU time and garbage collections are not known",
        suspect=1, below=True),
    Criterion("schedule_lag", "lag_p99_us", "us",
        "releases were late: P99 of t_dispatch - t_sched is {value}, allowed is {limit}",
        suspect=1_000, invalid=10_000, host_may_explain=True, limits_generator=True),
    Criterion("late_release", "lag_max_us", "us",
        "a release was {value} late, allowed is {limit}",
        suspect=15_000, invalid=1_000_000, host_may_explain=True, explains=True),
    Criterion("early_release", "early_share", "share",
        "{value} of the releases came more than 1 us before their instant",
        suspect=0.0, invalid=0.01),
    Criterion("drift", "drift_us", "us",
        "the lag grew by {value} over the window: the generator was falling behind",
        suspect=1_000, invalid=100_000, host_may_explain=True, limits_generator=True),
    Criterion("rate", "rate_error", "share",
        "the offered rate is off the planned one by {value}, allowed is {limit}",
        suspect=0.005, invalid=0.02, host_may_explain=True, limits_generator=True),
    Criterion("slots_empty", "slots_empty", "share",
        "slots of the changing load stood empty for {value} of the slot time asked for, as the client opened, read or sent "
        "late; allowed is {limit}",
        suspect=0.005, invalid=0.02, host_may_explain=True, limits_generator=True),
    Criterion("class_slots_empty", "class_slots_empty", "share",
        f"slots of {SOME_CLASS} stood empty for {{value}} of their time, as the client read or sent late; allowed is "
        "{limit}",
        suspect=0.005, invalid=0.02, host_may_explain=True, limits_generator=True),
    Criterion("capped", "capped_share", "share",
        "--max-concurrency delayed {value} of the releases: the loop was not open",
        suspect=0.001),
    Criterion("capped_prefill", "capped_prefill_share", "share",
        "--max-prefill delayed {value} of the releases: the loop was not open",
        suspect=0.001),
    Criterion("schedule_shape", "schedule_surprise", "decades",
        "the schedule does not follow the requested process: its worst test has p = 10^-{value}",
        suspect=6, cause="plan"),
    Criterion("quantised_sends", "quantised", "share",
        "sends were quantised: the distribution of their gaps is {value} away from the schedule's",
        suspect=0.08, host_may_explain=True),
    Criterion("clumped_sends", "clumped", "share",
        "{value} more of the gaps than scheduled are below 20 us: sends came in bursts",
        suspect=0.05, host_may_explain=True),
    Criterion("dispersion", "dispersion_ratio", "x",
        "sends are {value} as bursty as the schedule over 10 ms or more",
        suspect=1.5, host_may_explain=True),
    Criterion("worker_died", "workers_died", "workers",
        "{value} ended before the run did",
        invalid=0),
    Criterion("gc", "gc_runs", "runs",
        "garbage collections during the measurement: {value}",
        suspect=0),
    Criterion("cpu", "cpu_share_max", "share",
        "a worker used {value} of its core, allowed is {limit}",
        suspect=0.8, invalid=0.97, limits_generator=True, explains=True),
    Criterion("worker_stall", "stall_max_us", "us",
        "a worker stalled for {value}: it polled neither its sockets nor the clock; allowed is {limit}",
        suspect=30_000, invalid=1_000_000, host_may_explain=True, explains=True),
    Criterion("user_stamps_late", "user_delay_p99_us", "us",
        "receive times were taken by the process, which read late: P99 {value}, allowed is {limit}",
        suspect=1_000, invalid=10_000, host_may_explain=True, limits_generator=True, explains=True),
    Criterion("kernel_stamps_missing", "kernel_missing_share", "share",
        "kernel stamps were requested, but {value} of the events have neither a stamp nor bounds",
        note=0.001, suspect=0.5, explains=True),
    Criterion("coalesced", "coalesced_read_share", "share",
        "{value} of the events came in a read of several segments: their times are only known within bounds",
        note=0.1),
    Criterion("batched_delivery", "batched_share", "share",
        "{value} of the tokens arrived together with the one before: the server or a proxy on the path collects them, so "
        "the gaps between tokens are the gaps between its deliveries",
        note=0.05, cause="path"),
    Criterion("clamped", "clamped_share", "share",
        "{value} of the requests had a first byte stamped before their submission ended",
        note=0.01),
    Criterion("clock_step", "clock_steps", "steps",
        "CLOCK_REALTIME was stepped: {value}",
        suspect=0),
    Criterion("host_hiccups", "hiccup_p99_us", "us",
        "the host itself was late: its hiccup P99 is {value}, allowed is {limit}",
        suspect=2_000, explains=True, cause="host"),
    Criterion("host_steal", "steal_share", "share",
        "the hypervisor took {value} of this host's CPU time",
        suspect=0.05, explains=True, cause="host"),
    Criterion("run_queue", "run_delay_share_max", "share",
        "a worker waited for a CPU during {value} of the window",
        suspect=0.1, explains=True, cause="host"),
    Criterion("no_fd", "no_fd", "requests",
        "{value} failed for lack of file descriptors",
        invalid=0, limits_generator=True),
    Criterion("no_port", "no_port", "requests",
        "{value} failed for lack of local ports",
        invalid=0, limits_generator=True),
    Criterion("no_memory", "no_memory", "requests",
        "{value} were cut off, because unfinished responses held all the memory that a worker has for them",
        invalid=0, limits_generator=True),
    Criterion("fd_headroom", "fd_headroom", "x",
        "the limit on open files is only {value} the number that was open",
        note=1.5, suspect=1.1, below=True),
    Criterion("port_headroom", "port_headroom", "x",
        "the number of local ports is only {value} the number of connections",
        note=1.5, suspect=1.1, below=True),
    Criterion("nic_losses", "nic_lost_share", "share",
        "a network interface of this host dropped or could not read {value} of its packets: they were sent again, so what "
        "they carried came late",
        note=0.0001, suspect=0.01),
    Criterion("nic_load", "nic_peak_share", "share",
        "in the busiest second a network interface of this host carried {value} of what its link can",
        note=0.5, suspect=0.8, limits_generator=True),
    Criterion("disk_full", "disk_full", "",
        "the disk was full or too slow: rows are missing",
        invalid=0),
    Criterion("host_lost", "host_lost", "hosts",
        "the host was lost before the run ended: requests of it are missing",
        invalid=0),
    Criterion("host_alone", "host_alone", "hosts",
        "the host lost its driver before the run ended, and stopped sending: its files were collected later",
        invalid=0),
    Criterion("host_late", "host_late", "hosts",
        "the host was not ready when the run began: its first requests were sent late or not at all",
        suspect=0),
    Criterion("host_excluded", "hosts_excluded", "hosts",
        "{value} left out: no figure has their requests, but the target had their load",
        suspect=0),
    Criterion("clock_unknown", "clock_unknown", "hosts",
        "the clock of the host was not compared with the driver's: its requests are not at their times",
        invalid=0),
    Criterion("clock_bound", "clock_bound_us", "us",
        "the clock of the host is known within {value} only, allowed is {limit}: its sends may have been that late",
        suspect=1_000, invalid=10_000),
    Criterion("clock_in_gaps", "clock_in_gaps", "x",
        "the clocks of the hosts are known within {value} the mean gap between arrivals: the order of arrivals from several "
        "hosts is not known",
        note=1.0),
    Criterion("uneven_ttft", "ttft_distance", "share",
        "the median TTFT is {value} away from that of the middle host: the hosts did not measure the same",
        note=0.1, suspect=0.5, cause="path"),
    Criterion("uneven_tpot", "tpot_distance", "share",
        "the median time between content events is {value} away from that of the middle host: the hosts did not measure the "
        "same",
        note=0.1, suspect=0.5, cause="path"),
    Criterion("uneven_slots", "slots_distance", "share",
        "the slots of the host were in use {value} more or less than those of the middle host: the load was uneven",
        note=0.1, suspect=0.5),
    Criterion("headroom", "headroom", "x",
        "in the busiest second the headroom to this host's calibrated ceiling was {value}",
        note=2.0, suspect=1.1, below=True, limits_generator=True),
)  # fmt: skip


def reasons(
    figures: Mapping[str, float | int | None], host_caused: Collection[str] = (), throttled: bool = False
) -> list[Reason]:
    """Reasons for each criterion whose known figure exceeds a limit, worst first. *host_caused*: codes that the host caused.
    *throttled*: the client's own CPU quota was the cause of those, and of all others attributed to the host.
    """
    found = []
    for criterion in CRITERIA:
        value = figures[criterion.figure]
        passed = None if value is None else criterion.severity(value)
        if value is not None and passed is not None:
            reason = _reason(criterion, value, *passed, criterion.code in host_caused, throttled)
            together = criterion.code == "coalesced" and 2 * (figures["batched_share"] or 0.0) >= value
            # Most of the events that shared a read were delivered together: the client did not read late.
            found.append(replace(reason, cause="path") if together else reason)
    return sorted(found, key=lambda reason: -SEVERITY.index(reason.severity))


def _reason(
    criterion: Criterion, value: float, severity: str, limit: float, host_caused: bool, throttled: bool
) -> Reason:
    text = criterion.text.format(
        value=format_against(value, limit, criterion.unit), limit=format_value(limit, criterion.unit)
    )
    cause = criterion.cause
    if criterion.host_may_explain and host_caused:
        cause = "host"
        text += "; the host gave the client no processor at that time"
    elif throttled and cause == "host":
        cause = "generator"
        text += "; the CPU quota of the client's cgroup was used up"
    return Reason(
        code=criterion.code,
        severity=SEVERITY[max(0, SEVERITY.index(severity) - criterion.explains)],
        figure=criterion.figure,
        value=float(value),
        limit=limit,
        unit=criterion.unit,
        text=text,
        cause=cause,
        limits_generator=criterion.limits_generator and severity != NOTE,
    )


def format_against(value: float, limit: float, unit: str) -> str:
    """Format a value with enough digits to differ from the *limit* that it exceeds."""
    text = format_value(value, unit)
    for digits in range(4, 10):
        if text != format_value(limit, unit):
            break
        text = format_value(value, unit, digits)
    return text


def format_value(value: float, unit: str, digits: int = 3) -> str:
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
