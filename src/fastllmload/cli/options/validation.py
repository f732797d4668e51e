"""Options of a run that contradict each other, or that do nothing beside others: refused in one sentence each."""

from __future__ import annotations

import math

from fastllmload.cli.options.parsers import DATASETS, STANDARD, TRACES
from fastllmload.cli.options.raw import RawOptions
from fastllmload.errors import InputError
from fastllmload.redact import public_body
from fastllmload.settings import RunSettings

PLANNED = (
    "rate",
    "rate_series",
    "ramp_up_strategy",
    "ramp_up_start_rps",
    "ramp_up_end_rps",
    "arrival",
    "burstiness",
    "concurrency",
    "num_requests",
    "duration",
    "workload",
    "isl",
    "osl",
    "dataset_path",
    "dataset_class",
    "trace_speed",
    "trace_from",
    "trace_to",
    "trace_loop",
    "turns",
    "think_time",
    "history",
    "tool_turns",
    "cancel_share",
    "cancel_after",
    "slow_readers",
    "abandon",
)
NAMING = ("custom", "csv")  # data sets whose entries can have a class
SECURITY = ("insecure", "cacert", "cert", "key", "server_name")
OWN_TEXT = STANDARD[2:4]  # conversation, code-completion: with a file or without
EXAMPLE = "fastllmload --rate 500 --duration 30"
Fields = dict[str, object]  # "load.rate" -> value


def validate_run(raw_options: RawOptions, fields: Fields, complete: bool = True) -> None:
    """InputError for the first contradiction. Not *complete*: a procedure decides how much load there is."""
    rate, concurrency = fields.get("load.rate"), fields.get("load.concurrency")
    if rate is not None and concurrency is not None:
        raise InputError(
            f"--rate {rate:g} (open loop) and --concurrency {concurrency} (closed loop) contradict each "
            "other; give one, or cap an open loop with --max-concurrency"
        )
    _refuse_for_closed_loop(raw_options)
    _refuse_beside_plan(raw_options)
    replays = fields.get("workload.name") in TRACES
    if (
        complete
        and "plan" not in raw_options
        and rate is None
        and concurrency is None
        and not replays
        and "class" not in raw_options
    ):
        raise InputError(f"--rate is missing: say how much load to offer, for example {EXAMPLE}")
    if rate == math.inf and "plan" not in raw_options and "num_requests" not in raw_options:
        raise InputError("--rate inf sends everything at once and needs to know how much; add --num-requests COUNT")
    if rate == math.inf and "arrival" in raw_options:
        raise InputError(
            f"{raw_options['arrival'].where} says how arrivals are spread, and --rate inf sends everything at once; "
            "leave one of them out"
        )
    refuse_user_behavior(raw_options, fields)
    _refuse_target(raw_options, fields)
    _refuse_client(raw_options, fields)
    _refuse_telemetry(raw_options, fields)
    _refuse_twice(fields)
    _refuse_declarations(fields)


def _refuse_for_closed_loop(raw_options: RawOptions) -> None:
    if "concurrency" not in raw_options:
        return
    for parameter in ("arrival", "burstiness", "max_concurrency"):
        if parameter in raw_options:
            raise InputError(
                f"{raw_options[parameter].where} belongs to an open loop and does nothing beside --concurrency; "
                "leave it out, or give --rate instead of --concurrency"
            )


def _refuse_beside_plan(raw_options: RawOptions) -> None:
    if "plan" not in raw_options:
        return
    for parameter in (*PLANNED, "seed", "save_plan"):
        if parameter in raw_options:
            raise InputError(f"{raw_options[parameter].where} is part of the plan that --plan replays; leave it out")


def _refuse_target(raw_options: RawOptions, fields: Fields) -> None:
    if "url" in raw_options and "simulate" in raw_options:
        raise InputError(
            f"--simulate sets up the simulated engine, but {raw_options['url'].where} names a target; give one"
        )
    if "unix_socket" in raw_options and "simulate" in raw_options:
        where = raw_options["unix_socket"].where
        raise InputError(f"--simulate sets up the simulated engine, but {where} names a target; give one")
    if "unix_socket" in raw_options and "source_address" in raw_options:
        where = raw_options["source_address"].where
        raise InputError(f"{where} does nothing beside --unix-socket, which has no ports; leave it out")
    if ("cert" in raw_options) != ("key" in raw_options):
        missing, there = ("--key", "--cert") if "cert" in raw_options else ("--cert", "--key")
        raise InputError(f"{there} is given without {missing}; a client certificate needs both")
    if "insecure" in raw_options and "cacert" in raw_options and fields["target.insecure"] is True:
        raise InputError("--insecure trusts every certificate and --cacert only some; give one")
    protocol = fields.get("target.endpoint_type", "openai-chat")
    completions = protocol == "openai-completions"
    if fields.get("workload.prompt_form") == "ids" and not completions:
        raise InputError("--prompt-form ids needs --endpoint-type openai-completions: chat messages are text")
    if "image" in raw_options and protocol != "openai-chat":
        raise InputError("--image needs --endpoint-type openai-chat: only its messages hold images")
    if "image" in raw_options and fields.get("workload.prompt_form", "words") != "words":
        raise InputError(f"--image goes with --prompt-form words, not {fields['workload.prompt_form']}")
    if fields.get("workload.counting") == "B" and fields.get("workload.tokenizer") == "none":
        raise InputError(
            "--counting B counts with the reference tokenizer, and --tokenizer none says that there is none"
        )


