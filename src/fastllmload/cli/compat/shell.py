"""The shell around other tools' commands: statements of a text, its lists, loops over lists, variables and sums.

Published commands are parts of scripts: `for C in 1 2 4; do N=$((C * 10)); vllm bench serve --num-prompts $N ...; done`.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from fastllmload.cli.compat.expressions import filled
from fastllmload.errors import InputError

MOST_COMMANDS = 1000
CONTINUED = re.compile(r"\\[ \t]*(?:[ \t]#[^\n]*)?(?:\n|\Z)")  # also with blanks or a comment, as pages have it
PLACEHOLDER = re.compile(r"(?<![<\d&])<[A-Za-z][^<>|&;\n]*[^<>|&;\s]>(?![&>])")
EXPORT = re.compile(r"\A(?:export|declare|local|readonly)(?:\s+-\w+)*\s+")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
ARRAY = re.compile(r"([A-Za-z_]\w*)=\((.*)\)", re.DOTALL)
LOOP = re.compile(r"for\s+([A-Za-z_]\w*)\s+in\b(.*)", re.DOTALL)
BRANCHES = ("if", "while", "until", "case", "function", "select")
RANGE = re.compile(r"\{(-?\d+)\.\.(-?\d+)\}")
SEQUENCE = re.compile(r"seq\s+(-?\d+)(?:\s+(-?\d+))?(?:\s+(-?\d+))?\s*")
DATE = re.compile(r"date\s+[\"']?\+([^\"'$`]+)[\"']?")
PATHS: dict[str, Callable[[str], str]] = {
    "realpath": os.path.realpath,
    "basename": os.path.basename,
    "dirname": os.path.dirname,
}
VALUE = re.compile(
    r"\$\(\((?P<sum>[^()]*(?:\([^()]*\)[^()]*)*)\)\)|\$\((?P<run>[^()]*)\)"
    r"|\$\{(?P<name>\w+)(?:\[[@*]\])?(?::?-(?P<default>[^}]*))?\}|\$(?P<plain>[A-Za-z_]\w*)"
)


@dataclass
class Script:
    """Commands of a text that *calls* says are a tool's, and the *skipped* programs of the others."""

    calls: Callable[[str], bool]
    environment: Mapping[str, str]
    variables: dict[str, list[str]] = field(default_factory=dict)
    assigned: dict[str, str] = field(default_factory=dict)  # as typed, of those that no later statement has used
    commands: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def run(self, found: list[str]) -> None:
        """Note the commands of the statements *found*, those of loops once for each value."""
        place = 0
        while place < len(found):
            statement, place = found[place], place + 1
            if loop := LOOP.fullmatch(statement):
                end = self.end_of_loop(found, place)
                for value in self.words(loop[2]):
                    self.variables[loop[1]] = [value]
                    self.run([re.sub(r"\Ado\b\s*", "", each) for each in found[place:end]])
                place = end + 1
            else:
                self.read(statement)

    def end_of_loop(self, found: list[str], place: int) -> int:
        """The place of the `done` of the loop whose first statement is at *place*."""
        depth = 1
        for at in range(place, len(found)):
            first = found[at].removeprefix("do ").split(maxsplit=1)[:1]
            depth += (first == ["for"]) - (first == ["done"])
            if depth == 0:
                return at
        raise InputError("usage", "a loop of the command has no done; paste all of it")

    def read(self, statement: str) -> None:
        if not statement:
            return
        first = statement.split(maxsplit=1)[0]
        if first in BRANCHES:
            raise InputError(
                "usage",
                f"{first!r} decides in a shell what runs, which compat does not do; give the command that it would run",
            )
        if self.calls(statement):
            text = self.substituted(statement)
            front = [f"{name}={shlex.quote(value)}" for name, value in self.assigned.items()]
            self.commands.append(" ".join([*front, text]))
            if len(self.commands) > MOST_COMMANDS:
                raise InputError(
                    "usage", f"loops of the command run it more than {MOST_COMMANDS} times; give fewer values"
                )
        elif not self.assign(statement):
            self.skipped.append(first)

    def assign(self, statement: str) -> bool:
        """Whether *statement* only sets variables, which it does."""
        plain = EXPORT.sub("", statement)
        if array := ARRAY.fullmatch(plain):
            self.variables[array[1]] = self.words(array[2])
            return True
        parts = split(self.substituted(plain))
        if plain == statement and not all(ASSIGNMENT.match(each) for each in parts):
            return False
        for name, equals, value in (each.partition("=") for each in parts):
            if equals:
                self.variables[name], self.assigned[name] = [value], value
        return True

    def words(self, text: str) -> list[str]:
        """The words of a list in a shell: numbers of a range or of seq, values of variables."""
        ranges = RANGE.sub(lambda one: " ".join(map(str, range(int(one[1]), int(one[2]) + 1))), text)
        return [part for word in split(self.substituted(ranges)) for part in word.split()]

    def substituted(self, text: str) -> str:
        """*text* with the values of variables that it has set, of sums, dates, ranges and paths, still quoted."""
        found, quote, place = [], "", 0
        while place < len(text):
            mark = text[place]
            if mark == "\\" and quote != "'":
                found.append(text[place : place + 2])
                place += 2
                continue
            if mark in "'\"" and quote in ("", mark):
                quote = "" if quote else mark
            value = VALUE.match(text, place) if mark == "$" and quote != "'" else None
            known = self.value(value) if value else None
            if value is None or known is None:
                found.append(mark)
                place += 1
            else:
                joint = " ".join(known)
                found.append(
                    re.sub(r'([\\"$`])', r"\\\1", joint) if quote else " ".join(map(shlex.quote, joint.split()))
                )
                place = value.end()
        return "".join(found)

    def value(self, found: re.Match[str]) -> list[str] | None:
        """The values of a `$` and what follows it; None for what is not known here."""
        if found["sum"] is not None:
            return [self.sum(found["sum"])]
        if found["run"] is not None:
            if moment := DATE.fullmatch(found["run"].strip()):
                return [time.strftime(moment[1].replace("%s", str(int(time.time()))))]
            if numbers := SEQUENCE.fullmatch(self.substituted(found["run"]).strip()):
                given = [int(each) for each in numbers.groups() if each is not None]
                start, step, stop = (given[0] if given[1:] else 1, given[1] if given[2:] else 1, given[-1])
                return [str(each) for each in range(start, stop + (1 if step > 0 else -1), step or 1)]
            match split(self.substituted(found["run"])):
                case ["pwd"]:
                    return [os.getcwd()]
                case [program, path] if program in PATHS:
                    return [PATHS[program](path)]
            return None
        name = found["name"] or found["plain"]
        if name in self.variables:
            self.assigned.pop(name, None)
            return self.variables[name]
        if self.environment.get(name):
            return [self.environment[name]]
        return None if found["default"] is None else [found["default"].strip("\"'")]

    def sum(self, text: str) -> str:
        """The value of `$((text))`, of whole numbers."""
        plain = re.sub(r"\$\{?(\w+)\}?", r"\1", text).strip()
        known = {name: values[0] for name, values in self.variables.items() if len(values) == 1}
        self.assigned = {name: value for name, value in self.assigned.items() if not re.search(rf"\b{name}\b", plain)}
        try:
            return filled(f"{{floor({plain})}}", {**self.environment, **known})
        except (KeyError, SyntaxError, TypeError):
            raise InputError("usage", f"$(({text})) cannot be computed; write its value instead of it") from None


