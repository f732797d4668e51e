"""Types of run.json for what the telemetry of several pages says together: replicas, pools, GPUs, nodes, energy."""

from __future__ import annotations

from typing import Annotated

from fastllmload.documents.fields import (
    Bytes,
    Count,
    Document,
    InFlight,
    Name,
    Names,
    Number,
    Plain,
    Ratio,
    RequestShare,
    Reveals,
    Samples,
    Sentence,
    TokenRate,
    Tokens,
    field,
)

Watts = Annotated[Number, field("W")]
Joules = Annotated[Number, field("J", Reveals.LOAD)]
KvShare = Annotated[Number, field("share", Reveals.ENGINE)]
Limit = Annotated[Number, field("adapters", Reveals.ENGINE)]


class ReplicaFigures(Document, frozen=True, kw_only=True):
    """A server by its own counters and gauges, in the window. Null: it has no such metric."""

    origin: Name = None  # URL of its metrics page
    label: Name = None  # that `--telemetry-url` gave to the page
    exporter: str | None = None  # vllm, sglang, tensorrt-llm ...
    requests: Count = None  # that it finished
    request_share: RequestShare = None  # of the requests of all replicas
    prompt_tokens: Tokens = None  # that it counted
    generation_tokens: Tokens = None  # that it counted
    token_share: RequestShare = None  # of the generated tokens of all replicas
    running: InFlight = None  # mean
    waiting: InFlight = None  # mean
    kv_usage: KvShare = None  # mean
    prefix_cache_hit_rate: Ratio = None  # of tokens or blocks, as in `server`
    preemptions: Annotated[Number, field("preemptions", Reveals.ENGINE)] = None  # by its counter


class Balance(Document, frozen=True, kw_only=True):
    """How evenly replicas share something: 1 and 0 if each has the same."""

    max_over_mean: Plain = None  # the largest of the replicas / their mean
    cv: Plain = None  # coefficient of variation: standard deviation (n in the denominator) / mean


class Pool(Document, frozen=True, kw_only=True):
    """The pages of one label, such as prefill or decode."""

    label: Name = None  # as given by `--telemetry-url`
    replicas: Annotated[Number, field("servers", Reveals.ENGINE)] = None  # servers with that label
    gpus: Annotated[Number, field("GPUs")] = None  # with that label
    running: InFlight = None  # mean, sum over the servers
    waiting: InFlight = None  # the same
    kv_usage: KvShare = None  # mean over the servers
    prompt_tok_s: TokenRate = None  # by the servers' counters
    generation_tok_s: TokenRate = None  # by the servers' counters
    utilisation: Ratio = None  # of the GPUs, mean
    power_w: Watts = None  # of the GPUs, mean over the window
    energy_j: Joules = None  # of the GPUs


class Gpu(Document, frozen=True, kw_only=True):
    """A GPU in the window, once, however many exporters report it."""

    node: Name = None  # host name that an exporter gives, else of its URL
    gpu: str | None = None  # its number there
    uuid: Name = None  # of the device; joins what exporters report
    label: Name = None  # of the page
    sources: Names = ()  # pages and sensors that report it
    utilisation: Ratio = None  # mean share of time in which it was busy
    memory_used_bytes: Annotated[Number, field("bytes", Reveals.ENGINE)] = None  # largest
    temperature_c: Annotated[Number, field("degrees Celsius")] = None  # highest
    power_w: Watts = None  # mean over the window
    energy_j: Joules = None  # over the window
    method: str | None = None  # counter: by its energy counter; power: mean power x time
    energy_by_power_j: Joules = None  # power x time, to check a counter
    n: Samples = None  # different values of the counter, or samples of the power, in the window
    reason: Sentence = None  # why it has no energy


class Node(Document, frozen=True, kw_only=True):
    """A node in the window."""

    node: Name = None  # host name that an exporter gives, else of its URL
    gpus: Annotated[Number, field("GPUs")] = None  # that it has
    gpu_energy_j: Joules = None  # of all its GPUs; null: one has none
    cpu_energy_j: Joules = None  # of packages and memory, by the counters of its node exporter
    cpu_busy: Ratio = None  # of all its cores
    memory_available_bytes: Bytes = None  # least


class Energy(Document, frozen=True, kw_only=True):
    """What the system took in the window: all GPUs, else the CPUs of all nodes, else the power sensor."""

    energy_j: Joules = None  # mean power x seconds of the window
    power_w: Watts = None  # mean
    of: str | None = None  # gpus, cpus, sensor
    devices: Annotated[Number, field("devices")] = None  # GPUs, or nodes
    method: str | None = None  # counter, power (mean power x time), mixed
    source: str | None = None  # names of the metrics
    energy_by_power_j: Joules = None  # power x time of the same devices, to check counters
    n: Samples = None  # of the device with the fewest samples
    idle_w: Watts = None  # before the first request, with `--telemetry-idle`
    above_idle_j: Joules = None  # energy_j - idle_w x seconds of the window
    reason: Sentence = None  # why there is no energy


class Speculation(Document, frozen=True, kw_only=True):
    """Speculative decoding in the window."""

    acceptance_length: Plain = None  # tokens of a verification: 1 + accepted tokens / drafts
    acceptance_rate: Ratio = None  # accepted tokens / draft tokens
    by_position: Annotated[
        tuple[float, ...], field("share")
    ] = ()  # of drafts whose token at that position was accepted
    draft_tokens: Tokens = None  # proposed
    accepted_tokens: Tokens = None  # of these
    method: str | None = None  # counters; gauges: means of what the server computes over its own time
    source: str | None = None  # names that the server has for it


class Adapters(Document, frozen=True, kw_only=True):
    """The pool of LoRA adapters of the server where it was fullest."""

    origin: Name = None  # URL of its metrics page
    used_mean: Limit = None  # over the window
    used_max: Limit = None  # in the window
    total: Limit = None  # that fit
    full_share: Ratio = None  # of samples in which all places were used


class Cluster(Document, frozen=True, kw_only=True):
    """What several metrics pages say together. Docs: docs/guides/telemetry.md."""

    replicas: tuple[ReplicaFigures, ...] = ()  # two or more
    balance: dict[str, Balance] = {}  # of requests, generation_tokens and running between the replicas
    pools: tuple[Pool, ...] = ()  # by label
    gpus: tuple[Gpu, ...] = ()
    nodes: tuple[Node, ...] = ()
    energy: Energy | None = None  # None: nothing reports energy or power
    speculation: Speculation | None = None  # None: not reported, or nothing was drafted
    adapters: Adapters | None = None  # None: not reported
