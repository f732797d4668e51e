"""The rules for combining options, from the command line, config files or the Python API, in this order."""

from __future__ import annotations

import math
from pathlib import Path

from msgspec import structs

from fastllmload.cli.options.parsers import DATASETS, SESSION_TRACES, TRACES
from fastllmload.cli.options.rule import (
    OWN_PROMPTS,
    WITH_CONVERSATIONS,
    WITH_TURNS,
    Chosen,
    OptionRule,
    form,
    named,
)
from fastllmload.cli.options.sources import Fields, RawOptions
from fastllmload.cli.options.target_rules import (
    HTTP2,
    MODELS,
    SESSION,
    TARGET,
    WEBSOCKET,
    WITH_IMAGES,
    WITHOUT_TOKENS,
    on_other_hosts,
    over_http2,
)
from fastllmload.endpoint import ENDPOINTS, resolve_endpoint, silent_classes
from fastllmload.errors import InputError
from fastllmload.settings import RunSettings, TrafficClass
from fastllmload.simulator.profile import REPEATED

PLANNED = (
    "models", "model_zipf", "model_order", "rate", "rate_series", "ramp_up_strategy", "ramp_up_start_rps",
    "ramp_up_end_rps", "arrival", "burstiness", "concurrency", "num_requests", "duration", "workload", "isl", "osl",
    "dataset_path", "prompt", "dataset_class", "dataset_lengths", "trace_speed", "trace_from", "trace_to", "trace_loop",
    "trace_timing", "trace_max_wait", "session_start", "trace_prompts", "cache_blocks", "turns", "think_time", "history",
    "tool_turns", "cancel_share", "cancel_after", "slow_readers", "abandon",
)  # fmt: skip
TABLES = ("custom", "csv", "hf")  # data sets whose entries have columns, or fields; one can be a class
OF_SESSIONS = (*SESSION_TRACES, "mooncake")
PREFIXES = ("num_prefixes", "prefix_share", "prefix_zipf")
SAMPLED = (
    "telemetry_url",
    "telemetry_match",
    "scrape_metric",
    "telemetry_interval",
    "telemetry_idle",
    "power",
    "power_command",
    "gpu_index",
)
EXAMPLE = "fastllmload --rate 500 --duration 30"


WITH_STORES = named(tuple(each.name for each in ENDPOINTS.values() if each.joint.stores))


def without_workload(chosen: Chosen) -> bool:
    """Whether --dataset-path goes with a workload that reads no file."""
    return chosen.has("dataset_path") and chosen.workload not in (*TRACES, *DATASETS, *OWN_PROMPTS)


def _workloads_of(path: Path) -> str:
    """The workload that reads the trace of sessions in *path*; all that read a file when it is none, or absent."""
    from fastllmload.workload.traces.formats import detect_format  # here: it imports numpy

    try:
        return f"{detect_format(path)}, whose fields it has"
    except InputError:
        return named((*TRACES, *DATASETS, *OWN_PROMPTS))


# Rules for what was parsed, whatever was given.
LOOP = (
    OptionRule("rate-and-concurrency",
         lambda o: o.get("load.rate") is not None and o.get("load.concurrency") is not None,
         "--rate {rate:g} (open loop) and --concurrency {slots} (closed loop) contradict each other; give one, or cap an "
         "open loop with --max-concurrency",
         values=lambda o: {"rate": o.get("load.rate"), "slots": o.get("load.concurrency")}),
    OptionRule("load-missing", lambda o: o.complete and not o.has("plan", "class") and o.workload not in TRACES
         and not without_workload(o) and o.get("load.rate") is None and o.get("load.concurrency") is None,
         f"--rate is missing: specify how much load to offer, for example {EXAMPLE}"),
    OptionRule("run-without-end",
         lambda o: o.get("load.rate") == math.inf and not o.has("plan") and o.get("load.num_requests") is None,
         "--rate inf sends everything at once and needs a number of requests; add --num-requests COUNT"),
)  # fmt: skip
LOAD = (
    *LOOP,
    OptionRule("option-not-applicable", lambda o: o.has("concurrency"),
         "{where} belongs to an open loop and has no effect with --concurrency; leave it out, or give --rate instead of "
         "--concurrency", ("arrival", "burstiness", "max_concurrency")),
    OptionRule("option-prescribed", lambda o: o.has("plan"),
         "{where} is part of the plan that --plan replays; leave it out", (*PLANNED, "seed", "save_plan")),
    OptionRule("option-not-applicable", lambda o: o.get("load.rate") == math.inf,
         "{where} says how arrivals are spread, and --rate inf sends everything at once; leave one of them out",
         ("arrival",)),
)  # fmt: skip
ALL_TURNS = OptionRule("option-missing", lambda o: o.get("workload.turns") == "all" and not o.recorded_turns,
         f"--turns all takes what a data set has; add --workload {named(WITH_CONVERSATIONS)}, or give a number")  # fmt: skip
