"""run.json as a type: what was asked, what happened, what was measured, the verdict. docs/run-folder.md is made of it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from fastllmload.documents.certificate import Certificate
from fastllmload.documents.cluster import Cluster
from fastllmload.documents.fields import (
    Bytes,
    Count,
    Document,
    Events,
    Figure,
    InFlight,
    Length,
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
    TokenSpeed,
    Us,
    field,
    known,
)
from fastllmload.documents.metric import NO_METRIC, Metric
from fastllmload.documents.plan import PlanSummary
from fastllmload.settings import RunSettings


class Tool(Document, frozen=True, kw_only=True):
    """The program that wrote the document."""

    name: str | None = None  # fastllmload
    version: str | None = None  # of the program


class EngineFacts(Document, frozen=True, kw_only=True):
    """What the server reports about itself."""

    name: str | None = None  # of the engine, by its metrics: vllm, sglang, tgi, llama.cpp ...
    version: str | None = None  # as the server says
    max_batch_size: Annotated[Number, field("", Reveals.ENGINE)] = None  # largest batch that it is configured for
    max_batch_source: str | None = None  # page and key of the server that say so
    server_header: Name = None  # the Server header of the metrics page


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


class ClassTarget(Document, frozen=True, kw_only=True):
    """Where the requests of a class of the run go."""

    name: str | None = None  # of the class
    endpoint_type: str | None = None
    urls: Names = ()
    model: Model = None  # that its requests name


class TargetFacts(Document, frozen=True, kw_only=True):
    """The target, and what the preflight found there."""

    urls: Names = ()  # of all targets, those of single classes last; rows number them
    addresses: Names = ()  # numeric addresses of *urls*, or paths of sockets
    endpoint_type: str | None = None
    classes: tuple[ClassTarget, ...] = ()
    model: Model = None  # that requests name
    simulated: bool | None = None  # the target was the simulated engine
    http_version: str | None = None  # that the requests use: 1.1 or 2
    usage_reported: bool | None = None  # the server reported token counts in the preflight; None: not known
    continuous_usage: bool | None = None  # every event reports its usage, as the run asks; None: not asked
    token_ids: bool | None = None  # every event has the ids of its tokens, as the run asks; None: not asked
    connect_ms: Annotated[tuple[float, ...], field("ms")] = ()  # up to 20 TCP connects before the run
    connect_after_ms: Annotated[tuple[float, ...], field("ms")] = ()  # and after it
    probe_s: Seconds = None  # how long the first target's answer took in the preflight
    notes: Names = ()  # what the preflight found worth knowing


class WorkerEntry(Document, frozen=True, kw_only=True):
    """A worker process."""

    worker: int  # its number, from 0
    died: bool  # it ended before its work was done
    exit_code: int | None = None  # of the process; negative: the signal that killed it
    cpu: int | None = None  # that it was kept on; None: any


class TapError(Document, frozen=True, kw_only=True):
    """How far apart stamps of the tap and exact receive stamps of the kernel are, us."""

    n: Samples = None  # compared stamps
    p50: Us = None
    p99: Us = None
    max: Us = None


class Tap(Document, frozen=True, kw_only=True):
    """A packet ring (`--timestamps tap`): what it saw, and what was joined to events."""

    interface: str | None = None  # lo: all targets are addresses of this host; None: every interface
    ring_bytes: Bytes = None  # size of the ring
    start_ms: Ms = None  # to open the ring and start its reader
    stop_ms: Ms = None  # to read its rest
    segments: Annotated[Number, field("segments", Reveals.LOAD)] = None  # of TCP, on connections to the targets
    payload_bytes: Annotated[Number, field("bytes", Reveals.LOAD)] = None  # of these segments
    drops: Annotated[Number, field("frames", Reveals.LOAD)] = None  # that found the ring full
    freezes: Annotated[Number, field("times")] = None  # times that the ring was full
    clock_steps: Annotated[Number, field("times")] = None  # jumps of the wall clock
    unwritten: Annotated[Number, field("segments", Reveals.LOAD)] = None  # that found the disk full
    foreign: Annotated[Number, field("frames", Reveals.LOAD)] = None  # of other programs, which its filter let pass
    other_frames: dict[str, Annotated[Number, field("frames", Reveals.LOAD)]] = {}  # not TCP (other), cut, bad
    cpu_s: Seconds = None  # of the process that reads the ring
    events: Events = None  # of the run
    joined: Events = None  # matched with one segment
    narrowed: Events = None  # TLS: matched with several
    matched_share: Ratio = None  # joined and narrowed ones of *events*
    # Events that kept their stamp and bracket. lost: frames were lost about then; gap: in bytes that no segment brought, or
    # about a change of the wall clock; missing: after a gap that nothing explains; no_handshake: the connection's was not
    # seen; ambiguous_port: two addresses of this host used the port at once; contradicted: by an earlier read; no_segment:
    # in the bracket of a TLS connection; not_watched: not over IP
    unmatched: dict[str, Events] = {}  # events that kept their stamp and bracket, by reason
    before_bracket: Events = None  # joined ones whose segment came before the worker's lower bound
    requests_timed: Count = None  # with t_wire, the instant at which the request left
    retransmitted: Annotated[Number, field("segments", Reveals.LOAD)] = None  # whose bytes had all come before
    out_of_order: Annotated[Number, field("segments", Reveals.LOAD)] = None  # that came after a later one
    gaps: Plain = None  # in the bytes of a connection, as frames were lost
    other_connections: Annotated[Number, field("segments", Reveals.LOAD)] = None  # of no request of the run
    against_kernel_stamps_us: TapError | None = None


class CeilingFacts(Document, frozen=True, kw_only=True):
    """This host's ceiling, by `fastllmload calibrate`."""

    events_per_s: Annotated[Number, field("events/s")]  # of one worker on a core of its own
    requests_per_s: Annotated[Number, field("requests/s")] = None  # new streamed requests of one such worker


