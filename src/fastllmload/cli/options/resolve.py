"""Makes RunSettings and Secret from options: merges the sources, parses the values and validates them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastllmload.cli.options.classes import replayed_urls, with_classes
from fastllmload.cli.options.parsers import TRACES
from fastllmload.cli.options.rate_curve import spread_rate
from fastllmload.cli.options.raw import RawOption, RawOptions, from_command_line, from_config
from fastllmload.cli.options.table import BY_PARAMETER, RunOption
from fastllmload.cli.options.validation import validate_run, validate_stored_bodies, validate_tls_options
from fastllmload.errors import InputError, value_code
from fastllmload.files import read_text
from fastllmload.redact import Redactor, body_secrets, class_secrets, header_line_secrets, table_secrets, url_secrets
from fastllmload.settings import Client, Load, Output, RunSettings, Secret, Target, Telemetry, UserBehavior, Workload

GROUPS = {
    "target": Target,
    "load": Load,
    "behaviour": UserBehavior,
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
    """The settings that *parameters* ask for, and the API key. Adds all secrets to *redactor*. InputError."""
    return resolve_merged(merge_config(from_command_line(parameters)), environment, redactor)


def resolve_merged(
    raw_options: RawOptions, environment: Mapping[str, str], redactor: Redactor, complete: bool = True
) -> tuple[RunSettings, Secret | None]:
    """The same as `resolve`, from options that are already merged.

    Not *complete*: load and duration may be missing; a procedure decides them.
    """
    _add_environment(raw_options, environment)
    _register_secrets(raw_options, redactor)
    secret = _api_key(raw_options, redactor)
    fields = _parse(raw_options)
    spread_rate(raw_options, fields, DEFAULT_SECONDS)
    validate_run(raw_options, fields, complete)
    if "unix_socket" in raw_options and "target.urls" not in fields:
        fields["target.urls"] = ("http://localhost",)
    if complete:
        _complete(raw_options, fields)
    elif "class" in raw_options:
        raise InputError("option-not-applicable", "--class belongs to a run; a procedure has its own traffic")
    if "plan" in raw_options and "class" in raw_options:
        fields["output.plan_urls"] = replayed_urls(raw_options["class"], _parse)
        settings = _settings(fields)
    else:
        settings = with_classes(_settings(fields), raw_options, fields, _parse, _seconds(fields))
    validate_tls_options(raw_options, settings)
    if settings.output.save_plan is not None:
        validate_stored_bodies(settings, "--save-plan")
    return settings, secret


def _seconds(fields: Fields) -> float:
    """Duration of the run for a changing rate."""
    found = fields.get("load.duration", DEFAULT_SECONDS)
    assert isinstance(found, float)
    return found


def merge_config(command: RawOptions, more: Sequence[RunOption] = ()) -> RawOptions:
    """Options of the config file, overridden by those of the command line; one there also removes its rivals in the
    file. *more*: the command's own options, which the file may contain too.
    """
    if "config" not in command:
        return command
    config = from_config(command["config"].texts[0], more)
    for rivals in RIVALS:
        if any(rival in command for rival in rivals):
            for rival in rivals:
                config.pop(rival, None)
    return config | command


def split_own_options(
    parameters: Mapping[str, object], own: Sequence[RunOption]
) -> tuple[RawOptions, dict[str, object]]:
    """Split click's *parameters* into options of a run and the command's *own*, which are returned as click gives
    them. Both come from the command line or else from the config file.
    """
    names = {option.parameter for option in own}
    found = {name: parameters[name] for name in names}
    raw_options = merge_config(
        from_command_line({key: each for key, each in parameters.items() if key not in names}), own
    )
    for name, value in take_own_options(raw_options, own).items():
        if found[name] in (None, ()):
            found[name] = value
    return raw_options, found


def take_own_options(raw_options: RawOptions, own: Sequence[RunOption]) -> dict[str, object]:
    """Values of the options *own*, as click gives them, which are removed from *raw_options*."""
    found: dict[str, object] = {}
    for option in own:
        given = raw_options.pop(option.parameter, None)
        if given is not None:
            texts = given.texts if option.multiple else (given.texts or (None,))[0]
            found[option.parameter] = texts if given.state is None else given.state
    return found


def _add_environment(raw_options: RawOptions, environment: Mapping[str, str]) -> None:
    for name, parameter, rivals in (
        ("OPENAI_BASE_URL", "url", ("unix_socket",)),
        ("OPENAI_API_KEY", "api_key", ("api_key_file",)),
    ):
        found = environment.get(name, "")
        if found != "" and parameter not in raw_options and not any(rival in raw_options for rival in rivals):
            raw_options[parameter] = RawOption(BY_PARAMETER[parameter], name, (found,))


def _register_secrets(raw_options: RawOptions, redactor: Redactor) -> None:
    """Runs before anything is parsed, since a message about a wrong value must not show a secret either."""
    for text in _texts(raw_options, "api_key"):
        redactor.add(text)
    for text in _texts(raw_options, "header"):
        for secret in header_line_secrets(text):
            redactor.add(secret)
    for text in (*_texts(raw_options, "url"), *_texts(raw_options, "telemetry_url")):
        for secret in url_secrets(text):
            redactor.add(secret)
    for text in _texts(raw_options, "extra_body"):
        for secret in body_secrets(text):
            redactor.add(secret)
    for text in _texts(raw_options, "class"):
        for secret in class_secrets(text):
            redactor.add(secret)
    for table in raw_options["class"].tables if "class" in raw_options else ():
        for secret in table_secrets(table):
            redactor.add(secret)


def _texts(raw_options: RawOptions, parameter: str) -> tuple[str, ...]:
    return raw_options[parameter].texts if parameter in raw_options else ()


def _api_key(raw_options: RawOptions, redactor: Redactor) -> Secret | None:
    if "api_key" in raw_options and "api_key_file" in raw_options:
        raise InputError("options-conflict", "--api-key and --api-key-file are both given; give one")
    key: str | None = None
    where = "--api-key"
    if "api_key_file" in raw_options:
        where = f"--api-key-file {raw_options['api_key_file'].texts[0]}"
        key = _first_line(raw_options["api_key_file"].texts[0])
        redactor.add(key)
    elif "api_key" in raw_options:
        where, key = raw_options["api_key"].where, raw_options["api_key"].texts[0].strip()
    if key is None:
        return None
    if key == "" or any(not 33 <= ord(letter) <= 126 for letter in key):
        raise InputError(
            "api-key-invalid", f"{where} has no usable key: it is empty or has characters that no header may carry"
        )
    return Secret(key)


def _first_line(path: str) -> str:
    try:
        return (read_text(path, LARGEST_KEY_FILE).splitlines() or [""])[0].strip()
    except OSError as error:
        raise InputError("file-unreadable", f"--api-key-file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(
            "api-key-invalid", f"--api-key-file {path} is not text; put the key on its first line"
        ) from None


def _parse(raw_options: RawOptions) -> Fields:
    fields: Fields = {}
    setter: dict[str, RawOption] = {}
    for parameter, given in raw_options.items():
        if parameter in ("config", "api_key", "api_key_file", "class"):
            continue
        for field, found in _parse_option(given).items():
            if field in fields and fields[field] != found:
                raise InputError(
                    "options-conflict", f"{setter[field].where} and {given.where} contradict each other; give one"
                )
            fields[field], setter[field] = found, given
    return fields


def _parse_option(given: RawOption) -> Fields:
    option = given.option
    if option.parse is None:
        value = option.on if given.state is True else option.off
        return {} if option.field is None or value is None else {option.field: value}
    texts = _split_words(given) if option.words else given.texts
    values = tuple(_parse_text(given, text) for text in texts)
    if option.field is None:
        (value,) = values
        assert isinstance(value, dict)  # a parser without a field returns fields
        return value
    return {option.field: values if option.multiple else values[0]}


def _split_words(given: RawOption) -> tuple[str, ...]:
    """`"ttft:200 tpot:50"` and `ttft:200,tpot:50` are several objectives; labels may contain blanks and commas."""
    if given.option.name != "goodput":
        return given.texts
    return tuple(word for text in given.texts for word in text.replace(",", " ").split()) or ("",)


def _parse_text(given: RawOption, text: str) -> object:
    assert given.option.parse is not None
    try:
        return given.option.parse(text)
    except ValueError as error:
        raise InputError(value_code(error), f"{given.where} {text!r} {error}") from None


def _complete(raw_options: RawOptions, fields: Fields) -> None:
    """Set the default duration of a load that has no end."""
    if "plan" in raw_options:
        return
    own_end = fields.get("workload.name") in TRACES and not {"load.rate", "load.concurrency"} & fields.keys()
    if "num_requests" not in raw_options and "duration" not in raw_options and not own_end:
        fields["load.duration"] = DEFAULT_SECONDS


def _settings(fields: Fields) -> RunSettings:
    groups: dict[str, dict[str, object]] = {group: {} for group in GROUPS}
    for field, value in fields.items():
        group, _, name = field.partition(".")
        groups[group][name] = value
    made = {group: struct(**groups[group]) for group, struct in GROUPS.items()}
    return RunSettings(**made)