# Rules that also hold for each class of a run.
USERS = (
    OptionRule("option-not-applicable", lambda o: o.get("workload.turns") is None,
         "{where} belongs to conversations; add --turns COUNT", ("think_time", "tool_turns")),
    OptionRule("option-not-applicable", lambda o: o.get("workload.turns") is None and o.workload not in OF_SESSIONS,
         "{where} belongs to conversations; add --turns COUNT", ("history",)),
    OptionRule("option-not-applicable", lambda o: o.get("workload.history") == "stored" and o.workload in OF_SESSIONS,
         "--history stored does not go with --workload {workload}, whose calls can wait for several replies; use real"),
    OptionRule("option-not-applicable",
         lambda o: o.get("workload.turns") is not None and o.workload in (*TRACES, "batch", "csv"),
         "--turns does not go with --workload {workload}, whose requests are independent"),
    OptionRule("option-not-applicable",
         lambda o: o.get("workload.turns") is not None and o.get("workload.prompt_form") in ("ids", "native"),
         "--turns needs prompts of text: a reply cannot be appended to token ids; leave --prompt-form out"),
    ALL_TURNS,
    OptionRule("option-not-applicable",
         lambda o: o.get("workload.tool_turns") and (o.recorded_turns or o.workload == "conversation"),
         "--tool-turns works with synthetic-uniform and synthetic-skewed only; leave it out"),
    OptionRule("protocol-unsupported", lambda o: o.get("workload.tool_turns") and o.endpoint.joint.tools is None,
         "--tool-turns needs messages, which {protocol} does not have; use a chat endpoint"),
    OptionRule("protocol-unsupported", lambda o: o.get("workload.history") == "stored" and not o.endpoint.joint.stores,
         f"--history stored needs --endpoint-type {WITH_STORES}: servers of {{protocol}} keep no conversation"),
    OptionRule("option-missing",
         lambda o: o.get("behaviour.cancel_share", 0.0) and o.get("behaviour.cancel_after") is None,
         "--cancel-share needs --cancel-after, for example 20tok or 2s"),
    OptionRule("option-missing",
         lambda o: o.get("behaviour.cancel_after") is not None and not o.get("behaviour.cancel_share", 0.0),
         "--cancel-after needs --cancel-share, for example 0.1"),
    OptionRule("option-not-applicable",
         lambda o: o.get("behaviour.slow_readers") is not None and o.get("client.transport") == "asyncio",
         "--slow-readers needs the reactor's own sockets, not --transport asyncio; leave one out"),
    OptionRule("option-not-applicable", lambda o: o.get("behaviour.slow_readers") is not None and over_http2(o),
         "--slow-readers needs a connection for each of them, and HTTP/2 shares them; use --http-version 1.1"),
)  # fmt: skip
FILE = OptionRule("option-missing",
         lambda o: o.workload in (*TRACES, *DATASETS)
         and o.get("workload.dataset_path") is None and o.get("workload.prompt") is None,
         "--workload {workload} is read from a file; add --dataset-path FILE")  # fmt: skip