Packets = Annotated[Number, field("packets", Reveals.LOAD)]
Carried = Annotated[Number, field("bytes", Reveals.LOAD)]
CarriedRate = Annotated[Number, field("bytes/s", Reveals.LOAD)]


class InterfaceUse(Document, frozen=True, kw_only=True):
    """A network interface that carried the load, or one below it, from before the measurement until after it.

    It counts the packets of all programs. What a full ring made it miss counts as dropped.
    """

    name: Name = None  # of the interface
    speed_bits_per_s: Annotated[Number, field("bit/s")] = None  # of its link; None: not known, as of a virtual one
    rx_bytes: Carried = None  # received
    rx_packets: Packets = None  # received
    rx_errors: Packets = None  # that it received and could not read
    rx_dropped: Packets = None  # received, but dropped
    tx_bytes: Carried = None  # sent
    tx_packets: Packets = None  # sent
    tx_errors: Packets = None  # that it could not send
    tx_dropped: Packets = None  # to be sent, but dropped
    peak_rx_bytes_per_s: CarriedRate = None  # received in the busiest second
    peak_tx_bytes_per_s: CarriedRate = None  # sent in the busiest second


class WatchFacts(Document, frozen=True, kw_only=True):
    """This host while the run lasted."""

    steal_share: Ratio = None  # CPU time that the hypervisor gave to others
    steal_samples: Annotated[tuple[tuple[int, ...], ...], field("ns")] = ()  # CLOCK_MONOTONIC, CPU time lost to others
    throttled_ns: Ns = None  # withheld by the CPU quota of the client's cgroup; None: no quota
    competitors: Names = ()  # processes outside of the run that used most CPU meanwhile
    ports: Annotated[Number, field("ports")] = None  # local ports for connections to one address and port
    fd_limit: Annotated[Number, field("files")] = None  # open files that a process may have
    ceiling: CeilingFacts | None = None
    interfaces: tuple[InterfaceUse, ...] = ()


class ClockFacts(Document, frozen=True, kw_only=True):
    """How well the clock of a host is known in the driver's."""

    bound_ns: Ns = None  # the largest error of the host's times
    drift_ppm: Annotated[Number, field("ppm")] = None  # how much faster the driver's clock is
    exchanges: Plain = None  # of datagrams, from which it is known


