"""What an option that does not exist may mean: by the tables of other tools and of plain words, not by its letters alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path

import click

from fastllmload.cli.compat.foreign_command import KINDS
from fastllmload.files import parse_toml, read_text

HERE = Path(__file__).parent
ALIKE = 0.75  # of two words, one of which is a typing error


def unknown_options(error: click.NoSuchOption, arguments: Sequence[str]) -> str:
    """A sentence that names every option in *arguments* that the command of *error* does not have, with what to use."""
    context = error.ctx
    parameters = [] if context is None else context.command.get_params(context)
    options = [each for each in parameters if isinstance(each, click.Option)]
    known = {flag: option.is_flag for option in options for flag in (*option.opts, *option.secondary_opts)}
    named = dict.fromkeys((error.option_name, *unknown_flags(arguments, known)))
    command = "fastllmload" if context is None else context.command_path
    parts = [f"{flag} ({suggestion(flag, known) or 'it has no counterpart'})" for flag in named]
    what = "is not an option" if len(named) == 1 else "are not options"
    return f"{', '.join(parts)} {what} of {command}; its --help lists all"


def unknown_flags(arguments: Sequence[str], known: dict[str, bool]) -> Iterator[str]:
    """Options in *arguments* that are not *known* (flag: whether it takes no value)."""
    rest = iter(arguments)
    for word in rest:
        if word == "--":
            return
        flag, equals, _ = word.partition("=")
        if not word.startswith("--"):
            if word[:1] != "-" or word[1:2].isdigit() or word[1:2] in ("", "."):
                continue
            flag, equals = word[:2], word[2:]
        if flag not in known:
            yield flag
        elif not known[flag] and not equals:
            next(rest, None)


def suggestion(flag: str, known: Collection[str]) -> str:
    """`did you mean --X?` or what the option is about; empty if nothing is known of it."""
    name = flag.replace("_", "-")
    if name != flag and name in known:
        return f"did you mean {name}?"
    meant = meanings().get(name)
    if meant is not None and (not meant.startswith("--") or meant.partition(" ")[0] in known):
        return f"use {meant}" if meant.startswith("--") else meant
    near = next((other for other in sorted(known) if mistyped(name, other)), None)
    return f"did you mean {near}?" if near else ""


def mistyped(name: str, other: str) -> bool:
    """Whether *name* is *other* with a typing error: word by word, as letters of other words mean something else."""
    from difflib import SequenceMatcher

    ours, theirs = name.strip("-").split("-"), other.strip("-").split("-")
    return len(ours) == len(theirs) and all(
        one == two or (one[0:1] == two[0:1] and len(two) > 2 and SequenceMatcher(None, one, two).ratio() >= ALIKE)
        for one, two in zip(ours, theirs, strict=True)
    )


@cache
def meanings() -> dict[str, str]:
    """Option of another tool, or a plain word: option of ours, or a sentence on why there is none."""
    found: dict[str, str] = {}
    for file in [*sorted((HERE / "tools").glob("*.toml"), reverse=True), HERE / "words.toml"]:
        for names, entry in parse_toml(read_text(file)).get("options", {}).items():
            meant = entry if isinstance(entry, str) else meaning(entry)
            found |= dict.fromkeys(names.split(), meant) if meant else {}
    return found


def meaning(entry: dict[str, str]) -> str:
    """Of an option in a tool's table."""
    if "ours" in entry or "to" in entry:
        return entry.get("ours") or entry["to"]
    return next((entry[kind] for kind in KINDS if kind in entry), "")
