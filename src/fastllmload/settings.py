"""The settings of one run, complete and frozen; the command line, config files and the Python API all produce them.

Times are seconds (float), rates requests per second, lengths tokens. `None` means "not given", never 0 (0 is a seed).
This module imports neither numpy nor anything compiled, so that `--help` stays instant.
"""

from __future__ import annotations

import msgspec

__all__ = [
    "Client", "Hosts", "Load", "Output", "RunSettings", "ServerControl", "SessionIdentity", "Target", "Telemetry",
    "TrafficClass", "UserBehavior", "Workload",
]  # fmt: skip
DEFAULT_ENDPOINT = "openai-chat"
KEY_VARIABLES = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")  # of the environment; no process that a run starts has them
PROMPT_FORMS = ("words", "text", "ids", "native")
CONTROL_VERBS = ("reset-cache", "flush", "profile", "sleep", "wake")
CONTROLLED = ("vllm", "sglang", "tensorrt-llm", "dynamo")  # kinds of servers, of engine/control/servers.toml


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests are sent. *urls* is empty when the run starts the simulated engine itself."""

    urls: tuple[str, ...] = ()
    unix_socket: str | None = None
    endpoint_type: str = DEFAULT_ENDPOINT  # of fastllmload.endpoint.ENDPOINTS, or the text of a template
    endpoint_path: str | None = None
    model: str | None = None
    models: tuple[tuple[str, float], ...] = ()  # name and weight of each; empty: *model* alone, else it is the first
    model_zipf: float | None = None  # weights by place in *models*: 1/place^model_zipf
    model_order: str = "random"  # how *models* are given to sessions: random or round-robin
    model_check: bool = True  # reject a model that is not in the server's list
    headers: tuple[tuple[str, str], ...] = ()
    source_addresses: tuple[str, ...] = ()
    insecure: bool = False
    cacert: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    server_name: str | None = None  # SNI, when it differs from the URL's host
    tls_resume: bool = False  # later connections continue the TLS session of an earlier one
    preflight_timeout: float | None = None  # per preflight request; None: 10 s for a list, 30 s for the first answer
    simulate: tuple[tuple[str, str], ...] = ()  # options for the simulator that the run starts
    backend_header: str | None = None  # of answers: names the server that answered, of a router


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """When requests are sent: open loop (*rate*) or closed loop (*concurrency*), with its bounds."""

    rate: float | None = None  # of an open loop, the mean where rate_curve is given; math.inf sends all at once
    rate_curve: str | None = None  # a rate that changes: "ramp:10,100", "steps:10x60,20x60", "series:FILE" ...
    arrival: str = "poisson"  # poisson, constant, uniform, gamma, bursty
    burstiness: float = 1.0  # gamma shape, 1 = Poisson
    concurrency: int | None = None  # of a closed loop, or of all classes if each is one; the most where it changes
    concurrency_curve: str | None = None  # slots that change, in the forms of rate_curve
    max_concurrency: int | None = None  # most in flight of an open loop
    max_prefill: int | None = None  # most that wait for their first token, in both loops
    duration: float | None = None  # of sending; None: bounded by num_requests
    num_requests: int | None = None  # that are sent at most; None: bounded by duration
    warmup_requests: int | None = None  # None, and no other warmup: 100 requests and 10,000 output tokens (IETF 4.5.1)
    warmup_tokens: int | None = None  # output tokens that the warm-up needs
    warmup_seconds: float | None = None  # that the warm-up lasts
    ramp_share: float = 0.1  # of the duration, left out of the window at its start (IETF 5.2.3.2)
    timeout: float = 600.0  # of a request
    grace: float | None = None  # drain time-out; None: max(60 s, 5 x P99 e2e so far)
    repetition: int = 0  # each has its own arrival instants for the same requests (spec/procedures 0.13); 0: the first
    stop_on_failures: float | None = None  # share of the last 100 requests above which sending stops (IETF 7.4)

    @property
    def default_warmup(self) -> bool:
        return self.warmup_requests is self.warmup_tokens is self.warmup_seconds is None


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent. Length specifications: "256", "uniform:128,512", "normal:550,150", "lognormal:5.5,1.0,32,4096"."""

    name: str = "synthetic-uniform"  # standard workload, trace or data set
    isl: str | None = None  # tokens of prompts; None: the workload's own
    osl: str | None = None  # tokens of answers; None: the workload's own
    tokenizer: str = "cl100k_base"  # that counts prompts
    prompt_form: str = "words"  # words, text, ids (completions endpoint only), native
    streaming: bool = True  # answers are asked for as streams
    ignore_eos: bool = True  # the full output length is asked for
    temperature: float | None = 0.0  # None: left out of the request
    continuous_usage: str = "auto"  # token counts in events: on (usage), token-ids, off, auto (what is supported)
    extra_body: str | None = None  # JSON object text, merged into every body
    dataset_path: str | None = None  # the file of a trace or data set
    prompt: str | None = None  # of every request; None: each has its own
    dataset_class: str | None = None  # only the data set's entries of this class; None: all of them
    dataset_lengths: tuple[
        tuple[str, int], ...
    ] = ()  # bound, such as max-input, and tokens: other entries are left out
    hf_split: str | None = None  # of a data set of Hugging Face; None: train, or the only one
    hf_subset: str | None = None  # of a data set of Hugging Face; None: its default
    dataset_columns: tuple[tuple[str, str], ...] = ()  # prompt, answer, output_tokens or class, and its column
    trace_speed: float = 1.0  # factor; 2: twice as fast as it was recorded
    trace_from: float = 0.0  # where in the trace to start
    trace_to: float | None = None  # where in the trace to end; None: at its end
    trace_loop: bool = False
    trace_timing: str = (
        "dependent"  # calls of sessions follow the replies that they wait for; or recorded: their instants
    )
    session_start: str = "fresh"  # where sessions begin: fresh, stationary; of slots share:LOW,HIGH
    trace_max_wait: str | None = None  # longest waits by kind, as recorded: user=30s,tool=2m; 30s: of all kinds
    trace_prompts: str = "auto"  # what rows of one session are: whole prompts, or delta (additions); auto: found out
    cache_blocks: int | None = (
        None  # of the cache for which the ideal hit rate is also computed; None: only one without end
    )
    prefix_len: int = 0  # of the shared prefix of prompts; 0: none
    num_prefixes: int = 1  # different shared prefixes
    prefix_share: float = 1.0  # share of the requests that start with a shared prefix; the others have their own
    prefix_zipf: float = 0.0  # exponent of the choice among shared prefixes; 0: equally likely
    counting: str = "A"  # IETF 4.4.2: A the server's own counts first, B the reference tokenizer's
    context_limit: int | None = None  # tokens of prompt and answer that the model accepts; None: as the server reports
    image: str | None = (
        None  # synthetic images in each prompt: sizes, numbers and shares (workload/content/image_sets.py)
    )
    turns: str | None = None  # conversations with this number of turns: "4", "uniform:3,8"; "all" of a data set's
    think_time: str = "0"  # seconds between a reply and the next turn: "2", "uniform:1,5", "exponential:3"
    history: str = "real"  # earlier answers in later turns: real (as received), planned, or stored (by the server)
    tool_turns: float = 0.0  # share of later turns that contain a tool's result
    least_output: int = 0  # smaller output lengths are raised to it (IETF 5.4.2 needs 50 gaps)
    stream: str = ""  # another random stream of the seed, whose requests share nothing with the run's own
    prefix_stream: str | None = None  # random stream of the shared prefixes; None: the same
    salt: int = 0  # other drawn words, at the same lengths and instants; 0: as drawn

    def usage_asked(self, name: str) -> dict[str, bool]:
        """{name: True} if every event of a stream is to report its usage; else {}."""
        return {name: True} if self.continuous_usage == "on" else {}

    def ids_asked(self, name: str) -> dict[str, bool]:
        """{name: True} if every event of a stream is to contain the ids of its tokens; else {}."""
        return {name: True} if self.continuous_usage == "token-ids" else {}