def refuse_idle_security(raw_options: RawOptions, settings: RunSettings) -> None:
    """InputError for TLS options of a run that speaks no TLS to anybody: who gives them believes that it does."""
    given = [
        raw_options[each].where for each in SECURITY if each in raw_options and raw_options[each].state is not False
    ]
    named = dict.fromkeys(
        (
            *settings.target.urls,
            *(url for one in settings.classes for url in one.urls),
            *(url for _, urls in settings.output.plan_urls for url in urls),
            *settings.telemetry.urls,
        )
    )
    if not given or any(url.lower().startswith("https://") for url in named):
        return
    if not named:
        why = "the simulated engine is spoken to without TLS; name a target with --url https://HOST"
    elif "unix_socket" in raw_options and "url" not in raw_options:
        why = "a socket is spoken to without TLS unless a URL says otherwise; add --url https://NAME"
    else:
        why = f"no URL is https ({', '.join(named)}); write https://"
    does, it = ("does", "it") if len(given) == 1 else ("do", "them")
    raise InputError(f"{' and '.join(given)} {does} nothing here: {why}, or leave {it} out")


def refuse_stored_secrets(settings: RunSettings, where: str) -> None:
    """InputError where *where* stores every body of a plan and all of them carry a credential."""
    for workload in (settings.workload, *(one.workload for one in settings.classes)):
        if workload.extra_body is not None and public_body(workload.extra_body) != workload.extra_body:
            raise InputError(
                f"{where} writes every body to a file, and --extra-body puts a credential into them "
                f"({public_body(workload.extra_body)}); send it as a header with -H, or leave {where} out"
            )


def _refuse_client(raw_options: RawOptions, fields: Fields) -> None:
    workers, pin = fields.get("client.workers"), fields.get("client.pin")
    if isinstance(workers, int) and isinstance(pin, tuple) and workers != len(pin):
        raise InputError(f"--workers {workers} and --pin with {len(pin)} CPUs contradict each other; name one CPU each")
    _refuse_trace(raw_options, fields)
    for parameter in ("num_prefixes", "prefix_share", "prefix_zipf"):
        if parameter in raw_options and fields.get("workload.prefix_len", 0) == 0:
            where = raw_options[parameter].where
            raise InputError(f"{where} is given without --prefix-len; say how long a shared prefix is")


def _refuse_telemetry(raw_options: RawOptions, fields: Fields) -> None:
    sampled = ("telemetry_url", "scrape_metric", "telemetry_interval", "power", "power_command", "gpu_index")
    if fields.get("telemetry.enabled") is False:
        for parameter in sampled:
            if parameter in raw_options:
                raise InputError(f"{raw_options[parameter].where} and --no-telemetry contradict each other; give one")
    if "power_command" in raw_options:
        if fields.setdefault("telemetry.power", "command") != "command":
            raise InputError(f"--power-command needs --power command, not --power {fields['telemetry.power']}")
    elif fields.get("telemetry.power") == "command":
        raise InputError("--power command needs --power-command COMMAND that prints watts")
    if "gpu_index" in raw_options and fields.get("telemetry.power", "auto") not in ("auto", "nvml"):
        raise InputError(f"--gpu-index belongs to --power nvml, not to --power {fields['telemetry.power']}")
    if "gpu_index" in raw_options:
        fields["telemetry.power"] = "nvml"


def _refuse_trace(raw_options: RawOptions, fields: Fields) -> None:
    """A trace brings lengths and instants; what would change them silently is refused."""
    name = fields.get("workload.name")
    _refuse_own_instants(raw_options, fields)
    if name in TRACES:
        if "dataset_path" not in raw_options:
            raise InputError(f"--workload {name} is read from a file; add --dataset-path FILE")
        for parameter in ("isl", "osl", "prefix_len", "num_prefixes", "prefix_share", "prefix_zipf", "image"):
            if parameter in raw_options:
                raise InputError(
                    f"{raw_options[parameter].where} does not go with --workload {name}, which brings its own lengths"
                )
        if "dataset_class" in raw_options:
            raise InputError(
                f"{raw_options['dataset_class'].where} does not go with --workload {name}, which has no classes"
            )
        return
    if name in DATASETS:
        _refuse_dataset(raw_options, str(name))
    elif name in OWN_TEXT:
        _refuse_own_text(raw_options, str(name))
    elif "dataset_path" in raw_options:
        known = " or ".join((*TRACES, *DATASETS, *OWN_TEXT))
        raise InputError(f"{raw_options['dataset_path'].where} is the file of a workload; add --workload {known}")
    if "dataset_class" in raw_options and name not in NAMING:
        raise InputError(
            f"{raw_options['dataset_class'].where} chooses entries of a data set by their class; add --workload "
            f"{' or '.join(NAMING)}"
        )
    for parameter in ("trace_speed", "trace_from", "trace_to", "trace_loop"):
        if parameter in raw_options:
            raise InputError(f"{raw_options[parameter].where} goes with a trace; add --workload {' or '.join(TRACES)}")


