"""Files of settings in other tools' command lines, and scenarios that a tool knows by name, as words of a command."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastllmload.cli.compat import aiperf_config
from fastllmload.errors import InputError
from fastllmload.files import read_text

WRAPPERS = ("spec", "args")  # what a file may have its settings under
ABOUT = ("kind", "version", "apiVersion", "api_version", "metadata", "description", "name", "spec", "args")


def words_of_files(
    table: Mapping[str, Any], words: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """The words that say what the files of settings among *words* do, and the other words, which go before them."""
    of_files, rest = list[str](), list[str]()
    place = 0
    while place < len(words):
        flag, equals, value = words[place].partition("=")
        entry = table["options"].get(flag)
        place += 1
        if not isinstance(entry, Mapping) or entry.get("convert") != "config" or not (equals or place < len(words)):
            rest.append(words[place - 1])
            continue
        if not equals:
            value = words[place]
            place += 1
        built_in = value if Path(value).exists() else value.removesuffix(".json")
        of_files += table.get("scenarios", {}).get(built_in) or list(_words(table, _tree(flag, value), environment))
    return of_files, rest


def _tree(flag: str, name: str) -> dict[str, Any]:
    """The settings in the JSON or YAML file *name*."""
    try:
        text = read_text(name)
    except (OSError, ValueError) as problem:
        raise InputError("config-invalid", f"{flag} {name} cannot be read: {problem}") from None
    try:
        tree = json.loads(text)
    except ValueError:
        tree = _yaml(flag, name, text)
    if not isinstance(tree, dict):
        raise InputError("config-invalid", f"{flag} {name} has no settings by name; write NAME: VALUE in each line")
    return next((tree[each] for each in WRAPPERS if isinstance(tree.get(each), dict)), tree)


def _yaml(flag: str, name: str, text: str) -> Any:
    try:
        import yaml  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise InputError(
            "usage", f"{flag} {name} is YAML, which needs PyYAML: pip install pyyaml, or give its keys as options"
        ) from None
    try:
        return yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as problem:
        raise InputError("config-invalid", f"{flag} {name} cannot be read: {problem}") from None


def _words(table: Mapping[str, Any], tree: Mapping[str, Any], environment: Mapping[str, str]) -> Iterator[str]:
    if table.get("file_form") == "aiperf":
        yield from aiperf_config.words(tree, environment)
        return
    if not table.get("groups"):
        yield from _flattened(tree, "--")
        return
    for name, value in tree.items():
        if value is None or name in ABOUT:
            continue
        flag = f"--{name.replace('_', '-')}"
        flag = flag if flag in table["options"] else flag.removesuffix("s")
        for each in value if isinstance(value, list) and any(isinstance(one, dict) for one in value) else [value]:
            yield from (flag, _text(each))


def _flattened(tree: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """Options `--a.b=VALUE`."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}={value if isinstance(value, str) else json.dumps(value)}"


def _text(value: Any) -> str:
    """*value* as on a command line: a list of single values has commas between them, all else but a text is JSON."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)
