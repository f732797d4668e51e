"""Exports requests as JSON lines (one object per request) or as CSV (the same keys without the token lists)."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import IO, Any

import msgspec

from fastllmload.documents.write import printable_json
from fastllmload.export.columns import EVENTS_AT_ONCE, LISTS, blocks, columns_of, token_lists
from fastllmload.records.run import Run

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def record_blocks(run: Run) -> Iterator[list[dict[str, Any]]]:
    """All requests by phase and request, in blocks; keys in the order of `columns_of`, null is None."""
    scalars = tuple(columns_of(run))
    for block in blocks(run, events_at_once=EVENTS_AT_ONCE):
        lists = token_lists(run, block.part, block.tokens)
        columns = [column.to_list() for column in block.columns.values()] + [lists[name] for name in LISTS]
        yield [dict(zip((*scalars, *LISTS), values, strict=True)) for values in zip(*columns, strict=True)]


def export_jsonl(run: Run, stream: IO[bytes]) -> None:
    encoder = msgspec.json.Encoder()
    for records in record_blocks(run):
        stream.write(printable_json(encoder.encode_lines(records).decode()).encode())


def export_csv(run: Run, stream: IO[str]) -> None:
    """Write a header line and one line per request; null is an empty cell."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns_of(run))
    for block in blocks(run):
        columns = [column.to_list() for column in block.columns.values()]
        writer.writerows([cell(value) for value in record] for record in zip(*columns, strict=True))


def cell(value: Any) -> Any:
    """*value*, safe for spreadsheets and terminals: text that would start a formula gets a leading apostrophe, and
    characters that are not printable (line ends, escape sequences) become \\r or \\x1b.
    """
    if not isinstance(value, str):
        return value
    text = f"'{value}" if value.startswith(FORMULA) else value
    return text if text.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
