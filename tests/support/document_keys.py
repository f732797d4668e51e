"""Keys of a written document that its types do not have: every reader loses them, and so does a redacted document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_origin

from fastllmload.documents.read import fields, members
from fastllmload.documents.redaction import struct_of


def undeclared(found: Any, kind: Any, place: str = "") -> Iterator[str]:
    """Places of keys in a document that its types do not have."""
    if isinstance(found, dict):
        struct = struct_of(kind)
        inner = [get_args(one)[1] for one in members(kind) if get_origin(one) is dict]
        known = fields(struct) if struct is not None else dict.fromkeys(found, inner[0]) if inner else {}
        for key, value in found.items():
            if key not in known and (struct is not None or not inner) and Any not in members(kind):
                yield f"{place}.{key}"
            elif key in known:
                yield from undeclared(value, known[key], f"{place}.{key}")
    elif isinstance(found, list):
        items = [get_args(one)[0] for one in members(kind) if get_origin(one) is tuple]
        for value in found if items else ():
            yield from undeclared(value, items[0], f"{place}[]")
