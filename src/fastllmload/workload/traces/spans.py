"""Spans of OpenTelemetry in the forms in which they are written: a `spans` array, one a line, or OTLP's `resourceSpans`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from fastllmload.workload.calls import graph_error
from fastllmload.workload.dataset import format_value
from fastllmload.workload.request import field_error
from fastllmload.workload.traces.trace_file import TraceFile, moment_ns

Json = dict[str, Any]
EARLIEST_NS = 10**17  # 1973; a smaller number is not a time in ns
FAILED = (2, "2", "ERROR", "STATUS_CODE_ERROR", "error")


@dataclass(slots=True)
class OtelSpan:
    where: str
    trace: str
    id: str
    parent: str
    name: str
    start_ns: int
    end_ns: int
    failed: bool
    attributes: Json
    links: list[tuple[str, Json]]  # span of the same session, attributes of the link

    @property
    def operation(self) -> str:
        return str(self.attributes.get("gen_ai.operation.name", ""))

    def text(self, *names: str) -> str | None:
        """The first of the attributes that is there."""
        value = next((self.attributes[name] for name in names if self.attributes.get(name) is not None), None)
        return None if value is None else str(value)

    def count(self, *names: str) -> int | None:
        """The same as a number. InputError when it is not one."""
        name = next((name for name in names if self.attributes.get(name) is not None), None)
        if name is None:
            return None
        value = self.attributes[name]
        try:
            if isinstance(value, bool) or int(value) != float(value) or int(value) < 0:
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            raise field_error(f"{self.where}: {name} is {format_value(value)}, not a number of tokens") from None
        return int(value)

    def structure(self, name: str) -> Any:
        """The attribute, decoded where it is JSON in a text. InputError when that is not JSON."""
        value = self.attributes.get(name)
        if not isinstance(value, str):
            return value
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
            raise field_error(f"{self.where}: {name} is not JSON: {problem}") from None


def read_spans(file: TraceFile) -> list[OtelSpan]:
    found = [
        _span(where, one) for where, entry in file.objects(dict[str, Any]) for where, one in _entries(where, entry)
    ]
    _check_parents(found)
    return found


def _check_parents(spans: list[OtelSpan]) -> None:
    """InputError where spans are around each other."""
    known = {(one.trace, one.id): one for one in spans}
    done: set[int] = set()
    for one in spans:
        line: dict[int, OtelSpan] = {}
        at: OtelSpan | None = one
        while at is not None and id(at) not in done:
            if id(at) in line:
                raise graph_error(
                    f"{at.where}: span {at.id!r} is around its own parent, {at.parent!r}; correct the parent_span_id of "
                    "one of them"
                )
            line[id(at)] = at
            at = known.get((at.trace, at.parent))
        done |= line.keys()


def _entries(where: str, entry: Json) -> Iterator[tuple[str, Json]]:
    if "resourceSpans" in entry:
        scopes = (
            scope for resource in _list(where, entry, "resourceSpans") for scope in _list(where, resource, "scopeSpans")
        )
        found = [span for scope in scopes for span in _list(where, scope, "spans")]
    elif "spans" in entry:
        found = _list(where, entry, "spans")
    else:
        yield where, entry
        return
    yield from ((f"{where} span {number}", one) for number, one in enumerate(found, 1))


def _list(where: str, entry: Any, name: str) -> list[Json]:
    found = entry.get(name, []) if isinstance(entry, dict) else None
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise field_error(f"{where}: {name} is {format_value(found)}, not an array of objects")
    return found


def _span(where: str, entry: Json) -> OtelSpan:
    context = entry.get("context") if isinstance(entry.get("context"), dict) else {}
    named = {**(context or {}), **entry}
    ids = [str(named.get(one) or named.get(other) or "") for one, other in (
        ("trace_id", "traceId"), ("span_id", "spanId"), ("parent_span_id", "parentSpanId"))]  # fmt: skip
    if not (ids[0] and ids[1]):
        raise field_error(f"{where}: {'span_id' if ids[0] else 'trace_id'} is missing; each span has both")
    start = _time(where, named, ("start_time", "startTimeUnixNano", "start_time_unix_nano"))
    end = _time(where, named, ("end_time", "endTimeUnixNano", "end_time_unix_nano"))
    if end < start:
        raise field_error(f"{where}: end_time is {(start - end) / 1e9:g} s before start_time; correct one of them")
    status = entry.get("status")
    code = status.get("code", status.get("status_code")) if isinstance(status, dict) else status
    return OtelSpan(
        where, ids[0], ids[1], ids[2] or str(named.get("parent_id") or ""), str(entry.get("name", "")), start, end,
        code in FAILED, _attributes(where, entry.get("attributes", {})), _links(where, entry),
    )  # fmt: skip


def _links(where: str, entry: Json) -> list[tuple[str, Json]]:
    """The spans that *entry* has links to, `TRACE/SPAN`, with the attributes of each link."""
    found = []
    for one in _list(where, {"links": entry.get("links") or []}, "links"):
        context = one.get("context")
        named = {**(context if isinstance(context, dict) else {}), **one}
        trace, span = (named.get(f"{name}_id") or named.get(f"{name}Id") or "" for name in ("trace", "span"))
        found.append((f"{trace}/{span}", _attributes(where, one.get("attributes") or {})))
    return found


def _time(where: str, entry: Json, names: tuple[str, ...]) -> int:
    """An instant in ISO 8601, or in ns since 1970 as a number or a text."""
    value = next((entry[name] for name in names if name in entry), None)
    if isinstance(value, str) and not value.isdigit():
        return moment_ns(value, where, names[0])
    try:
        at = int(value) if isinstance(value, str | int) and not isinstance(value, bool) else 0
    except ValueError:
        at = 0
    if not EARLIEST_NS <= at < 1 << 62:
        raise field_error(f"{where}: {names[0]} is {format_value(value)}; write ISO 8601, or ns since 1970")
    return at


def _attributes(where: str, found: Any) -> Json:
    if isinstance(found, dict):
        return found
    if isinstance(found, list):
        try:
            return {one["key"]: _typed(one["value"]) for one in found}
        except (AttributeError, KeyError, TypeError, ValueError):
            pass
    raise field_error(
        f"{where}: attributes is {format_value(found)}, neither an object nor OTLP's array of key and value"
    )


def _typed(value: Json) -> Any:
    """A value of OTLP: its one key says its type, and integers are texts."""
    ((kind, found),) = value.items()
    if kind == "intValue":
        return int(found)
    if kind == "arrayValue":
        return [_typed(one) for one in found.get("values", [])]
    if kind == "kvlistValue":
        return {one["key"]: _typed(one["value"]) for one in found.get("values", [])}
    return found
