"""Types of fields: the unit of a value, and what it reveals when a document is published (IETF 7.1).

A document is a tree of frozen structs. A key that is missing or null is None, an empty list or an empty table; a value that
redaction took away is WITHHELD, in contrast to None it was measured.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec


class Withheld(enum.Enum):
    """The type of WITHHELD."""

    WITHHELD = "withheld"


class Reveals(enum.Enum):
    """What a field reveals to the reader of a published document."""

    NOTHING = "nothing"  # latencies, shares of time, settings of the client
    LOAD = "load"  # a load, a throughput, or a count, which over the known duration is a rate
    SHARE = "share"  # a share of requests: all of its digits would reveal its denominator, a count
    ENGINE = "engine"  # memory, batch size or another limit of the server
    NAME = "name"  # a host, URL, address, path or process; a command or its output
    SENTENCE = "sentence"  # may quote any of these
    # Texts that are withheld only if they are a path, see `documents.redaction.is_path`
    FILE = "file"  # a name such as cl100k_base, or a path
    MODEL = "model"  # a name such as org/model, or a path
    CURVE = "curve"  # a load over time, or the path of a file with one


WITHHELD = Withheld.WITHHELD
Number = int | float | Withheld | None


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all tables of a document. Keys that this version does not know are ignored.

    OPTIONAL: fields that are left out of the JSON where they have no value; all others are written, also as null.
    """

    OPTIONAL: ClassVar[tuple[str, ...]] = ()

    def optional(self) -> tuple[str, ...]:
        """OPTIONAL, of a class whose tables differ in their keys: of this one."""
        return self.OPTIONAL


D = TypeVar("D", bound=Document)


@cache
def defaults(kind: type[Document]) -> dict[str, Any]:
    """The default of each field that has one, by name."""
    found = {}
    for each in msgspec.structs.fields(kind):
        if each.default_factory is not msgspec.NODEFAULT:
            found[each.name] = each.default_factory()
        elif each.default is not msgspec.NODEFAULT:
            found[each.name] = each.default
    return found


def without(document: D, names: Collection[str]) -> D:
    """*document* with the defaults of the fields *names*."""
    return msgspec.structs.replace(document, **{name: defaults(type(document))[name] for name in names})


def joined(document: D, more: D) -> D:
    """*document* with the fields of *more* that do not have their defaults."""
    usual = defaults(type(more))
    given = {name: each for name in more.__struct_fields__ if (each := getattr(more, name)) != usual.get(name)}
    return msgspec.structs.replace(document, **given)


def field(unit: str = "", reveals: Reveals = Reveals.NOTHING) -> msgspec.Meta:
    """Annotation of a field: *unit* of its numbers, and what it reveals."""
    schema = {name: text for name, text in (("unit", unit), ("reveals", reveals.value)) if text not in ("", "nothing")}
    return msgspec.Meta(extra={"unit": unit, "reveals": reveals}, extra_json_schema=schema)


def known(value: object) -> float | None:
    """A number as float; None for what is missing, withheld, NaN, or not a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        return None
    return float(value)


# Times
Ns = Annotated[int | None, field("ns")]
Us = Annotated[Number, field("us")]
Ms = Annotated[Number, field("ms")]
Seconds = Annotated[Number, field("s")]
# Numbers that reveal nothing
Plain = Annotated[Number, field()]
Ratio = Annotated[Number, field("share")]
Bytes = Annotated[Number, field("bytes")]
Length = Annotated[Number, field("tokens")]  # of one request
TokenSpeed = Annotated[Number, field("tokens/s")]  # of one request
Figure = Annotated[Number, field("see `unit`")]  # of a table with the key `unit`
# Numbers of the load
Count = Annotated[Number, field("requests", Reveals.LOAD)]
Sessions = Annotated[Number, field("sessions", Reveals.LOAD)]
Tokens = Annotated[Number, field("tokens", Reveals.LOAD)]
Events = Annotated[Number, field("events", Reveals.LOAD)]
Samples = Annotated[Number, field("samples", Reveals.LOAD)]
Load = Annotated[Number, field("requests/s or requests in flight", Reveals.LOAD)]
InFlight = Annotated[Number, field("requests in flight", Reveals.LOAD)]
Rate = Annotated[Number, field("requests/s", Reveals.LOAD)]
TokenRate = Annotated[Number, field("tokens/s", Reveals.LOAD)]
# A figure over runs, whose kind only its name tells: a load, if not known better
OfFigure = Annotated[float | None, field("unit of the figure", Reveals.LOAD)]
Interval = Annotated[tuple[float, float] | None, field("unit of the figure", Reveals.LOAD)]  # 95 %
ByRun = Annotated[tuple[float, ...], field("unit of the figure", Reveals.LOAD)]
RequestShare = Annotated[Number, field("share", Reveals.SHARE)]
Limit = Annotated[Number, field("", Reveals.ENGINE)]
# Texts
Name = Annotated[str | None, field("", Reveals.NAME)]
Names = Annotated[tuple[str, ...], field("", Reveals.NAME)]
File = Annotated[str | None, field("", Reveals.FILE)]
Model = Annotated[str | None, field("", Reveals.MODEL)]
Sentence = Annotated[str | None, field("", Reveals.SENTENCE)]
Sentences = Annotated[tuple[str, ...], field("", Reveals.SENTENCE)]
