"""The certificate of the generator in run.json: what the client did, and whether its figures can be trusted."""

from __future__ import annotations

from typing import Annotated, ClassVar

from fastllmload.documents.fields import (
    Bytes,
    Count,
    Document,
    Events,
    Figure,
    Ms,
    Names,
    Number,
    Plain,
    Rate,
    Ratio,
    Reveals,
    Samples,
    Seconds,
    Us,
    field,
)


class Percentiles(Document, frozen=True, kw_only=True):
    """Of a delay or an error, us."""

    p50: Us = None
    p99: Us = None
    p999: Us = None
    max: Us = None


class ErrorBar(Document, frozen=True, kw_only=True):
    """Of the error that the stamps of a latency allow, us."""

    p50: Us = None
    p99: Us = None
    max: Us = None


class ScheduleLag(Document, frozen=True, kw_only=True):
    """How late requests were sent, us; of the requests of the window."""

    n: Samples = None  # requests
    min: Us = None
    p50: Us = None
    p99: Us = None
    p999: Us = None
    max: Us = None
    early_share: Ratio = None  # sent more than 1 us early
    drift_us_per_s: Annotated[Number, field("us/s")] = None  # how the lag grows: Theil-Sen slope over 50 sections
    drift_us: Us = None  # the same over the window

    def optional(self) -> tuple[str, ...]:
        """Without a request there is only their number."""
        return () if self.n else self.__struct_fields__


class ClosedClassSlots(Document, frozen=True, kw_only=True):
    """How the client held the slots of a class of a mix that is a closed loop, in the window."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("asked_mean",)

    slots: Annotated[Number, field("slots", Reveals.LOAD)] = (
        None  # asked for at every instant, the most where they change
    )
    asked_mean: Annotated[Number, field("slots", Reveals.LOAD)] = None  # on average; None: they do not change
    n: Samples = None  # requests that a free slot sent
    turn_around_us: Percentiles = Percentiles()  # from the instant at which a slot was free to its next request
    first_fill_us: Us = None  # first to last dispatch of the requests that fill the slots at time zero
    empty_share: Ratio = None  # of the slot time, that slots stood empty as the client sent or read over 1 ms late


class StatisticBounds(Document, frozen=True, kw_only=True):
    """A statistic with the bounds of its error, ms."""

    value: Ms = None  # as reported
    low: Ms = None
    high: Ms = None
    error_share: Ratio = None  # the largest possible error, of *value*


class FigureVerdict(Document, frozen=True, kw_only=True):
    """The verdict of one figure."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("p50", "p99")

    verdict: str | None = None  # valid, suspect, invalid
    p50: StatisticBounds | None = None  # of its median
    p99: StatisticBounds | None = None  # of its P99


class Second(Document, frozen=True, kw_only=True):
    """One second of the window; None where nothing was sent, received or sampled in it."""

    at_s: Annotated[Number, field("s")] = None  # from the start of the window
    lag_p99_us: Us = None  # P99 of the lag of requests due in it
    bracket_p99_us: Us = None  # P99 of the brackets of its events
    coalesced_share: Ratio = None  # events that were read with a later segment
    cpu_share: Ratio = None  # of the busiest worker


class SecondsJudged(Document, frozen=True, kw_only=True):
    """The seconds of the window, one by one."""

    n: Annotated[Number, field("seconds")] = None  # full seconds of the window
    bad: Annotated[Number, field("seconds")] = None  # lag or bracket P99 above 1 ms, or a worker above 80 % of a core
    worst: tuple[Second, ...] = ()  # ten at most


