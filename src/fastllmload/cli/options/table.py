"""The options of a run: one table for command line, config file and help text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastllmload.cli.options import parsers as read
from fastllmload.endpoint import ALIASES, ENDPOINTS
from fastllmload.endpoint.identity import AFFINITIES
from fastllmload.settings import CONTROLLED


@dataclass(frozen=True)
class RunOption:
    """One option. *flags*: the first long one names it in messages and config files, the others are aliases.

    *field* is `group.name` of RunSettings; None when *parse* returns a dict of such fields. A switch has no *parse*
    but *on*, the field's value when it is given; *off_flags* mean the opposite.
    """

    flags: tuple[str, ...]
    field: str | None
    help: str
    parse: Callable[[str], object] | None = None
    metavar: str = ""
    multiple: bool = False
    words: bool = False  # several words may follow one flag
    on: object = None
    off: object = None
    off_flags: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        return next(flag for flag in self.flags if flag.startswith("--"))

    @property
    def off_flag(self) -> str | None:
        return self.off_flags[0] if self.off_flags else None

    @property
    def name(self) -> str:
        """The key in a config file."""
        return self.flag.removeprefix("--")

    @property
    def parameter(self) -> str:
        return self.name.replace("-", "_")

    @property
    def aliases(self) -> tuple[str, ...]:
        return (*(flag for flag in self.flags if flag.startswith("--") and flag != self.flag), *self.off_flags[1:])


def value(flags: str, field: str | None, parse: Callable[[str], object], metavar: str, help: str) -> RunOption:
    return RunOption(tuple(flags.split()), field, help, parse, metavar)


def several(flags: str, field: str | None, parse: Callable[[str], object], metavar: str, help: str) -> RunOption:
    return RunOption(tuple(flags.split()), field, help, parse, metavar, multiple=True)


def words(flags: str, field: str | None, parse: Callable[[str], object], metavar: str, help: str) -> RunOption:
    return RunOption(tuple(flags.split()), field, help, parse, metavar, multiple=True, words=True)


def switch(flags: str, field: str, help: str, *, on: object = True, off: object = False, no: str = "") -> RunOption:
    return RunOption(tuple(flags.split()), field, help, on=on, off=off, off_flags=tuple(no.split()))


ENDPOINT_TYPE = read.endpoint_type(*ENDPOINTS, also=ALIASES)
WORKLOAD = read.one_of(
    *read.STANDARD, *read.FAIRNESS, *read.TRACES, *read.DATASETS, read.RANDOM,
    of_files="a file is given as --dataset-path FILE, and --workload names its format",
)  # fmt: skip

SECTIONS: dict[str, tuple[RunOption, ...]] = {
    "Target": (
        several("-u --url --base-url --target", "target.urls", read.url, "URL",
                "Server to load; several are used round robin. Default: the simulated engine. "
                "[env OPENAI_BASE_URL]"),
        value("-m --model --served-model-name", "target.model", read.text, "NAME",
              "Model name in every request. Default: the only model that the server lists."),
        value("--models", "target.models", read.models, "LIST",
              "Several models or adapters, drawn by weight: A=5,B=3,C, or a FILE of one NAME or NAME=WEIGHT a line. A "
              "session stays with one."),
        value("--model-zipf", "target.model_zipf", read.exponent, "EXPONENT",
              "Model k of --models is drawn in proportion to 1/k^EXPONENT."),
        value("--model-order", "target.model_order", read.one_of("random", "round-robin"), "NAME",
              "How sessions get one of --models: random (default) or round-robin, in turn."),
        value("--endpoint-type --backend", "target.endpoint_type", ENDPOINT_TYPE, "NAME",
              f"Wire protocol: {', '.join(ENDPOINTS).replace(',', ' (default),', 1)}; also vLLM's names, and FILE.toml or "
              "FILE.json, which describes another one."),
        value("--endpoint", "target.endpoint_path", read.url_path, "PATH", "Overrides the protocol's path."),
        value("--backend-header", "target.backend_header", read.read_header, "NAME",
              "Header of answers that names the replica, pod or worker which answered, of a router: figures by backend, "
              "and turns of sessions that moved."),
        value("--host", "address.host", read.text, "HOST", "Host of the server; instead of --url. Default 127.0.0.1."),
        value("--port", "address.port", read.port, "PORT", "Port of the server; instead of --url. Default 8000."),
        value("--api-key", None, read.text, "KEY",
              "Bearer token, never shown or stored. Safer: --api-key-file or the environment. [env OPENAI_API_KEY; "
              "ANTHROPIC_API_KEY before it for anthropic-messages]"),
        value("--api-key-file", None, read.path, "FILE", "Reads the API key from the first line of FILE."),
        several("-H --header", "target.headers", read.header, "'NAME: VALUE'", "Extra request header, repeatable."),
        value("--unix-socket", "target.unix_socket", read.path, "PATH", "Connects to this socket instead of a port."),
        several("--source-address", "target.source_addresses", read.text, "ADDRESS",
                "Local address to connect from, repeatable; several multiply the available ports."),
        switch("--insecure", "target.insecure", "Accepts any TLS certificate."),
        value("--cacert", "target.cacert", read.path, "FILE", "Trusted certificates, PEM."),
        value("--cert", "target.client_cert", read.path, "FILE", "Client certificate, PEM."),
        value("--key", "target.client_key", read.path, "FILE", "Key of the client certificate, PEM."),
        value("--server-name", "target.server_name", read.text, "NAME", "TLS server name, if it is not the URL's host."),
        switch("--tls-resume", "target.tls_resume",
               "Continues TLS sessions of earlier connections to a target, which saves both sides most of a handshake."),
        switch("--no-model-check", "target.model_check",
               "Accepts a model name that the server does not list, such as an alias or one of a router.", on=False,
               off=True),
        value("--preflight-timeout", "target.preflight_timeout", read.seconds, "TIME",
              "Limit of each probe before the run. Default 10s for the list of models, 30s for the first answer."),
        words("--simulate", "target.simulate", read.pair, "NAME=VALUE",
              "Option of `fastllmload simulate` for the engine that the run starts."),
    ),
    "Load": (
        value("-r --rate --request-rate", None, read.rate_or_curve, "RATE",
              "Open loop: requests per second; inf sends all at once. Or a rate that changes: ramp:10,100, "
              "exponential:1,64, steps:10,20,40 or 10x60,20x60, spikes:BASE,PEAK,EVERY,LENGTH, day:LOW,HIGH,24h."),
        value("--rate-series", "load.rate_curve", read.rate_series, "FILE",
              "Rate from lines of time,rate in FILE, interpolated linearly."),
        value("--ramp-up-strategy", "load.ramp_strategy", read.one_of("linear", "exponential"), "NAME",
              "linear or exponential: the rate rises over the duration between the next two, as with --rate ramp:... or "
              "exponential:..."),
        value("--ramp-up-start-rps", "load.ramp_start", read.rate, "RATE", "Rate at the start of the ramp."),
        value("--ramp-up-end-rps", "load.ramp_end", read.rate, "RATE", "Rate at the end of the ramp."),
        value("--arrival --arrival-pattern", "load.arrival", read.arrival, "NAME",
              "Arrival process: poisson (default), constant, uniform, gamma, bursty, onoff:ON,OFF."),
        value("--burstiness --arrival-smoothness", "load.burstiness", read.positive, "SHAPE",
              "Gamma shape of the gaps; 1 is Poisson, less is burstier."),
        value("-c --concurrency --num-concurrent", None, read.count_or_curve, "COUNT",
              "Closed loop: COUNT requests in flight; the next is sent when one ends. Or a number that changes: ramp:1,512 "
              "and the other forms of --rate."),
        value("--max-concurrency", "load.max_concurrency", read.count, "COUNT",
              "Open loop: most requests in flight; one that waits is still measured from its scheduled instant."),
        value("--max-prefill", "load.max_prefill", read.count, "COUNT",
              "Most requests that wait for their first token, in both loops; the next is sent when one gets it, or ends."),
        value("-n --num-requests --num-prompts --request-count --num-samples", "load.num_requests", read.count, "COUNT",
              "Ends after COUNT requests; with --duration, whichever ends first."),
        value("-d --duration --benchmark-duration --max-seconds", "load.duration", read.seconds, "TIME",
              "How long to send: 200ms, 30s, 5m, 1h, 1d. Default 60s when nothing bounds the run."),
        value("--warmup --num-warmups --warmup-requests", None, read.warmup, "AMOUNT",
              "Requests, tokens (10000tok) or time (30s) before the measurement; 0 for none. Default: 100 requests and "
              "10,000 output tokens, less at a low rate."),
        value("--ramp-share", "load.ramp_share", read.share, "SHARE",
              "Share of the duration, at its start, that is not measured. Default 0.1."),
        value("--timeout --request-timeout-seconds", "load.timeout", read.seconds, "TIME",
              "Limit of each request. Default 600s."),
        value("--grace", "load.grace", read.seconds, "TIME",
              "How long to wait for requests in flight at the end. Default 60s, or 5 times the P99 of E2E if longer."),
        value("--stop-on-failures", "load.stop_on_failures", read.share, "SHARE",
              "Stops sending when more than this share of the last 100 requests failed."),
        value("--repetition", "load.repetition", read.count_from_zero, "NUMBER",
              "Sends the same requests at other instants; 0 (default) is the first repetition."),
    ),
    "Workload": (
        value("--workload --dataset-name", "workload.name", WORKLOAD, "NAME",
              "What is sent: synthetic-uniform (default), synthetic-skewed, conversation, code-completion, long-context, "
              "fairness (fairness-short, fairness-long), a trace (mooncake, azure, burstgpt, "
              "trace: CSV timestamp,input,output), a trace of sessions (weka, agentic-mooncake, dynamo, otel, tracelab, "
              "dag, sglang-agentic, bailian, applied-compute, graph: our own JSONL), a data set (sharegpt, custom: JSONL, "
              "text: lines, aiperf: AIPerf's JSONL, batch: OpenAI batch JSONL, csv, hf: Hugging Face) or random (vLLM's: "
              "synthetic-uniform of 1024 and 128 tokens)."),
        value("--dataset-path --input-file", "workload.dataset_path", read.path, "FILE",
              "File of a trace or data set; with --workload hf ORG/NAME, a file or a folder."),
        value("--prompt", None, read.prompt, "TEXT", "Sends this prompt in every request; @FILE has it."),
        value("--dataset-class", "workload.dataset_class", read.text, "NAME",
              "Only the data set's entries of this class (custom, csv, hf)."),
        value("--dataset-lengths", "workload.dataset_lengths", read.length_bounds, "BOUNDS",
              "Only the data set's entries within bounds of tokens: min-input=4,max-input=1024,min-output=4,max-total=2048, "
              "of prompt (input), answer (output, or --osl) and both (total)."),
        value("--hf-split", "workload.hf_split", read.text, "SPLIT",
              "Split of a data set of Hugging Face, such as train[:1000]. Default: train, or the only one."),
        value("--hf-subset", "workload.hf_subset", read.text, "NAME", "Subset of a data set of Hugging Face."),
        value("--dataset-column", "workload.dataset_columns", read.columns, "LIST",
              "Columns or fields of a data set: prompt=NAME,class=NAME, and of hf answer=NAME, of custom and csv "
              "output_tokens=NAME. Default: by known names."),
        value("--trace-speed", "workload.trace_speed", read.speed, "FACTOR",
              "Replays a trace FACTOR times as fast as it was recorded."),
        value("--trace-from", "workload.trace_from", read.moment, "TIME", "Where in the trace to start."),
        value("--trace-to", "workload.trace_to", read.seconds, "TIME", "Where in the trace to end."),
        switch("--trace-loop", "workload.trace_loop", "Starts a trace again until --duration or --num-requests."),
        value("--trace-timing", "workload.trace_timing", read.one_of("dependent", "recorded"), "KIND",
              "When calls of a session are due: after the replies that they wait for and the recorded delay (dependent, "
              "default), or at their recorded instants."),
        value("--trace-max-wait", "workload.trace_max_wait", read.longest_waits, "TIME",
              "Cuts longer waits of a trace of sessions, before --trace-speed: 30s, or by kind user=30s,tool=2m (of tool, "
              "user, agent, unknown)."),
        value("--session-start", "workload.session_start", read.session_start, "KIND",
              "Where sessions begin: at their first calls (fresh, default); where they would be if the load had been there "
              "for long (stationary, in a closed loop and at a rate); or, in each slot of a closed loop, within a part of "
              "their length (share:0.25,0.75). The warm-up sends the latest prompts of what has gone before."),
        value("--trace-prompts", "workload.trace_prompts", read.one_of("auto", "whole", "delta"), "KIND",
              "What the rows of one session are: whole prompts, or additions to the row before (delta). Default auto: their "
              "blocks say it."),
        value("--cache-blocks", "workload.cache_blocks", read.count, "COUNT",
              "States the ideal hit rate of a prefix cache with this many blocks too."),
        value("--isl --input-len --random-input-len --prompt-tokens", "workload.isl", read.lengths, "LENGTHS",
              "Prompt tokens: 256, uniform:128,512, normal:550,150[,1,900], lognormal:5.5,1.0,32,4096."),
        value("--osl --output-len --random-output-len --output-tokens", "workload.osl", read.lengths, "LENGTHS",
              "Output tokens, in the same forms as --isl."),
        value("--random-range-ratio", "lengths.range_ratio", read.range_ratio, "RATIO",
              "Lengths L of --isl and --osl become uniform from L less this share to L plus it, as in vLLM; or for each: "
              "'{\"input\": 0.3, \"output\": 0}'."),
        value("--tokenizer", "workload.tokenizer", read.text, "NAME",
              "Tokenizer that prompts are counted with: cl100k_base (default), o200k_base, a tiktoken name, a "
              "tokenizer.json or Hugging Face folder, or none."),
        value("--prompt-form", "workload.prompt_form", read.one_of("words", "text", "ids", "native"), "FORM",
              "words of the vocabulary (default); text: random token ids decoded, IETF A.1.4; ids: these ids themselves "
              "(completions only); native: ids of another tokenizer's own range."),
        value("--counting", "workload.counting", read.one_of("A", "B"), "OPTION",
              "Tokens of answers, IETF 4.4.2: A (default) as the server counts them, B by --tokenizer."),
        value("--context-limit", "workload.context_limit", read.count, "TOKENS",
              "Most tokens of prompt and answer together; default from /v1/models, if given there."),
        switch("--stream --streaming", "workload.streaming",
               "Streamed answers (default), or one response body each.",
               no="--no-stream --no-streaming --disable-stream"),
        value("--continuous-usage", "workload.continuous_usage", read.one_of("auto", "on", "token-ids", "off"), "NAME",
              "Asks for the number of tokens of each event: as usage (on), as token-ids, not at all (off), or as the server "
              "supports it (auto, default)."),
        switch("--ignore-eos", "workload.ignore_eos",
               "Asks for the full output length (default).", no="--no-ignore-eos --disable-ignore-eos"),
        value("--temperature", "workload.temperature", read.temperature, "NUMBER",
              "Default 0; none omits it from the request."),
        value("--top-p", "sampling.top_p", read.probability, "SHARE",
              "Likeliest tokens that have this share of the probability together; needs --temperature."),
        value("--top-k", "sampling.top_k", read.top_k, "COUNT",
              "This many of the likeliest tokens; -1 for all; needs --temperature."),
        value("--min-p", "sampling.min_p", read.probability, "SHARE",
              "Tokens at least this likely, relative to the likeliest one; needs --temperature."),
        value("--presence-penalty", "sampling.presence_penalty", read.penalty, "NUMBER",
              "Penalty of tokens that the answer contains, -2 to 2."),
        value("--frequency-penalty", "sampling.frequency_penalty", read.penalty, "NUMBER",
              "Penalty of tokens for each time that the answer contains them, -2 to 2."),
        value("--repetition-penalty", "sampling.repetition_penalty", read.positive, "FACTOR",
              "Factor against tokens that prompt or answer contain; 1 is none."),
        value("--extra-body --extra-request-body", "workload.extra_body", read.json_object, "JSON",
              "Object merged into every request body."),
        value("--prefix-len --random-prefix-len", "workload.prefix_len", read.count_from_zero, "TOKENS",
              "Length of a shared prefix."),
        value("--num-prefixes", "workload.num_prefixes", read.count, "COUNT", "Number of different shared prefixes."),
        value("--prefix-share", "workload.prefix_share", read.part, "SHARE",
              "Part of the requests with a shared prefix; the others have one of their own. Default 1."),
        value("--prefix-zipf", "workload.prefix_zipf", read.exponent, "EXPONENT",
              "Prefix k is chosen in proportion to 1/k^EXPONENT; 0 (default): all equally often."),
        value("--image", "workload.image", read.images, "WIDTHxHEIGHT[:COUNT]",
              "Synthetic PNG images in every chat prompt, no two alike; several sizes with +, and sets of them by share: "
              "256x256@0.7,256x256+1280x720@0.3."),
    ),
    "Users": (
        several("--class --classes", None, read.text, "'NAME KEY=VALUE ...'",
                "One class of traffic, repeatable: its own rate (or share of --rate), arrival, workload options, model, "
                "endpoint, header, goodput and users. In a config file: [[class]]."),
        value("--turns", "workload.turns", read.turns, "COUNT",
              "Conversations of 4, 3-8 or normal:6,2 turns, or all that a data set has; --rate and --num-requests then "
              "count conversations."),
        value("--think-time", "workload.think_time", read.pause, "TIME",
              "From a reply to the next turn: 2s, uniform:1s,5s, exponential:3s, lognormal:MEDIAN,SIGMA. Default 0."),
        value("--history", "workload.history", read.one_of("real", "planned", "stored"), "KIND",
              "Earlier answers in later turns: real (as received, default), planned (text of their length) or stored (the "
              "server's own: turns name the reply before, openai-responses)."),
        value("--tool-turns", "workload.tool_turns", read.part, "SHARE",
              "Share of the later turns that contain the result of a tool call."),
        value("--cancel-share --request-cancellation-rate", "behaviour.cancel_share", read.part, "SHARE",
              "Share of the users who cancel before the end, as planned."),
        value("--cancel-after --request-cancellation-delay", "behaviour.cancel_after", read.cancel_after, "AMOUNT",
              "When they cancel: after 20tok or 2s."),
        value("--slow-readers", "behaviour.slow_readers", read.slow_readers, "SHARE:RATE",
              "Share of the users who read slowly, and how fast: 0.05:20tok/s or 0.05:2kB/s."),
        value("--abandon", "behaviour.abandon", read.abandon, "METRIC:TIME",
              "Users cancel when a deadline passes: ttft:5s, e2e:30s."),
    ),
    "Sessions": (
        value("--affinity", "session.affinity", read.one_of(*AFFINITIES), "ROUTER",
              "Names each request's session as a router reads it: "
              f"{', '.join(AFFINITIES)}. The plan shows what that sets."),
        several("--session-header", "session.headers", read.session_header, "'NAME: TEMPLATE'",
                "Header whose value differs by session, repeatable. Fields: {session} {parent} {root} {turn} {class} {user} "
                "{final} {request}."),
        several("--session-body", "session.body", read.session_field, "'FIELD: TEMPLATE'",
                "The same in the JSON body: prompt_cache_key, user, metadata.session_id; repeatable."),
        value("--session-children", "session.children", read.one_of("own", "parent"), "WHOSE",
              "Agents that another one of the session starts have an identity of their own (default) or their parent's."),
        value("--session-token", "session.token", read.session_token, "NAME",
              "Header of answers, or body:FIELD, whose value is sent back in the session, the latest one; NAME=OTHER sends "
              "it under another name."),
        value("--session-end", "session.end", read.session_end, "'METHOD URL'",
              "Request that ends a session at the server, a template; a URL without a host is at the session's own target. "
              "Not measured."),
    ),
    "Control": (
        several("--between", "control.between", read.between, "VERB",
                "What is asked of servers between warm-up and measurement, repeatable, in this order: reset-cache (empties "
                "the prefix cache, with proof), flush (all caches), sleep, wake, profile (the measurement; starts last), "
                "or 'METHOD URL' of your own; a URL without a host goes to each server."),
        several("--replica", "control.replicas", read.url, "URL",
                "Engine of a router, which --between is for, repeatable: name all of them. Default: each --url."),
        value("--server", "control.server", read.one_of(*CONTROLLED), "KIND",
              f"What servers are: {', '.join(CONTROLLED)}. Default: as their metrics pages say."),
        value("--admin-key-file", "control.admin_key_file", read.path, "FILE",
              "Key of these requests, on the first line of FILE. Default: the API key."),
    ),
    "Client": (
        value("--workers", "client.workers", read.workers, "COUNT", "Worker processes; auto by default."),
        value("--pin", "client.pin", read.cpus, "CPUS", "One CPU per worker: 0,2-3. Other processes of the run avoid them."),
        value("--timestamps", "client.timestamps", read.one_of("auto", "tap", "kernel", "user"), "SOURCE",
              "Receive time stamps: kernel, tap (a packet ring before TCP; needs CAP_NET_RAW), user (user space), auto "
              "(default): tap where the workers use all cores, if permitted; else kernel."),
        value("--transport", "client.transport", read.one_of("auto", "reactor", "asyncio"), "NAME",
              "reactor (own epoll loop), asyncio (event loop, no TLS), auto (default): reactor."),
        value("--decode", "client.decode", read.one_of("fast", "strict"), "MODE",
              "Parsing of events: fast (default), or strict: a complete JSON decoder for every event. gRPC's "
              "messages are always read completely."),
        switch("--fresh-connections", "client.fresh_connections",
               "A new connection for every request, or reuse of idle ones (default).",
               no="--connection-reuse"),
        value("--http-version", "client.http_version", read.one_of("auto", "1.1", "2"), "VERSION",
              "2: HTTP/2, which a server with TLS must agree to (ALPN) and another must speak at once (h2c); 1.1; auto "
              "(default): 1.1, or 2 with a server that speaks nothing else."),
        value("--streams-per-connection", "client.streams_per_connection", read.count, "COUNT",
              "Requests in flight on a connection of HTTP/2, if the server takes as many. Default 100."),
        value("--record-text", "client.record_text", read.one_of("auto", "on", "off"), "MODE",
              "Whether to keep the answers' text: on, off, auto (default): only when the target reports no usage."),
        value("--spin-budget", "client.spin_budget", read.share, "SHARE",
              "Share of a core that a worker may spin before scheduled instants. Default 0.15."),
        value("--seed --random-seed", "client.seed", read.count_from_zero, "NUMBER", "Default 42; 0 is a seed."),
    ),
    "Hosts": (
        value("--ray", "hosts.address", read.ray_address, "ADDRESS",
              "Sends from hosts of a Ray cluster: HOST:PORT of its head, auto (the cluster that this host belongs to), or "
              "local (a Ray of one node, started here)."),
        value("--hosts", "hosts.hosts", read.count, "COUNT", "Number of hosts. Default: all whose CPUs are free in Ray."),
        value("--ray-resource", "hosts.resource", read.text, "NAME", "Only hosts that have this resource in Ray."),
        value("--collect", "hosts.collect", read.one_of("rows", "summary"), "WHAT",
              "rows (default): requests and events come here during the run; summary: requests do, events stay on their "
              "hosts, which report totals and histograms of them at the end."),
        value("--on-host-loss", "hosts.on_host_loss", read.one_of("continue", "stop"), "ACTION",
              "What the other hosts do when one is lost: continue (default) or stop."),
    ),
    "Telemetry": (
        several("--telemetry-url --scrape --server-metrics --gpu-telemetry", "telemetry.urls", read.page, "[LABEL=]URL",
                "Metrics page in Prometheus text of a server, router, GPU exporter (DCGM, AMD, Triton) or node, sampled "
                "during the run; default: that of each target. Pages with one label, such as prefill=URL, are one pool. "
                "With prometheus+URL, all targets of a Prometheus server."),
        value("--telemetry-match", "telemetry.matchers", read.matchers, "MATCHERS",
              "Targets of the Prometheus server to read, by their labels: namespace=\"llm\",pod=~\"vllm-.*\"."),
        several("--scrape-metric", "telemetry.metrics", read.metric, "NAME",
                "Further series of these pages, by name, repeatable."),
        value("--telemetry-idle", "telemetry.idle", read.seconds, "TIME",
              "Samples that long before the first request: the power of the idle system. Default 0."),
        value("--telemetry-interval", "telemetry.interval", read.interval, "TIME", "Time between samples. Default 1s."),
        switch("--telemetry", "telemetry.enabled", "Samples server, power and host (default).", no="--no-telemetry"),
        value("--power", "telemetry.power",
              read.one_of("auto", "none", "nvml", "rapl", "powermetrics", "command"), "SENSOR",
              "Power meter: auto (default; of a target on this machine: NVML, else RAPL), none, nvml, rapl, powermetrics, "
              "command."),
        value("--power-command", "telemetry.power_command", read.text, "COMMAND",
              "Shell command that prints watts, once or repeatedly."),
        value("--gpu-index", "telemetry.gpus", read.gpus, "GPUS", "GPUs of NVML: 0,2-3. Default all."),
        value("--prometheus", "telemetry.prometheus", read.listen, "[HOST:]PORT",
              "Serves the run's own counters and histograms there; host 127.0.0.1 by default."),
    ),
    "Output": (
        words("--goodput", "output.goodput", read.objective, "NAME:LIMIT ...",
              "Objectives in ms: ttft:200 tpot:50 e2el:3000, itl:60 (every gap; tbt, tbc), idle:500; reading:20 tokens/s; "
              "ttft_any:200 and tpot_any:50 count reasoning; fluidity:0.9; of sessions session_makespan:30s and "
              "session_stretch:1.5. For one class of requests: CLASS/ttft:200."),
        value("--itl-option", "output.itl_option", read.one_of("auto", "A", "B"), "NAME",
              "What inter-token gaps are (IETF B.2.1): A between chunks; B between tokens, where those of a chunk arrive "
              "together; auto (default): by what the server delivers."),
        value("--percentile-metrics", "output.percentile_metrics", read.percentile_metrics, "NAMES",
              "Metrics of the closing table, and of a vLLM result file of the run: ttft,tpot,itl,e2el. Default all."),
        value("--metric-percentiles", "output.metric_percentiles", read.metric_percentiles, "PERCENTILES",
              "Percentiles there: 50,90,99. Default 50,90,95,99,99.9."),
        value("--prefill-deadline", "output.prefill_deadline", read.prefill_deadline, "MS",
              "First-token deadline of the fluidity index; default 100, or INPUT_TOKENS:MS pairs: 256:80,4096:400."),
        value("--decode-deadline", "output.decode_deadline", read.milliseconds, "MS",
              "Deadline of each further token. Default 50."),
        value("--reading-speed", "output.reading_speed", read.token_rate, "RATE",
              "Tokens per second of the reader whose idle latency is measured. Default 20."),
        switch("--ttft-net-adjusted", "output.ttft_net_adjusted", "Also reports TTFT less one network round trip."),
        value("-o --output --result-dir --artifact-dir", "output.directory", read.path, "DIR",
              "Run folder. Default runs/<time>-<digest>."),
        words("--metadata", "output.metadata", read.pair, "NAME=VALUE", "Free label, stored with the run."),
        words("--declare", "output.declare", read.pair, "NAME=VALUE",
              "Declaration that the IETF draft asks for, such as sut.boundary=model_engine."),
        value("--gpus", "output.gpus", read.count, "COUNT", "GPUs of the target; gives tokens/s per GPU."),
        value("--price-per-hour", "output.price_per_hour", read.positive, "PRICE",
              "What the whole target costs per hour; gives tokens per unit of money."),
        value("--save-plan", "output.save_plan", read.path, "FILE", "Writes the plan to FILE too."),
        value("--plan", "output.plan", read.path, "FILE", "Sends this saved plan instead of building one."),
        value("--config", None, read.path, "FILE",
              "Options as TOML, with the same names; - is standard input. The command line has priority."),
        value("--ui", "output.ui", read.one_of("auto", "live", "plain", "none"), "MODE",
              "Progress: live, plain (lines), none, auto (default): live on a terminal, else plain."),
        switch("--disable-tqdm", "output.ui", "The same as --ui plain.", on="plain", off=None),
        switch("--strict", "output.strict", "Exit code 1 for any verdict but valid."),
    ),
}  # fmt: skip
OPTIONS: tuple[RunOption, ...] = tuple(option for section in SECTIONS.values() for option in section)
BY_PARAMETER = {option.parameter: option for option in OPTIONS}


def config_names() -> dict[str, tuple[RunOption, bool]]:
    """Key of a config file → (option, whether it means its opposite); aliases and `_` for `-` count too."""
    names: dict[str, tuple[RunOption, bool]] = {}
    for option in OPTIONS:
        for flag in (*option.flags, *option.off_flags):
            if flag.startswith("--"):
                names[flag.removeprefix("--")] = (option, flag in option.off_flags)
    del names["config"]
    return names | {name.replace("-", "_"): meaning for name, meaning in names.items()}
