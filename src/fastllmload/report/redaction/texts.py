"""Removes loads and counts from sentences and command lines, which repeat fields of the document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

WITHHELD = "withheld"
NUMBER = r"\d[\d,.]*(?:e[+-]?\d+)?"
LOAD = re.compile(
    rf"{NUMBER} (?=(?:per second|slots?|r/s|req/s|requests/s|requests per second|tok/s|tokens/s|(?:requests )?at once"
    r"|in flight|users|blocks)\b)"
)
COUNT = re.compile(
    rf"({NUMBER} of )?{NUMBER} (?=(?:(?:ok|successful|failed|finished|completed|other|more|independent|TTFT|ITL"
    r"|output|input|generated|prompt) )*(?:requests?|samples|gaps|completions?|answers|conversations|turns|events"
    r"|observations|values|ones|(?<=output )tokens|(?<=generated )tokens|(?<=prompt )tokens|(?<=input )tokens)\b)"
)
LEVELS = re.compile(rf"\b(levels?) {NUMBER}(?:(?:, | and ){NUMBER})*(?=\s*[:;)])")
# A constant of the methodology, the same for every system
CONSTANT = re.compile(
    r"(?:needs?|asks for|which is|fewer than(?: needed)?|at least|least|for) \(?$|(?:asks for|which is) 100 requests and $"
)
SIMULATION = frozenset(("--simulate",))
REVEALING = frozenset(  # options whose value is a load or a count
    ("-r", "--rate", "-c", "--concurrency", "--max-concurrency", "-n", "--num-requests", "--requests", "--capacity",
     "--capacity-source", "--initial", "--min", "--max", "--step", "--slots", "--users", "--simulate", "--class",
     "--rate-series", "--levels")
)  # fmt: skip


def without_figures(text: str) -> str:
    """*text* without loads and counts of requests or tokens; 0 and what the methodology requires are kept."""
    text = LOAD.sub(_withheld, text)
    text = COUNT.sub(_withheld, text)
    return LEVELS.sub(rf"\1 {WITHHELD}", text)


def _withheld(found: re.Match[str]) -> str:
    number = found[0].strip()
    constant = number in ("100", "1,000", "10,000") and CONSTANT.search(found.string[: found.start()])
    return found[0] if number == "0" or constant else f"{WITHHELD} "


def texts_without_figures(value: Any) -> Any:
    """The same for every text in *value* and for keys; statements and remedies of requirements are kept."""
    if isinstance(value, str):
        return without_figures(value)
    if isinstance(value, Mapping):
        return {
            without_figures(str(name)): inner if name in ("statement", "remedy") else texts_without_figures(inner)
            for name, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [texts_without_figures(inner) for inner in value]
    return value


def command_without_loads(command: object, revealing: frozenset[str] = REVEALING) -> Any:
    """The arguments of a command line without the values of *revealing* options; a string is returned unchanged."""
    if not isinstance(command, Sequence) or isinstance(command, str):
        return command
    return list(_words(list(map(str, command)), revealing))


def _words(words: list[str], revealing: frozenset[str]) -> Iterator[str]:
    """An option may have several values: all arguments up to the next option."""
    option = ""
    for word in words:
        name, equals, _ = word.partition("=")
        if not word.startswith("-"):
            shown = f"{name}={WITHHELD}" if option == "--simulate" and equals else WITHHELD
            yield shown if option in revealing else word
            continue
        option = name
        if equals and name in revealing:
            yield f"{name}={WITHHELD}"
        else:
            yield f"{word[:2]}{WITHHELD}" if word[:2] in revealing and len(word) > 2 else word
