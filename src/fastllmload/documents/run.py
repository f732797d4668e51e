"""run.json as a type: what was asked, what happened, what was measured, the verdict. docs/run-folder.md is made of it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from fastllmload.documents.certificate import Certificate
from fastllmload.documents.fields import (
    Bytes,
    Count,
    Document,
    Events,
    Load,
    Model,
    Ms,
    Name,
    Names,
    Ns,
    Number,
    Plain,
    Rate,
    Ratio,
    RequestShare,
    Reveals,
    Samples,
    Seconds,
    Sentence,
    Sentences,
    TokenRate,
    Tokens,
    Us,
    field,
)
from fastllmload.documents.metric import NO_METRIC, Metric
from fastllmload.documents.plan import PlanSummary
from fastllmload.settings import RunSettings


class Tool(Document, frozen=True, kw_only=True):
    """The program that wrote the document."""

    name: str | None = None
    version: str | None = None


class EngineFacts(Document, frozen=True, kw_only=True):
    """What the server reports about itself."""

    name: str | None = None
    version: str | None = None
    max_batch_size: Annotated[Number, field("", Reveals.ENGINE)] = None
    max_batch_source: str | None = None
    server_header: Name = None


class Environment(Document, frozen=True, kw_only=True):
    """The client's host and software."""

    time_utc: str | None = None
    clock_offset_ns: Ns = None  # CLOCK_REALTIME - CLOCK_MONOTONIC
    host: Name = None
    kernel: str | None = None
    machine: str | None = None
    cpu: str | None = None
    cores: Plain = None
    cpus: tuple[int, ...] = ()
    memory_bytes: Bytes = None
    tcp_congestion_control: str | None = None
    python: str | None = None
    libraries: dict[str, str] = {}  # versions
    engine: EngineFacts | None = None


class Phase(Document, frozen=True, kw_only=True):
    """A phase that began. Times are CLOCK_MONOTONIC."""

    number: int
    name: str
    start_ns: int
    end_ns: int | None  # sending stopped; None: not yet
    bound: str  # duration, count
    ramp_share: float  # of the phase, left out of the window
    mode: str | None = None  # open, closed
    start_utc: str | None = None
    drained_ns: int | None = None
    released: Count = None
    ok: Count = None
    drain_timed_out: bool | None = None  # requests were cancelled by the drain time-out
    cascading_failure: bool | None = None
    rounds_of_plan: Annotated[Number, field("", Reveals.LOAD)] = None


class ClassTarget(Document, frozen=True, kw_only=True):
    """Where the requests of a class of the run go."""

    name: str | None = None
    endpoint_type: str | None = None
    urls: Names = ()
    model: Model = None


class TargetFacts(Document, frozen=True, kw_only=True):
    """The target, and what the preflight found there."""

    urls: Names = ()  # those of single classes last
    addresses: Names = ()
    endpoint_type: str | None = None
    classes: tuple[ClassTarget, ...] = ()
    model: Model = None
    simulated: bool | None = None
    usage_reported: bool | None = None
    continuous_usage: bool | None = None  # every event reports its usage, as the run asks; None: not asked
    token_ids: bool | None = None  # every event has the ids of its tokens, as the run asks; None: not asked
    connect_ms: tuple[float, ...] = ()  # up to 20 connects before the run
    connect_after_ms: tuple[float, ...] = ()  # and after it
    probe_s: Seconds = None
    notes: Names = ()


class WorkerEntry(Document, frozen=True, kw_only=True):
    """A worker process."""

    worker: int
    died: bool
    exit_code: int | None = None
    cpu: int | None = None  # that it was kept on; None: any


class TapError(Document, frozen=True, kw_only=True):
    """How far apart stamps of the tap and exact receive stamps of the kernel are, us."""

    n: Samples = None
    p50: Us = None
    p99: Us = None
    max: Us = None


