"""What stands around another tool's options: its name, the shell's own words, and the variables of its environment."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fastllmload.errors import InputError
from fastllmload.files import parse_toml, read_text

WORDS = Path(__file__).parent / "words.toml"
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=(?!=).*", re.DOTALL)
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
SHELL = re.compile(r"\|\|?|&&?|;|\d?>{1,2}.*|&>.*|<.*")  # words of the shell, which end a command
QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
OPERATORS = "|&;<>"  # of the shell, where no quotes are around them
GUARDED = {
    ord(each): 0xE000 + place for place, each in enumerate(OPERATORS)
}  # in quotes, until the shell's words are found
RESTORED = {guarded: each for each, guarded in GUARDED.items()}
SHELLS, SHELL_FLAG = ("bash", "sh", "zsh"), re.compile("-[a-z]*c")
OFF = ("", "0", "false", "no", "off")


@dataclass(frozen=True)
class TypedCommand:
    """A tool's *words* after its name, variables *assigned* in front of it and those *referred* to in the words, and the
    *rest* of the line that the shell reads.
    """

    tool: str
    words: list[str]
    assigned: Mapping[str, str]
    rest: tuple[str, ...]
    referred: frozenset[str]


def typed_command(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    starts: Mapping[str, Sequence[str]],
    refused: Mapping[str, str] = MappingProxyType({}),
) -> TypedCommand:
    """The command in *arguments*, words or one text with line continuations. *starts*: phrases that call each tool;
    *refused*: phrases of their programs that are not loads, and why.
    """
    words, rest = list(arguments), list[str]()
    referred: set[str] = set()
    text = len(words) == 1 and " " in words[0]
    if text:
        try:
            words = shlex.split(guarded(words[0].replace("\\\n", " ")), comments=True)
        except ValueError as problem:
            raise InputError("usage", f"the command cannot be split into words: {problem}") from None
    words = [word for word in words if word.strip() not in ("", "\\")]
    if text and (shell := _in_a_shell(words)):
        place, command = shell
        inner = shlex.split(guarded(command.translate(RESTORED).replace("\\\n", " ")), comments=True)
        words = [*words[:place], *inner, *words[place + 1 :]]
    if text and (called := next((word for word in words if "$(" in word or "`" in word), None)):
        raise InputError(
            "usage",
            f"{called.translate(RESTORED)!r} is a command for the shell, which compat does not run; write its value instead",
        )
    tool, place = _tool_of(words, starts, refused)
    front, words = words[:place], words[place:]
    assigned = dict(_assignments(front))
    if text:
        known = {**environment, **assigned}
        referred.update(found[1] or found[2] for word in words for found in VARIABLE.finditer(word))
        words = [VARIABLE.sub(lambda found: known.get(found[1] or found[2], found[0]), word) for word in words]
        end = next((at for at, word in enumerate(words) if SHELL.fullmatch(word)), len(words))
        words, rest = ([word.translate(RESTORED) for word in part] for part in (words[:end], words[end:]))
        assigned = {name: value.translate(RESTORED) for name, value in assigned.items()}
    return TypedCommand(tool, words, assigned, tuple(rest), frozenset(referred))


def guarded(text: str) -> str:
    """*text* with other characters for the shell's operators in quotes, where they are a part of a value."""
    return QUOTED.sub(lambda found: found[0].translate(GUARDED), text)


def _in_a_shell(words: Sequence[str]) -> tuple[int, str] | None:
    """The place and text of a command after `bash -c`; None where there is none."""
    for place in range(2, len(words)):
        if SHELL_FLAG.fullmatch(words[place - 1]) and os.path.basename(words[place - 2]) in SHELLS:
            return place, words[place]
    return None