class HostEntry(Document, frozen=True, kw_only=True):
    """A host of a run over many: a machine that sends a share of the load."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("events", "last_event_ns")

    host: int  # its number, from 0
    name: Name = None  # of the machine
    address: Name = None  # of the machine
    workers: tuple[int, ...] = ()  # numbers of its workers
    status: str | None = None  # running, then ended; lost: before it ended; late: after time zero; alone: driver lost
    folder: Name = None  # on the host, where its files are
    disk_full: bool = False  # its disk was full: it stopped sending
    timestamps: str | None = None  # the source of its stamps: tap, kernel, user
    tap: Tap | None = None  # its own packet ring; that of the run has the sums of all
    clock: ClockFacts | None = None  # against the driver's; None: not compared
    watch: WatchFacts = WatchFacts()  # of that host
    events: Events = None  # here and in the next key: that stay in its folder (`--collect summary`)
    last_event_ns: Ns = None  # time of the last of them
    dispatched: Count = None  # of the measurement
    share: RequestShare = None  # of the measured requests that were dispatched
    ttft_p50_ms: Ms = None  # median TTFT of its requests
    certificate: Certificate | None = None  # by its own evidence; its workers are in the certificate of the run


class ErrorTextEntry(Document, frozen=True, kw_only=True):
    """A text of failed responses, without secrets and control characters."""

    http_status: int | None = None  # of the response; None: it failed before any head
    error: str | None = None
    text: Sentence = None  # of the body or event, up to 1,000 characters
    requests: Count = None  # that failed with it


class FinishWord(Document, frozen=True, kw_only=True):
    """A finish_reason that is on no list."""

    word: Name = None  # as the server sent it
    requests: Count = None  # that ended with it


class ErrorTextEntries(Document, frozen=True, kw_only=True):
    """What the server said: the 32 most frequent texts of failed responses."""

    texts: Annotated[tuple[ErrorTextEntry, ...], field("", Reveals.NAME)] = ()
    left_out: Count = None  # failed requests with other texts
    finish_reasons: tuple[FinishWord, ...] = ()


class FileFacts(Document, frozen=True, kw_only=True):
    """A file of evidence, when the run concluded."""

    bytes: Annotated[int | float, field("bytes")]  # size
    crc32: int | float  # checksum (CRC-32)


class WindowTimes(Document, frozen=True, kw_only=True):
    """Figures are of requests submitted in [w0, w1)."""

    w0_ns: Ns = None  # start of the window, CLOCK_MONOTONIC
    w1_ns: Ns = None  # its end
    seconds: Seconds = None  # its length


class Counts(Document, frozen=True, kw_only=True):
    """Requests by how they ended, and their tokens."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("host_lost",)

    planned: Count = None  # of the measurement, sent or not
    dispatched: Count = None  # on which work began
    not_sent: Count = None  # of a closed loop: no slot came to them, and they have no rows
    in_flight: Count = None  # when the run was killed
    ok: Count = None
    empty: Count = None  # ended normally, without a content token
    refused: Count = None  # refusals of the model, and content filters
    http_error: Count = None  # an HTTP status that is an error, except 429
    rate_limited: Count = None  # HTTP status 429
    truncated: Count = None  # the stream ended without finish_reason and [DONE]
    timeout: Count = None  # longer than `--timeout`
    connection_error: Count = None  # no connection, or it broke
    protocol_error: Count = None  # the response was not valid HTTP or not a valid stream
    cancelled: Count = None  # by the drain time-out, an interrupt, or simulated users
    stream_error: Count = None  # the server reported an error in the stream
    host_lost: Count = None  # of a host that was lost: not known how they ended; null: no host was lost
    cut_after_end: Count = None  # ok; the connection went after the finish_reason, before the end of the message
    unknown_finish: Count = None  # ok; the finish_reason is on no list
    failed: Count = None  # dispatched, ended, and neither *ok* nor *left*
    left: Count = None  # cancelled or given up by simulated users
    explicit_errors: Count = None  # http_error, rate_limited, connection_error, protocol_error, truncated, stream_error
    submitted_in_window: Count = None  # attainment population: submitted in the window and ended (spec/metrics 2)
    latency_population: Count = None  # those of *submitted_in_window* that are ok (spec/metrics 2)
    came_whole: Count = None  # of latency_population: answers in one body, not as streams
    input_tokens: Tokens = None  # of all that are ok
    output_tokens: Tokens = None  # of all that are ok, reasoning included
    output_tokens_source: dict[str, Count] = {}  # by where their count comes from: usage, tokenizer, estimate, none
    reasoned: Count = None  # answers of latency_population with streamed reasoning
    all_reasoning: Count = None  # of these, without an answer token
    reasoning_tokens: Tokens = None  # of all that are ok
    answer_tokens: Tokens = None  # of all that are ok and whose reasoning is known
    # usage; events: said one by one; output: of an answer that is all reasoning; chunks: output less the answer, where there
    # is nearly one event per token; unknown
    reasoning_tokens_source: dict[str, Count] = {}  # requests with reasoning by where its count comes from
    events: Events = None  # of all phases


class ErrorCount(Document, frozen=True, kw_only=True):
    """Requests that failed in the same way."""

    status: str | None = None
    error: str | None = None
    http_status: int | None = None
    errno: int | None = None  # of a connection error
    count: Count = None  # that failed so


class TargetCounts(Document, frozen=True, kw_only=True):
    """How the requests to one URL ended."""

    url: Name = None  # of the target
    dispatched: Count = None
    ok: Count = None  # that succeeded
    failed: Count = None  # neither ok nor left by their users
    errors: tuple[ErrorCount, ...] = ()


class WorstRequest(Document, frozen=True, kw_only=True):
    """A request that missed an objective."""

    request_id: str | None = None  # its X-Fastllmload-Request
    excess: Plain = None  # by which it missed the limit, in the unit of the limit; None: no value


ShareBounds = Annotated[tuple[Number, ...] | None, field("share", Reveals.LOAD)]


class ObjectiveResult(Document, frozen=True, kw_only=True, rename={"class_": "class"}):
    """How requests met one objective."""

    objective: str | None = None  # name of the objective, [CLASS/]METRIC
    metric: str | None = None  # that it limits
    class_: str | None = None  # of requests that it is about; None: all without an objective of their own
    limit: Figure = None  # of the metric
    unit: str | None = None
    submitted: Count = None  # that it is about
    met: Count = None  # ok and within the limit
    attainment: RequestShare = None  # met of submitted
    missed: Count = None  # ok, but beyond the limit
    failed: Count = None  # not ok
    excess: Metric = NO_METRIC  # by how much requests missed it
    worst: tuple[WorstRequest, ...] = ()  # those that missed it most, 20 at most
    failed_requests: tuple[str, ...] = ()  # X-Fastllmload-Requests of requests that failed, 20 at most
    # Of fluidity: deadlines of the first token, one number or pairs (input tokens, ms), and of each further token.
    d_p_ms: Annotated[float | tuple[tuple[float, float], ...] | None, field("ms")] = None
    d_d_ms: Ms = None
    speed_tok_s: TokenSpeed = None  # of idle: reading speed
    d1_ms: Ms = None
    problem: Sentence = None  # why it cannot be judged: an unknown class

    OPTIONAL: ClassVar[tuple[str, ...]] = ("d_p_ms", "d_d_ms", "speed_tok_s", "d1_ms", "problem")