class Tap(Document, frozen=True, kw_only=True):
    """A packet ring (`--timestamps tap`): what it saw, and what was joined to events."""

    interface: str | None = None  # lo: all targets are addresses of this host; None: every interface
    ring_bytes: Bytes = None
    start_ms: Ms = None  # to open the ring and start its reader
    stop_ms: Ms = None  # to read its rest
    segments: Annotated[Number, field("segments", Reveals.LOAD)] = None
    payload_bytes: Annotated[Number, field("bytes", Reveals.LOAD)] = None
    drops: Annotated[Number, field("frames", Reveals.LOAD)] = None  # that found the ring full
    freezes: Plain = None  # times that the ring was full
    clock_steps: Plain = None  # of the wall clock
    unwritten: Annotated[Number, field("segments", Reveals.LOAD)] = None  # that found the disk full
    foreign: Annotated[Number, field("frames", Reveals.LOAD)] = None  # frames of others
    other_frames: dict[str, Annotated[Number, field("frames", Reveals.LOAD)]] = {}  # other: not TCP; cut; bad
    cpu_s: Seconds = None
    events: Events = None
    joined: Events = None  # to one segment
    narrowed: Events = None  # TLS: to several
    matched_share: Ratio = None
    # Events that kept their stamp and bracket. lost: frames were lost about then; gap: in bytes that no segment brought, or
    # about a change of the wall clock; missing: after a gap that nothing explains; no_handshake: the connection's was not
    # seen; ambiguous_port: two addresses of this host used the port at once; contradicted: by an earlier read; no_segment:
    # in the bracket of a TLS connection; not_watched: not over IP
    unmatched: dict[str, Events] = {}  # events that kept their stamp and bracket, by reason
    before_bracket: Events = None  # joined ones whose segment came before the worker's lower bound
    requests_timed: Count = None  # with t_wire
    retransmitted: Annotated[Number, field("segments", Reveals.LOAD)] = None
    out_of_order: Annotated[Number, field("segments", Reveals.LOAD)] = None
    gaps: Plain = None  # that losses of the ring left
    other_connections: Annotated[Number, field("segments", Reveals.LOAD)] = None
    against_kernel_stamps_us: TapError | None = None


class CeilingFacts(Document, frozen=True, kw_only=True):
    """This host's ceiling, by `fastllmload calibrate`."""

    events_per_s: Plain
    requests_per_s: Plain = None


Packets = Annotated[Number, field("packets", Reveals.LOAD)]
Carried = Annotated[Number, field("bytes", Reveals.LOAD)]
CarriedRate = Annotated[Number, field("bytes/s", Reveals.LOAD)]


class InterfaceUse(Document, frozen=True, kw_only=True):
    """A network interface that carried the load, or one below it, from before the measurement until after it.

    It counts the packets of all programs. What a full ring made it miss counts as dropped.
    """

    name: Name = None
    speed_bits_per_s: Annotated[Number, field("bit/s")] = (
        None  # of its link; null: not known, as of a virtual interface
    )
    rx_bytes: Carried = None
    rx_packets: Packets = None
    rx_errors: Packets = None
    rx_dropped: Packets = None
    tx_bytes: Carried = None
    tx_packets: Packets = None
    tx_errors: Packets = None
    tx_dropped: Packets = None
    peak_rx_bytes_per_s: CarriedRate = None  # in the busiest second
    peak_tx_bytes_per_s: CarriedRate = None


class WatchFacts(Document, frozen=True, kw_only=True):
    """This host while the run lasted."""

    steal_share: Ratio = None
    steal_samples: tuple[tuple[int, ...], ...] = ()  # CLOCK_MONOTONIC ns, CPU time in ns that the hypervisor took
    throttled_ns: Ns = None  # withheld by the CPU quota of the client's cgroup; None: no quota
    competitors: Names = ()  # processes outside of the run that used most CPU meanwhile
    ports: Plain = None
    fd_limit: Plain = None
    ceiling: CeilingFacts | None = None
    interfaces: tuple[InterfaceUse, ...] = ()


class ClockFacts(Document, frozen=True, kw_only=True):
    """How well the clock of a host is known in the driver's."""

    bound_ns: Ns = None  # the largest error of the host's times
    drift_ppm: Plain = None  # how much faster the driver's clock is
    exchanges: Plain = None  # of datagrams