class UserBehavior(msgspec.Struct, frozen=True, kw_only=True):
    """How simulated users cancel, read slowly and abandon; `workload.user_behavior` parses the texts."""

    cancel_share: float = 0.0  # of users, who cancel by plan
    cancel_after: str | None = None  # when they cancel: "20tok", "2s"
    slow_readers: str | None = None  # share and speed of slow readers: "0.05:20tok/s", "0.05:2kB/s"
    abandon: str | None = None  # deadline at which users give up: "ttft:5s", "e2e:30s"


class TrafficClass(msgspec.Struct, frozen=True, kw_only=True):
    """One request class of a run; what is not given here is the run's own.

    *headers* come on top of the run's; *model* and *endpoint_type* None are the run's, *urls* empty the run's targets.
    """

    name: str  # of the class
    load: Load
    workload: Workload
    behaviour: UserBehavior = UserBehavior()
    model: str | None = None
    models: tuple[tuple[str, float], ...] = ()  # as those of the target
    model_zipf: float | None = None  # as that of the target
    model_order: str = "random"  # as that of the target
    endpoint_path: str | None = None  # path of its requests; None: the run's, or the protocol's
    headers: tuple[tuple[str, str], ...] = ()  # on top of the run's
    endpoint_type: str | None = None
    urls: tuple[str, ...] = ()


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the load generator itself."""

    workers: int | None = None  # processes that send; None: auto
    pin: tuple[int, ...] = ()  # one CPU per worker
    timestamps: str = "auto"  # tap, kernel, user; auto: tap where it is permitted and worth it, else kernel
    transport: str = "auto"  # reactor, asyncio; auto: reactor
    decode: str = "fast"  # fast, strict: a JSON decoder on every event
    fresh_connections: bool = False
    http_version: str = "auto"  # 1.1, 2; auto: 1.1, or 2 where servers speak nothing else
    streams_per_connection: int = 100  # most requests in flight on a connection of HTTP/2
    seed: int = 42  # of all random choices; 0 is one
    record_text: str = "auto"  # auto: only when the target reports no usage; on; off
    spin_budget: float = 0.15  # share of a core that pacing may spin


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What a run writes and prints, and what its figures are judged by."""

    directory: str | None = None  # run folder; None: runs/<time>-<digest>
    ui: str = "auto"  # auto, live, plain, none
    strict: bool = False  # exit code 1 for any verdict but valid
    goodput: tuple[tuple[str, float], ...] = ()  # objectives: [class/]name, limit in the unit of its metric
    itl_option: str = "auto"  # auto, A, B (IETF B.2.1)
    percentile_metrics: tuple[str, ...] = ()  # rows of the closing table; empty: all
    metric_percentiles: tuple[float, ...] = ()  # its columns besides mean and maximum; empty: all
    prefill_deadline: tuple[tuple[float, float], ...] | None = None  # first token's: input tokens, ms; None: 100 ms
    decode_deadline: float | None = None  # of each further token of fluidity; None: 50
    reading_speed: float | None = None  # for idle latency; None: 20
    ttft_net_adjusted: bool = False
    metadata: tuple[tuple[str, str], ...] = ()  # labels
    declare: tuple[tuple[str, str], ...] = ()  # declarations that the draft asks for (IETF 4.1)
    gpus: int | None = None  # of the target, as declared
    price_per_hour: float | None = None  # of the complete target, as declared, in any currency
    save_plan: str | None = None  # file that the plan is written to
    plan: str | None = None  # replay this plan file
    plan_urls: tuple[tuple[str, tuple[str, ...]], ...] = ()  # targets of that plan's classes: name, URLs


