"""The Parquet tables have the values of JSONL, joined by row; without DuckDB a message names what to install."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import raises_code
from synthetic_run import Shape, draw_requests, write_manifest, write_workers

from fastllmload.export.columns import REQUEST_COLUMNS
from fastllmload.export.parquet import export_parquet
from fastllmload.export.rows import export_jsonl
from fastllmload.records import layout
from fastllmload.records.run import Run, load


def recorded(folder: Path, shape: Shape) -> Run:
    write_workers(folder, draw_requests(7, shape), 2)
    write_manifest(folder)
    return load(folder)


def rows_of(path: Path, query: str = "SELECT * FROM {}") -> list[dict[str, Any]]:
    duckdb = pytest.importorskip("duckdb", reason="without the extra `parquet` no table can be read back")
    with duckdb.connect(":memory:") as connection:
        found = connection.execute(query.format(f"'{path}'"))
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


@pytest.mark.parametrize(
    "shape", [Shape(requests=60, tokens_per_event=3, say_tokens=True), Shape(requests=40), Shape(requests=0)]
)
def test_requests_are_those_of_jsonl(tmp_path: Path, shape: Shape) -> None:
    pytest.importorskip("duckdb", reason="without the extra `parquet` tables are not compared with JSONL")
    run = recorded(tmp_path, shape)
    stream = io.BytesIO()
    export_jsonl(run, stream)
    expected = [json.loads(line) for line in stream.getvalue().splitlines()]
    requests, _ = export_parquet(run, tmp_path / "out")
    found = rows_of(requests, "SELECT * FROM {} ORDER BY row")
    assert [row.pop("row") for row in found] == list(range(len(expected)))
    for row, line in zip(found, expected, strict=True):
        assert row == {name: text(name, line[name]) for name in REQUEST_COLUMNS}


def text(name: str, value: Any) -> Any:
    """Names are text in a table, also where the manifest has only their numbers."""
    return str(value) if name in ("class", "url") else value


def test_events_are_those_of_the_run(tmp_path: Path) -> None:
    pytest.importorskip(
        "duckdb", reason="without the extra `parquet` events of a table are not compared with the run's"
    )
    run = recorded(tmp_path, Shape(requests=50, tokens_per_event=3, say_tokens=True))
    _, events = export_parquet(run, tmp_path / "out")
    found = rows_of(events, "SELECT * FROM {} ORDER BY row, t_ns")
    assert len(found) == len(run.events) > 0
    assert [row["t_ns"] for row in found] == run.event_t.tolist()
    assert sorted(row["kind"] for row in found) == sorted(layout.EVENT_NAMES[kind] for kind in run.event_kind)
    assert {row["tokens"] for row in found} >= {None, 1, 2, 3}
    assert sum(row["same_read"] for row in found) == int((run.event_stamp & layout.STAMP_SAME_READ > 0).sum())
    assert {row["timestamp_source"] for row in found} == {layout.STAMP_NAMES[1]}


def test_events_that_complete_no_token_have_none(tmp_path: Path) -> None:
    """0 where the server reports none, null where it does not report."""
    pytest.importorskip("duckdb", reason="without the extra `parquet` missing token counts in a table are not tested")
    run = recorded(tmp_path, Shape(requests=5))
    events = np.array(run.events)
    events["tokens"][:3] = layout.TOKENS_NONE, 0, 7
    _, path = export_parquet(replace(run, events=events), tmp_path / "out")
    assert [row["tokens"] for row in rows_of(path, "SELECT * FROM {} ORDER BY row, t_ns")][:3] == [0, None, 7]


def test_kinds_that_have_no_name_have_none(tmp_path: Path) -> None:
    """As a changed tokens.npy may have them: the last of a byte would not fit into one when counted from 1."""
    pytest.importorskip(
        "duckdb", reason="without the extra `parquet` unnamed kinds of events in a table are not tested"
    )
    run = recorded(tmp_path, Shape(requests=5))
    run.events["kind"][:3] = 255
    _, events = export_parquet(run, tmp_path / "out")
    kinds = [row["kind"] for row in rows_of(events)]
    assert kinds[:3] == [None] * 3 and None not in kinds[3:]


def test_without_duckdb_a_message_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with raises_code("package-missing", "extra `parquet`"):
        export_parquet(recorded(tmp_path, Shape(requests=1)), tmp_path / "out")
    assert not (tmp_path / "out").exists()