class HostEntry(Document, frozen=True, kw_only=True):
    """A host of a run over many: a machine that sends a share of the load."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("events", "last_event_ns")

    host: int
    name: Name = None
    address: Name = None
    workers: tuple[int, ...] = ()  # their numbers
    status: str | None = None  # running, then ended; lost: before it ended; late: after time zero; alone: driver lost
    folder: Name = None  # on the host, where its files are
    disk_full: bool = False  # there: it stopped sending
    timestamps: str | None = None  # the source of its stamps: tap, kernel, user
    tap: Tap | None = None  # its own packet ring; that of the run has the sums of all
    clock: ClockFacts | None = None  # null: not compared
    watch: WatchFacts = WatchFacts()
    events: Events = None  # this and the following: of events that stay in its folder (`--collect summary`)
    last_event_ns: Ns = None
    dispatched: Count = None  # measured requests
    share: RequestShare = None  # of the measured requests that were dispatched
    ttft_p50_ms: Ms = None
    certificate: Certificate | None = None  # by its own evidence; its workers are in the certificate of the run


class ErrorTextEntry(Document, frozen=True, kw_only=True):
    """A text of failed responses, without secrets and control characters."""

    http_status: int | None = None  # None: before any head
    error: str | None = None
    text: Sentence = None
    requests: Count = None


class FinishWord(Document, frozen=True, kw_only=True):
    """A finish_reason that is on no list."""

    word: Name = None
    requests: Count = None


class ErrorTextEntries(Document, frozen=True, kw_only=True):
    """What the server said: the 32 most frequent texts of failed responses."""

    texts: Annotated[tuple[ErrorTextEntry, ...], field("", Reveals.NAME)] = ()
    left_out: Count = None  # failed requests with other texts
    finish_reasons: tuple[FinishWord, ...] = ()


class FileFacts(Document, frozen=True, kw_only=True):
    """A file of evidence, when the run concluded."""

    bytes: int | float
    crc32: int | float


class WindowTimes(Document, frozen=True, kw_only=True):
    """Figures are of requests submitted in [w0, w1)."""

    w0_ns: int | None = None
    w1_ns: int | None = None
    seconds: Seconds = None


class Counts(Document, frozen=True, kw_only=True):
    """Requests by how they ended, and their tokens."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("host_lost",)

    planned: Count = None
    dispatched: Count = None
    not_sent: Count = None  # of a closed loop: no slot came to them, and they have no rows
    in_flight: Count = None
    ok: Count = None
    empty: Count = None
    refused: Count = None
    http_error: Count = None
    rate_limited: Count = None
    truncated: Count = None
    timeout: Count = None
    connection_error: Count = None
    protocol_error: Count = None
    cancelled: Count = None
    stream_error: Count = None
    host_lost: Count = None  # of a host that was lost: not known how they ended; null: no host was lost
    cut_after_end: Count = None  # ok; the connection went after the finish_reason, before the end of the message
    unknown_finish: Count = None  # ok; the finish_reason is on no list
    failed: Count = None
    left: Count = None  # by their users
    explicit_errors: Count = None
    submitted_in_window: Count = None
    latency_population: Count = None
    came_whole: Count = None  # of latency_population: not as streams
    input_tokens: Tokens = None
    output_tokens: Tokens = None
    output_tokens_source: dict[
        str, Count
    ] = {}  # requests by where their count comes from: usage, tokenizer, estimate, none
    reasoned: Count = None  # answers of latency_population with streamed reasoning
    all_reasoning: Count = None  # of these, without an answer token
    reasoning_tokens: Tokens = None  # of all that are ok
    answer_tokens: Tokens = None  # of all that are ok and whose reasoning is known
    # usage; events: said one by one; output: of an answer that is all reasoning; chunks: output less the answer, where there
    # is nearly one event per token; unknown
    reasoning_tokens_source: dict[str, Count] = {}  # requests with reasoning by where its count comes from
    events: Events = None


class ErrorCount(Document, frozen=True, kw_only=True):
    """Requests that failed in the same way."""

    status: str | None = None
    error: str | None = None
    http_status: int | None = None
    errno: int | None = None
    count: Count = None


class TargetCounts(Document, frozen=True, kw_only=True):
    """How the requests to one URL ended."""

    url: Name = None
    dispatched: Count = None
    ok: Count = None
    failed: Count = None
    errors: tuple[ErrorCount, ...] = ()


class WorstRequest(Document, frozen=True, kw_only=True):
    """A request that missed an objective."""

    request_id: str | None = None
    excess: Plain = None  # None: no value


class ObjectiveResult(Document, frozen=True, kw_only=True, rename={"class_": "class"}):
    """How requests met one objective."""

    objective: str | None = None
    metric: str | None = None
    class_: str | None = None
    limit: Plain = None
    unit: str | None = None
    submitted: Count = None
    met: Count = None
    attainment: RequestShare = None
    missed: Count = None
    failed: Count = None
    excess: Metric = NO_METRIC  # distribution of what was too much
    worst: tuple[WorstRequest, ...] = ()
    failed_requests: tuple[str, ...] = ()
    # Of fluidity: deadlines of the first token, one number or pairs (input tokens, ms), and of each further token.
    d_p_ms: Annotated[float | tuple[tuple[float, float], ...] | None, field("ms")] = None
    d_d_ms: Ms = None
    speed_tok_s: Plain = None  # of idle: reading speed
    d1_ms: Ms = None
    problem: Sentence = None

    OPTIONAL: ClassVar[tuple[str, ...]] = ("d_p_ms", "d_d_ms", "speed_tok_s", "d1_ms", "problem")


