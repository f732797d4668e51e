"""Options as text with their origin (command line, config file, environment), and the fields of the settings they set."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from fastllmload.cli.compat.meanings import suggestion
from fastllmload.cli.options.parsers import axis, hook
from fastllmload.cli.options.table import BY_PARAMETER, RunOption, config_names
from fastllmload.errors import InputError, value_code
from fastllmload.files import parse_toml, read_open, read_text


@dataclass(frozen=True)
class RawOption:
    """One option as it was given. *texts*: one or more, not parsed; *state* instead of them for a switch."""

    option: RunOption
    where: str
    texts: tuple[str, ...] = ()
    state: bool | None = None
    tables: tuple[Mapping[str, object], ...] = ()  # of [[class]]


RawOptions = dict[str, RawOption]  # by parameter
Fields = dict[str, Any]  # "load.rate" -> value
KINDS = {"dict": "table"}  # by type, for messages, which must not show the content, maybe a credential


def from_command_line(parameters: Mapping[str, object], more: Sequence[RunOption] = ()) -> RawOptions:
    """click's parameters, without those that were not given. *more*: options of the command in addition to a run's."""
    raw_options: RawOptions = {}
    options = BY_PARAMETER | {option.parameter: option for option in more}
    for parameter, found in parameters.items():
        option = options[parameter]
        if isinstance(found, bool):
            raw_options[parameter] = RawOption(option, option.flag, state=found)
        elif isinstance(found, str):
            raw_options[parameter] = RawOption(option, option.flag, (found,))
        elif isinstance(found, tuple) and found != ():
            raw_options[parameter] = RawOption(option, option.flag, found)
    return raw_options


def from_table(table: Mapping[str, object], prefix: str, suffix: str, more: Sequence[RunOption] = ()) -> RawOptions:
    """Options by name with typed values, `-` or `_` in the names. *prefix* and *suffix* locate an entry in a message."""
    names = config_names() | {name: (one, False) for one in more for name in (one.name, one.parameter)}
    raw_options: RawOptions = {}
    for key, found in table.items():
        if key not in names:
            known = {f"--{name}" for name in names if "_" not in name}
            what, where = ("of this command", "its --help") if more else ("of a run", "fastllmload run --help")
            near = suggestion(f"--{key}", known).replace("--", "") or f"see {where}"
            raise InputError("option-unknown", f"{prefix}{key!r} is not an option {what}; {near}")
        option, opposite = names[key]
        where = f"{key}{suffix}"
        if option.name == "class" and isinstance(found, list | tuple) and found and isinstance(found[0], dict):
            raw_options["class"] = RawOption(option, where, tables=tuple(found))
            continue
        if option.parameter in raw_options:
            raise InputError(
                "option-repeated", f"{where} is given twice, also as {raw_options[option.parameter].where}; keep one"
            )
        raw_options[option.parameter] = _from_toml(option, where, found, opposite)
    return raw_options


def _toml(path: str) -> dict[str, object]:
    """The document in the file *path*; `-` is the standard input."""
    try:
        text = read_open(sys.stdin.buffer).decode() if path == "-" else read_text(path)
        return parse_toml(text)
    except OSError as error:
        raise InputError(
            "file-unreadable", f"--config {path} cannot be read: {error.strerror}; give a TOML file"
        ) from None
    except ValueError as error:  # TOMLDecodeError, UnicodeDecodeError
        raise InputError("config-invalid", f"--config {path} is not TOML: {error}") from None


def _from_toml(option: RunOption, where: str, found: object, opposite: bool) -> RawOption:
    if option.parse is None:
        if not isinstance(found, bool):
            raise InputError("option-value-type", f"{where} is {found!r}; write true or false")
        return RawOption(option, where, state=found is not opposite)
    entries = list(found) if isinstance(found, list | tuple) else [found]
    if isinstance(found, dict) and (option.words or option.parse in (axis, hook)):  # [metadata] NAME = VALUE, [hook]
        joint = ":" if option.name == "goodput" else "="
        entries = [f"{name}{joint}{_text(where, entry)}" for name, entry in found.items()]
    if len(entries) != 1 and not option.multiple:
        raise InputError("option-repeated", f"{where} has {len(entries)} values and takes one")
    return RawOption(option, where, tuple(_text(where, entry) for entry in entries))


def _text(where: str, entry: object) -> str:
    if isinstance(entry, os.PathLike):
        entry = os.fspath(entry)
    if isinstance(entry, bool) or not isinstance(entry, (str, Real)):
        name = type(entry).__name__
        kind = repr(entry) if isinstance(entry, bool) else f"a {KINDS.get(name, name)}"
        raise InputError("option-value-type", f"{where} is {kind}; write a number or a string")
    return str(entry)


MOST_SLOTS = 1_000_000
RIVALS = (("rate", "concurrency"), ("api_key", "api_key_file"), ("ui", "disable_tqdm"))


def merge_config(command: RawOptions, more: Sequence[RunOption] = ()) -> RawOptions:
    """Options of the config file, overridden by those of the command line and without their rivals. *more*: its own."""
    if "config" not in command:
        return command
    path = command["config"].texts[0]
    config = from_table(_toml(path), f"--config {path}: ", f" in {path}", more)
    for rivals in RIVALS:
        if any(rival in command for rival in rivals):
            for rival in rivals:
                config.pop(rival, None)
    return config | command


def given_options(parameters: Mapping[str, object], own: Sequence[RunOption] = ()) -> RawOptions:
    """click's *parameters*, or else those of the config file; *own*: options of the command in addition to a run's."""
    return merge_config(from_command_line(parameters, own), own)


def parse_options(raw_options: RawOptions) -> Fields:
    """The fields of the settings that *raw_options* set. InputError names the option and its value."""
    fields: Fields = {}
    setter: dict[str, RawOption] = {}
    for parameter, given in raw_options.items():
        if parameter in ("config", "api_key", "api_key_file", "class"):
            continue
        for field, found in _parse_option(given).items():
            if field in fields and fields[field] != found:
                where = setter[field].where
                raise InputError("options-conflict", f"{where} and {given.where} contradict each other; give one")
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


def read_own(raw_options: RawOptions, own: Sequence[RunOption]) -> dict[str, Any]:
    """The fields of a command's *own* options, which are taken out of *raw_options*."""
    given = {option.parameter: raw_options.pop(option.parameter) for option in own if option.parameter in raw_options}
    return dict(parse_options(given))