class ClassObjectives(Document, frozen=True, kw_only=True):
    """How the requests of one class met all objectives."""

    met: Count = None  # ok, and all objectives met
    submitted: Count = None  # in the window
    slo_attainment: RequestShare  # met of submitted


class Objectives(Document, frozen=True, kw_only=True):
    """Goodput: how many requests met the objectives."""

    objectives_ms: dict[str, Annotated[Number, field("ms, tokens/s or share")]] = {}  # limits of `--goodput`, by name
    smooth_goodput: dict[str, TokenRate] = {}  # by preset (spec/metrics 6.5)
    time_base: str | None = None  # of the rates: window, makespan
    seconds: Seconds = None  # length of *time_base*
    evaluator: str | None = None  # framework of these metrics (SG equations 2 to 4); None: another combination
    met: Count = None  # ok, and all objectives met
    submitted: Count = None  # in the window (attainment population)
    slo_attainment: RequestShare = None  # met of submitted (spec/metrics 6.4)
    request_goodput: Rate = None  # met per second (spec/metrics 6.4)
    token_goodput: TokenRate = None  # content tokens of those that met them, per second (SG equation 5)
    each: dict[str, Count] = {}  # met, by objective
    objectives: tuple[ObjectiveResult, ...] = ()  # each objective on its own
    classes: dict[str, ClassObjectives] = {}
    unfinished: Count = None  # cut off before their end
    slo_attainment_bounds: ShareBounds = None  # had none of these met the objectives, had all
    problem: Sentence = None  # of an objective that this version does not know

    OPTIONAL: ClassVar[tuple[str, ...]] = ("unfinished", "slo_attainment_bounds", "problem")


class JainIndex(Document, frozen=True, kw_only=True):
    """Jain's index of fairness."""

    value: Plain = None  # 1/n: all for one request; 1: the same for all
    n: Samples = None  # requests in it
    normalisation: str | None = None  # what is compared between requests
    significantly_unfair: bool | None = None  # the value is below *unfair_below* (IETF 5.6.4)


class ClassFairness(Document, frozen=True, kw_only=True):
    """How one class fared among the others."""

    submitted: Count = None  # in the window
    ok: Count = None
    starvation_rate: RequestShare = None  # waited over 5 medians of their class (spec/metrics 7.5)
    ttft: Metric = NO_METRIC
    tpot: Metric = NO_METRIC


class Fairness(Document, frozen=True, kw_only=True):
    """Fairness among the classes of traffic."""

    jain_index: JainIndex = JainIndex()  # of TTFT over that of the class alone; its value needs another run (IETF 5.6)
    jain_norm_latency: JainIndex = JainIndex()  # of E2E latency per output token
    unfair_below: Ratio = None  # index below which service is significantly unfair
    starved_above_medians: Plain = None  # wait, as a multiple of its class's median, above which a request is starved
    classes: dict[str, ClassFairness] = {}


class SlotsFollowed(Document, frozen=True, kw_only=True):
    """How requests in flight followed slots that change, or that a class of a mix has, until the end of sending."""

    asked_mean: InFlight = None  # over time
    achieved_mean: InFlight = None  # over time, from dispatch to end
    within_one_share: Ratio = None  # of the time, in which the two differed by one or less
    above_share: Ratio = None  # of the time, in which requests of slots that were to close had not ended


class PartResult(Document, frozen=True, kw_only=True):
    """Figures of a part of the requests, such as those of one model or of one server."""

    name: str | None = None
    sent: Count = None  # in the measurement
    ok: Count = None  # that succeeded
    failed: Count = None  # neither ok nor left by their users
    success_rate: RequestShare = None  # ok of those submitted in the window
    slo_attainment: RequestShare = None  # of those submitted in the window, that met all objectives; None without any
    errors: tuple[ErrorCount, ...] = ()
    input_tokens: Tokens = None  # of the requests that succeeded
    output_tokens: Tokens = None  # of their answers
    req_s: Rate = None  # completed in the window
    output_tok_s: TokenRate = None  # that came in the window
    ttft: Metric = NO_METRIC
    tpot: Metric = NO_METRIC
    e2e: Metric = NO_METRIC
    itl: Metric = NO_METRIC  # this or one of the next two has values: that of the run
    tbc: Metric = NO_METRIC
    itl_b: Metric = NO_METRIC


class ModelResult(PartResult, frozen=True, kw_only=True):
    """Figures of one of several models or adapters that the run asks."""

    name: Model = None  # that requests name
    share_asked: Ratio = None  # of the sessions, or of requests that stand alone: by the weights
    share_planned: Ratio = None  # of the planned requests, as drawn
    share_sent: RequestShare = None  # of the requests that were sent; of those of the class in a table of one
    planned: Count = None  # requests of the plan; of a closed loop that repeats it, of one round

    OPTIONAL: ClassVar[tuple[str, ...]] = ("share_asked", "share_planned", "planned")


