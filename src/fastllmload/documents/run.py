"""run.json as a type: what was asked, what happened, what was measured, the verdict. docs/run-folder.md is made of it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from fastllmload.documents.certificate import Certificate
from fastllmload.documents.cluster import Cluster
from fastllmload.documents.fields import (
    Bytes,
    Count,
    Document,
    Ms,
    Name,
    Names,
    Ns,
    Number,
    Rate,
    Reveals,
    Seconds,
    TokenRate,
    Tokens,
    field,
    known,
)
from fastllmload.documents.metric import NO_METRIC, Metric
from fastllmload.documents.plan import PlanSummary
from fastllmload.documents.run_parts.backends import BackendFigures, BackendNames
from fastllmload.documents.run_parts.classes import ClassResult, Fairness, ModelResult, SlotsFollowed
from fastllmload.documents.run_parts.compliance import Compliance
from fastllmload.documents.run_parts.control import ControlFacts, SessionEnds
from fastllmload.documents.run_parts.counts import Counts, ErrorCount, ErrorTextEntries, TargetCounts
from fastllmload.documents.run_parts.hosts import HostEntry, Tap, WatchFacts, WorkerEntry
from fastllmload.documents.run_parts.objectives import Objectives
from fastllmload.documents.run_parts.sessions import Conversations, SessionFigures, Users
from fastllmload.documents.run_parts.steadiness import Steadiness
from fastllmload.documents.run_parts.target import EngineFacts, ServerPage, TargetFacts
from fastllmload.documents.run_parts.telemetry import ServerFigure, TelemetryFacts
from fastllmload.settings import RunSettings


class Tool(Document, frozen=True, kw_only=True):
    """The program that wrote the document."""

    name: str | None = None  # fastllmload
    version: str | None = None  # of the program


class Environment(Document, frozen=True, kw_only=True):
    """The client's host and software."""

    time_utc: str | None = None  # UTC when the run was started
    clock_offset_ns: Ns = None  # CLOCK_REALTIME - CLOCK_MONOTONIC
    host: Name = None  # name of this host
    kernel: str | None = None  # release of the kernel
    machine: str | None = None  # architecture, such as x86_64
    cpu: str | None = None  # model of the processor
    cores: Annotated[Number, field("cores")] = None  # usable: affinity, or the cgroup's quota if less
    cpus: tuple[int, ...] = ()  # numbers of the CPUs of its affinity
    memory_bytes: Bytes = None  # of this host
    tcp_congestion_control: str | None = None  # algorithm of the kernel
    python: str | None = None  # version
    libraries: dict[str, str] = {}  # versions of libraries, by name
    engine: EngineFacts | None = None


class Phase(Document, frozen=True, kw_only=True):
    """A phase that began. Times are CLOCK_MONOTONIC."""

    OPTIONAL: ClassVar[tuple[str, ...]] = (
        "drained_ns", "released", "ok", "drain_timed_out", "cascading_failure", "rounds_of_plan",
    )  # fmt: skip

    number: int  # position in the run, from 0
    name: str  # warmup, measure
    start_ns: Annotated[int, field("ns")]  # time zero
    end_ns: Annotated[int | None, field("ns")]  # sending stopped; None: not yet
    bound: str  # what ended or will end it: duration, count
    ramp_share: Annotated[float, field("share")]  # of the phase, left out of the window
    mode: str | None = None  # open, closed
    start_utc: str | None = None  # time zero in UTC
    drained_ns: Ns = None  # nothing was in flight any more
    released: Count = None  # that were sent
    ok: Count = None  # that succeeded
    drain_timed_out: bool | None = None  # requests were cancelled by the drain time-out
    cascading_failure: bool | None = None  # sending was stopped by `--stop-on-failures` (IETF 7.4)
    rounds_of_plan: Annotated[Number, field("rounds", Reveals.LOAD)] = None  # of a closed loop: how often it was sent


class FileFacts(Document, frozen=True, kw_only=True):
    """A file of evidence, when the run concluded."""

    bytes: Annotated[int | float, field("bytes")]  # size
    crc32: int | float  # checksum (CRC-32)


class WindowTimes(Document, frozen=True, kw_only=True):
    """Figures are of requests submitted in [w0, w1)."""

    w0_ns: Ns = None  # start of the window, CLOCK_MONOTONIC
    w1_ns: Ns = None  # its end
    seconds: Seconds = None  # its length