class ClassObjectives(Document, frozen=True, kw_only=True):
    """How the requests of one class met all objectives."""

    met: Count = None
    submitted: Count = None
    slo_attainment: RequestShare


class Objectives(Document, frozen=True, kw_only=True):
    """Goodput: how many requests met the objectives."""

    objectives_ms: dict[str, Plain] = {}
    smooth_goodput: dict[str, TokenRate] = {}  # by preset
    time_base: str | None = None
    seconds: Seconds = None
    evaluator: str | None = None
    met: Count = None
    submitted: Count = None
    slo_attainment: RequestShare = None
    request_goodput: Rate = None
    token_goodput: TokenRate = None
    each: dict[str, Count] = {}  # requests that met it, by objective
    objectives: tuple[ObjectiveResult, ...] = ()
    classes: dict[str, ClassObjectives] = {}
    unfinished: Count = None  # requests without an end
    slo_attainment_bounds: Annotated[tuple[Number, ...] | None, field("share", Reveals.LOAD)] = (
        None  # had no request without an end met the objectives, had all
    )
    problem: Sentence = None  # of an objective that this version does not know

    OPTIONAL: ClassVar[tuple[str, ...]] = ("unfinished", "slo_attainment_bounds", "problem")


class JainIndex(Document, frozen=True, kw_only=True):
    """Jain's index of fairness."""

    value: Plain = None
    n: Samples = None
    normalisation: str | None = None
    significantly_unfair: bool | None = None


class ClassFairness(Document, frozen=True, kw_only=True):
    """How one class fared among the others."""

    submitted: Count = None
    ok: Count = None
    starvation_rate: RequestShare = None
    ttft: Metric = NO_METRIC
    tpot: Metric = NO_METRIC


class Fairness(Document, frozen=True, kw_only=True):
    """Fairness among the classes of traffic."""

    jain_index: JainIndex = JainIndex()
    jain_norm_latency: JainIndex = JainIndex()
    unfair_below: Ratio = None
    starved_above_medians: Plain = None
    classes: dict[str, ClassFairness] = {}


class ClassResult(Document, frozen=True, kw_only=True):
    """Figures of one class of traffic."""

    endpoint_type: str | None = None  # this and the following two: of classes of the run, not of a data set
    urls: Names = ()
    model: Model = None
    planned: Count = None
    ok: Count
    failed: Count
    left: Count
    came_whole: Count = None  # not as streams
    success_rate: RequestShare = None
    req_s: Rate = None
    output_tok_s: TokenRate = None
    input_tokens_mean: Plain = None
    output_tokens_mean: Plain = None
    ttft: Metric
    ttft_sched: Metric = NO_METRIC
    tpot: Metric
    ttft_any: Metric | None = None
    tpot_any: Metric | None = None
    e2e: Metric = NO_METRIC
    e2e_sched: Metric = NO_METRIC
    itl: Metric = NO_METRIC
    tbc: Metric = NO_METRIC
    itl_b: Metric = NO_METRIC

    def optional(self) -> tuple[str, ...]:
        """Figures of reasoning; and what only classes of the run have."""
        of_run = () if self.endpoint_type is not None else ("endpoint_type", "urls", "model")
        return ("ttft_any", "tpot_any", *of_run)


class TurnResult(Document, frozen=True, kw_only=True):
    """Figures of one turn of all conversations."""

    turn: int | None = None  # from 0
    requests: Count = None
    ttft: Metric = NO_METRIC
    prompt_tokens_mean: Plain = None  # this and the following as the server reports them
    cached_share: RequestShare


class Conversations(Document, frozen=True, kw_only=True):
    """What became of the conversations."""

    planned: Count = None
    begun: Count
    turns_sent: Count
    turns_planned: Count = None
    ended_by_failure: Count
    ended_by_leaving: Count
    tool_call_replies: Count = None  # replies with tool calls that another turn followed
    turns: tuple[TurnResult, ...]


