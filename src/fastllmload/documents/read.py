"""Reads documents: checks the JSON of a file, and makes the types of it. One sentence names the place of what is wrong."""

from __future__ import annotations

import contextlib
import functools
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from fastllmload.documents.fields import WITHHELD, Withheld

T = TypeVar("T")
PLACE = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)


class DocumentError(ValueError):
    """A document has a part of another type: one clause that names the part."""


def convert(document: Mapping[str, Any], kind: type[T]) -> T:
    """*document* as *kind*. A null where the type has another default counts as missing, and so does a withheld value that
    the type cannot hold. DocumentError names the part that is wrong.
    """
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(document, kind)  # as nearly every document is
    try:
        return msgspec.convert(fitted(document, kind), kind)
    except msgspec.ValidationError as problem:
        raise DocumentError(sentence(str(problem))) from None


def sentence(problem: str) -> str:
    """`\\`phases.0.start_ns\\`: expected int, got str` of msgspec's message."""
    place = PLACE.search(problem)
    what = PLACE.sub("", problem)
    what = what[0].lower() + what[1:].replace("`", "")
    what = what.replace("invalid enum value", "expected a number, got").replace(
        "expected int | float | str", "expected a number"
    )
    path = place[1].replace("[...]", ".*").replace("[", ".").replace("]", "") if place else ""
    return f"`{path}`: {what}" if path else what


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