def _refuse_own_instants(raw_options: RawOptions, fields: Fields) -> None:
    """`--arrival trace` asks for what a trace does anyway; it is no process that a rate could have."""
    if fields.get("load.arrival") != "trace":
        return
    if fields.get("workload.name") not in TRACES:
        raise InputError(
            f"--arrival trace replays recorded instants; add --workload {' or '.join(TRACES)} and --dataset-path FILE"
        )
    if "rate" in raw_options:
        raise InputError("--arrival trace has the trace's own instants and no --rate; leave one out (or --trace-speed)")
    del fields["load.arrival"]


def _refuse_dataset(raw_options: RawOptions, name: str) -> None:
    if "dataset_path" not in raw_options:
        raise InputError(f"--workload {name} is read from a file; add --dataset-path FILE")
    _refuse_own_text(raw_options, name)


def _refuse_own_text(raw_options: RawOptions, name: str) -> None:
    for parameter in ("isl", "prefix_len", "num_prefixes", "prefix_share", "prefix_zipf", "prompt_form", "image"):
        if parameter in raw_options:
            raise InputError(
                f"{raw_options[parameter].where} does not go with --workload {name}, which brings its own prompts"
            )


def _refuse_twice(fields: Fields) -> None:
    for field, flag in (
        ("output.goodput", "--goodput"),
        ("output.declare", "--declare"),
        ("output.metadata", "--metadata"),
        ("target.simulate", "--simulate"),
    ):
        values = fields.get(field, ())
        assert isinstance(values, tuple)
        names = [name for name, _ in values]
        for name in names:
            if names.count(name) > 1 and (flag, name) != ("--simulate", "fault"):
                raise InputError(f"{flag} names {name!r} twice; keep one")


def _refuse_declarations(fields: Fields) -> None:
    """A declaration with a slip of the hand declares nothing: it is told before the run, not found in its report."""
    declared = fields.get("output.declare", ())
    assert isinstance(declared, tuple)
    if declared:
        from fastllmload.declarations import complaints  # reads a table: only for runs that declare

        wrong = complaints(dict(declared))
        if wrong:
            raise InputError("; ".join(wrong))


WITH_TURNS = ("think_time", "history", "tool_turns")
CONVERSING = ("sharegpt", "custom")  # data sets that can have conversations


def refuse_user_behavior(raw_options: RawOptions, fields: Fields) -> None:
    """InputError for options of the run, or of one class of it, that mean nothing together."""
    _refuse_conversations(raw_options, fields)
    share, after = fields.get("behaviour.cancel_share", 0.0), fields.get("behaviour.cancel_after")
    if share and after is None:
        raise InputError("--cancel-share needs --cancel-after, for example 20tok or 2s")
    if after is not None and not share:
        raise InputError("--cancel-after needs --cancel-share, for example 0.1")
    if fields.get("behaviour.slow_readers") is not None:
        if fields.get("client.transport") == "asyncio":
            raise InputError("--slow-readers needs sockets that are read by ourselves, not --transport asyncio")
        urls = fields.get("target.urls", ())
        assert isinstance(urls, tuple)
        if any(url.startswith("https:") for url in urls):
            raise InputError("--slow-readers reads plain connections only, and --url is https")


def _refuse_conversations(raw_options: RawOptions, fields: Fields) -> None:
    name = fields.get("workload.name", "synthetic-uniform")
    if fields.get("workload.turns") is None:
        for parameter in WITH_TURNS:
            if parameter in raw_options:
                raise InputError(f"{raw_options[parameter].where} belongs to conversations; add --turns COUNT")
        return
    if name in TRACES or name in ("batch", "csv"):
        raise InputError(f"--turns does not go with --workload {name}, whose requests stand alone")
    if fields.get("workload.prompt_form") in ("ids", "native"):
        raise InputError("--turns needs prompts of text: no reply can be put behind token ids; leave --prompt-form out")
    told = name in CONVERSING or (name == "conversation" and fields.get("workload.dataset_path") is not None)
    if fields["workload.turns"] == "all" and not told:
        known = " or ".join(CONVERSING)
        raise InputError(f"--turns all takes what a data set has; add --workload {known}, or give a number")
    if fields.get("workload.tool_turns") and (told or name == "conversation"):
        raise InputError("--tool-turns makes synthetic ones, of synthetic-uniform and synthetic-skewed; leave it out")
    completions = str(fields.get("target.endpoint_type", "openai-chat"))
    if fields.get("workload.tool_turns") and completions in ("openai-completions", "ollama-generate"):
        raise InputError(f"--tool-turns needs messages, which {completions} does not have; use a chat endpoint")