class ClassResult(Document, frozen=True, kw_only=True):
    """Figures of one class of traffic."""

    endpoint_type: str | None = None  # wire protocol; this and the next two: of classes of the run, not of a data set
    urls: Names = ()
    model: Model = None
    loop: str | None = None  # open, closed; of a mix that has closed loops
    concurrency: InFlight = None  # slots of a closed loop
    slots: SlotsFollowed | None = None  # asked and achieved; None: an open loop
    planned: Count = None  # of the class, in the measurement
    ok: Count
    failed: Count  # neither ok, nor unsent, nor left by their users
    left: Count  # cancelled or given up by simulated users
    came_whole: Count = None  # answers in one body, not as streams
    success_rate: RequestShare = None  # ok of those submitted in the window
    req_s: Rate = None  # completed in the window
    output_tok_s: TokenRate = None  # that came in the window
    input_tok_s: TokenRate = None  # of prompts whose first token, or answer that is not tokens, came in the window
    input_tokens_mean: Length = None  # of a request of the latency population
    output_tokens_mean: Length = None  # of a request of the latency population
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
    models: tuple[ModelResult, ...] = ()  # of a class that asks several, those with the most requests first

    def optional(self) -> tuple[str, ...]:
        """Figures of reasoning; and what only classes of the run have."""
        of_run = () if self.endpoint_type is not None else ("endpoint_type", "urls", "model", "models")
        of_mix = () if self.loop is not None else ("loop", "concurrency", "slots")
        return ("ttft_any", "tpot_any", *of_run, *of_mix)


Sessions = Annotated[Number, field("sessions", Reveals.LOAD)]
Calls = Annotated[Number, field("calls", Reveals.LOAD)]


class BackendNames(Document, frozen=True, kw_only=True):
    """Names that answers to one worker had in the header of `--backend-header`: what `backend` of its rows means, from 1."""

    worker: int  # its number
    names: Names = ()  # in the order in which they came


class BackendResult(PartResult, frozen=True, kw_only=True):
    """Figures of one server of a router: of the requests that it answered, in whatever way."""

    name: Name = None  # as its answers say; None: all that came when their worker had 4,095 names
    share: RequestShare = None  # of all requests whose answers name a server
    cached_tokens: Tokens = None  # that it found in its cache, as it reports them; None: it does not
    cached_share: RequestShare = None  # of their prompts' tokens, as it reports these


class SessionsOn(Document, frozen=True, kw_only=True):
    backends: int | None = None  # servers that answered the session's requests
    sessions: Sessions = None  # with as many


class BackendMoves(Document, frozen=True, kw_only=True):
    """Whether the turns of sessions went where the turn before had gone. Of an agent in a session: its own turn before."""

    compared: Calls = None  # turns whose answer, and that to the turn before, name a server
    stayed: Calls = None  # went where the turn before went
    moved: Calls = None  # went to another server
    stayed_share: RequestShare = None  # of the compared turns
    stayed_share_at_random: Ratio = (
        None  # of a router that draws a server for each request, by the shares of the servers
    )
    sessions: Sessions = None  # of which an answer names a server
    sessions_moved: Sessions = None  # with a turn that moved
    by_backends: tuple[SessionsOn, ...] = ()  # sessions by the number of their servers
    cached_share_stayed: RequestShare = None  # of the prompt tokens of turns that stayed, found in the server's cache
    cached_share_moved: RequestShare = None  # and of those that moved
    ttft_stayed: Metric = NO_METRIC
    ttft_moved: Metric = NO_METRIC


class BackendFigures(Document, frozen=True, kw_only=True):
    """Which server of a router answered, by a header of its answers."""

    header: Name = None  # that names it
    named: Count = None  # requests whose answers have it, in the measurement
    unnamed: Count = None  # that got a head without it
    servers: Annotated[Number, field("servers", Reveals.LOAD)] = None  # different names
    max_over_mean: Annotated[Number, field("x", Reveals.SHARE)] = (
        None  # requests of the busiest server, over the mean of all
    )
    max_over_mean_at_random: Annotated[Number, field("x", Reveals.SHARE)] = None  # of a server drawn for each request
    max_over_mean_by_session: Annotated[Number, field("x", Reveals.SHARE)] = None  # of a server drawn for each session
    each: tuple[BackendResult, ...] = ()  # those with the most requests first, up to 256
    moves: BackendMoves | None = None  # of turns; None: requests stand alone
    caveat: Sentence = None  # why the header may not name servers


class TurnResult(Document, frozen=True, kw_only=True):
    """Figures of one turn of all conversations."""

    turn: int | None = None  # from 0
    requests: Count = None  # of the latency population
    ttft: Metric = NO_METRIC
    prompt_tokens_mean: Length = None  # as the server reports them
    cached_share: RequestShare  # prompt tokens that the server found in its cache, as it reports them


Dialogues = Annotated[Number, field("conversations", Reveals.LOAD)]
Turns = Annotated[Number, field("turns", Reveals.LOAD)]


