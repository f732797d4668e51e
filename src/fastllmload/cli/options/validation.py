"""Refuses options of a run that contradict each other, or that have no effect in combination with others."""

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
WITH_CLASSES = ("custom", "csv")  # data sets whose entries can have a class
TLS_OPTIONS = ("insecure", "cacert", "cert", "key", "server_name")
OWN_PROMPTS = STANDARD[2:4]  # conversation, code-completion: with a file or without
EXAMPLE = "fastllmload --rate 500 --duration 30"
Fields = dict[str, object]  # "load.rate" -> value


def validate_run(raw_options: RawOptions, fields: Fields, complete: bool = True) -> None:
    """InputError for the first contradiction. Not *complete*: a procedure decides how much load there is."""
    rate, concurrency = fields.get("load.rate"), fields.get("load.concurrency")
    if rate is not None and concurrency is not None:
        raise InputError(
            "rate-and-concurrency",
            f"--rate {rate:g} (open loop) and --concurrency {concurrency} (closed loop) contradict each "
            "other; give one, or cap an open loop with --max-concurrency",
        )
    _validate_closed_loop(raw_options)
    _validate_plan_options(raw_options)
    replays = fields.get("workload.name") in TRACES
    if (
        complete
        and "plan" not in raw_options
        and rate is None
        and concurrency is None
        and not replays
        and "class" not in raw_options
    ):
        raise InputError("load-missing", f"--rate is missing: specify how much load to offer, for example {EXAMPLE}")
    if rate == math.inf and "plan" not in raw_options and "num_requests" not in raw_options:
        raise InputError(
            "run-without-end",
            "--rate inf sends everything at once and needs a number of requests; add --num-requests COUNT",
        )
    if rate == math.inf and "arrival" in raw_options:
        raise InputError(
            "option-not-applicable",
            f"{raw_options['arrival'].where} says how arrivals are spread, and --rate inf sends everything at once; "
            "leave one of them out",
        )
    validate_user_behavior(raw_options, fields)
    _validate_target(raw_options, fields)
    _validate_client(raw_options, fields)
    _validate_telemetry(raw_options, fields)
    _validate_unique_names(fields)
    _validate_declarations(fields)


def _validate_closed_loop(raw_options: RawOptions) -> None:
    if "concurrency" not in raw_options:
        return
    for parameter in ("arrival", "burstiness", "max_concurrency"):
        if parameter in raw_options:
            raise InputError(
                "option-not-applicable",
                f"{raw_options[parameter].where} belongs to an open loop and has no effect with --concurrency; "
                "leave it out, or give --rate instead of --concurrency",
            )


def _validate_plan_options(raw_options: RawOptions) -> None:
    if "plan" not in raw_options:
        return
    for parameter in (*PLANNED, "seed", "save_plan"):
        if parameter in raw_options:
            raise InputError(
                "option-prescribed",
                f"{raw_options[parameter].where} is part of the plan that --plan replays; leave it out",
            )


def _validate_target(raw_options: RawOptions, fields: Fields) -> None:
    if "url" in raw_options and "simulate" in raw_options:
        raise InputError(
            "options-conflict",
            f"--simulate sets up the simulated engine, but {raw_options['url'].where} names a target; give one",
        )
    if "unix_socket" in raw_options and "simulate" in raw_options:
        where = raw_options["unix_socket"].where
        raise InputError(
            "options-conflict", f"--simulate sets up the simulated engine, but {where} names a target; give one"
        )
    if "unix_socket" in raw_options and "source_address" in raw_options:
        where = raw_options["source_address"].where
        raise InputError(
            "option-not-applicable", f"{where} has no effect with --unix-socket, which has no ports; leave it out"
        )
    if ("cert" in raw_options) != ("key" in raw_options):
        missing, present = ("--key", "--cert") if "cert" in raw_options else ("--cert", "--key")
        raise InputError("option-missing", f"{present} is given without {missing}; a client certificate needs both")
    if "insecure" in raw_options and "cacert" in raw_options and fields["target.insecure"] is True:
        raise InputError("options-conflict", "--insecure trusts every certificate and --cacert only some; give one")
    protocol = fields.get("target.endpoint_type", "openai-chat")
    completions = protocol == "openai-completions"
    if fields.get("workload.prompt_form") == "ids" and not completions:
        raise InputError(
            "protocol-unsupported", "--prompt-form ids needs --endpoint-type openai-completions: chat messages are text"
        )
    if "image" in raw_options and protocol != "openai-chat":
        raise InputError(
            "protocol-unsupported", "--image needs --endpoint-type openai-chat: only its messages can contain images"
        )
    if "image" in raw_options and fields.get("workload.prompt_form", "words") != "words":
        raise InputError(
            "option-not-applicable", f"--image goes with --prompt-form words, not {fields['workload.prompt_form']}"
        )
    if fields.get("workload.counting") == "B" and fields.get("workload.tokenizer") == "none":
        raise InputError(
            "options-conflict",
            "--counting B needs a reference tokenizer, and --tokenizer none leaves it out; give one of the two",
        )