def choose_sensor(raw_options: RawOptions, fields: Fields) -> None:
    if "power_command" in raw_options:
        fields.setdefault("telemetry.power", "command")
    if "gpu_index" in raw_options and fields.get("telemetry.power", "auto") == "auto":
        fields["telemetry.power"] = "nvml"


def spread_rate(raw_options: RawOptions, fields: Fields, default_seconds: float) -> None:
    """Set `load.rate` to the mean of a changing rate, for all uses that need one number."""
    _most_slots(raw_options, fields, default_seconds)
    _join_ramp(raw_options, fields)
    written = fields.get("load.rate_curve")
    if not isinstance(written, str):
        return
    for parameter in ("rate", "rate_series"):
        if parameter in raw_options and "load.rate" in fields:
            where = raw_options[parameter].where
            raise InputError("options-conflict", f"{where} and a rate that changes are both given; give one")
    if "concurrency" in raw_options:  # with a rate that changes
        raise InputError(
            "options-conflict", "--concurrency (closed loop) has no rate that could change; give one of the two"
        )
    from fastllmload.arrivals.curve import mean_rate, read_curve

    seconds = fields.get("load.duration")
    if seconds is None and "num_requests" not in raw_options:
        seconds = default_seconds
    curve = read_curve(written, seconds if isinstance(seconds, float) else None)
    fields["load.rate"] = mean_rate(curve, seconds if isinstance(seconds, float) else curve.seconds)
    if fields["load.rate"] == 0:
        raise InputError("schedule-empty", f"--rate {written} sends nothing within --duration {seconds:g} s")


def _most_slots(raw_options: RawOptions, fields: Fields, default_seconds: float) -> None:
    """Set `load.concurrency` to the most slots of a number that changes."""
    written = fields.get("load.concurrency_curve")
    if not isinstance(written, str):
        return
    from fastllmload.arrivals.curve import read_curve, slot_changes

    where = raw_options["concurrency"].where
    if "load.duration" not in fields:
        fields["load.duration"] = default_seconds
    seconds = fields["load.duration"]
    assert isinstance(seconds, float)
    curve = read_curve(written, seconds, where)
    if curve.peak > MOST_SLOTS:
        raise InputError("value-out-of-range", f"{where} {written} is above {MOST_SLOTS:,} requests in flight")
    fields["load.concurrency"] = int(slot_changes(curve, seconds).slots.max(initial=0))
    if not fields["load.concurrency"]:
        raise InputError("schedule-empty", f"{where} {written} opens no slot within --duration {seconds:g} s")


def _join_ramp(raw_options: RawOptions, fields: Fields) -> None:
    """Convert vLLM's three ramp options to a rate curve."""
    strategy, start, end = (fields.pop(f"load.ramp_{name}", None) for name in ("strategy", "start", "end"))
    if fields.get("load.arrival") == "ramp":
        del fields["load.arrival"]
        given = ["arrival"]
    else:
        given = [name for name in ("ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps") if name in raw_options]
    if not given:
        return
    if start is None or end is None:
        asked = "--arrival ramp" if given == ["arrival"] else raw_options[given[0]].where
        raise InputError("option-missing", f"{asked} needs both --ramp-up-start-rps and --ramp-up-end-rps")
    if "rate" in raw_options or "rate_series" in raw_options:
        raise InputError("options-conflict", "--rate and a ramp from --ramp-up-start-rps are both given; give one")
    fields["load.rate_curve"] = f"{'exponential' if strategy == 'exponential' else 'ramp'}:{start:g},{end:g}"