class Users(Document, frozen=True, kw_only=True):
    """Users who did not wait."""

    chosen_to_leave: Count = None
    left_by_plan: Count
    ended_before_leaving: Count = None
    events_until_they_left: Plain = None
    gave_up: Count
    slow_readers: Count
    denominators: Any = None  # which figures they count in


class DriftFacts(Document, frozen=True, kw_only=True):
    """A level of a metric over the window, ms, and the likeliest step in it."""

    first_half: Plain = None
    second_half: Plain = None
    p: Plain = None
    step_at: RequestShare = None  # share of the requests before the step
    before_step: Plain = None
    after_step: Plain = None
    p_step: Plain = None
    steady: bool | None = None


class Transient(Document, frozen=True, kw_only=True):
    """Where MSER-5 sees the start of the run end."""

    cut_requests: Count = None
    cut_share: Annotated[Number, field("share", Reveals.LOAD)] = None
    cut_seconds: Seconds = None
    window_cut_seconds: Seconds = None
    steady: bool | None = None


class InFlightTrend(Document, frozen=True, kw_only=True):
    """Requests in flight in both halves of the window."""

    first_half: Load = None
    second_half: Load = None
    p: Plain = None
    growing: bool | None = None


class LittlesLaw(Document, frozen=True, kw_only=True):
    """Requests in flight against rate times mean time."""

    in_flight: Load = None
    rate_per_s: Rate = None
    time_s: Seconds = None
    residual: Ratio = None
    holds: bool | None = None


class Steadiness(Document, frozen=True, kw_only=True):
    """Whether the system was in a steady state."""

    transient: dict[str, Transient | None] = {}
    littles_law: LittlesLaw | None = None
    drift: dict[str, DriftFacts | None] = {}  # by metric
    in_flight: InFlightTrend | None = None  # None for a closed loop
    steady: bool | None = None  # false: a level drifts or the queue grows


class TelemetrySource(Document, frozen=True, kw_only=True):
    """Where figures were read."""

    origin: Name = None
    kind: str | None = None
    n: Samples = None
    n_failed: Samples = None
    n_skipped: Samples = None
    slowest_s: Seconds = None
    problems: Annotated[dict[str, int], field("", Reveals.NAME)] = {}  # how often, by sentence


class TelemetryEntry(Document, frozen=True, kw_only=True):
    """A series: of a gauge mean, min and max; of a counter first, last and delta."""

    name: str | None = None
    source: Name = None
    origin: Name = None
    unit: str | None = None
    kind: str | None = None
    n: Samples = None
    n_failed: Samples = None
    labels: Name = None  # of one of a server's own series, as a="x",b="y"
    first: Plain = None
    last: Plain = None
    delta: Plain = None
    span_s: Seconds = None
    mean: Plain = None
    min: Plain = None
    max: Plain = None

    def optional(self) -> tuple[str, ...]:
        """The figures of the other kind."""
        return ("labels", *(("mean", "min", "max") if self.kind == "counter" else ("first", "last", "delta", "span_s")))


class TelemetryFacts(Document, frozen=True, kw_only=True):
    """What was sampled during the run."""

    interval_s: Seconds = None
    ended: bool | None = None
    sources: tuple[TelemetrySource, ...] = ()
    absent: dict[str, Name] = {}  # why a sensor is missing
    cpu_share: Ratio = None  # of the sampler
    warnings: Names = ()
    series: tuple[TelemetryEntry, ...] = ()


class ServerFigure(Document, frozen=True, kw_only=True):
    """A figure that the server reports; `source` is "not measured" without one."""

    value: Plain = None
    unit: str | None = None
    source: str | None = None


class Requirements(Document, frozen=True, kw_only=True):
    """How many requirements of a level hold, and the ids of those that do not."""

    hold: Plain = None
    of: Plain = None
    false: tuple[str, ...] = ()
    undeclared: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


class Requirement(Document, frozen=True, kw_only=True):
    """A requirement that does not hold."""

    id: str = ""
    level: str | None = None
    basis: str | None = None
    state: str | None = None
    statement: str | None = None
    reason: Sentence = None
    remedy: str | None = None


class Compliance(Document, frozen=True, kw_only=True):
    """The verdict by the draft; `fastllmload compliance RUN` has all of it."""

    verdict: str | None = None
    test: str | None = None
    scope: str | None = None
    counts: dict[str, Plain] = {}  # requirements by what became of them
    must: Requirements = Requirements()
    should: Requirements = Requirements()
    deviations: Sentences = ()
    unmet: tuple[Requirement, ...] = ()
    beside: tuple[Requirement, ...] = ()  # without a key word of the draft: they decide nothing; prose: allow