class Conversations(Document, frozen=True, kw_only=True):
    """What became of the conversations."""

    planned: Dialogues = None  # in the plan
    begun: Dialogues  # of which a turn was sent
    turns_sent: Turns  # of all conversations
    turns_planned: Turns = None  # of all conversations
    ended_by_failure: Dialogues  # whose last turn failed
    ended_by_leaving: Dialogues  # whose last turn was cancelled
    tool_call_replies: Turns = None  # replies with tool calls that another turn followed
    turns: tuple[TurnResult, ...]  # by turn, up to 32


class PathShares(Document, frozen=True, kw_only=True):
    """Where the time of completed sessions went: shares of their longest chains of calls and waits, which sum to 1."""

    prefill: Ratio = None  # from sending a call to its first token
    decode: Ratio = None  # from the first token of a reply to its end
    tool: Ratio = None  # waits for tools
    user: Ratio = None  # waits for users
    agent: Ratio = None  # waits for the agent's own work
    unknown: Ratio = None  # waits whose kind the trace does not say
    client: Ratio = None  # from the instant at which a call was due to its sending


class BlockHits(Document, frozen=True, kw_only=True):
    """Prompt tokens that the server's prefix cache found, against what it could find; over calls that report them."""

    requests: Count = None  # of the latency population, whose replies say how many tokens were cached
    ideal: Ratio = (
        None  # of the prompt tokens, in full blocks, that a cache without end finds in the order of the trace
    )
    ideal_at_send: Ratio = (
        None  # the same in the order sent, of blocks that an earlier call had when its first token came
    )
    achieved: Ratio = None  # of the prompt tokens, both as the server counts
    reached: Ratio = None  # achieved over ideal_at_send
    shortfall: Metric = NO_METRIC  # tokens of a call that could have been cached and were not


class CallGroup(Document, frozen=True, kw_only=True):
    """Figures of the calls of one turn, or of one depth, of all sessions."""

    number: int | None = None  # of the turn in its agent's calls, or levels above the agent; from 0
    requests: Count = None  # of the latency population
    ttft: Metric = NO_METRIC
    prompt_tokens_mean: Length = None  # as the server reports them
    cached_share: RequestShare = None  # prompt tokens that the server found in its cache, as it reports them


class SessionObjective(Document, frozen=True, kw_only=True):
    """How many of the sessions that were completed meet a limit of `--goodput`."""

    objective: str | None = None  # as asked: session_makespan, session_first_action, session_stretch
    limit: Annotated[Number, field("ms, or a factor")] = None  # of its value
    unit: str | None = None  # of the limit: ms, factor
    met: Sessions = None  # within it


class SessionFigures(Document, frozen=True, kw_only=True):
    """Sessions whose first call was sent in the window. A session counts once, however many calls it has."""

    begun: Sessions = None  # of which a call was sent in the window
    under_way: Sessions = None  # in addition, that began before the run: they count in rates, turns and depths alone
    completed: Sessions = None  # all calls ok
    failed: Sessions = None  # with a call that failed or was cancelled
    unfinished: Sessions = None  # that the end of the run cut off
    calls_planned: Calls = None  # of the sessions that begun counts
    calls_sent: Calls = None  # of these
    calls_failed: Calls = None  # of the calls sent
    calls_cancelled: Calls = None  # never sent, since a call that they wait for failed
    completed_per_s: Rate = None  # sessions that ended in the window, per second
    met: Sessions = None  # completed, and it and every call met the objectives of `--goodput`
    goodput: Rate = None  # met, per second
    objectives: tuple[SessionObjective, ...] = ()  # of sessions
    makespan: Metric = NO_METRIC  # first send to the last byte of the last call that something waits for; completed
    makespan_with_unfinished: dict[str, Ms] = {}  # percentiles with cut-off sessions as censored (Kaplan and Meier)
    model_time: Metric = NO_METRIC  # of the longest chain of a session, in calls
    tool_time: Metric = NO_METRIC  # of the longest chain of a session, in waits for tools
    tool_time_all: Metric = NO_METRIC  # sum over all calls of a session, whether or not they ran at the same time
    stretch: Metric = NO_METRIC  # makespan over that with the recorded service times and the waits of this run
    first_action: Metric = NO_METRIC  # first send to the first tool call, or to the answer where no tool follows
    calls: Metric = NO_METRIC  # of a session
    agents: Metric = NO_METRIC  # of a session
    depth: Metric = NO_METRIC  # of a session's deepest agent
    in_flight: Metric = NO_METRIC  # most calls of a session at once
    critical_path: PathShares | None = None
    turns: tuple[CallGroup, ...] = ()  # by index of the call within its agent, up to 32
    depths: tuple[CallGroup, ...] = ()  # by levels above the agent
    cache: BlockHits | None = None  # None: prompts share no blocks, or no reply says what was cached
    caveat: Sentence = None  # where the run is too short for its sessions

    OPTIONAL: ClassVar[tuple[str, ...]] = ("under_way",)


class Users(Document, frozen=True, kw_only=True):
    """Users who did not wait."""

    chosen_to_leave: Count = None  # of users who were to cancel by plan
    left_by_plan: Count  # cancelled as planned
    ended_before_leaving: Count = None  # answered before their users would have cancelled
    events_until_they_left: Annotated[Number, field("events")] = None  # with content, mean over *left_by_plan*
    gave_up: Count  # cancelled when a deadline of `--abandon` passed
    slow_readers: Count  # read no faster than `--slow-readers` says
    denominators: Any = None  # which figures they count in, as a sentence


