"""Exports a run as two Parquet tables, joined by `row`: requests.parquet and events.parquet. DuckDB writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fastllmload.errors import InputError
from fastllmload.export.columns import AT_ONCE, ExportColumn, blocks
from fastllmload.files import refuse_irregular
from fastllmload.records import layout
from fastllmload.records.run import Run

REQUESTS, EVENTS = "requests.parquet", "events.parquet"
OPTIONS = "(FORMAT parquet, COMPRESSION zstd)"
EVENT_QUERY = f"""
    SELECT "row", t_ns, {list(layout.EVENT_NAMES)!r}[kind::INTEGER + 1] AS kind,
        nullif(tokens, 0) % {layout.TOKENS_NONE} AS tokens,
        {list(layout.STAMP_NAMES)!r}[(stamp & {layout.STAMP_CLASS_MASK}) + 1] AS timestamp_source,
        (stamp & {layout.STAMP_SAME_READ}) > 0 AS same_read
    FROM events"""


def export_parquet(run: Run, folder: Path) -> list[Path]:
    """Write both tables into *folder*, which is created if missing; return their paths. InputError without DuckDB."""
    connection = connect()
    folder.mkdir(parents=True, exist_ok=True)
    for name in (REQUESTS, EVENTS):
        refuse_irregular(folder / name)
    kept = slice(None) if run.complete_rows.all() else run.complete_rows[run.events["row"]]
    events = {name: run.events[name][kept] for name in layout.EVENT.names or ()}
    found = {"row": np.arange(len(run.rows)), **request_columns(run)}
    try:
        write(connection, "SELECT * FROM requests", requests=found, into=folder / REQUESTS)
        write(connection, EVENT_QUERY, events=events, into=folder / EVENTS)
    finally:
        connection.close()
    return [folder / REQUESTS, folder / EVENTS]


def connect() -> Any:
    try:
        import duckdb  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise InputError(
            "package-missing",
            "--format parquet needs the package duckdb, which is not installed; install fastllmload with the extra "
            "`parquet`, or export jsonl or csv",
        ) from None
    return duckdb.connect(":memory:")


def write(connection: Any, query: str, into: Path, **tables: dict[str, Any]) -> None:
    for name, columns in tables.items():
        connection.register(name, columns)
    target = str(into).replace("'", "''")
    connection.execute(f"COPY ({query}) TO '{target}' {OPTIONS}")


def request_columns(run: Run) -> dict[str, Any]:
    """Array of all rows by column name, masked where null; strings have dtype object."""
    parts: dict[str, list[Any]] = {}
    for block in blocks(run, 16 * AT_ONCE):
        for name, column in block.columns.items():
            parts.setdefault(name, []).append(as_array(column))
    return {name: np.ma.concatenate(arrays) for name, arrays in parts.items()}  # type: ignore[no-untyped-call]


def as_array(column: ExportColumn) -> Any:
    values = column.values
    if column.names is not None:
        texts = np.array(["" if name is None else str(name) for name in column.names], object)
        unnamed = np.array([name is None for name in column.names], np.bool_)
        values, null = texts[column.values], unnamed[column.values]
        return np.ma.array(values, mask=null if column.null is None else null | column.null)
    return np.ma.array(values, mask=np.zeros(len(values), np.bool_) if column.null is None else column.null)
