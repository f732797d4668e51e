"""From what the user gave to RunSettings and Secret: sources merged, values read, contradictions refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastllmload.cli.classes import replayed_urls, with_classes
from fastllmload.cli.contradictions import refuse_contradictions, refuse_idle_security, refuse_stored_secrets
from fastllmload.cli.given import Given, Givens, from_command_line, from_config
from fastllmload.cli.options import BY_PARAMETER, RunOption
from fastllmload.cli.ratecurve import spread_rate
from fastllmload.cli.readings import TRACES
from fastllmload.errors import InputError
from fastllmload.files import read_text
from fastllmload.plan.settings import Behaviour, Client, Load, Output, RunSettings, Secret, Target, Telemetry, Workload
from fastllmload.redact import Redactor, body_secrets, class_secrets, table_secrets, url_secrets, written_header

GROUPS = {
    "target": Target,
    "load": Load,
    "behaviour": Behaviour,
    "workload": Workload,
    "client": Client,
    "output": Output,
    "telemetry": Telemetry,
}
LARGEST_KEY_FILE = 64 << 10  # bytes; no server takes a longer header
RIVALS = (("rate", "concurrency"), ("api_key", "api_key_file"), ("ui", "disable_tqdm"))
DEFAULT_SECONDS = 60.0
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
    refuse_contradictions(givens, fields, complete)
    if "unix_socket" in givens and "target.urls" not in fields:
        fields["target.urls"] = ("http://localhost",)
    if complete:
        _complete(givens, fields)
    elif "class" in givens:
        raise InputError("--class belongs to a run; a procedure has its own traffic")
    if "plan" in givens and "class" in givens:
        fields["output.plan_urls"] = replayed_urls(givens["class"], _read)
        settings = _settings(fields)
    else:
        settings = with_classes(_settings(fields), givens, fields, _read, _seconds(fields))
    refuse_idle_security(givens, settings)
    if settings.output.save_plan is not None:
        refuse_stored_secrets(settings, "--save-plan")
    return settings, secret


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
        for secret in written_header(text):
            redactor.add(secret)
    for text in (*_texts(givens, "url"), *_texts(givens, "telemetry_url")):
        for secret in url_secrets(text):
            redactor.add(secret)
    for text in _texts(givens, "extra_body"):
        for secret in body_secrets(text):
            redactor.add(secret)
    for text in _texts(givens, "class"):
        for secret in class_secrets(text):
            redactor.add(secret)
    for table in givens["class"].tables if "class" in givens else ():
        for secret in table_secrets(table):
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
        return (read_text(path, LARGEST_KEY_FILE).splitlines() or [""])[0].strip()
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