class Reason(Document, frozen=True, kw_only=True):
    """Why a run is not valid. docs/certificate.md lists the codes."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("hosts",)

    code: str = ""  # of docs/codes.md
    severity: str = ""  # suspect, invalid, note
    figure: str | None = None  # that it is about
    value: Figure = None  # measured
    limit: Figure = None  # that the value exceeds, or falls below
    unit: str | None = None
    text: str | None = None  # the reason in a sentence; redacted by unit
    # generator; host; timestamps: reads without exact stamps; path: the server, or what is between it and the client; plan
    cause: str | None = None  # generator, host, timestamps, path, plan
    limits_generator: bool | None = None  # the generator may have been the limit
    hosts: tuple[int, ...] = ()  # of a run over many: those that it is about, the worst first


class GapTests(Document, frozen=True, kw_only=True):
    """Tests of the gaps between arrivals against the arrival process; of a mixed workload those of its *classes* only."""

    gaps: Samples = None  # tested gaps
    short_gap_share: Ratio = None  # gaps below 20 us
    ks_d: Plain = None  # Kolmogorov-Smirnov distance from the process; None: constant or recorded gaps
    ks_p: Plain = None  # its p
    ad_a2: Plain = None  # Anderson-Darling statistic
    ad_p: Plain = None  # its p
    gap_error_us: Us = None  # largest error of a constant gap; None: gaps are not constant
    autocorrelation: Plain = None  # of neighbouring gaps
    autocorrelation_z: Plain = None  # its z
    dispersion: dict[str, Plain] = {}  # variance over mean of counts, by width of the interval in s
    dispersion_z: Plain = None  # largest z of it against Poisson; None: another process
    classes: dict[str, GapTests] = {}  # by class, each against its own process

    def optional(self) -> tuple[str, ...]:
        """Either the tests or the classes."""
        return tuple(name for name in self.__struct_fields__ if (name == "classes") is (self.gaps is not None))


class ArrivalTests(Document, frozen=True, kw_only=True):
    """Of the planned and of the actual arrivals; empty with fewer than 100 gaps."""

    tested: Samples = None  # requests whose instants were drawn
    follow_replies: Samples = None  # that follow a reply, or a session that began before the run
    schedule: GapTests | None = None  # of the planned instants
    sends: GapTests | None = None  # of the actual instants
    gap_distance: Plain = None  # largest distance of the gaps' distributions, sent and planned
    clumped: Ratio = None  # gaps below 20 us as sent, less those planned
    dispersion_ratio: Plain = None  # dispersion as sent over planned, worst of 10 ms, 100 ms, 1 s

    def optional(self) -> tuple[str, ...]:
        """All or none."""
        return self.__struct_fields__ if self.tested is None else ()


class WorkerUsage(Document, frozen=True, kw_only=True):
    """What one worker used during the measure phase."""

    worker: int | None = None
    died: bool | None = None
    cpu_s: Seconds = None  # CPU time
    cpu_share: Ratio = None  # of a core
    spin_share: Ratio = None  # of the time, that pacing spun
    run_delay_share: Ratio = None  # of the time, that it waited for a processor
    involuntary_switches: Annotated[Number, field("", Reveals.LOAD)] = None  # when the kernel took its processor away
    rss_bytes: Bytes = None  # resident memory at the end
    rss_growth_bytes: Bytes = None  # of resident memory
    gc_runs: Annotated[Number, field("", Reveals.LOAD)] = None  # Python's garbage collections
    page_faults: Annotated[Number, field("", Reveals.LOAD)] = None  # from the first 100 ms of the phase on
    batch_max_us: Us = None  # longest batch of sends or reads, if it was in the window
    stall_max_us: Us = None  # longest time without a poll of sockets and clock
    socket_to_user_us: Percentiles = Percentiles()  # how long received data waited for the process
    clock_steps: Annotated[Number, field("", Reveals.LOAD)] = None  # jumps of the wall clock
    connections_max: Annotated[Number, field("connections", Reveals.LOAD)] = None  # most at once
    fd_limit: Annotated[Number, field("files")] = None  # open files that it may have


class HostDelays(Document, frozen=True, kw_only=True):
    """How late the host woke a waiting thread, and what else took its processors."""

    hiccup_p50_us: Us = None  # median lateness of a thread that only sleeps
    hiccup_p99_us: Us = None  # P99 of it
    hiccup_p999_us: Us = None  # P99.9 of it
    hiccup_max_us: Us = None  # largest of it
    stalls: Annotated[Number, field("stalls")] = None  # hiccups above 5 ms in the window
    stall_max_us: Us = None  # longest of these
    steal_share: Ratio = None  # CPU time that the hypervisor gave to others
    late_intervals: Annotated[Number, field("intervals")] = None  # sends and reads that were more than 1 ms late
    late_explained: Annotated[Number, field("intervals")] = None  # those that a stall of the host explains
    competitors: Names = ()  # processes outside of the run that used most CPU meanwhile


class PortUsage(Document, frozen=True, kw_only=True):
    """Connections and local ports."""

    connections_max: Annotated[Number, field("connections", Reveals.LOAD)] = None  # most at once, of all workers
    fd_headroom: Annotated[Number, field("", Reveals.LOAD)] = None  # open-file limit over connections, of the worst one
    ports: Annotated[Number, field("ports")] = None  # local ports for the run's connections
    port_headroom: Annotated[Number, field("", Reveals.LOAD)] = None  # these over connections
    no_fd: Count = None  # failed for want of a file descriptor
    no_port: Count = None  # failed for want of a local port
    no_memory: Count = None  # failed for want of memory for unfinished responses


class NetworkUse(Document, frozen=True, kw_only=True):
    """The network interfaces of the client that carried the load: the worst of them."""

    lost_share: Ratio = None  # packets that it dropped or could not read, of at least 10,000
    peak_share: Ratio = None  # of the speed of its link, in the busiest second and direction; null: no speed is known


class Certificate(Document, frozen=True, kw_only=True):
    """The verdict on the generator, with what it rests on. docs/certificate.md explains each."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("closed_classes",)

    verdict: str | None = None  # valid, suspect, invalid
    reasons: tuple[Reason, ...] = ()
    generator_limited: bool | None = None
    figures: dict[str, FigureVerdict] = {}  # how certain each headline figure is, by metric
    seconds: SecondsJudged = SecondsJudged()
    schedule_lag_us: ScheduleLag | None = None  # of a mix, the requests of its open loops
    closed_classes: dict[str, ClosedClassSlots] = {}  # by name, the closed loops of a mix
    first_fill_us: Us = None  # first to last dispatch of requests due at once: first fill, `--rate inf`
    plan_lead_s: Seconds = None  # from the complete plan to the first request
    planned_rate: Rate = None  # in the window; None: not planned, as in a closed loop
    offered_rate: Rate = None  # dispatched in the window; of a mix, by its open loops
    offered: Samples = None  # requests that this rate counts
    rate_error: Ratio = None  # of the planned rate
    arrival_tests: ArrivalTests = ArrivalTests()
    workers: tuple[WorkerUsage, ...] = ()
    socket_to_user_us: Percentiles = Percentiles()  # how long received data waited for the process
    timestamp_source: str | None = None  # of most events: tap, kernel, user, mixed, none
    events: Events = None  # in the window, with text
    kernel_share: Ratio = None  # with a stamp of the kernel, of those not coalesced
    bounded_share: Ratio = None  # of events, with an exact stamp or a bracket
    coalesced_read_share: Ratio = None  # of events, read with a later segment
    batched_share: Ratio = None  # of events, sent with the one before
    clamped: Count = None  # stamped before their request was sent, moved up to it
    clamped_share: Ratio = None  # of requests
    host: HostDelays = HostDelays()
    ports: PortUsage = PortUsage()
    network: NetworkUse = NetworkUse()
    headroom: Plain = None  # this host's ceiling over the load; None: not calibrated
    peak_events_per_s: Annotated[Number, field("events/s", Reveals.LOAD)] = None  # in a second, of the busiest worker
    peak_requests_per_s: Rate = None  # in the same second
    latency_error_bar_us: dict[str, ErrorBar] = {}  # error that the stamps allow, by metric