class Telemetry(msgspec.Struct, frozen=True, kw_only=True):
    """What is sampled during the run. *urls* empty: each target's own metrics page, if it has one."""

    enabled: bool = True  # whether anything is sampled
    urls: tuple[str, ...] = ()  # metrics pages in Prometheus text, URL or LABEL=URL; empty: /metrics of each target
    metrics: tuple[str, ...] = ()  # further series, by the server's names
    matchers: str | None = None  # of the series of a Prometheus server, as in PromQL; None: all that it has
    interval: float = 1.0  # between samples
    idle: float = 0.0  # sampled before the first request, for what the idle system takes
    power: str = "auto"  # auto, none, nvml, rapl, powermetrics, command
    power_command: str | None = None  # a shell command that prints watts, once or repeatedly
    gpus: tuple[int, ...] = ()  # of NVML; empty: all
    prometheus: str | None = None  # HOST:PORT where the run's own counters are served


class Hosts(msgspec.Struct, frozen=True, kw_only=True):
    """Which hosts send the load: this one, or those of a Ray cluster (docs/many-hosts.md)."""

    address: str | None = None  # of the Ray cluster: HOST:PORT, auto, local; None: this host alone
    hosts: int | None = None  # number of hosts; None: all that have room
    resource: str | None = None  # only hosts with this resource of Ray
    collect: str = "rows"  # rows: requests and events come to the driver; summary: events stay on their hosts
    on_host_loss: str = "continue"  # what the others do when one is lost: continue, stop


class SessionIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """How requests name the session that they belong to; `endpoint.identity` parses the templates."""

    affinity: str | None = None  # router whose headers are set, of endpoint.identity.AFFINITIES
    headers: tuple[tuple[str, str], ...] = ()  # name and template of values
    body: tuple[tuple[str, str], ...] = ()  # field of the body, a path with dots, and template
    children: str = "own"  # agents that others of the session start: own (identity) or parent (the same)
    token: str | None = None  # NAME or NAME=OTHER, each a header or body:PATH: of answers, sent back in OTHER
    end: str | None = None  # METHOD URL that ends a session, a template


class ServerControl(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of servers between the warm-up and the measurement."""

    between: tuple[str, ...] = ()  # of CONTROL_VERBS, or METHOD URL, in this order
    server: str | None = None  # whose routes, of CONTROLLED; None: as their metrics pages say
    replicas: tuple[str, ...] = ()  # URLs of the engines; empty: the targets
    admin_key_file: str | None = None  # whose first line is the key of these requests; None: the API key

    @property
    def empties_caches(self) -> bool:
        """Whether a prefix cache has nothing of the warm-up when the measurement begins."""
        return not {"reset-cache", "flush", "sleep"}.isdisjoint(self.between)


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One run. The API key is deliberately not in here: it is passed separately, as `Secret`, and never stored."""

    target: Target = Target()
    load: Load = Load()
    workload: Workload = Workload()
    client: Client = Client()
    output: Output = Output()
    telemetry: Telemetry = Telemetry()
    behaviour: UserBehavior = UserBehavior()
    hosts: Hosts = Hosts()
    session: SessionIdentity = SessionIdentity()
    control: ServerControl = ServerControl()
    classes: tuple[TrafficClass, ...] = ()  # request classes; empty: none


class Secret:
    """A value that must never be printed: repr, str and format give a placeholder; only `reveal()` returns it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)