WORKLOAD = (
    OptionRule("option-not-applicable", lambda o: o.get("load.arrival") == "trace" and o.workload not in TRACES,
         f"--arrival trace replays recorded instants; add --workload {named(TRACES)} and --dataset-path FILE"),
    OptionRule("option-not-applicable", lambda o: o.get("load.arrival") == "trace" and o.has("rate"),
         "--arrival trace has the trace's own instants and no --rate; leave one out (or --trace-speed)"),
    FILE,
    OptionRule("options-conflict", lambda o: o.has("dataset_path") and o.has("prompt"),
         "--prompt is sent in every request, and {where} has others; give one", ("dataset_path",)),
    OptionRule("option-not-applicable", lambda o: o.workload in TRACES,
         "{where} does not go with --workload {workload}, which brings its own lengths",
         ("isl", "prefix_len", *PREFIXES, "image")),
    OptionRule("option-not-applicable", lambda o: o.workload in TRACES and o.workload not in SESSION_TRACES,
         "{where} does not go with --workload {workload}, which brings its own lengths", ("osl",)),
    OptionRule("option-not-applicable", lambda o: o.workload in TRACES,
         "{where} does not go with --workload {workload}, which has no classes", ("dataset_class",)),
    OptionRule("option-not-applicable", lambda o: o.workload in (*DATASETS, *OWN_PROMPTS),
         "{where} does not go with --workload {workload}, which brings its own prompts",
         ("isl", "prefix_len", *PREFIXES, "prompt_form", "image")),
    OptionRule("option-not-applicable", without_workload, "{where} is the file of a workload; add --workload {names}",
         ("dataset_path",), lambda o: {"names": _workloads_of(o.get("workload.dataset_path"))}),
    OptionRule("option-not-applicable", lambda o: o.workload not in TABLES,
         f"{{where}} chooses entries of a data set by their class; add --workload {named(TABLES)}",
         ("dataset_class",)),
    OptionRule("option-not-applicable",
         lambda o: o.workload not in DATASETS or o.get("workload.prompt") is not None
         or o.get("workload.turns") is not None,
         f"{{where}} chooses single requests of a data set; add --workload {named(DATASETS)}, without --turns",
         ("dataset_lengths",)),
    OptionRule("option-not-applicable", lambda o: o.get("workload.tokenizer") == "none",
         "{where} counts tokens, and --tokenizer none counts none; leave one out", ("dataset_lengths",)),
    OptionRule("option-not-applicable", lambda o: o.workload != "hf",
         "{where} is about a data set of Hugging Face; add --workload hf", ("hf_split", "hf_subset")),
    OptionRule("option-not-applicable", lambda o: o.workload not in TABLES or (o.get("workload.turns") is not None
         and o.workload != "hf"),
         f"{{where}} names columns of single requests; add --workload {named(TABLES)}, without --turns",
         ("dataset_column",)),
    OptionRule("option-not-applicable",
         lambda o: ("output_tokens" if o.workload == "hf" else "answer") in dict(o.get("workload.dataset_columns", ())),
         "{where}: an answer is a column of --workload hf, and output_tokens one of custom and csv", ("dataset_column",)),
    OptionRule("option-missing", lambda o: o.workload == "hf" and o.has("dataset_class")
         and "class" not in dict(o.get("workload.dataset_columns", ())),
         "--dataset-class chooses rows by a column; name it with --dataset-column class=NAME"),
    OptionRule("option-not-applicable", lambda o: o.workload not in TRACES,
         f"{{where}} goes with a trace; add --workload {named(TRACES)}",
         ("trace_speed", "trace_from", "trace_to", "trace_loop")),
    OptionRule("option-not-applicable", lambda o: o.workload not in OF_SESSIONS,
         f"{{where}} goes with a trace of sessions; add --workload {named(SESSION_TRACES)}",
         ("trace_timing", "trace_max_wait", "trace_prompts", "cache_blocks")),
    OptionRule("option-not-applicable",
         lambda o: o.workload not in OF_SESSIONS and o.get("workload.turns") is None,
         f"{{where}} goes with a trace of sessions or with conversations of a data set; add --workload "
         f"{named(SESSION_TRACES)}, or --turns all", ("session_start",)),
    OptionRule("option-missing", lambda o: o.get("workload.prefix_len", 0) == 0,
         "{where} is given without --prefix-len; add the length of a shared prefix", PREFIXES),
)  # fmt: skip
TELEMETRY = (
    OptionRule("options-conflict", lambda o: o.get("telemetry.enabled") is False,
         "{where} and --no-telemetry contradict each other; give one", SAMPLED),
    OptionRule("option-missing", lambda o: o.has("telemetry_match") and not o.get("telemetry.urls"),
         "--telemetry-match chooses targets of a Prometheus server; add --telemetry-url prometheus+http://HOST:9090"),
    OptionRule("option-not-applicable", lambda o: o.has("power_command") and o.get("telemetry.power") != "command",
         "--power-command needs --power command, not --power {power}",
         values=lambda o: {"power": o.get("telemetry.power")}),
    OptionRule("option-missing", lambda o: o.get("telemetry.power") == "command" and not o.has("power_command"),
         "--power command needs --power-command COMMAND that prints watts"),
    OptionRule("option-not-applicable", lambda o: o.has("gpu_index") and o.get("telemetry.power") != "nvml",
         "--gpu-index belongs to --power nvml, not to --power {power}",
         values=lambda o: {"power": o.get("telemetry.power")}),
)  # fmt: skip
HOSTS = (
    OptionRule("option-missing", lambda o: not o.has("ray"),
         "{where} belongs to a run over several hosts; add --ray ADDRESS",
         ("hosts", "ray_resource", "collect", "on_host_loss")),
    OptionRule("options-conflict",
         lambda o: o.get("hosts.address") == "local" and o.get("hosts.hosts") not in (None, 1),
         "--ray local has one host and --hosts asks for {hosts}; give the address of a cluster, or leave --hosts out",
         values=lambda o: {"hosts": o.get("hosts.hosts")}),
    OptionRule("option-missing", lambda o: on_other_hosts(o) and not o.has("url", "unix_socket", "class", "plan"),
         "--ray needs --url: the simulated engine listens on this host only, where the others do not reach it"),
    OptionRule("option-not-applicable", lambda o: on_other_hosts(o),
         "{where} exists on this host only, and --ray sends from others; leave one out",
         ("unix_socket", "source_address", "simulate")),
)  # fmt: skip
CONTROL = (
    OptionRule("option-missing", lambda o: verbs(o).count("wake") != verbs(o).count("sleep")
         or any(verbs(o)[: at + 1].count("wake") > verbs(o)[:at].count("sleep") for at, verb in enumerate(verbs(o))),
         "--between sleep and --between wake belong together, in this order: an engine that sleeps answers no requests"),
    OptionRule("option-repeated", lambda o: verbs(o).count("profile") > 1,
         "--between profile is given twice: the profiler runs once, during the measurement; keep one"),
    OptionRule("option-missing", lambda o: not o.has("url", "unix_socket", "class", "plan", "host", "port"),
         "{where} is about servers of yours, and the target is the simulated engine; add --url", ("replica", "server")),
    OptionRule("option-not-applicable", lambda o: not verbs(o) and o.get("telemetry.enabled") is False,
         "{where} has no effect with --no-telemetry and without --between; leave it out",
         ("replica", "server", "admin_key_file")),
)  # fmt: skip
RULES = (*LOAD, *USERS, *HTTP2, *WEBSOCKET, *SESSION, *TARGET, *WORKLOAD, *TELEMETRY, *HOSTS, *CONTROL)
# Rules for the complete settings of a run's requests, or of those of one class, which may come from the run or the class.
TRAFFIC = (
    *LOOP,
    FILE,
    ALL_TURNS,
    OptionRule("options-conflict", lambda o: o.arrival == "onoff" and o.get("load.rate_curve") is not None,
         "--arrival {arrival} cannot be combined with a varying rate; write the bursts as --rate spikes:...",
         values=lambda o: {"arrival": o.get("load.arrival")}),
    OptionRule("option-not-applicable",
         lambda o: o.arrival in ("constant", "uniform", "onoff") and o.get("load.burstiness") != 1.0
         and not o.recorded_instants,
         "--burstiness {burstiness:g} cannot be combined with --arrival {arrival}; use gamma or bursty",
         values=lambda o: {"burstiness": o.get("load.burstiness"), "arrival": o.arrival}),
    OptionRule("run-without-end",
         lambda o: o.complete and o.recorded_instants and o.get("workload.trace_loop") and not o.bounded,
         "--trace-loop never ends; add --duration or --num-requests"),
    OptionRule("run-without-end", lambda o: o.complete and not o.recorded_instants and not o.bounded,
         "the run has no end; give --duration, --num-requests or both"),
    OptionRule("option-not-applicable", lambda o: o.synthetic_turns and o.workload not in WITH_TURNS,
         "--turns does not go with --workload {workload}, whose requests stand alone; use conversation, "
         "synthetic-uniform, synthetic-skewed, or a data set (sharegpt, custom, hf)"),
    OptionRule("option-not-applicable", lambda o: o.synthetic_turns and o.get("workload.prompt_form") != "words",
         "--turns needs prompts of words, not --prompt-form {form}; leave it out", values=form),
    OptionRule("protocol-unsupported", lambda o: not o.endpoint.tokens and o.workload in SESSION_TRACES,
         "--workload {workload} has sessions of calls that follow replies, and answers of {protocol} are not tokens; give "
         "it a chat or completions endpoint"),
    OptionRule("protocol-unsupported", lambda o: o.get("workload.turns") is not None and o.endpoint.call is not None,
         "--turns does not go with {protocol}: {without}, or leave --turns out",
         values=lambda o: {"without": o.endpoint.without["turns"]}),
    OptionRule("option-not-applicable", lambda o: o.synthetic_turns and o.get("workload.image") is not None,
         "--turns does not go with --image; leave one out"),
    OptionRule("option-not-applicable",
         lambda o: o.synthetic_turns and o.get("workload.prefix_len") and o.get("workload.prefix_share") != 1,
         "--turns with --prefix-len needs --prefix-share 1: every conversation begins with a shared prefix"),
    OptionRule("option-not-applicable", lambda o: o.drawn_ids and o.workload == "long-context",
         "--prompt-form {form} does not go with long-context: its documents are words and a question", values=form),
    OptionRule("option-not-applicable", lambda o: o.drawn_ids and o.get("workload.tokenizer") == "none",
         "--prompt-form {form} needs a tokenizer whose ids are drawn; --tokenizer none has no ids", values=form),
    OptionRule("options-conflict",
         lambda o: o.get("workload.trace_timing") == "recorded" and o.get("workload.trace_max_wait") is not None,
         "--trace-timing recorded sends every call at its own instant, whatever it waits for; leave --trace-max-wait out"),
    OptionRule("options-conflict", lambda o: o.get("workload.trace_timing") == "recorded"
         and (o.get("load.rate") is not None or o.get("load.concurrency") is not None),
         "--trace-timing recorded sends every call at its own instant; leave rate and concurrency out"),
    OptionRule("options-conflict", lambda o: starts_under_way(o) and changing(o) is not None,
         "--session-start begins with what a constant load of one model has under way; leave {other} out",
         values=lambda o: {"other": changing(o)}),
    OptionRule("option-not-applicable", lambda o: starts_under_way(o) and o.synthetic_turns,
         "--session-start begins with the replies of earlier turns, and turns of --workload {workload} have none; give a "
         "data set with replies, or --workload conversation"),
    OptionRule("option-not-applicable", lambda o: starts_under_way(o) and o.get("workload.turns") is not None
         and o.get("load.rate") is not None,
         "--session-start with --rate needs recorded times, which conversations of --workload {workload} do not have: how "
         "many are under way is up to the server. Use --concurrency, or a trace of sessions with start_s and end_s"),
    OptionRule("option-missing", lambda o: starts_under_way(o) and o.complete and o.recorded_instants,
         "--session-start begins a load of slots or of arrivals; add --concurrency or --rate"),
    OptionRule("option-not-applicable", lambda o: starts_under_way(o) and o.get("load.rate") is not None
         and o.get("workload.session_start") != "stationary",
         "--session-start {start} says where the slots of a closed loop begin; with --rate the arrivals decide which "
         "sessions are under way and for how long: use --session-start stationary, or --concurrency",
         values=lambda o: {"start": o.get("workload.session_start")}),
)  # fmt: skip
# Rules for one class.
CLASS = (
    OptionRule("protocol-unsupported", lambda o: o.get("class.models") and o.endpoint.before_model() is None,
         "class {of_class!r} uses {protocol}, whose body does not name a model in front of the prompt, so --models does not "
         "reach it; give it model=NAME"),
    OptionRule("protocol-unsupported", lambda o: not o.endpoint.tokens and o.get("workload.turns") is not None,
         "class {of_class!r} uses {protocol}, whose answers are not tokens, so that no turn can follow them; give turns to "
         "the other classes instead of the run"),
    OptionRule("protocol-unsupported",
         lambda o: not o.endpoint.tokens
         and (o.get("class.behaviour").cancel_after is not None or o.get("class.behaviour").slow_readers is not None),
         "class {of_class!r} uses {protocol}, whose answers are not tokens that a user could cancel or read slowly; give "
         "cancel-after, cancel-share and slow-readers to the other classes instead of the run"),
    OptionRule("run-without-end", lambda o: o.get("run.num_requests") is not None and o.recorded_instants,
         "--num-requests counts all classes together, but class {of_class!r} replays its own instants; give --duration, or "
         "a rate to the class"),
    OptionRule("protocol-unsupported", lambda o: o.endpoint.call is not None and not o.get("run.http2"),
         "class {of_class!r} uses {protocol}, which needs HTTP/2 for the whole run; add --http-version 2"),
    OptionRule("protocol-unsupported",
         lambda o: o.get("workload.prompt_form") == "ids" and not o.endpoint.takes("ids"),
         "class {of_class!r} sends token ids, which {protocol} cannot carry; give it prompt-form=words"),
    OptionRule("protocol-unsupported",
         lambda o: o.get("workload.image") is not None and o.endpoint.image_message is None,
         f"class {{of_class!r}} sends images, which {{protocol}} cannot carry; use endpoint-type={WITH_IMAGES}"),
    OptionRule("protocol-unsupported", lambda o: o.get("workload.tool_turns") and o.endpoint.joint.tools is None,
         "class {of_class!r} has tool turns, which need messages; {protocol} has none"),
    OptionRule("protocol-unsupported", lambda o: o.get("workload.history") == "stored" and not o.endpoint.joint.stores,
         f"class {{of_class!r}} has history=stored, which {{protocol}} does not have; use endpoint-type={WITH_STORES}"),
    OptionRule("option-not-applicable", lambda o: o.endpoint.websocket and o.get("workload.streaming") is False,
         "class {of_class!r} uses {protocol}, whose answers are events; leave stream=false out"),
    OptionRule("protocol-unsupported", lambda o: o.endpoint.websocket != o.get("run.websocket"),
         "class {of_class!r} uses {protocol}: either all classes and the run use WebSocket or none; give a run to each"),
    OptionRule("protocol-unsupported",
         lambda o: o.endpoint.websocket and (o.get("class.headers") or o.get("class.endpoint_path") is not None),
         "class {of_class!r} has a header or endpoint of its own, but {protocol} sends these once for a connection, which "
         "classes share; give them to the run"),
    OptionRule("protocol-unsupported",
         lambda o: o.get("class.endpoint_type") is not None and o.get("class.endpoint_path") is None
         and o.get("run.endpoint_path") is not None,
         "class {of_class!r} uses {protocol}, but the run's --endpoint {path} belongs to another protocol; give the class "
         "its own endpoint=/PATH", values=lambda o: {"path": o.get("run.endpoint_path")}),
)  # fmt: skip