def _assignments(front: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Of the shell, of `env` and `export`, and of a container's `-e NAME=VALUE`."""
    for word in front:
        if ASSIGNMENT.fullmatch(word):
            name, _, value = word.partition("=")
            yield name, value.removesuffix(";")


def calls_a_tool(text: str, phrases: Iterable[str]) -> bool:
    """Whether a shell's statement *text* has one of *phrases* as its words."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        return False
    if shell := _in_a_shell(words):
        return calls_a_tool(shell[1], phrases)
    return next(_phrases(words, {"": tuple(phrases)}), None) is not None


def _phrases(words: Sequence[str], starts: Mapping[str, Iterable[str]]) -> Iterator[tuple[int, int, int, str]]:
    """Of each phrase in *words*: how exact it is, its place times -1, its number of words, and its name in *starts*."""
    bare = [_program(word) for word in words]
    for name, phrases in starts.items():
        for phrase in (one.split() for one in phrases):
            for place in range(len(words) - len(phrase) + 1):
                end = place + len(phrase)
                same = bare[place:end] == phrase or ("/" in phrase[0] and f"/{words[place]}".endswith(f"/{phrase[0]}"))
                if same and not _is_value(words, place):
                    yield len(phrase) + ("/" in phrase[0]), -place, len(phrase), name


def _tool_of(words: Sequence[str], starts: Mapping[str, Sequence[str]], refused: Mapping[str, str]) -> tuple[str, int]:
    """The tool that *words* call, by its longest phrase, and the place of its first option."""
    named = {**starts, **{f"refused {phrase}": (phrase,) for phrase in refused}}
    if found := max(_phrases(words, named), default=None):
        _, place, length, name = found
        if (phrase := name.removeprefix("refused ")) != name:
            raise InputError(
                "compat-load-differs", f"{phrase} sends no load that compat can translate: {refused[phrase]}"
            )
        return name, length - place
    first = next((at for at, word in enumerate(words) if not ASSIGNMENT.fullmatch(word)), 0)
    if words and words[first] in starts:
        return words[first], first + 1
    end = next((at for at, word in enumerate(words) if word.startswith("--")), len(words))
    raise InputError(
        "choice-unknown",
        f"{' '.join(words[: max(1, end)])!r} is not a command of a tool that compat knows: {', '.join(starts)}; "
        "write for example fastllmload compat vllm bench serve --model NAME",
    )


def _program(word: str) -> str:
    """The program that *word* calls: the last part of a path, or the name of a container's image without its tag."""
    name = os.path.basename(word)
    image = "/" in word and "://" not in word and not ASSIGNMENT.fullmatch(word)
    return re.split("[:@]", name)[0] if image else name


def _is_value(words: Sequence[str], place: int) -> bool:
    """Whether the word at *place* follows an option of a tool that is named before it."""
    return "/" in words[place] and place > 0 and words[place - 1].startswith("--")


@cache
def usual_variables() -> dict[str, Any]:
    """Variables that concern no tool in particular, and what becomes of them."""
    return by_name(parse_toml(read_text(WORDS))["environment"])


def by_name(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry for names, entry in table.items() for name in names.split()}


def entry_of(variable: str, table: Mapping[str, Any]) -> dict[str, Any] | None:
    """What *variable* means to the tool of *table*: as an option has it; None for one that is not known."""
    for entries in (table.get("environment", {}), usual_variables()):
        for name, entry in entries.items():
            if variable == name or (name.endswith("*") and variable.startswith(name[:-1])):
                return {"to": entry} if isinstance(entry, str) else dict(entry)
    return None


def grouped(variable: str, value: str, table: Mapping[str, Any]) -> tuple[str, str] | None:
    """The option and value of a *variable* that names a group of settings, or one in it: `PREFIX<GROUP>__NAME`."""
    prefix = table.get("group_variables")
    if not prefix or not variable.startswith(prefix):
        return None
    group, *names = variable.removeprefix(prefix).lower().split("__")
    flag = f"--{group.replace('_', '-')}"
    flag = flag if flag in table["options"] else flag.removesuffix("s")
    if flag not in table["options"]:
        return None
    return flag, f"{'.'.join(names)}={value}" if names else value


def option_of(variable: str, table: Mapping[str, Any]) -> str:
    """The option that *variable* sets, of a tool that reads all its options from variables with a prefix; empty for none."""
    prefix = table.get("option_variables")
    name = variable.removeprefix(prefix) if prefix and variable.startswith(prefix) else ""
    flag = f"--{name.lower().replace('_', '-')}"
    return flag if name and not name.startswith("_") and flag in table["options"] else ""


def reads(variable: str, table: Mapping[str, Any]) -> bool:
    """Whether the tool of *table* itself reads *variable*, so that it counts even if it was set long before."""
    own = table.get("environment", {})
    if option_of(variable, table) or grouped(variable, "", table):
        return True
    return variable in own and not own[variable].keys() & {"harmless", "cannot"}


def passed_on(assigned: Mapping[str, str], table: Mapping[str, Any]) -> dict[str, str]:
    """Those of *assigned* that our own command reads."""
    return {name: value for name, value in assigned.items() if (entry_of(name, table) or {}).get("passed_on")}


def unknown(variable: str, table: Mapping[str, Any]) -> dict[str, str]:
    """Why a variable that no table has is not read."""
    if any(variable.startswith(prefix) for prefix in table.get("own_variables", ())):
        return {"changes": f"{table['title']} has no setting of this name in our table"}
    return {"cannot": f"{table['title']} has no setting of this name in our table; what else it does is not known"}
