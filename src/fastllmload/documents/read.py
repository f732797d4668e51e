"""Reads documents: checks the JSON of a file, and makes the types of it. One sentence names the place of what is wrong."""

from __future__ import annotations

import contextlib
import functools
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fastllmload.documents.fields import WITHHELD, Withheld
from fastllmload.errors import RunFolderError
from fastllmload.files import parse_json, read_regular

T = TypeVar("T")
ANY_KEY = "[...]"
STEP = re.compile(r"[^.\[\]]+")
PLACE = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)


class DocumentError(ValueError):
    """A document has a part of another type: one clause that names the part."""


def read_file(path: Path, version: int, typed: Callable[[Mapping[str, Any]], T]) -> tuple[dict[str, Any], T]:
    """The JSON of *path*, and the same as a type, by *typed*. FileNotFoundError; RunFolderError where it cannot be read, is
    of another schema version, or has a part of another type.
    """
    try:
        found = parse_json(read_regular(path))
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as problem:
        raise RunFolderError("run-file-unreadable", f"{path} cannot be read: {problem.strerror}") from None
    except msgspec.DecodeError as problem:
        raise RunFolderError("run-file-damaged", f"{path} is not JSON, it may be truncated: {problem}") from None
    if not isinstance(found, dict):
        raise RunFolderError("run-file-damaged", f"{path} is not a JSON object")
    stated = found.get("schema_version")
    if stated != version:
        raise RunFolderError(
            "schema-version",
            f"{path} has schema_version {stated!r}, this version reads {version}: read the folder with the version that "
            "wrote it",
        )
    try:
        return found, typed(found)
    except DocumentError as wrong:
        raise RunFolderError(
            "run-file-damaged", f"{path} is damaged: {wrong}; it was changed since fastllmload wrote it"
        ) from None


def convert(document: Mapping[str, Any], kind: type[T]) -> T:
    """*document* as *kind*. A null where the type has another default counts as missing, and so does a withheld value that
    the type cannot hold. DocumentError names the part that is wrong.
    """
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(document, kind)  # as nearly every document is
    found = fitted(document, kind)
    problem = problem_of(found, kind)
    if problem:
        raise DocumentError(sentence(problem, found, kind))
    return msgspec.convert(found, kind)


def problem_of(document: Any, kind: Any) -> str:
    """msgspec's message on the first part that is not as *kind* has it; empty where all are."""
    try:
        msgspec.convert(document, kind)
    except msgspec.ValidationError as problem:
        return str(problem)
    return ""


def sentence(problem: str, document: Any, kind: Any) -> str:
    """`\\`metrics.ttft.p99\\`: expected a number, got str` of msgspec's message on *document*."""
    place = PLACE.search(problem)
    what = PLACE.sub("", problem)
    what = what[0].lower() + what[1:].replace("`", "")
    what = what.replace("invalid enum value", "expected a number, got").replace(
        "expected int | float | str", "expected a number"
    )
    path = ".".join(steps_of(place[1], problem, document, kind)) if place else ""
    return f"`{path}`: {what}" if path else what


def steps_of(place: str, problem: str, document: Any, kind: Any) -> list[str]:
    """The keys and numbers on the way to *place*. msgspec writes `[...]` for a key of a table with free names."""
    first, *others = place.split(ANY_KEY)
    steps = STEP.findall(first)
    for further in others:
        table = part_of(document, steps)
        same = (key for key in table if problem_of(with_one_key(document, steps, key), kind) == problem)
        steps += [next(same, "*"), *STEP.findall(further)]
    return steps


def part_of(document: Any, steps: Sequence[str]) -> Any:
    return functools.reduce(
        lambda part, step: part[int(step)] if isinstance(part, list) else part[step], steps, document
    )


def with_one_key(document: Any, steps: Sequence[str], key: str) -> Any:
    """*document* with no key but *key* in its table at *steps*."""
    if not steps:
        return {key: document[key]}
    step, *others = steps
    if isinstance(document, list):
        at = int(step)
        return [*document[:at], with_one_key(document[at], others, key), *document[at + 1 :]]
    return {**document, step: with_one_key(document[step], others, key)}


@functools.cache
def members(kind: Any) -> tuple[Any, ...]:
    """The types that a value of *kind* may have: those of a union, without annotations."""
    if typing.get_origin(kind) is typing.Annotated:
        return members(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return tuple(each for one in typing.get_args(kind) for each in members(one))
    return (kind,)


@functools.cache
def fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Types of the fields of a struct, by key in JSON."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {key: hints[name] for name, key in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)}


@functools.cache
def containers(kind: Any) -> tuple[tuple[dict[str, Any] | None, Any, tuple[Any, ...]], ...]:
    """(fields of a struct or None, origin, arguments) of each type that a value of *kind* may have."""
    return tuple(
        (
            fields(one) if isinstance(one, type) and issubclass(one, msgspec.Struct) else None,
            typing.get_origin(one),
            typing.get_args(one),
        )
        for one in members(kind)
    )


def fitted(value: Any, kind: Any) -> Any:
    """*value* without the nulls and withheld values that *kind* cannot hold."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    for known, origin, args in containers(kind):
        if isinstance(value, Mapping):
            if known is not None:
                return {
                    key: fitted(inner, known[key])
                    for key, inner in value.items()
                    if key in known and holds(inner, known[key])
                }
            if origin is dict:
                return {key: fitted(inner, args[1]) for key, inner in value.items() if holds(inner, args[1])}
        elif isinstance(value, (list, tuple)) and origin is tuple:
            kinds = [args[0]] * len(value) if args[1:] == (Ellipsis,) else args
            return [fitted(inner, each) for inner, each in zip(value, kinds, strict=False)] + list(value[len(kinds) :])
    return value


def holds(value: Any, kind: Any) -> bool:
    """Whether *value* is neither null nor withheld, or *kind* has a place for it."""
    if value is None:
        return type(None) in members(kind) or Any in members(kind)
    if isinstance(value, str) and value == WITHHELD.value:
        return not {Withheld, str, Any}.isdisjoint(members(kind))
    return True
