"""From what the user gave to RunSettings and Secret: sources merged, values read, contradictions refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from fastllmload.cli.classes import with_classes
from fastllmload.cli.given import Given, Givens, from_command_line, from_config
from fastllmload.cli.manners import refuse_manners
from fastllmload.cli.options import BY_PARAMETER, RunOption
from fastllmload.cli.ratecurve import spread_rate
from fastllmload.cli.readings import DATASETS, STANDARD, TRACES
from fastllmload.errors import InputError
from fastllmload.plan.settings import Behaviour, Client, Load, Output, RunSettings, Secret, Target, Telemetry, Workload
from fastllmload.redact import Redactor, header_secrets, url_secrets

GROUPS = {
    "target": Target,
    "load": Load,
    "behaviour": Behaviour,
    "workload": Workload,
    "client": Client,
    "output": Output,
    "telemetry": Telemetry,
}
RIVALS = (("rate", "concurrency"), ("api_key", "api_key_file"), ("ui", "disable_tqdm"))
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
    "trace_speed",
    "trace_from",
    "trace_to",
    "trace_loop",
    "class",
    "turns",
    "think_time",
    "history",
    "tool_turns",
    "cancel_share",
    "cancel_after",
    "slow_readers",
    "abandon",
)
OWN_TEXT = STANDARD[2:4]  # conversation, code-completion: with a file or without
DEFAULT_SECONDS = 60.0
EXAMPLE = "fastllmload --rate 500 --duration 30"
Fields = dict[str, object]  # "load.rate" -> value


def resolve(
    parameters: Mapping[str, object], environment: Mapping[str, str], redactor: Redactor
) -> tuple[RunSettings, Secret | None]:
    """The run that *parameters* ask for and its API key; InputError in one sentence. Secrets are told to
    *redactor*.
    """
    return settle(merged(from_command_line(parameters)), environment, redactor)


def settle(
    givens: Givens, environment: Mapping[str, str], redactor: Redactor, complete: bool = True
) -> tuple[RunSettings, Secret | None]:
    """What `resolve` gives, from options that are collected already.

    Not *complete*: what says how much load to offer, and for how long, may be missing; a procedure decides it.
    """
    _add_environment(givens, environment)
    _tell_secrets(givens, redactor)
    secret = _api_key(givens, redactor)
    fields = _read(givens)
    spread_rate(givens, fields, DEFAULT_SECONDS)
    _refuse_contradictions(givens, fields, complete)
    if "unix_socket" in givens and "target.urls" not in fields:
        fields["target.urls"] = ("http://localhost",)
    if complete:
        _complete(givens, fields)
    elif "class" in givens:
        raise InputError("--class belongs to a run; a procedure has its own traffic")
    return with_classes(_settings(fields), givens, fields, _read, _seconds(fields)), secret


def _seconds(fields: Fields) -> float:
    """Length of the run, as far as a rate that changes needs one."""
    found = fields.get("load.duration", DEFAULT_SECONDS)
    assert isinstance(found, float)
    return found


def merged(command: Givens, more: Sequence[RunOption] = ()) -> Givens:
    """Config file below command line; an option on the command line also displaces its rivals in the file. The file
    may also hold *more* options, of the command that takes those of a run.
    """
    if "config" not in command:
        return command
    config = from_config(command["config"].texts[0], more)
    for rivals in RIVALS:
        if any(rival in command for rival in rivals):
            for rival in rivals:
                config.pop(rival, None)
    return config | command


def apart(parameters: Mapping[str, object], own: Sequence[RunOption]) -> tuple[Givens, dict[str, object]]:
    """click's *parameters* of a command with options of its *own* beside those of a run: both kinds, each from the
    command line or else from the config file; the own ones by parameter, as click gives them.
    """
    names = {option.parameter for option in own}
    found = {name: parameters[name] for name in names}
    givens = merged(from_command_line({key: each for key, each in parameters.items() if key not in names}), own)
    for option in own:
        given = givens.pop(option.parameter, None)
        if given is not None and found[option.parameter] in (None, ()):
            texts = given.texts if option.multiple else (given.texts or (None,))[0]
            found[option.parameter] = texts if given.state is None else given.state
    return givens, found


def _add_environment(givens: Givens, environment: Mapping[str, str]) -> None:
    for name, parameter, rivals in (
        ("OPENAI_BASE_URL", "url", ("unix_socket",)),
        ("OPENAI_API_KEY", "api_key", ("api_key_file",)),
    ):
        found = environment.get(name, "")
        if found != "" and parameter not in givens and not any(rival in givens for rival in rivals):
            givens[parameter] = Given(BY_PARAMETER[parameter], name, (found,))


def _tell_secrets(givens: Givens, redactor: Redactor) -> None:
    """Before anything is read: the sentence about a wrong value must not show it either."""
    for text in _texts(givens, "api_key"):
        redactor.add(text)
    for text in _texts(givens, "header"):
        name, _, content = text.partition(":")
        for secret in header_secrets(name, content):
            redactor.add(secret)
    for text in _texts(givens, "url"):
        for secret in url_secrets(text):
            redactor.add(secret)


def _texts(givens: Givens, parameter: str) -> tuple[str, ...]:
    return givens[parameter].texts if parameter in givens else ()


def _api_key(givens: Givens, redactor: Redactor) -> Secret | None:
    if "api_key" in givens and "api_key_file" in givens:
        raise InputError("--api-key and --api-key-file are both given; give one")
    key: str | None = None
    where = "--api-key"
    if "api_key_file" in givens:
        where = f"--api-key-file {givens['api_key_file'].texts[0]}"
        key = _first_line(givens["api_key_file"].texts[0])
        redactor.add(key)
    elif "api_key" in givens:
        where, key = givens["api_key"].where, givens["api_key"].texts[0].strip()
    if key is None:
        return None
    if key == "" or any(not 33 <= ord(letter) <= 126 for letter in key):
        raise InputError(f"{where} holds no usable key: it is empty or has characters that no header may carry")
    return Secret(key)


def _first_line(path: str) -> str:
    try:
        return (Path(path).read_text(encoding="utf-8").splitlines() or [""])[0].strip()
    except OSError as error:
        raise InputError(f"--api-key-file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"--api-key-file {path} is not text; put the key on its first line") from None


def _read(givens: Givens) -> Fields:
    fields: Fields = {}
    setter: dict[str, Given] = {}
    for parameter, given in givens.items():
        if parameter in ("config", "api_key", "api_key_file", "class"):
            continue
        for field, found in _value(given).items():
            if field in fields and fields[field] != found:
                raise InputError(f"{setter[field].where} and {given.where} contradict each other; give one")
            fields[field], setter[field] = found, given
    return fields


def _value(given: Given) -> Fields:
    option = given.option
    if option.reading is None:
        value = option.on if given.state is True else option.off
        return {} if option.field is None or value is None else {option.field: value}
    texts = _split_words(given) if option.words else given.texts
    values = tuple(_one(given, text) for text in texts)
    if option.field is None:
        (value,) = values
        assert isinstance(value, dict)  # a reading without a field gives fields
        return value
    return {option.field: values if option.multiple else values[0]}


def _split_words(given: Given) -> tuple[str, ...]:
    """`"ttft:200 tpot:50"` and `ttft:200,tpot:50` are several objectives; labels may hold both."""
    if given.option.name != "goodput":
        return given.texts
    return tuple(word for text in given.texts for word in text.replace(",", " ").split()) or ("",)


def _one(given: Given, text: str) -> object:
    assert given.option.reading is not None
    try:
        return given.option.reading(text)
    except ValueError as error:
        raise InputError(f"{given.where} {text!r} {error}") from None


def _refuse_contradictions(givens: Givens, fields: Fields, complete: bool = True) -> None:
    rate, concurrency = fields.get("load.rate"), fields.get("load.concurrency")
    if rate is not None and concurrency is not None:
        raise InputError(
            f"--rate {rate:g} (open loop) and --concurrency {concurrency} (closed loop) contradict each "
            "other; give one, or cap an open loop with --max-concurrency"
        )
    _refuse_for_closed_loop(givens)
    _refuse_beside_plan(givens)
    replays = fields.get("workload.name") in TRACES
    if (
        complete
        and "plan" not in givens
        and rate is None
        and concurrency is None
        and not replays
        and "class" not in givens
    ):
        raise InputError(f"--rate is missing: say how much load to offer, for example {EXAMPLE}")
    if rate == math.inf and "plan" not in givens and "num_requests" not in givens:
        raise InputError("--rate inf sends everything at once and needs to know how much; add --num-requests COUNT")
    if rate == math.inf and "arrival" in givens:
        raise InputError(
            f"{givens['arrival'].where} says how arrivals are spread, and --rate inf sends everything at once; "
            "leave one of them out"
        )
    refuse_manners(givens, fields)
    _refuse_target(givens, fields)
    _refuse_client(givens, fields)
    _refuse_telemetry(givens, fields)
    _refuse_twice(fields)
    _refuse_declarations(fields)


def _refuse_for_closed_loop(givens: Givens) -> None:
    if "concurrency" not in givens:
        return
    for parameter in ("arrival", "burstiness", "max_concurrency"):
        if parameter in givens:
            raise InputError(
                f"{givens[parameter].where} belongs to an open loop and does nothing beside --concurrency; "
                "leave it out, or give --rate instead of --concurrency"
            )


def _refuse_beside_plan(givens: Givens) -> None:
    if "plan" not in givens:
        return
    for parameter in (*PLANNED, "seed", "save_plan"):
        if parameter in givens:
            raise InputError(f"{givens[parameter].where} is part of the plan that --plan replays; leave it out")


def _refuse_target(givens: Givens, fields: Fields) -> None:
    if "url" in givens and "simulate" in givens:
        raise InputError(f"--simulate sets up the simulated engine, but {givens['url'].where} names a target; give one")
    if ("cert" in givens) != ("key" in givens):
        missing, there = ("--key", "--cert") if "cert" in givens else ("--cert", "--key")
        raise InputError(f"{there} is given without {missing}; a client certificate needs both")
    if "insecure" in givens and "cacert" in givens and fields["target.insecure"] is True:
        raise InputError("--insecure trusts every certificate and --cacert only some; give one")
    protocol = fields.get("target.endpoint_type", "openai-chat")
    completions = protocol == "openai-completions"
    if fields.get("workload.prompt_form") == "ids" and not completions:
        raise InputError("--prompt-form ids needs --endpoint-type openai-completions: chat messages are text")
    if "image" in givens and protocol != "openai-chat":
        raise InputError("--image needs --endpoint-type openai-chat: only its messages hold images")
    if "image" in givens and fields.get("workload.prompt_form", "words") != "words":
        raise InputError(f"--image goes with --prompt-form words, not {fields['workload.prompt_form']}")
    if fields.get("workload.counting") == "B" and fields.get("workload.tokenizer") == "none":
        raise InputError(
            "--counting B counts with the reference tokenizer, and --tokenizer none says that there is none"
        )


def _refuse_client(givens: Givens, fields: Fields) -> None:
    workers, pin = fields.get("client.workers"), fields.get("client.pin")
    if isinstance(workers, int) and isinstance(pin, tuple) and workers != len(pin):
        raise InputError(f"--workers {workers} and --pin with {len(pin)} CPUs contradict each other; name one CPU each")
    _refuse_trace(givens, fields)
    for parameter in ("num_prefixes", "prefix_share", "prefix_zipf"):
        if parameter in givens and fields.get("workload.prefix_len", 0) == 0:
            where = givens[parameter].where
            raise InputError(f"{where} is given without --prefix-len; say how long a shared prefix is")


def _refuse_telemetry(givens: Givens, fields: Fields) -> None:
    sampled = ("telemetry_url", "scrape_metric", "telemetry_interval", "power", "power_command", "gpu_index")
    if fields.get("telemetry.enabled") is False:
        for parameter in sampled:
            if parameter in givens:
                raise InputError(f"{givens[parameter].where} and --no-telemetry contradict each other; give one")
    if "power_command" in givens:
        if fields.setdefault("telemetry.power", "command") != "command":
            raise InputError(f"--power-command needs --power command, not --power {fields['telemetry.power']}")
    elif fields.get("telemetry.power") == "command":
        raise InputError("--power command needs --power-command COMMAND that prints watts")
    if "gpu_index" in givens and fields.get("telemetry.power", "auto") not in ("auto", "nvml"):
        raise InputError(f"--gpu-index belongs to --power nvml, not to --power {fields['telemetry.power']}")
    if "gpu_index" in givens:
        fields["telemetry.power"] = "nvml"


def _refuse_trace(givens: Givens, fields: Fields) -> None:
    """A trace brings lengths and instants; what would change them silently is refused."""
    name = fields.get("workload.name")
    _refuse_own_instants(givens, fields)
    if name in TRACES:
        if "dataset_path" not in givens:
            raise InputError(f"--workload {name} is read from a file; add --dataset-path FILE")
        for parameter in ("isl", "osl", "prefix_len", "num_prefixes", "prefix_share", "prefix_zipf", "image"):
            if parameter in givens:
                raise InputError(
                    f"{givens[parameter].where} does not go with --workload {name}, which brings its own lengths"
                )
        return
    if name in DATASETS:
        _refuse_dataset(givens, str(name))
    elif name in OWN_TEXT:
        _refuse_own_text(givens, str(name))
    elif "dataset_path" in givens:
        known = " or ".join((*TRACES, *DATASETS, *OWN_TEXT))
        raise InputError(f"{givens['dataset_path'].where} is the file of a workload; add --workload {known}")
    for parameter in ("trace_speed", "trace_from", "trace_to", "trace_loop"):
        if parameter in givens:
            raise InputError(f"{givens[parameter].where} goes with a trace; add --workload {' or '.join(TRACES)}")


def _refuse_own_instants(givens: Givens, fields: Fields) -> None:
    """`--arrival trace` asks for what a trace does anyway; it is no process that a rate could have."""
    if fields.get("load.arrival") != "trace":
        return
    if fields.get("workload.name") not in TRACES:
        raise InputError(
            f"--arrival trace replays recorded instants; add --workload {' or '.join(TRACES)} and --dataset-path FILE"
        )
    if "rate" in givens:
        raise InputError("--arrival trace has the trace's own instants and no --rate; leave one out (or --trace-speed)")
    del fields["load.arrival"]


def _refuse_dataset(givens: Givens, name: str) -> None:
    if "dataset_path" not in givens:
        raise InputError(f"--workload {name} is read from a file; add --dataset-path FILE")
    _refuse_own_text(givens, name)


def _refuse_own_text(givens: Givens, name: str) -> None:
    for parameter in ("isl", "prefix_len", "num_prefixes", "prefix_share", "prefix_zipf", "prompt_form", "image"):
        if parameter in givens:
            raise InputError(
                f"{givens[parameter].where} does not go with --workload {name}, which brings its own prompts"
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
        from fastllmload.compliance.declarations import complaints  # reads a table: only for runs that declare

        wrong = complaints(dict(declared))
        if wrong:
            raise InputError("; ".join(wrong))


def _complete(givens: Givens, fields: Fields) -> None:
    """The end of a load that was given none."""
    if "plan" in givens:
        return
    own_end = fields.get("workload.name") in TRACES and not {"load.rate", "load.concurrency"} & fields.keys()
    if "num_requests" not in givens and "duration" not in givens and not own_end:
        fields["load.duration"] = DEFAULT_SECONDS


def _settings(fields: Fields) -> RunSettings:
    groups: dict[str, dict[str, object]] = {group: {} for group in GROUPS}
    for field, value in fields.items():
        group, _, name = field.partition(".")
        groups[group][name] = value
    made = {group: struct(**groups[group]) for group, struct in GROUPS.items()}
    return RunSettings(**made)
