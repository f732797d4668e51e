"""Options as text, with their origin: command line, config file or environment."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastllmload.cli.options.parsers import axis, hook, nearest
from fastllmload.cli.options.table import BY_PARAMETER, RunOption, config_names
from fastllmload.errors import InputError
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
TOML_KINDS = {
    "dict": "table",
    "list": "list",
}  # names for messages, which must not show the content: it may be a credential


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


def from_config(path: str, more: Sequence[RunOption] = ()) -> RawOptions:
    """The entries of the TOML file *path*; InputError for a file that cannot be read or a key that is neither an
    option of a run nor one of *more*.
    """
    return from_table(_toml(path), f"--config {path}: ", f" in {path}", more)


def from_table(table: Mapping[str, object], prefix: str, suffix: str, more: Sequence[RunOption] = ()) -> RawOptions:
    """Options by name with typed values, `-` or `_` in the names. *prefix* and *suffix* locate an entry in a message."""
    names = config_names() | {name: (one, False) for one in more for name in (one.name, one.parameter)}
    raw_options: RawOptions = {}
    for key, found in table.items():
        if key not in names:
            known = sorted(name for name in names if "_" not in name)
            near = nearest(key, known)
            what, where = ("of this command", "its --help") if more else ("of a run", "fastllmload run --help")
            raise InputError("option-unknown", f"{prefix}{key!r} is not an option {what}{near or f'; see {where}'}")
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
    if isinstance(entry, bool) or not isinstance(entry, (str, int, float)):
        kind = repr(entry) if isinstance(entry, bool) else f"a {TOML_KINDS.get(type(entry).__name__, 'date or time')}"
        raise InputError("option-value-type", f"{where} is {kind}; write a number or a string")
    return str(entry)


RIVALS = (("rate", "concurrency"), ("api_key", "api_key_file"), ("ui", "disable_tqdm"))


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


def given_options(parameters: Mapping[str, object], own: Sequence[RunOption] = ()) -> RawOptions:
    """click's *parameters*, or else those of the config file; *own*: options of the command in addition to a run's."""
    return merge_config(from_command_line(parameters, own), own)
