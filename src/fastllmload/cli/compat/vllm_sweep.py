"""`vllm bench sweep serve`: its --bench-cmd with each set of values, as often as it would run, against a given server."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from fastllmload.errors import InputError
from fastllmload.files import read_text

PHRASE = ["bench", "sweep", "serve"]
VALUES = ("--bench-cmd", "--bench-params", "--num-runs")  # options that decide what is sent
AROUND = ("--serve-cmd", "--output-dir", "-o", "--experiment-name", "--server-ready-timeout")
SWITCHES = ("--show-stdout", "--dry-run", "--resume")


def bench_commands(arguments: Sequence[str], server: str | None) -> list[list[str]] | None:
    """The words of each command that the sweep in *arguments* runs, words or one text; None for another command. InputError
    for options without a counterpart, all named, and without a *server*, the URL of ours.
    """
    words = list(arguments)
    if len(words) == 1:
        try:
            words = shlex.split(words[0].replace("\\\n", " "), comments=True)
        except ValueError:
            return None
    place = next((at + 3 for at in range(len(words)) if words[at : at + 3] == PHRASE), None)
    if place is None:
        return None
    given, unknown = options_of(words[place:])
    if unknown:
        raise InputError(
            "compat-load-differs",
            f"{', '.join(unknown)} of vllm bench sweep serve would change the load and has no counterpart; leave it out",
        )
    if server is None:
        raise InputError(
            "compat-load-differs",
            "vllm bench sweep serve would start servers with its --serve-cmd; start one and name it: fastllmload compat "
            "--url URL vllm bench sweep serve ...",
        )
    if "--bench-cmd" not in given:
        raise InputError("option-missing", "vllm bench sweep serve runs its --bench-cmd; add it")
    runs = given.get("--num-runs", "3")
    if not runs.isdecimal() or int(runs) < 1:
        raise InputError("count-invalid", f"--num-runs {runs!r} is not a number of runs")
    command = shlex.split(given["--bench-cmd"])
    rows = rows_of(given["--bench-params"]) if "--bench-params" in given else [{}]
    each = [[*command, *typed(row), "--reset-prefix-cache"] for row in rows]
    return [words for words in each for _ in range(int(runs))]


def options_of(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The options that decide what is sent, and those without a counterpart."""
    given, unknown, rest = dict[str, str](), list[str](), list(words)
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        if flag in SWITCHES:
            continue
        if not equals and rest:
            value = rest.pop(0)
        if flag in VALUES:
            given[flag] = value
        elif flag not in AROUND:
            unknown.append(flag)
    return given, unknown


def rows_of(name: str) -> list[dict[str, Any]]:
    """Sets of values in a JSON file: a list of objects, or objects by name."""
    try:
        found = json.loads(read_text(name))
    except (OSError, ValueError) as problem:
        raise InputError("file-unreadable", f"--bench-params {name} cannot be read: {problem}") from None
    rows = list(found.values()) if isinstance(found, dict) else found
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows) or not rows:
        raise InputError("json-invalid", f"--bench-params {name} is not a list of objects with values of options")
    return rows


def typed(row: Mapping[str, Any]) -> list[str]:
    """*row* as options: true is a switch, and a name that begins with _ is none."""
    words = list[str]()
    for name, value in row.items():
        if name.startswith("_") or value is False or value is None:
            continue
        text = value if isinstance(value, str) else json.dumps(value)
        words += [f"--{name.strip('-').replace('_', '-')}", *([] if value is True else [text])]
    return words