def verbs(chosen: Chosen) -> list[str]:
    """What --between says, in order."""
    return list(chosen.get("control.between", ()))


def starts_under_way(chosen: Chosen) -> bool:
    return bool(chosen.get("workload.session_start", "fresh") != "fresh")


def changing(chosen: Chosen) -> str | None:
    """The option that makes a load change, or several models of it; None: it is constant."""
    if chosen.get("load.concurrency_curve") is not None:
        return "the curve of --concurrency"
    if chosen.get("load.rate_curve") is not None:
        return "the curve of --rate"
    if chosen.get("load.rate") == math.inf:
        return "--rate inf"
    return "--models" if chosen.get("target.models") or chosen.get("class.models") else None


def validate_run(raw_options: RawOptions, fields: Fields, complete: bool = True) -> None:
    """InputError for the first rule that the options break. Not *complete*: a procedure decides how much load there is."""
    chosen = Chosen(raw_options, fields, complete)
    for rule in RULES if chosen.has("class") else (*RULES, *WITHOUT_TOKENS):
        rule.check(chosen)
    _validate_unique_names(fields)
    _validate_declarations(fields)


def validate_user_behavior(raw_options: RawOptions, fields: Fields) -> None:
    """InputError for user behavior of one class whose options do not go together."""
    chosen = Chosen(raw_options, fields)
    for rule in (*USERS, *MODELS, *WITHOUT_TOKENS):
        rule.check(chosen)