class RunDocument(Document, frozen=True, kw_only=True):
    """run.json."""

    schema_version: int = 1  # of this document
    tool: Tool = Tool()
    status: str | None = None  # running, then done, interrupted, partial, failed or killed
    config: RunSettings = RunSettings()  # what was asked; no secret is in it
    environment: Environment = Environment()
    declarations: dict[str, str] = {}  # what the user declared of the system (IETF 4.1), by name
    metadata: Annotated[dict[str, Any], field("", Reveals.NAME)] = {}  # the user's labels of `--metadata`, by name
    phases: tuple[Phase, ...] = ()  # those that began: warm-up, measurement
    run_id: str | None = None  # in every X-Fastllmload-Request
    command: Annotated[tuple[str, ...] | str | None, field("", Reveals.NAME)] = None  # command line; None: from Python
    plan: PlanSummary = PlanSummary()
    target: TargetFacts = TargetFacts()
    workers: tuple[WorkerEntry, ...] = ()  # worker processes
    incidents: Names = ()  # what went wrong, one sentence with its code each
    tap: Tap | None = None  # of the packet ring; None: there was none
    watch: WatchFacts = WatchFacts()
    hosts: tuple[HostEntry, ...] = ()  # of a run over many hosts
    excluded_hosts: tuple[int, ...] = ()  # hosts whose requests are in no figure, by `report --exclude-host`
    disk_full: bool | None = None  # rows are missing, as the disk was full
    files: dict[str, FileFacts] | None = None  # size and checksum of each file when the run concluded
    window: WindowTimes = WindowTimes()
    metrics: dict[str, Metric | None] | None = None  # by name, see docs/metric-definitions.md; None: not measured
    counts: Counts = Counts()
    errors: tuple[ErrorCount, ...] = ()  # failed requests by how they failed, the most frequent first
    by_target: tuple[TargetCounts, ...] = ()  # how requests ended, by URL; empty with one
    error_texts: ErrorTextEntries = ErrorTextEntries()
    backend_names: tuple[BackendNames, ...] = ()  # by worker; empty without `--backend-header`
    slo: Objectives | None = None  # goodput and attainment; None: no objectives
    fairness: Fairness | None = None  # among the classes of traffic; None: one class
    classes: dict[str, ClassResult] | None = None  # figures of each class of traffic; None: one class
    classes_with_tokens: Names = ()  # where answers of others are not tokens: figures of tokens are of these classes alone
    slots: SlotsFollowed | None = None  # asked and achieved; None: no closed loop whose slots change
    models: tuple[ModelResult, ...] = ()  # figures of each of several models; empty: one model
    backends: BackendFigures | None = None  # figures of each server of a router; None: not asked which one answers
    conversations: Conversations | None = None  # what became of them; None: there were none
    sessions: SessionFigures | None = None  # of conversations and of traces of sessions; None: there were none
    session_ends: SessionEnds | None = None  # that servers were asked for; None: `--session-end` was not given
    control: ControlFacts | None = None  # how servers were controlled; None: `--between` was not given
    server_pages: tuple[ServerPage, ...] = ()  # what servers said of themselves
    users: Users | None = None  # who did not wait; None: all waited
    steadiness: Steadiness = Steadiness()
    telemetry: TelemetryFacts | None = None  # what was sampled; None: nothing was
    server: dict[str, ServerFigure | None] | None = None  # figures that only the server knows, by name
    cluster: Cluster | None = None  # what several metrics pages say together; None: nothing of it is reported
    certificate: Certificate | None = None  # the verdict on the load generator; None: not judged
    compliance: Compliance | None = None
    withheld: str | None = None  # in a redacted document: what is missing
    duration: Seconds = None  # of the window; this and the following are vLLM's keys
    completed: Count = None  # ok
    failed: Count = None  # as in *counts*
    total_input_tokens: Tokens = None  # of requests that are ok
    total_output_tokens: Tokens = None  # of requests that are ok
    request_throughput: Rate = None  # the metric req_s
    output_throughput: TokenRate = None  # the metric output_tok_s
    total_token_throughput: TokenRate = None  # input_tok_s and output_tok_s together
    request_goodput: Rate = None  # that met all objectives
    mean_ttft_ms: Ms = None  # mean of the metric ttft
    median_ttft_ms: Ms = None  # median of the metric ttft
    std_ttft_ms: Ms = None  # standard deviation of the metric ttft
    p90_ttft_ms: Ms = None  # p90 of the metric ttft
    p95_ttft_ms: Ms = None  # p95 of the metric ttft
    p99_ttft_ms: Ms = None  # p99 of the metric ttft
    p999_ttft_ms: Ms = None  # p99.9 of the metric ttft
    mean_tpot_ms: Ms = None  # mean of the metric tpot
    median_tpot_ms: Ms = None  # median of the metric tpot
    std_tpot_ms: Ms = None  # standard deviation of the metric tpot
    p90_tpot_ms: Ms = None  # p90 of the metric tpot
    p95_tpot_ms: Ms = None  # p95 of the metric tpot
    p99_tpot_ms: Ms = None  # p99 of the metric tpot
    p999_tpot_ms: Ms = None  # p99.9 of the metric tpot
    mean_itl_ms: Ms = None  # mean of the metric itl
    median_itl_ms: Ms = None  # median of the metric itl
    std_itl_ms: Ms = None  # standard deviation of the metric itl
    p90_itl_ms: Ms = None  # p90 of the metric itl
    p95_itl_ms: Ms = None  # p95 of the metric itl
    p99_itl_ms: Ms = None  # p99 of the metric itl
    p999_itl_ms: Ms = None  # p99.9 of the metric itl
    mean_e2el_ms: Ms = None  # mean of the metric e2e
    median_e2el_ms: Ms = None  # median of the metric e2e
    std_e2el_ms: Ms = None  # standard deviation of the metric e2e
    p90_e2el_ms: Ms = None  # p90 of the metric e2e
    p95_e2el_ms: Ms = None  # p95 of the metric e2e
    p99_e2el_ms: Ms = None  # p99 of the metric e2e
    p999_e2el_ms: Ms = None  # p99.9 of the metric e2e
    mean_ttft_any_ms: Ms = None  # mean of the metric ttft_any; this and the following only if answers reason
    median_ttft_any_ms: Ms = None  # median of the metric ttft_any
    std_ttft_any_ms: Ms = None  # standard deviation of the metric ttft_any
    p90_ttft_any_ms: Ms = None  # p90 of the metric ttft_any
    p95_ttft_any_ms: Ms = None  # p95 of the metric ttft_any
    p99_ttft_any_ms: Ms = None  # p99 of the metric ttft_any
    p999_ttft_any_ms: Ms = None  # p99.9 of the metric ttft_any
    mean_tpot_any_ms: Ms = None  # mean of the metric tpot_any
    median_tpot_any_ms: Ms = None  # median of the metric tpot_any
    std_tpot_any_ms: Ms = None  # standard deviation of the metric tpot_any
    p90_tpot_any_ms: Ms = None  # p90 of the metric tpot_any
    p95_tpot_any_ms: Ms = None  # p95 of the metric tpot_any
    p99_tpot_any_ms: Ms = None  # p99 of the metric tpot_any
    p999_tpot_any_ms: Ms = None  # p99.9 of the metric tpot_any

    def optional(self) -> tuple[str, ...]:
        """Of a run that is not measured all but what was asked and what happened."""
        if self.metrics is None:
            return tuple(name for name in self.__struct_fields__ if name not in BEFORE_FIGURES)
        return ("tap", "hosts", "excluded_hosts", "withheld", *(() if known(self.counts.reasoned) else REASONING_KEYS))

    def metric(self, name: str) -> Metric:
        """A metric by name; one without figures where the run has none of that name."""
        return (self.metrics or {}).get(name) or NO_METRIC

    def server_figure(self, name: str) -> ServerFigure:
        """A figure of the server; one without value where there is none."""
        return (self.server or {}).get(name) or ServerFigure()

    @property
    def judged_hosts(self) -> tuple[HostEntry, ...]:
        """The hosts whose requests are in the figures."""
        return tuple(each for each in self.hosts if each.host not in self.excluded_hosts)

    def phase(self, name: str) -> Phase | None:
        """The phase of that name; None when it has not begun."""
        return next((phase for phase in self.phases if phase.name == name), None)


# Keys of a run.json that has no figures yet
BEFORE_FIGURES = frozenset(
    ("schema_version", "tool", "status", "config", "environment", "declarations", "metadata", "phases", "run_id", "command",
     "plan", "target", "workers", "incidents")
)  # fmt: skip


REASONING_KEYS = tuple(
    name for name in RunDocument.__struct_fields__ if name.endswith(("_ttft_any_ms", "_tpot_any_ms"))
)