def validate_tls_options(raw_options: RawOptions, settings: RunSettings) -> None:
    """InputError for TLS options of a run that connects to no target with TLS."""
    given = [
        raw_options[each].where for each in TLS_OPTIONS if each in raw_options and raw_options[each].state is not False
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
        why = "the simulated engine is used without TLS; name a target with --url https://HOST"
    elif "unix_socket" in raw_options and "url" not in raw_options:
        why = "a socket is used without TLS unless the URL is https; add --url https://NAME"
    else:
        why = f"no URL is https ({', '.join(named)}); write https://"
    has, it = ("has", "it") if len(given) == 1 else ("have", "them")
    raise InputError("option-not-applicable", f"{' and '.join(given)} {has} no effect: {why}, or leave {it} out")


def validate_stored_bodies(settings: RunSettings, where: str) -> None:
    """InputError where the option *where* stores all bodies of a plan and they contain a credential."""
    for workload in (settings.workload, *(one.workload for one in settings.classes)):
        if workload.extra_body is not None and public_body(workload.extra_body) != workload.extra_body:
            raise InputError(
                "credential-exposed",
                f"{where} writes every body to a file, and --extra-body puts a credential into them "
                f"({public_body(workload.extra_body)}); send it as a header with -H, or leave {where} out",
            )


def _validate_client(raw_options: RawOptions, fields: Fields) -> None:
    workers, pin = fields.get("client.workers"), fields.get("client.pin")
    if isinstance(workers, int) and isinstance(pin, tuple) and workers != len(pin):
        raise InputError(
            "options-conflict",
            f"--workers {workers} and --pin with {len(pin)} CPUs contradict each other; name one CPU each",
        )
    _validate_workload(raw_options, fields)
    for parameter in ("num_prefixes", "prefix_share", "prefix_zipf"):
        if parameter in raw_options and fields.get("workload.prefix_len", 0) == 0:
            where = raw_options[parameter].where
            raise InputError(
                "option-missing", f"{where} is given without --prefix-len; add the length of a shared prefix"
            )


def _validate_telemetry(raw_options: RawOptions, fields: Fields) -> None:
    sampled = ("telemetry_url", "scrape_metric", "telemetry_interval", "power", "power_command", "gpu_index")
    if fields.get("telemetry.enabled") is False:
        for parameter in sampled:
            if parameter in raw_options:
                raise InputError(
                    "options-conflict",
                    f"{raw_options[parameter].where} and --no-telemetry contradict each other; give one",
                )
    if "power_command" in raw_options:
        if fields.setdefault("telemetry.power", "command") != "command":
            raise InputError(
                "option-not-applicable",
                f"--power-command needs --power command, not --power {fields['telemetry.power']}",
            )
    elif fields.get("telemetry.power") == "command":
        raise InputError("option-missing", "--power command needs --power-command COMMAND that prints watts")
    if "gpu_index" in raw_options and fields.get("telemetry.power", "auto") not in ("auto", "nvml"):
        raise InputError(
            "option-not-applicable", f"--gpu-index belongs to --power nvml, not to --power {fields['telemetry.power']}"
        )
    if "gpu_index" in raw_options:
        fields["telemetry.power"] = "nvml"


def _validate_workload(raw_options: RawOptions, fields: Fields) -> None:
    """InputError for options that would change a trace's or data set's own lengths, prompts or instants."""
    name = fields.get("workload.name")
    _validate_trace_arrival(raw_options, fields)
    if name in TRACES:
        if "dataset_path" not in raw_options:
            raise InputError("option-missing", f"--workload {name} is read from a file; add --dataset-path FILE")
        for parameter in ("isl", "osl", "prefix_len", "num_prefixes", "prefix_share", "prefix_zipf", "image"):
            if parameter in raw_options:
                raise InputError(
                    "option-not-applicable",
                    f"{raw_options[parameter].where} does not go with --workload {name}, which brings its own lengths",
                )
        if "dataset_class" in raw_options:
            raise InputError(
                "option-not-applicable",
                f"{raw_options['dataset_class'].where} does not go with --workload {name}, which has no classes",
            )
        return
    if name in DATASETS:
        _validate_dataset(raw_options, str(name))
    elif name in OWN_PROMPTS:
        _validate_own_prompts(raw_options, str(name))
    elif "dataset_path" in raw_options:
        known = " or ".join((*TRACES, *DATASETS, *OWN_PROMPTS))
        raise InputError(
            "option-not-applicable",
            f"{raw_options['dataset_path'].where} is the file of a workload; add --workload {known}",
        )
    if "dataset_class" in raw_options and name not in WITH_CLASSES:
        raise InputError(
            "option-not-applicable",
            f"{raw_options['dataset_class'].where} chooses entries of a data set by their class; add --workload "
            f"{' or '.join(WITH_CLASSES)}",
        )
    for parameter in ("trace_speed", "trace_from", "trace_to", "trace_loop"):
        if parameter in raw_options:
            raise InputError(
                "option-not-applicable",
                f"{raw_options[parameter].where} goes with a trace; add --workload {' or '.join(TRACES)}",
            )


def _validate_trace_arrival(raw_options: RawOptions, fields: Fields) -> None:
    """Drop `--arrival trace`, which is what a trace workload does anyway; InputError without one, or with a rate."""
    if fields.get("load.arrival") != "trace":
        return
    if fields.get("workload.name") not in TRACES:
        raise InputError(
            "option-not-applicable",
            f"--arrival trace replays recorded instants; add --workload {' or '.join(TRACES)} and --dataset-path FILE",
        )
    if "rate" in raw_options:
        raise InputError(
            "option-not-applicable",
            "--arrival trace has the trace's own instants and no --rate; leave one out (or --trace-speed)",
        )
    del fields["load.arrival"]


def _validate_dataset(raw_options: RawOptions, name: str) -> None:
    if "dataset_path" not in raw_options:
        raise InputError("option-missing", f"--workload {name} is read from a file; add --dataset-path FILE")
    _validate_own_prompts(raw_options, name)


def _validate_own_prompts(raw_options: RawOptions, name: str) -> None:
    for parameter in ("isl", "prefix_len", "num_prefixes", "prefix_share", "prefix_zipf", "prompt_form", "image"):
        if parameter in raw_options:
            raise InputError(
                "option-not-applicable",
                f"{raw_options[parameter].where} does not go with --workload {name}, which brings its own prompts",
            )


def _validate_unique_names(fields: Fields) -> None:
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
                raise InputError("option-repeated", f"{flag} names {name!r} twice; keep one")


def _validate_declarations(fields: Fields) -> None:
    """InputError for an unknown declaration, so that a typing error is reported before the run, not after it."""
    declared = fields.get("output.declare", ())
    assert isinstance(declared, tuple)
    if declared:
        from fastllmload.declarations import declaration_problems  # reads a table: only for runs that declare

        wrong = declaration_problems(dict(declared))
        if wrong:
            raise InputError("declaration-invalid", "; ".join(wrong))


TURN_OPTIONS = ("think_time", "history", "tool_turns")
WITH_CONVERSATIONS = ("sharegpt", "custom")  # data sets that can have conversations


def validate_user_behavior(raw_options: RawOptions, fields: Fields) -> None:
    """InputError for user behavior of the run, or of one class, whose options do not go together."""
    _validate_conversations(raw_options, fields)
    share, after = fields.get("behaviour.cancel_share", 0.0), fields.get("behaviour.cancel_after")
    if share and after is None:
        raise InputError("option-missing", "--cancel-share needs --cancel-after, for example 20tok or 2s")
    if after is not None and not share:
        raise InputError("option-missing", "--cancel-after needs --cancel-share, for example 0.1")
    if fields.get("behaviour.slow_readers") is not None:
        if fields.get("client.transport") == "asyncio":
            raise InputError(
                "option-not-applicable",
                "--slow-readers needs the reactor's own sockets, not --transport asyncio; leave one out",
            )
        urls = fields.get("target.urls", ())
        assert isinstance(urls, tuple)
        if any(url.startswith("https:") for url in urls):
            raise InputError(
                "option-not-applicable",
                "--slow-readers works on plain connections only, and --url is https; leave one out",
            )


def _validate_conversations(raw_options: RawOptions, fields: Fields) -> None:
    name = fields.get("workload.name", "synthetic-uniform")
    if fields.get("workload.turns") is None:
        for parameter in TURN_OPTIONS:
            if parameter in raw_options:
                raise InputError(
                    "option-not-applicable",
                    f"{raw_options[parameter].where} belongs to conversations; add --turns COUNT",
                )
        return
    if name in TRACES or name in ("batch", "csv"):
        raise InputError(
            "option-not-applicable", f"--turns does not go with --workload {name}, whose requests are independent"
        )
    if fields.get("workload.prompt_form") in ("ids", "native"):
        raise InputError(
            "option-not-applicable",
            "--turns needs prompts of text: a reply cannot be appended to token ids; leave --prompt-form out",
        )
    recorded = name in WITH_CONVERSATIONS or (
        name == "conversation" and fields.get("workload.dataset_path") is not None
    )
    if fields["workload.turns"] == "all" and not recorded:
        known = " or ".join(WITH_CONVERSATIONS)
        raise InputError(
            "option-missing", f"--turns all takes what a data set has; add --workload {known}, or give a number"
        )
    if fields.get("workload.tool_turns") and (recorded or name == "conversation"):
        raise InputError(
            "option-not-applicable", "--tool-turns works with synthetic-uniform and synthetic-skewed only; leave it out"
        )
    completions = str(fields.get("target.endpoint_type", "openai-chat"))
    if fields.get("workload.tool_turns") and completions in ("openai-completions", "ollama-generate"):
        raise InputError(
            "protocol-unsupported",
            f"--tool-turns needs messages, which {completions} does not have; use a chat endpoint",
        )