def validate_answers(raw_options: RawOptions, fields: Fields, settings: RunSettings) -> None:
    """InputError for options and objectives about tokens that reach a class of *settings* whose answers are not tokens, or,
    where there is no other class, no class.
    """
    silent = silent_classes(settings.target.endpoint_type, settings.classes)
    if silent and settings.output.goodput:
        from fastllmload.metrics.objectives.objective import refuse_tokens  # imports numpy

        refuse_tokens(settings.output.goodput, silent)
    if silent and len(silent) == len(settings.classes):
        chosen = Chosen(raw_options, fields | {"target.endpoint_type": next(iter(silent.values()))})
        for rule in WITHOUT_TOKENS:
            rule.check(chosen)


def validate_traffic(settings: RunSettings, complete: bool = True) -> None:
    """InputError where the complete load and workload of a run without classes contradict each other."""
    chosen = Chosen({}, {"target.endpoint_type": settings.target.endpoint_type} | fields_of(settings), complete)
    for rule in TRAFFIC:
        rule.check(chosen)


def validate_class(one: TrafficClass, settings: RunSettings) -> None:
    """InputError where what class *one* sends contradicts itself or the *settings* of its run."""
    of_both = {
        "target.endpoint_type": one.endpoint_type or settings.target.endpoint_type,
        "class.endpoint_type": one.endpoint_type,
        "class.endpoint_path": one.endpoint_path,
        "class.headers": one.headers,
        "class.models": one.models,
        "class.behaviour": one.behaviour,
        "run.endpoint_path": settings.target.endpoint_path,
        "run.websocket": resolve_endpoint(settings.target.endpoint_type).websocket,
        "run.num_requests": settings.load.num_requests,
        "run.http2": settings.client.http_version == "2",
    }
    chosen = Chosen({}, of_both | fields_of(one), of_class=one.name)
    for rule in (*CLASS, *TRAFFIC):
        rule.check(chosen)


def fields_of(traffic: RunSettings | TrafficClass) -> Fields:
    groups = {"load": traffic.load, "workload": traffic.workload}
    return {f"{group}.{name}": value for group, each in groups.items() for name, value in structs.asdict(each).items()}


def _validate_unique_names(fields: Fields) -> None:
    for field, flag in (
        ("output.goodput", "--goodput"),
        ("output.declare", "--declare"),
        ("output.metadata", "--metadata"),
        ("target.simulate", "--simulate"),
    ):
        names = [name for name, _ in fields.get(field, ())]
        for name in names:
            if names.count(name) > 1 and not (flag == "--simulate" and name.replace("-", "_") in REPEATED):
                raise InputError("option-repeated", f"{flag} names {name!r} twice; keep one")


def _validate_declarations(fields: Fields) -> None:
    """InputError for an unknown declaration, so that a typing error is reported before the run, not after it."""
    declared = fields.get("output.declare", ())
    if declared:
        from fastllmload.declarations import declaration_problems  # reads a table: only for runs that declare

        wrong = declaration_problems(dict(declared))
        if wrong:
            raise InputError("declaration-invalid", "; ".join(wrong))