def commands_in(
    text: str, environment: Mapping[str, str], calls: Callable[[str], bool]
) -> tuple[list[str], tuple[str, ...]]:
    """Each command of *text* that *calls* says is a tool's, and the programs of what else it does."""
    if missing := dict.fromkeys(PLACEHOLDER.findall(text)):
        named = ", ".join(missing)
        raise InputError("usage", f"{named}: write values of yours in place of what is in angle brackets")
    script = Script(calls, environment)
    script.run(list(statements(CONTINUED.sub(" ", text))))
    return script.commands, tuple(dict.fromkeys(script.skipped))


def statements(text: str) -> Iterator[str]:
    """Parts of *text* between line ends, `;` and `&&`, outside quotes and brackets, without comments."""
    quote, depth, start, place = "", 0, 0, 0
    while place < len(text):
        mark = text[place]
        if mark == "\\" and quote != "'":
            place += 2
            continue
        if mark in "'\"" and quote in ("", mark):
            quote = "" if quote else mark
        elif not quote:
            depth += (mark == "(") - (mark == ")" and depth > 0)
            if mark == "#" and (place == 0 or text[place - 1].isspace()):
                end = text.find("\n", place)
                text = text[:place] + ("" if end < 0 else text[end:])
                continue
            width = 2 if text.startswith("&&", place) else 1 if mark in "\n;" else 0
            if width and depth == 0:
                yield text[start:place].strip()
                start = place = place + width
                continue
        place += 1
    yield text[start:].strip()


def split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as problem:
        raise InputError("usage", f"the command cannot be split into words: {problem}") from None
