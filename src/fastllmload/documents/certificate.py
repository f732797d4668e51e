"""The certificate of the generator in run.json: what the client did, and whether its figures can be trusted."""

from __future__ import annotations

from typing import Annotated, ClassVar

from fastllmload.documents.fields import (
    Bytes,
    Count,
    Document,
    Events,
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

    n: Samples = None
    min: Us = None
    p50: Us = None
    p99: Us = None
    p999: Us = None
    max: Us = None
    early_share: Ratio = None
    drift_us_per_s: Us = None
    drift_us: Us = None

    def optional(self) -> tuple[str, ...]:
        """Without a request there is only their number."""
        return () if self.n else self.__struct_fields__


class StatisticBounds(Document, frozen=True, kw_only=True):
    """A statistic with the bounds of its error, ms."""

    value: Plain = None
    low: Plain = None
    high: Plain = None
    error_share: Ratio = None


class FigureVerdict(Document, frozen=True, kw_only=True):
    """The verdict of one figure."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("p50", "p99")

    verdict: str | None = None  # valid, suspect, invalid
    p50: StatisticBounds | None = None
    p99: StatisticBounds | None = None


class Second(Document, frozen=True, kw_only=True):
    """One second of the window; None where nothing was sent, received or sampled in it."""

    at_s: Annotated[Number, field("s")] = None  # from the start of the window
    lag_p99_us: Us = None
    bracket_p99_us: Us = None
    coalesced_share: Ratio = None
    cpu_share: Ratio = None  # of the busiest worker


class SecondsJudged(Document, frozen=True, kw_only=True):
    """The seconds of the window, one by one."""

    n: Plain = None
    bad: Plain = None
    worst: tuple[Second, ...] = ()  # ten at most


class Reason(Document, frozen=True, kw_only=True):
    """Why a run is not valid. docs/certificate.md lists the codes."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("hosts",)

    code: str = ""
    severity: str = ""  # suspect, invalid, note
    figure: str | None = None
    value: Plain = None
    limit: Plain = None
    unit: str | None = None
    text: str | None = None  # redacted by unit: what is in requests or events reveals the load
    # generator; host; timestamps: reads without exact stamps; path: the server, or what is between it and the client; plan
    cause: str | None = None  # generator, host, timestamps, path, plan
    limits_generator: bool | None = None  # the generator may have been the limit
    hosts: tuple[int, ...] = ()  # of a run over many: those that it is about, the worst first


class GapTests(Document, frozen=True, kw_only=True):
    """Tests of the gaps between arrivals against the arrival process; of a mixed workload those of its *classes* only."""

    gaps: Samples = None
    short_gap_share: Ratio = None
    ks_d: Plain = None
    ks_p: Plain = None
    ad_a2: Plain = None
    ad_p: Plain = None
    gap_error_us: Us = None
    autocorrelation: Plain = None
    autocorrelation_z: Plain = None
    dispersion: dict[str, Plain] = {}  # by width of the interval, s
    dispersion_z: Plain = None
    classes: dict[str, GapTests] = {}

    def optional(self) -> tuple[str, ...]:
        """Either the tests or the classes."""
        return tuple(name for name in self.__struct_fields__ if (name == "classes") is (self.gaps is not None))


class ArrivalTests(Document, frozen=True, kw_only=True):
    """Of the planned and of the actual arrivals; empty with fewer than 100 gaps."""

    tested: Samples = None
    follow_replies: Samples = None  # requests whose instant follows a reply
    schedule: GapTests | None = None
    sends: GapTests | None = None
    gap_distance: Plain = None
    clumped: Ratio = None
    dispersion_ratio: Plain = None

    def optional(self) -> tuple[str, ...]:
        """All or none."""
        return self.__struct_fields__ if self.tested is None else ()


class WorkerUsage(Document, frozen=True, kw_only=True):
    """What one worker used during the measure phase."""

    worker: int | None = None
    died: bool | None = None
    cpu_s: Seconds = None
    cpu_share: Ratio = None
    spin_share: Ratio = None
    run_delay_share: Ratio = None
    involuntary_switches: Annotated[Number, field("", Reveals.LOAD)] = None
    rss_bytes: Bytes = None
    rss_growth_bytes: Bytes = None
    gc_runs: Annotated[Number, field("", Reveals.LOAD)] = None
    page_faults: Annotated[Number, field("", Reveals.LOAD)] = None  # from the first 100 ms of the phase on
    batch_max_us: Us = None
    stall_max_us: Us = None
    socket_to_user_us: Percentiles = Percentiles()
    clock_steps: Annotated[Number, field("", Reveals.LOAD)] = None
    connections_max: Annotated[Number, field("connections", Reveals.LOAD)] = None
    fd_limit: Plain = None


class HostDelays(Document, frozen=True, kw_only=True):
    """How late the host woke a waiting thread, and what else took its processors."""

    hiccup_p50_us: Us = None
    hiccup_p99_us: Us = None
    hiccup_p999_us: Us = None
    hiccup_max_us: Us = None
    stalls: Plain = None
    stall_max_us: Us = None
    steal_share: Ratio = None
    late_intervals: Plain = None
    late_explained: Plain = None
    competitors: Names = ()  # processes outside of the run that used most CPU meanwhile


class PortUsage(Document, frozen=True, kw_only=True):
    """Connections and local ports."""

    connections_max: Annotated[Number, field("connections", Reveals.LOAD)] = None
    fd_headroom: Annotated[Number, field("", Reveals.LOAD)] = None
    ports: Plain = None
    port_headroom: Annotated[Number, field("", Reveals.LOAD)] = None
    no_fd: Count = None
    no_port: Count = None
    no_memory: Count = None  # for unfinished responses


class NetworkUse(Document, frozen=True, kw_only=True):
    """The network interfaces of the client that carried the load: the worst of them."""

    lost_share: Ratio = None  # packets that it dropped or could not read, of at least 10,000
    peak_share: Ratio = None  # of the speed of its link, in the busiest second and direction; null: no speed is known


class Certificate(Document, frozen=True, kw_only=True):
    """The verdict on the generator, with what it rests on. docs/certificate.md explains each."""

    verdict: str | None = None  # valid, suspect, invalid
    reasons: tuple[Reason, ...] = ()
    generator_limited: bool | None = None
    figures: dict[str, FigureVerdict] = {}  # by metric
    seconds: SecondsJudged = SecondsJudged()
    schedule_lag_us: ScheduleLag | None = None
    first_fill_us: Us = None
    plan_lead_s: Seconds = None
    planned_rate: Rate = None
    offered_rate: Rate = None
    rate_error: Ratio = None
    arrival_tests: ArrivalTests = ArrivalTests()
    workers: tuple[WorkerUsage, ...] = ()
    socket_to_user_us: Percentiles = Percentiles()
    timestamp_source: str | None = None
    events: Events = None
    kernel_share: Ratio = None
    bounded_share: Ratio = None
    coalesced_read_share: Ratio = None
    batched_share: Ratio = None
    clamped: Events = None
    clamped_share: Ratio = None
    host: HostDelays = HostDelays()
    ports: PortUsage = PortUsage()
    network: NetworkUse = NetworkUse()
    headroom: Plain = None  # this host's ceiling over the load
    peak_events_per_s: Annotated[Number, field("events/s", Reveals.LOAD)] = None
    peak_requests_per_s: Rate = None
    latency_error_bar_us: dict[str, ErrorBar] = {}  # by metric
