"""Translates another tool's command line by the table of that tool, `tools/NAME.toml` (docs/other-tools.md)."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from fastllmload.cli.compat import converters, data_files, distributions, images, models, searches
from fastllmload.cli.compat.config_files import words_of_files
from fastllmload.cli.compat.converters import json_value
from fastllmload.cli.compat.environment import (
    OFF,
    TypedCommand,
    by_name,
    calls_a_tool,
    entry_of,
    grouped,
    option_of,
    passed_on,
    reads,
    typed_command,
    unknown,
)
from fastllmload.cli.compat.expressions import filled, known, used_in
from fastllmload.cli.compat.fetched import find_file, gpt4_rows
from fastllmload.cli.compat.foreign_command import Arguments, ForeignCommand, Lack
from fastllmload.cli.compat.made_files import MAKERS as MADE
from fastllmload.cli.compat.sglang_files import MAKERS as MADE_FOR_SGLANG
from fastllmload.cli.compat.shell import commands_in
from fastllmload.cli.compat.vllm_sweep import bench_commands
from fastllmload.errors import InputError
from fastllmload.files import parse_toml, read_text

MAKERS = MADE | MADE_FOR_SGLANG | {"gpt4-rows": gpt4_rows, "turns": data_files.conversations}
TOOLS = Path(__file__).parent / "tools"
CREDENTIAL = re.compile(r"(key|token|secret|password)$", re.IGNORECASE)
NUMBER = re.compile(r"-\d*\.?\d+")
Variables = dict[str, str]


@dataclass(frozen=True)
class Translation:
    """*commands* of ours, words without the program's name; *environment*: variables that a run reads itself. *origins*:
    what was typed for each option of ours.
    """

    title: str
    commands: list[list[str]]
    lacks: tuple[Lack, ...]
    differs: tuple[str, ...]
    environment: Mapping[str, str]
    secrets: tuple[str, ...]  # of the other command
    save: Mapping[str, str] | None  # how a result file of vLLM's is to be written; None: none is asked for
    origins: Mapping[str, Sequence[str]]
    files: Mapping[str, str]  # by path: content that *commands* read


def tool_names() -> list[str]:
    return sorted(file.stem for file in TOOLS.glob("*.toml"))


@cache
def tool_table(name: str) -> dict[str, Any]:
    table = parse_toml(read_text(TOOLS / f"{name}.toml"))
    base = tool_table(table["extends"]) if "extends" in table else {}
    keys = ("defaults", "environment", "options", "objectives")
    joined = {key: {**base.get(key, {}), **table.get(key, {})} for key in keys}
    lists = {key: [*table.get(key, ()), *base.get(key, ())] for key in ("write", "lack")}
    named = {key: by_name(joined[key]) for key in ("environment", "options")}
    own = {key: table.get(key, {}) for key in ("refused",)}
    return {**base, **table, **joined, **lists, **named, **own}


def translations(
    arguments: Sequence[str], environment: Mapping[str, str] = os.environ, server: str | None = None
) -> list[Translation]:
    """One for each command in a text of a shell, else one. *server*: the URL of ours, in place of the typed one."""
    if (swept := bench_commands(arguments, server)) is not None:
        return [translate(words, environment, server) for words in swept]
    tables = [tool_table(name) for name in tool_names()]
    phrases = [phrase for table in tables for phrase in (*table["starts"], *table.get("refused", ()))]
    if len(arguments) == 1 and len(arguments[0].split()) > 1:
        commands, others = commands_in(arguments[0], environment, lambda text: calls_a_tool(text, phrases))
        found = [translate([command], environment, server) for command in commands]
        if found and others:
            lack = Lack(", ".join(others), "cannot", "only commands of load generators run here")
            found[0] = replace(found[0], lacks=(*found[0].lacks, lack))
        if found:
            return found
    return [translate(arguments, environment, server)]


def translate(
    arguments: Sequence[str], environment: Mapping[str, str] = os.environ, server: str | None = None
) -> Translation:
    """InputError for a tool that has no table, and for a value that cannot be read."""
    tables = {name: tool_table(name) for name in tool_names()}
    refused = {phrase: why for table in tables.values() for phrase, why in table.get("refused", {}).items()}
    typed = typed_command(arguments, environment, {name: table["starts"] for name, table in tables.items()}, refused)
    table = tables[typed.tool]
    reading = ForeignCommand(table)
    if server is not None:
        reading.variables["server"] = [server]
    read_environment(reading, typed, environment)
    of_files, words = words_of_files(table, after_command(reading, typed.words), {**environment, **typed.assigned})
    read_options(reading, of_files)
    reading.given.clear()  # what is typed goes before what a file says
    read_options(reading, words)
    if typed.rest:
        reading.lacks.append(Lack(" ".join(typed.rest), "cannot", "it belongs to the shell; add it to our own command"))
    if table.get("needs_server") and not reading.variables.keys() & {"server", "base_url"}:
        raise InputError(
            "compat-load-differs",
            f"{table['title']} would start an engine of its own; start a server and name it: fastllmload compat --url URL "
            f"{table['starts'][0]} ...",
        )
    models.in_path(reading)
    models.weigh(reading)
    if table.get("finds_data"):
        data_files.choose(reading)
    images.arrange(reading)
    if "lengths" in table:
        distributions.arrange(reading)
    find_file(reading, environment)
    for name, *conditions in table.get("makes", ()):
        first = {name: str(value) for name, value in table["defaults"].items()}
        first |= {name: values[0] for name, values in reading.variables.items()}
        if all(holds(each, first) for each in conditions):
            MAKERS[name](reading)
    runs = expanded(reading)
    commands = [written(reading, variables) for variables in runs]
    return Translation(
        table["title"], joined(commands), tuple(dict.fromkeys(reading.lacks)), tuple(differences(table, runs[0])),
        passed_on(typed.assigned, table), tuple(secrets_in(typed.assigned, typed.words)), saved(reading), reading.origins,
        reading.files,
    )  # fmt: skip


def differences(table: Mapping[str, Any], variables: Variables) -> Iterator[str]:
    """What the tool of *table* defines otherwise, where it matters: each a text, or with the conditions of its case."""
    for entry in table.get("differs", ()):
        text, *conditions = (entry,) if isinstance(entry, str) else entry
        if all(holds(each, variables) for each in conditions):
            yield text


def after_command(reading: ForeignCommand, words: Sequence[str]) -> Sequence[str]:
    """*words* after the name of a command of the tool. InputError for a command that sends no load."""
    entry = reading.table.get("commands", {}).get(words[0]) if words else None
    if entry is None:
        return words
    if isinstance(entry, str):
        tool = reading.table["title"].split()[0]
        raise InputError("choice-unknown", f"{tool} {words[0]} sends no load, so compat does not run it; {entry}")
    reading.variables |= {name: [str(value)] for name, value in entry.items()}
    return words[1:]


def saved(reading: ForeignCommand) -> dict[str, str] | None:
    """The variables `save.NAME` if a result file is asked for, and the name of the backend."""
    found = {name.removeprefix("save."): ",".join(values) for name, values in reading.variables.items()}
    found = {name: value for name, value in found.items() if f"save.{name}" in reading.variables}
    backend = reading.variables.get("backend") or [str(reading.table["defaults"].get("backend", ""))]
    return {**found, "backend": backend[0]} if "result" in found or "append" in found else None


def secrets_in(assigned: Mapping[str, str], words: Sequence[str]) -> Iterator[str]:
    """Values of variables and options whose name is that of a credential."""
    yield from (value for name, value in assigned.items() if CREDENTIAL.search(name) and value)
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.startswith("-") and CREDENTIAL.search(name):
            yield value if equals else "".join(words[place + 1 : place + 2])


def read_environment(reading: ForeignCommand, typed: TypedCommand, environment: Mapping[str, str]) -> None:
    """Note what variables mean: those *typed* in front of the command, and those of *environment* that the tool reads."""
    own = {name for name in environment if environment[name] and reads(name, reading.table)}
    for variable in dict.fromkeys((*typed.assigned, *sorted(own))):
        value = typed.assigned.get(variable, environment.get(variable, ""))
        if group := grouped(variable, value, reading.table):
            read_options(reading, list(group))
            continue
        if flag := option_of(variable, reading.table):
            entry = reading.table["options"][flag]
            entry = {"to": entry} if isinstance(entry, str) else entry
            if entry.get("takes") != 0 or value.lower() not in OFF:
                take(reading, variable, entry, [] if entry.get("takes") == 0 else [value])
            continue
        entry = entry_of(variable, reading.table)
        if entry is None and variable not in typed.referred:
            reading.lack(variable, unknown(variable, reading.table))
        elif entry is not None and not entry.get("passed_on"):
            take(reading, variable, entry, [value])


def read_options(reading: ForeignCommand, words: list[str]) -> None:
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if word == "--":
            continue
        if not is_option(word):
            bare = [word]
            while place < len(words) and not is_option(words[place]):
                bare.append(words[place])
                place += 1
            positional = reading.table.get("positional")
            if positional and len(bare) == 1 and positional not in reading.given:
                reading.given.add(positional)
                take(reading, positional, reading.table["options"][positional], bare)
                continue
            reading.lacks.append(
                Lack(" ".join(bare), "changes", f"it belongs to no option of {reading.table['title']}")
            )
            continue
        flag, equals, value = word.partition("=")
        if flag in ("-h", "--help"):
            raise InputError(
                "usage",
                f"the help of {reading.table['title']} is not here; fastllmload compat --help says what compat does",
            )
        values = [value] if equals else []
        name = known_name(reading.table, flag)
        entry = reading.table["options"].get(name, {})
        entry = {"to": entry} if isinstance(entry, str) else entry
        takes = entry.get("takes", 1 if name else "*")
        most = 0 if takes == 0 or equals else 1 if takes == 1 else len(words)
        while most > len(values) and place < len(words) and (not is_option(words[place]) or takes == 1):
            values.append(words[place])
            place += 1
        if not name:
            unnamed = {"changes": f"{reading.table['title']} has no option of this name in our table"}
            reading.lack(flag, reading.table.get("other_options", unnamed))
        elif takes == 1 and not values:
            raise InputError(
                "option-value-missing", f"{flag} of {reading.table['title']} has no value; write {flag} VALUE"
            )
        else:
            take(reading, flag, entry, values)


def is_option(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and NUMBER.fullmatch(word) is None


def known_name(table: Mapping[str, Any], flag: str) -> str:
    """The option's name in the table: as written, with - for _, or the one that it abbreviates or whose * covers it; empty
    for none.
    """
    for name in (flag, flag.replace("_", "-")):
        if name in table["options"]:
            return name
        longer = [other for other in table["options"] if name.startswith("--") and other.startswith(name)]
        if table.get("abbreviates") and len(longer) == 1:
            return str(longer[0])
    return next((name for name in table["options"] if name.endswith("*") and flag.startswith(name[:-1])), "")


def take(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """Note what one option with its *values* means."""
    meanings = entry.get("values", {})
    kept = []
    for value in values:
        translated = meanings.get(value, value)
        if isinstance(translated, dict) and "sets" in translated:
            reading.variables |= {name: [str(text)] for name, text in translated["sets"].items()}
        elif not isinstance(translated, dict):
            kept.append(translated.lstrip(entry.get("strip", "")) + entry.get("suffix", ""))
        else:
            reading.lack(f"{flag} {value}", translated)
    if values and not kept:
        return
    values = kept
    with reading.typing(" ".join((flag, *values))):
        note(reading, flag, entry, values)


def note(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """Write or keep what *flag* of *entry* means with *values*, or why it means nothing."""
    if "path" in entry and Path(values[0]).exists():
        reading.written.append((entry["path"], values[0]))
        reading.variables |= {entry["as"]: values} if "as" in entry else {}
        return
    lacking = reading.lack(flag, entry)
    if "convert" in entry:
        CONVERTERS[entry["convert"]](reading, flag, entry, values)
    elif "as" in entry:
        texts = [part for value in values for part in (value.split(",") if entry.get("many") else [value])]
        if texts or entry.get("takes") == 0:
            before = reading.variables.get(entry["as"], []) if entry.get("adds") and flag in reading.given else []
            reading.variables[entry["as"]] = [*before, *texts] or ["true"]
        reading.given.add(flag)
    elif lacking:
        return
    elif "header" in entry:
        reading.written.append(("-H", f"{entry['header']}: {values[0]}"))
    elif "body" in entry:
        reading.body[entry["body"]] = _field(values, bool(entry.get("list")))
    elif entry.get("takes") == 0:
        option, _, value = entry["to"].partition(" ")
        reading.written.append((option, value or None))
    else:
        texts = [part for value in values for part in (value.split(",") if entry.get("many") else [value])]
        reading.written += [(entry["to"], text) for text in texts]


def _field(values: list[str], several: bool) -> Any:
    """The value of a field of the body: a list where it has *several*, True for a switch."""
    found = [json_value(value) for value in values]
    return found if several else found[0] if found else True


CONVERTERS = {
    "headers": converters.headers, "objectives": converters.objectives, "inputs": converters.inputs,
    "settings": converters.settings, "stages": converters.stages, "resolution": converters.resolution,
    "override": converters.override, "prompts": converters.prompts, "range": converters.rates,
    "pairs": converters.length_pairs, "found": converters.found, "swept": converters.swept,
    "template": converters.template, "length": distributions.length, "image": distributions.image, "only": converters.only,
    "service": searches.service, "space": searches.space, "condition": searches.condition, "public": searches.public,
    "models": models.named, "adapters": models.adapters, "split": models.split, "provider": models.provider,
}  # fmt: skip


def expanded(reading: ForeignCommand) -> list[Variables]:
    """The variables of each run: those with several values have one in each, in turn."""
    found = {name: [str(value)] for name, value in reading.table["defaults"].items()} | reading.variables
    if names := [name for name in reading.table.get("product", ()) if name in found]:
        rows = list(itertools.product(*(found[name] for name in names)))
        found |= {name: [row[place] for row in rows] for place, name in enumerate(names)}
    lengths = {len(values) for values in found.values()} - {1}
    if len(lengths) > 1:
        raise InputError(
            "options-conflict", f"lists of {' and '.join(map(str, sorted(lengths)))} values do not go together"
        )
    runs = max(lengths, default=1)
    return [{name: (values * runs)[run] for name, values in found.items()} for run in range(runs)]


def holds(conditions: Mapping[str, Any], variables: Variables) -> bool:
    """Whether each variable has the value or one of the values, begins with `^value`, ends with `*value`, or is none of that
    with `!` in front; true, false: whether it is given."""
    return all(_holds(wanted, variables.get(name, "")) for name, wanted in conditions.items())


def _holds(wanted: bool | str | list[str], value: str) -> bool:
    if isinstance(wanted, bool):
        return (value != "") is wanted
    if isinstance(wanted, str):
        if wanted.startswith("!"):
            return not _holds(wanted[1:], value)
        tests = {"^": value.startswith(wanted[1:]), "*": value.endswith(wanted[1:])}
        return tests.get(wanted[:1], value == wanted)
    return any(_holds(each, value) for each in wanted)


def written(reading: ForeignCommand, variables: Variables) -> Arguments:
    """Options of ours for one run: (option, value, conditions), of several for the same option the first that holds."""
    found = list(reading.written)
    body = dict(reading.body)
    once = {option for option, _ in found}
    if "server" in variables:
        found = [*(pair for pair in found if pair[0] != "--url"), ("--url", variables["server"])]
        once.add("--url")
    for option, value, *conditions in reading.table["write"]:
        if option in once or not known(value, variables) or not all(holds(each, variables) for each in conditions):
            continue
        once.add(option)
        if value == "-":  # which is for no option
            continue
        reading.wrote(option, used_in(value), *conditions)
        if option.startswith("body."):
            body.setdefault(option.removeprefix("body."), json_value(filled(value, variables)))
        else:
            found.append((option, filled(value, variables) if value else None))
    for option, kind, why, *conditions in reading.table["lack"]:
        if all(holds(each, variables) for each in conditions):
            reading.lack(filled(option, variables), {kind: filled(why, variables)})
    if body:
        found.append(("--extra-body", json.dumps(body)))
    return found


def joined(runs: list[Arguments]) -> list[list[str]]:
    """One command for each run, or a sweep where they differ in the value of one option alone."""
    if len(runs) > 1 and "--objective" not in dict(runs[0]):
        flags = [[flag for flag, _ in run] for run in runs]
        differ = {
            flag for run in runs for (flag, value), (_, first) in zip(run, runs[0], strict=False) if value != first
        }
        if all(each == flags[0] for each in flags) and len(differ) == 1 and differ != {"--vary"}:
            (flag,) = differ
            texts = [dict(run)[flag] or "" for run in runs]
            rest = [pair for pair in runs[0] if pair[0] != flag]
            return [["sweep", "--vary", f"{flag.removeprefix('--')}={';'.join(texts)}", *flat(rest)]]
    return [repeated(in_a_folder(run, number) if len(runs) > 1 else run) for number, run in enumerate(runs, 1)]


def in_a_folder(run: Arguments, number: int) -> Arguments:
    """*run* with a folder of its own in the one that is asked for."""
    return [(flag, f"{value}/{number}" if flag == "--output" else value) for flag, value in run]


def repeated(run: Arguments) -> list[str]:
    """The command of one run, a sweep where it varies an option or is to be repeated, or a search for a load."""
    if "--objective" in dict(run):
        return ["search", *flat(run)]
    if "--vary" in dict(run):
        return ["sweep", *flat(run)]
    if "--runs" not in dict(run):
        return ["run", *flat(run)]
    axis, value = next((pair for pair in run if pair[0] in ("--rate", "--concurrency")), ("--concurrency", "1"))
    rest = [pair for pair in run if pair[0] != axis]
    one_value = f"{value};" if value and "," in value else value  # a comma separates values where no semicolon does
    return ["sweep", "--vary", f"{axis.removeprefix('--')}={one_value}", *flat(rest)]


def flat(run: Arguments) -> list[str]:
    return [word for flag, value in run for word in ([flag] if value is None else [flag, value])]
