"""Defines an objective: a metric of one request, its limit, and the request class that it applies to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fastllmload import quantities
from fastllmload.arrays import Mask, Values
from fastllmload.documents.run import RunDocument
from fastllmload.errors import InputError, InvalidValue
from fastllmload.metrics.objectives.evaluators import METRICS, OF_ANSWERS, OF_SESSIONS

ALIASES = {"e2e": "e2el"}
FORM = "[CLASS/]NAME:LIMIT"


@dataclass(frozen=True)
class Objective:
    """*metric* is a key of METRICS or OF_SESSIONS, *limit* in its unit; *request_class* is a name or number, None for all
    classes.
    """

    metric: str
    limit: float
    request_class: str | None = None

    @property
    def unit(self) -> str:
        return unit_of(self.metric)

    @property
    def of_sessions(self) -> bool:
        """Whether it is about sessions, not about requests."""
        return self.metric in OF_SESSIONS

    @property
    def words(self) -> str:
        """`ttft of at most 100 ms`."""
        bound = "at least" if not self.of_sessions and METRICS[self.metric].least else "at most"
        return f"{self.name} of {bound} {self.limit:g}" + ("" if self.unit in NUMBERS else f" {self.unit}")

    @property
    def name(self) -> str:
        """As on the command line, without the limit: `ttft`, `2/ttft`."""
        return self.metric if self.request_class is None else f"{self.request_class}/{self.metric}"


def objective(name: str, limit: float) -> Objective:
    """From `[CLASS/]NAME` and a limit in the unit of the metric. The text of a ValueError follows the user's text."""
    head, slash, last = name.strip().rpartition("/")
    metric = ALIASES.get(last.strip().lower(), last.strip().lower())
    if metric not in METRICS and metric not in OF_SESSIONS:
        raise InvalidValue(
            "objective-invalid",
            f"is not an objective; write {FORM} with a name of {', '.join((*METRICS, *OF_SESSIONS))}",
        )
    if slash and metric in OF_SESSIONS:
        raise InvalidValue("objective-invalid", f"names a class, but sessions have none; write {metric}:LIMIT")
    if slash and not head.strip():
        raise InvalidValue(
            "objective-invalid", f"names no class of requests before its slash; write for example 0/{metric}:200"
        )
    unit = unit_of(metric)
    lowest_fails = limit < 0 if unit == "count" else limit <= 0
    if lowest_fails or not limit < float("inf") or (unit == "share" and limit > 1):
        what = {"share": "a share above 0 and up to 1", "count": "a number", "factor": "a factor above 0"}.get(
            unit, f"{unit} above 0"
        )
        raise InvalidValue("objective-invalid", f"has a limit out of range; write {what}")
    return Objective(metric, limit, head.strip() or None)


def read_objective(text: str) -> tuple[str, float]:
    """`ttft:200`, `2/itl:0.06s`, `fluidity:0.9` as (name, limit in the metric's unit); ValueError as `objective`."""
    name, _, limit = text.partition(":")
    unit = objective(name, 1.0).unit
    value = limit_in(unit, limit.lower())
    if value is None:
        raise InvalidValue(
            "objective-invalid", f"has no limit in {unit}; write for example {name.strip()}:{EXAMPLES[unit]}"
        )
    found = objective(name, value)
    return found.name, found.limit


def limit_in(unit: str, text: str) -> float | None:
    if unit == "ms":
        return quantities.duration(text, "ms")
    if unit in ("count", "factor"):
        return quantities.number(text)
    return quantities.share(text) if unit == "share" else quantities.token_rate(text)


EXAMPLES = {"ms": "200", "tokens/s": "20", "share": "0.9", "count": "3", "factor": "1.5"}
NUMBERS = ("share", "count", "factor")  # units that are not written


def unit_of(metric: str) -> str:
    return OF_SESSIONS[metric] if metric in OF_SESSIONS else METRICS[metric].unit


def objectives_of(asked: Iterable[tuple[str, float]]) -> tuple[Objective, ...]:
    """All objectives of a run. InputError names the first that is invalid."""
    found = []
    for name, limit in asked:
        try:
            found.append(objective(name, limit))
        except ValueError as problem:
            raise InputError("objective-invalid", f"objective '{name}:{limit:g}' {problem}") from None
    return tuple(found)


def of_requests(asked: Iterable[tuple[str, float]]) -> tuple[Objective, ...]:
    """The objectives that a request meets or misses. InputError names the first that is invalid."""
    return tuple(one for one in objectives_of(asked) if not one.of_sessions)


def class_number(name: str, document: RunDocument) -> int | None:
    """Number of a class in rows, from its name in the plan or from the number itself; None when there is no such class."""
    names = document.plan.classes
    if name in names:
        return names.index(name)
    return int(name) if name.isdecimal() else None


def class_name(number: int, document: RunDocument) -> str:
    """Name of the class in the plan, else its number."""
    names = document.plan.classes
    return str(names[number]) if number < len(names) else str(number)


def refuse_unknown(
    asked: Iterable[tuple[str, float]], names: Sequence[str], numbers: Iterable[int], sessions: bool
) -> None:
    """InputError for an objective of a class that the plan does not have: all requests would meet it; or of *sessions*.

    *names* of the plan's classes, and *numbers* of the classes of its requests.
    """
    known = {*names, *map(str, numbers)}
    for name, limit in asked:
        if name in OF_SESSIONS and not sessions:
            raise InputError(
                "option-not-applicable",
                f"--goodput {name}:{limit:g} is for sessions, and the requests of this run stand alone; give --turns or a "
                "trace of sessions, or an objective of requests",
            )
        head, slash, _ = name.rpartition("/")
        if slash and head not in known:
            remedy = f"its classes are {', '.join(names)}" if names else "it has no classes, so leave the class out"
            raise InputError(
                "class-unknown",
                f"--goodput {name}:{limit:g} is for a class {head!r} that this run does not have; {remedy}",
            )


def refuse_tokens(asked: Iterable[tuple[str, float]], silent: Mapping[str, str]) -> None:
    """InputError for an objective about tokens that reaches a class whose answers are not tokens: none would meet it.

    *silent*: the protocol of each such class.
    """
    for name, limit in asked if silent else ():
        head, slash, metric = name.rpartition("/")
        reached = [one for one in silent if not slash or one == head]
        if ALIASES.get(metric, metric) in (*OF_ANSWERS, *OF_SESSIONS) or not reached:
            continue
        instead = f"CLASS/{metric} for a class with tokens, or " if not slash else ""
        raise InputError(
            "protocol-unsupported",
            f"--goodput {name}:{limit:g} is about tokens, and answers of class {reached[0]!r} ({silent[reached[0]]}) are "
            f"not tokens; give {instead}e2el or e2el_sched",
        )


def subject(asked: Objective, all_asked: Sequence[Objective], request_class: Values, document: RunDocument) -> Mask:
    """Which requests *asked* applies to: those of its class; without one, those whose class has no limit of its own for the
    same metric."""
    if asked.request_class is not None:
        number = class_number(asked.request_class, document)
        return np.full(len(request_class), False) if number is None else request_class == number
    own = [class_number(each.request_class, document) for each in all_asked
           if each.metric == asked.metric and each.request_class is not None]  # fmt: skip
    return ~np.isin(request_class, [number for number in own if number is not None])