class DriftFacts(Document, frozen=True, kw_only=True):
    """A level of a metric over the window, ms, and the likeliest step in it."""

    first_half: Ms = None  # mean over the first half
    second_half: Ms = None  # mean over the second half
    p: Plain = None  # of a difference of the halves, or a slope, by chance
    step_at: RequestShare = None  # share of the requests before the step
    before_step: Ms = None  # mean before the likeliest step
    after_step: Ms = None  # mean after it
    p_step: Plain = None  # of that step by chance
    steady: bool | None = None  # false: it moved by 20 % or more, and not by chance


class Transient(Document, frozen=True, kw_only=True):
    """Where MSER-5 sees the start of the run end."""

    cut_requests: Count = None  # that MSER-5 would leave out at the start
    cut_share: Annotated[Number, field("share", Reveals.LOAD)] = None  # of all requests
    cut_seconds: Seconds = None  # when MSER-5 would begin, after the first request was due
    window_cut_seconds: Seconds = None  # when the window begins, after the first request was due
    steady: bool | None = None  # false: the best cut leaves less than half


class InFlightTrend(Document, frozen=True, kw_only=True):
    """Requests in flight in both halves of the window."""

    n: Samples = None  # requests that count: of a mix, those of its open loops
    first_half: InFlight = None  # mean over the first half
    second_half: InFlight = None  # mean over the second half
    p: Plain = None  # of a difference of the halves, or a slope, by chance
    growing: bool | None = None  # from fifth to fifth of the window, and not by chance


class LittlesLaw(Document, frozen=True, kw_only=True):
    """Requests in flight against rate times mean time."""

    in_flight: InFlight = None  # mean that workers counted in the window
    rate_per_s: Rate = None  # requests that began in the window
    time_s: Seconds = None  # mean time that these were in flight
    residual: Ratio = None  # difference of the counts from the requests' own times; None: too few were in flight
    holds: bool | None = None  # the residual is 1 % or less


class Steadiness(Document, frozen=True, kw_only=True):
    """Whether the system was in a steady state."""

    transient: dict[str, Transient | None] = {}
    littles_law: LittlesLaw | None = None
    drift: dict[str, DriftFacts | None] = {}  # of the level, by metric
    in_flight: InFlightTrend | None = None  # whether the queue grows; None: a closed loop, or too few requests
    steady: bool | None = None  # false: a level drifts or the queue grows


class TelemetrySource(Document, frozen=True, kw_only=True):
    """Where figures were read."""

    origin: Name = None  # URL of a metrics page, or name of a sensor
    kind: str | None = None  # server, router, gpu, node: role of a metrics page; power, host
    exporter: str | None = None  # whose page it is: vllm, dcgm, node ...; None: not recognised
    label: Name = None  # that `--telemetry-url` gave to the page
    n: Samples = None  # reads
    n_failed: Samples = None  # reads that failed
    n_skipped: Samples = None  # reads that were due during another one
    slowest_s: Seconds = None  # the longest read
    problems: Annotated[dict[str, int], field("", Reveals.NAME)] = {}  # how often, by sentence

    OPTIONAL: ClassVar[tuple[str, ...]] = ("exporter", "label")


class TelemetryEntry(Document, frozen=True, kw_only=True):
    """A series: of a gauge mean, min and max; of a counter first, last and delta."""

    name: str | None = None  # ours
    source: Name = None  # name that the source has for it
    origin: Name = None  # URL of a metrics page, or name of a sensor
    unit: str | None = None  # of its figures
    kind: str | None = None  # gauge, counter
    n: Samples = None  # in the window
    n_failed: Samples = None  # reads in the window that gave no value
    labels: Name = None  # of one of a server's own series, as a="x",b="y"
    first: Figure = None  # at the start of the window
    last: Figure = None  # at its end
    delta: Figure = None  # increment, also over a restart of the server
    span_s: Seconds = None  # between *first* and *last*
    restarts: Annotated[Number, field("restarts")] = None  # how often it went back, of which *delta* counts from 0
    mean: Figure = None  # over the window
    min: Figure = None  # in the window
    max: Figure = None  # in the window

    def optional(self) -> tuple[str, ...]:
        """The figures of the other kind."""
        others = ("mean", "min", "max") if self.kind == "counter" else ("first", "last", "delta", "span_s")
        return ("labels", "restarts", *others)


class TelemetryFacts(Document, frozen=True, kw_only=True):
    """What was sampled during the run."""

    interval_s: Seconds = None  # between two reads of a source
    ended: bool | None = None  # the sampling process ended in order
    sources: tuple[TelemetrySource, ...] = ()
    absent: dict[str, Name] = {}  # why a sensor is missing, by its name
    cpu_share: Ratio = None  # of a core, that sampling used
    warnings: Names = ()  # hardware that was slowed down during the window
    series: tuple[TelemetryEntry, ...] = ()  # each series over the window


