"""Turns a document into the plain values of its JSON."""

from __future__ import annotations

import enum
import functools
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from fastllmload.documents.fields import Document, defaults

PLAIN = frozenset((type(None), bool, int, float, str))
NO_VALUES: tuple[object, ...] = (None, (), {}, [])


def encoded(document: Document | Mapping[str, Any]) -> bytes:
    """The content of a file with *document*."""
    return msgspec.json.format(msgspec.json.encode(values(document)), indent=2) + b"\n"


def plain(document: Document) -> dict[str, Any]:
    """*document* as plain values. Its optional keys are left out where they have no value."""
    found: dict[str, Any] = values(document)
    return found


def values(value: Any) -> Any:
    """*value* with every document in it as plain values."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, Document):
        optional = value.optional()
        fields = [(name, key, getattr(value, name)) for name, key in keys(type(value))]
        return {
            key: one if type(one) in PLAIN else values(one)
            for name, key, one in fields
            if name not in optional or not (one in NO_VALUES or is_default_table(one, type(value), name))
        }
    if isinstance(value, (list, tuple)):
        return [values(one) for one in value]
    if isinstance(value, Mapping):
        return {name: values(one) for name, one in value.items()}
    if isinstance(value, enum.Enum):
        return value.value
    return values(msgspec.to_builtins(value)) if isinstance(value, msgspec.Struct) else value


def is_default_table(value: Any, kind: type[Document], name: str) -> bool:
    return isinstance(value, Document) and value == defaults(kind).get(name)


@functools.cache
def keys(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    return list(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))


def changed(stored: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """The JSON *stored* in a file with other values of these fields. Keys that this version does not know stay."""
    return {**stored, **values(fields)}


def printable_json(text: str) -> str:
    """JSON *text*, safe for a terminal: characters that are not printable, apart from line ends, become \\u escapes."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text)
