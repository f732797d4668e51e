"""The export has the documented keys and exactly the recorded values; output tokens name their source."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_file import same_as_golden
from synthetic_run import KIND, Request, Shape, draw_requests, write_manifest, write_workers
from typed_documents import with_keys

from fastllmload._ext.record.recorder import Recorder
from fastllmload.export import columns, rows
from fastllmload.export.rows import export_csv, export_jsonl
from fastllmload.metrics.tokens.counts import SOURCES, UNKNOWN, count_tokens
from fastllmload.records import layout
from fastllmload.records.generated_text import unescape
from fastllmload.records.merge import merge_workers
from fastllmload.records.run import Run, load

pytestmark = pytest.mark.slow

KEYS = [
    "request_id",
    "session_id",
    "turn",
    "class",
    "worker",
    "url",
    "t_sched_ns",
    "t_dispatch_ns",
    "t_submit_ns",
    "t_headers_ns",
    "t_any_ns",
    "t_first_ns",
    "t_last_ns",
    "t_end_ns",
    "status",
    "http_status",
    "error",
    "input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cached_tokens",
    "output_tokens_source",
    "bytes_sent",
    "bytes_received",
    "connection_reused",
    "finish_reason",
    "timestamp_source",
    "server_total_ns",
    "server_load_ns",
    "server_prompt_eval_ns",
    "server_eval_ns",
    "phase",
    "client",
    "timed_tokens",
    "t_connected_ns",
    "t_tls_ns",
    "streamed",
    "token_ns",
    "token_counts",
    "read_ids",
    "untimed_ns",
    "untimed_counts",
]
CELLS = KEYS[:-5]


def exported(run: Run) -> list[dict[str, Any]]:
    stream = io.BytesIO()
    export_jsonl(run, stream)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def recorded(tmp_path: Path, requests: list[Request], text: bool = False) -> Run:
    write_workers(tmp_path, requests, 2, text)
    write_manifest(tmp_path)
    merge_workers(tmp_path)
    return load(tmp_path)


def write_one(tmp_path: Path, text: tuple[bytes, ...] = (), record_text: bool = True, **fields: int) -> Run:
    folder = tmp_path / "workers" / "0"
    folder.mkdir(parents=True)
    recorder = Recorder(folder, text=record_text)
    unknown = dict.fromkeys(("prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens"), -1)
    row = recorder.add_row(**{**unknown, "text_bytes": sum(map(len, text)), **fields})
    for piece in text:
        if record_text:
            recorder.add_text(row, piece)
    recorder.finish_row(row, status=layout.OK)
    recorder.close()
    write_manifest(tmp_path)
    return load(tmp_path)


def test_keys_are_the_documented_ones_in_their_order(tmp_path: Path) -> None:
    for record in exported(recorded(tmp_path, draw_requests(3, Shape(requests=50)))):
        assert list(record) == KEYS


def test_every_value_is_what_was_recorded(tmp_path: Path) -> None:
    requests = draw_requests(3, Shape(say_tokens=True, tokens_per_event=3))
    records = exported(recorded(tmp_path, requests))
    assert len(records) == len(requests)
    for record, request in zip(records, requests, strict=True):
        fields = request.fields
        for name in ("t_sched", "t_dispatch", "t_submit", "t_headers", "t_any", "t_first", "t_last", "t_end"):
            assert record[f"{name}_ns"] == (fields.get(name) or None), name
        assert record["request_id"] == f"1-{fields['request']}"
        assert record["status"] == layout.STATUS_NAMES[fields["status"]]
        assert record["error"] == (layout.ERROR_NAMES[fields["error"]] if fields.get("error") else None)
        assert record["worker"] == fields["request"] % 2
        assert record["connection_reused"] == (bool(fields["flags"] & 1) if fields["t_submit"] else None)
        assert record["streamed"] == (bool(fields["flags"] & layout.FLAG_STREAM) if fields.get("t_headers") else None)
        timed = [event for event in request.events if event[1] == KIND["content"]]
        assert record["token_ns"] == [event[0] for event in timed]
        assert record["token_counts"] == [event[3] for event in timed]
        reads = np.cumsum([not event[2] & 4 for event in request.events])
        assert record["read_ids"] == [
            read for read, event in zip(reads.tolist(), request.events, strict=True) if event[1] == KIND["content"]
        ]
        if fields["completion_tokens"] >= 0:
            assert record["output_tokens"] == fields["completion_tokens"]
            assert record["output_tokens_source"] == "usage"
            assert record["input_tokens"] == fields["prompt_tokens"]
        else:
            assert record["input_tokens"] == fields["input_target"]


@pytest.mark.parametrize(("each", "stated"), [(1, 1), (3, None)])
def test_unreported_token_counts_are_null_unless_there_are_as_many_chunks_as_tokens(
    tmp_path: Path, each: int, stated: int | None
) -> None:
    records = exported(recorded(tmp_path, draw_requests(3, Shape(requests=50, tokens_per_event=each, failures=0.0))))
    assert {count for record in records for count in record["token_counts"]} == {stated}


def test_csv_has_the_same_values(tmp_path: Path) -> None:
    run = recorded(tmp_path, draw_requests(3, Shape(requests=50)))
    stream = io.StringIO()
    export_csv(run, stream)
    lines = list(csv.DictReader(io.StringIO(stream.getvalue())))
    records = exported(run)
    assert len(lines) == len(records) == 50
    for line, record in zip(lines, records, strict=True):
        assert list(line) == CELLS
        assert line == {key: "" if record[key] is None else str(record[key]) for key in CELLS}


def test_the_bytes(tmp_path: Path) -> None:
    """One line per request with every documented key; CSV has the same without the lists."""
    run = recorded(tmp_path, draw_requests(11, Shape(requests=12, tokens_per_event=3, say_tokens=True, failures=0.4)))
    run = with_keys(run, run_id="0a1b2c3d", config={"target": {"urls": ["http://127.0.0.1:8000"]}})
    lines, cells = io.BytesIO(), io.StringIO()
    export_jsonl(run, lines)
    export_csv(run, cells)
    same_as_golden("exports/requests.jsonl", lines.getvalue().decode())
    same_as_golden("exports/requests.csv", cells.getvalue())


@pytest.mark.parametrize(("at_once", "events"), [(1, None), (3, None), (50, None), (4096, 1), (4096, 100), (3, 200)])
def test_blocks_of_any_size_give_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int, events: int | None
) -> None:
    run = recorded(tmp_path, draw_requests(5, Shape(requests=50, tokens_per_event=2, say_tokens=True)))
    whole = exported(run)
    monkeypatch.setattr(columns.blocks, "__defaults__", (at_once, None))
    if events is not None:
        monkeypatch.setattr(rows, "EVENTS_AT_ONCE", events)
    assert exported(run) == whole


def test_a_run_without_a_request_has_no_line_but_a_header(tmp_path: Path) -> None:
    run = recorded(tmp_path, [])
    cells = io.StringIO()
    export_csv(run, cells)
    assert exported(run) == []
    assert cells.getvalue() == ",".join(CELLS) + "\n"


def test_the_manifest_names_run_targets_and_classes(tmp_path: Path) -> None:
    run = write_one(tmp_path, request=5, phase=1, url=1, request_class=2, t_submit=1)
    config = {"target": {"urls": ["http://a", "http://b"]}}
    run = with_keys(run, run_id="abc", config=config, plan={"classes": ["s", "m", "l"]})
    record = exported(run)[0]
    assert (record["request_id"], record["url"], record["class"]) == ("abc-1-5", "http://b", "l")


def test_durations_reported_by_the_server_have_their_own_keys(tmp_path: Path) -> None:
    run = write_one(tmp_path, server_total_ns=9, server_prompt_eval_ns=3, server_eval_ns=5)
    record = exported(run)[0]
    assert [record[f"server_{name}_ns"] for name in ("total", "load", "prompt_eval", "eval")] == [9, None, 3, 5]


def test_recorded_text_is_counted_as_one_text(tmp_path: Path) -> None:
    """ "internationalization" cut in four would be more tokens than the word has."""
    run = write_one(tmp_path, (b"inter", b"nation", b"aliz", b"ation \\u00fc\\n"))
    tokens = count_tokens(run)
    assert unescape(b"internationalization \\u00fc\\n") == "internationalization ü\n"
    assert SOURCES[tokens.source[0]] == "tokenizer"
    import quicktok

    encoding = quicktok.get_encoding("cl100k_base")
    assert tokens.output[0] == encoding.count("internationalization ü\n")
    pieces = sum(encoding.count(piece) for piece in ("inter", "nation", "aliz", "ation ü\n"))
    assert tokens.output[0] < pieces


def test_usage_is_preferred_to_recorded_text(tmp_path: Path) -> None:
    tokens = count_tokens(write_one(tmp_path, (b"one two three",), completion_tokens=99))
    assert (tokens.output[0], SOURCES[tokens.source[0]]) == (99, "usage")


@pytest.mark.parametrize(
    ("size", "expected", "source"), [(0, 0, None), (1, 1, "estimate"), (3, 1, "estimate"), (41, 10, "estimate")]
)
def test_without_usage_and_text_the_count_is_an_estimate(
    tmp_path: Path, size: int, expected: int, source: str | None
) -> None:
    run = write_one(tmp_path, (b"x" * size,), record_text=False)
    tokens = count_tokens(run)
    assert (tokens.output[0], SOURCES[tokens.source[0]]) == (expected, source)


@pytest.mark.parametrize(
    ("fields", "timed"),
    [
        ({"completion_tokens": 20, "reasoning_tokens": 5, "content_events": 15, "reasoning_events": 5}, 15),
        ({"completion_tokens": 20, "reasoning_tokens": -1, "content_events": 15, "reasoning_events": 5}, 15),
        ({"completion_tokens": 60, "reasoning_tokens": -1, "content_events": 15, "reasoning_events": 5}, UNKNOWN),
        ({"completion_tokens": 20, "reasoning_tokens": -1, "content_events": 20, "reasoning_events": 0}, 20),
        ({"completion_tokens": 3, "reasoning_tokens": 5}, 0),
    ],
)
def test_timed_tokens_leave_out_reasoning(tmp_path: Path, fields: dict[str, int], timed: int) -> None:
    assert count_tokens(write_one(tmp_path, **fields)).timed[0] == timed


@pytest.mark.parametrize(
    ("fields", "reasoning"),
    [
        ({"completion_tokens": 20, "reasoning_tokens": 5, "content_events": 15, "reasoning_events": 5}, 5),
        ({"completion_tokens": 60, "reasoning_tokens": -1, "content_events": 15, "reasoning_events": 5}, None),
        ({"completion_tokens": 20, "reasoning_tokens": -1, "content_events": 0, "reasoning_events": 5}, 20),
        ({"completion_tokens": 20, "reasoning_tokens": -1, "content_events": 20, "reasoning_events": 0}, 0),
    ],
)
def test_reasoning_tokens_that_were_not_counted_are_null(
    tmp_path: Path, fields: dict[str, int], reasoning: int | None
) -> None:
    """0 only where there was no reasoning."""
    assert exported(write_one(tmp_path, **fields))[0]["reasoning_tokens"] == reasoning


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (b'a\\"b\\\\', 'a"b\\'),
        (b"\\ud83d\\ude00", "\U0001f600"),
        (b"\\ud83d", "\ufffd"),
        ("ü€".encode(), "ü€"),
        (b"\xff", "\ufffd"),
        (b"tab\there", "tab\there"),
    ],
)
def test_escaped_text_is_read_as_json_does(escaped: bytes, text: str) -> None:
    assert unescape(escaped) == text