class ServerFigure(Document, frozen=True, kw_only=True):
    """A figure that the server reports; `source` is "not measured" without one."""

    value: Figure = None  # over the window
    unit: str | None = None
    source: str | None = None  # names that the server has for it; "not measured": it reports none


class Requirements(Document, frozen=True, kw_only=True):
    """How many requirements of a level hold, and the ids of those that do not."""

    hold: Plain = None  # that hold, of those that apply
    of: Plain = None  # that apply
    false: tuple[str, ...] = ()  # ids of those that do not hold
    undeclared: tuple[str, ...] = ()  # ids of those that need a declaration
    unchecked: tuple[str, ...] = ()  # ids of those that could not be checked


class Requirement(Document, frozen=True, kw_only=True):
    """A requirement that does not hold."""

    id: str = ""  # as `fastllmload compliance` lists it
    level: str | None = None  # key word of the draft: MUST, SHOULD ...; DEFINITION: none
    basis: str | None = None  # why it has that level: keyword, governed, imperative ...
    state: str | None = None  # false, undeclared, unchecked
    statement: str | None = None  # what is required
    reason: Sentence = None  # why it does not hold
    remedy: str | None = None  # what to do


class Compliance(Document, frozen=True, kw_only=True):
    """The verdict by the draft; `fastllmload compliance RUN` has all of it."""

    verdict: str | None = None  # unconditionally, conditionally or not compliant (IETF 2)
    test: str | None = None  # name of the test; None: a run
    scope: str | None = None  # what was judged, as a phrase
    counts: dict[str, Plain] = {}  # requirements by what became of them
    must: Requirements = Requirements()  # requirements of the level MUST
    should: Requirements = Requirements()  # requirements of the level SHOULD
    deviations: Sentences = ()  # from the draft's method
    unmet: tuple[Requirement, ...] = ()  # those that decide the verdict and do not hold
    beside: tuple[Requirement, ...] = ()  # without a key word of the draft: they decide nothing; prose: allow

    def optional(self) -> tuple[str, ...]:
        """Of what is judged with something else, such as a level with its procedure: all but verdict and scope."""
        return (
            () if self.verdict else tuple(name for name in self.__struct_fields__ if name not in ("verdict", "scope"))
        )


class SessionEnds(Document, frozen=True, kw_only=True):
    """Requests of `--session-end`, which are in no other figure."""

    sent: Count = None  # for sessions that have ended, of warm-up and measurement
    failed: Count = None  # of these: not answered, or with a status from 400 on
    failure: Sentence = None  # of the first that failed


class ControlCall(Document, frozen=True, kw_only=True):
    """A request that controls a server (`--between`)."""

    verb: str | None = None  # reset-cache, flush, profile, sleep, wake; hook: a request of the user's own
    when: str | None = None  # before or after the measurement
    url: Name = None  # of the server, without credentials
    request: Name = None  # method and path
    at_ns: Ns = None  # CLOCK_MONOTONIC, when it was sent
    seconds: Seconds = None  # until the answer
    http_status: int | None = None  # of the answer; None: there was none
    done: bool = False  # the status is 200 to 299
    needed: bool = True  # without it the measurement does not begin; false: not every server has it
    said: Sentence = None  # the answer's text, up to 200 characters, or why there was none


class Drained(Document, frozen=True, kw_only=True):
    """What a server still had to do before it was controlled, when nothing of ours was in flight."""

    url: Name = None  # of the server, without credentials
    seconds: Seconds = None  # that were waited for that
    running: InFlight = None  # by its metrics page; None: it has none
    waiting: InFlight = None  # by its metrics page; None: it has none


class CacheProof(Document, frozen=True, kw_only=True):
    """Whether a cache was empty after its reset: a prompt that it had was sent twice, then it was reset once more."""

    url: Name = None  # of the server, without credentials
    first: Length = None  # tokens that were cached the first time; None: not reported
    second: Length = None  # tokens that were cached the second time; None: not reported
    source: str | None = None  # what says so: usage of the answer, or prefix_cache_hits of the metrics page
    proved: bool | None = None  # none the first time, some the second; None: it cannot be known
    why: Sentence = None  # it cannot be known


class ControlFacts(Document, frozen=True, kw_only=True):
    """How servers were controlled between warm-up and measurement (`--between`), and what came of it."""

    profiled: bool = False  # the profiler ran during the measurement: figures are those of a profiled server
    kinds: Annotated[dict[str, str], field("", Reveals.NAME)] = {}  # of each server, by URL
    calls: tuple[ControlCall, ...] = ()  # in the order in which they were sent
    drained: tuple[Drained, ...] = ()  # before the last of them
    proofs: tuple[CacheProof, ...] = ()  # of resets


class ServerPage(Document, frozen=True, kw_only=True):
    """A page on which a server says what it is (`/version`, `/server_info`); its content is in server-info.json."""

    url: Name = None  # of the server, without credentials
    page: str | None = None  # path
    digest: str | None = None  # SHA-256 of its content before the run, without what changes by itself
    read_after: bool = False  # it was there after the run, too
    changed: Names = ()  # what changed during the run, as `path: value -> value`


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