class NotJudged(Document, frozen=True, kw_only=True):
    """The same of what is judged with something else, such as a level with its procedure."""

    verdict: str | None = None
    scope: str | None = None


class RunDocument(Document, frozen=True, kw_only=True):
    """run.json."""

    schema_version: int = 1
    tool: Tool = Tool()
    status: str | None = None  # running, then done, interrupted, partial, failed or killed
    config: RunSettings = RunSettings()  # what was asked; no secret is in it
    environment: Environment = Environment()
    declarations: dict[str, str] = {}
    metadata: Annotated[dict[str, Any], field("", Reveals.NAME)] = {}
    phases: tuple[Phase, ...] = ()
    run_id: str | None = None  # in every X-Request-Id
    command: Annotated[tuple[str, ...] | str | None, field("", Reveals.NAME)] = None  # None: from Python
    plan: PlanSummary = PlanSummary()
    target: TargetFacts = TargetFacts()
    workers: tuple[WorkerEntry, ...] = ()
    incidents: Names = ()
    tap: Tap | None = None
    watch: WatchFacts = WatchFacts()
    hosts: tuple[HostEntry, ...] = ()  # of a run over many hosts
    excluded_hosts: tuple[int, ...] = ()  # hosts whose requests are in no figure, by `report --exclude-host`
    disk_full: bool | None = None
    files: dict[str, FileFacts] | None = None
    window: WindowTimes = WindowTimes()
    metrics: dict[str, Metric | None] | None = None  # None: not measured
    counts: Counts = Counts()
    errors: tuple[ErrorCount, ...] = ()
    by_target: tuple[TargetCounts, ...] = ()
    error_texts: ErrorTextEntries = ErrorTextEntries()
    slo: Objectives | None = None  # None without objectives
    fairness: Fairness | None = None  # None with one class
    classes: dict[str, ClassResult] | None = None
    conversations: Conversations | None = None
    users: Users | None = None
    steadiness: Steadiness = Steadiness()
    telemetry: TelemetryFacts | None = None
    server: dict[str, ServerFigure | None] | None = None
    certificate: Certificate | None = None  # None: not judged
    compliance: Compliance | None = None
    withheld: str | None = None  # in a redacted document: what is missing
    duration: Seconds = None  # of the window; this and the following are vLLM's keys
    completed: Count = None
    failed: Count = None
    total_input_tokens: Tokens = None
    total_output_tokens: Tokens = None
    request_throughput: Rate = None
    output_throughput: TokenRate = None
    total_token_throughput: TokenRate = None
    request_goodput: Rate = None
    mean_ttft_ms: Ms = None
    median_ttft_ms: Ms = None
    std_ttft_ms: Ms = None
    p90_ttft_ms: Ms = None
    p95_ttft_ms: Ms = None
    p99_ttft_ms: Ms = None
    p999_ttft_ms: Ms = None
    mean_tpot_ms: Ms = None
    median_tpot_ms: Ms = None
    std_tpot_ms: Ms = None
    p90_tpot_ms: Ms = None
    p95_tpot_ms: Ms = None
    p99_tpot_ms: Ms = None
    p999_tpot_ms: Ms = None
    mean_itl_ms: Ms = None
    median_itl_ms: Ms = None
    std_itl_ms: Ms = None
    p90_itl_ms: Ms = None
    p95_itl_ms: Ms = None
    p99_itl_ms: Ms = None
    p999_itl_ms: Ms = None
    mean_e2el_ms: Ms = None
    median_e2el_ms: Ms = None
    std_e2el_ms: Ms = None
    p90_e2el_ms: Ms = None
    p95_e2el_ms: Ms = None
    p99_e2el_ms: Ms = None
    p999_e2el_ms: Ms = None
    mean_ttft_any_ms: Ms = None  # this and the following only if answers reason
    median_ttft_any_ms: Ms = None
    std_ttft_any_ms: Ms = None
    p90_ttft_any_ms: Ms = None
    p95_ttft_any_ms: Ms = None
    p99_ttft_any_ms: Ms = None
    p999_ttft_any_ms: Ms = None
    mean_tpot_any_ms: Ms = None
    median_tpot_any_ms: Ms = None
    std_tpot_any_ms: Ms = None
    p90_tpot_any_ms: Ms = None
    p95_tpot_any_ms: Ms = None
    p99_tpot_any_ms: Ms = None
    p999_tpot_any_ms: Ms = None

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
