"""Ollama's lines mean what its API says; scan, msgspec and a plain twin agree on any bytes, split anywhere."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ext.dialects import DIALECTS
from ext.dialects import OLLAMA_CHAT as CHAT
from ext.dialects import OLLAMA_GENERATE as GENERATE
from ext.reference import delta_reference
from ext.reference.ollama_text import NS, SEEN, TIMES, spelled
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastllmload._ext.events.delta import Classifier, expand_text
from fastllmload._ext.events.ndjson import NdjsonParser
from fastllmload._ext.receive.protocol import Conversation, Protocol
from fastllmload._ext.record import counters, recorder
from fastllmload._ext.record.histogram import WORDS as HDR_WORDS
from fastllmload.records.layout import ERROR_NAMES, EVENT_NAMES, FINISH_NAMES, REQUEST, STATUS_NAMES

SCAN, MSGSPEC = 1, 2
FAST = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
LAST = '{"model":"m","message":{"role":"assistant","content":""},"done_reason":"stop","done":true,'
DONE = (LAST + TIMES).encode()


def bare(meaning: dict[str, Any]) -> dict[str, Any]:
    text = meaning["text"]
    return {name: value for name, value in meaning.items() if name not in ("decoder", "text")} | {
        "text": None if text is None else expand_text(text)
    }


def agreed(data: bytes, dialect: int) -> dict[str, Any]:
    """The meaning on which scan, msgspec and the twin agree, for an event and for a whole body."""
    for read, whole in (("classify_body_bytes", True), ("classify_bytes", False)):
        strict = bare(getattr(Classifier(DIALECTS[dialect], strict=True), read)(data))
        quick = Classifier(DIALECTS[dialect])
        assert bare(getattr(quick, read)(data)) == strict
        assert bare(getattr(quick, read)(data)) == strict, "a second time"
        assert strict == delta_reference.classify(data, dialect, whole)
    return strict


@pytest.mark.parametrize(("dialect", "kind", "finish", "text", "done", "ns", "line"), SEEN)
def test_lines_of_real_servers(
    dialect: int, kind: str, finish: str, text: str | None, done: bool, ns: list[int] | None, line: str
) -> None:
    said = agreed(line.encode(), dialect)
    assert EVENT_NAMES[said["kind"]] == kind
    assert FINISH_NAMES[said["finish"]] == finish
    assert said["text"] == text
    assert said["done"] is done
    assert said["server_ns"] == (ns or [0, 0, 0, 0])
    if ns is not None:
        assert (said["prompt_tokens"], said["completion_tokens"]) == (26, 282)


def test_the_common_lines_need_no_python_object() -> None:
    """All that a model writes but a tool call is read by the scan in C."""
    for dialect, kind, _, _, _, _, line in SEEN:
        expected = MSGSPEC if kind in ("tool", "bad") else SCAN
        if line.startswith('{"status"'):
            expected = SCAN  # valid JSON without a key of ours: the scan can tell
        assert Classifier(DIALECTS[dialect]).classify_bytes(line.encode())["decoder"] == expected, line


def test_cached_prompt_tokens_are_usage() -> None:
    line = b'{"model":"m","response":"","done":true,"prompt_eval_count":20,"prompt_eval_cached_count":12}'
    said = agreed(line, GENERATE)
    assert (said["prompt_tokens"], said["cached_tokens"], said["completion_tokens"]) == (20, 12, -1)


@FAST
@given(data=spelled, dialect=st.sampled_from([CHAT, GENERATE]))
def test_any_line_means_the_same_on_every_path(data: bytes, dialect: int) -> None:
    agreed(data, dialect)


@settings(FAST, max_examples=400)
@given(
    data=spelled,
    dialect=st.sampled_from([CHAT, GENERATE]),
    at=st.integers(0, 400),
    byte=st.integers(0, 255),
    cut=st.integers(0, 3),
)
def test_a_damaged_line_means_the_same_on_every_path(data: bytes, dialect: int, at: int, byte: int, cut: int) -> None:
    agreed(data[:at] + bytes([byte]) + data[at + cut :], dialect)


@FAST
@given(lines=st.lists(spelled, max_size=4), cuts=st.sets(st.integers(0, 800), max_size=6))
def test_any_split_of_the_bytes_gives_the_same_lines(lines: list[bytes], cuts: set[int]) -> None:
    data = b"\n".join(lines)
    whole, split = NdjsonParser(), NdjsonParser()
    expected = [line for _, line, _, _ in whole.feed(data) + whole.eof()]
    places = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    pieces = [line for a, b in itertools.pairwise(places) for line in split.feed(data[a:b])] + split.eof()
    assert [line for _, line, _, _ in pieces] == expected


class Bench:
    """One exchange of an Ollama conversation and the row that it leaves."""

    def __init__(self, folder: Path, dialect: int = CHAT) -> None:
        self.recorder = recorder.Recorder(str(folder))
        shared = np.zeros(counters.WORDS + counters.HISTOGRAMS * HDR_WORDS, np.int64)
        self.protocol = Protocol(self.recorder, Classifier(DIALECTS[dialect]), shared, 1 << 20, 1 << 20)
        self.conversation = Conversation(self.protocol)
        self.folder = folder

    def answer(self, reads: list[bytes], eof: bool = False) -> np.void:
        self.conversation.open(1_000)
        for number, read in enumerate(reads):
            self.conversation.feed(read, 2_000 + number)
        if eof:
            self.conversation.eof(9_000)
        assert self.conversation.ended
        self.recorder.close()
        row: np.void = np.load(self.folder / "requests.npy")[0]
        assert row.dtype == REQUEST
        return row


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
TEXT = b'{"model":"m","created_at":"t","message":{"role":"assistant","content":" a"},"done":false}\n'


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def status(row: np.void) -> tuple[str, str]:
    return STATUS_NAMES[row["status"]], ERROR_NAMES[row["error"]]


def test_a_stream_leaves_its_server_durations_in_the_row(tmp_path: Path) -> None:
    row = Bench(tmp_path).answer([HEAD, chunk(TEXT), chunk(TEXT), chunk(DONE + b"\n") + b"0\r\n\r\n"])
    assert status(row) == ("ok", "none")
    assert [int(row[f"server_{name}_ns"]) for name in ("total", "load", "prompt_eval", "eval")] == NS
    assert (row["prompt_tokens"], row["completion_tokens"]) == (26, 282)
    assert (row["content_events"], row["t_first"], row["t_last"]) == (2, 2_001, 2_002)
    assert FINISH_NAMES[row["finish"]] == "stop"


def test_done_ends_the_request_before_its_framing_does(tmp_path: Path) -> None:
    """What follows the last object, and when the message itself ends, is nothing to the request."""
    row = Bench(tmp_path).answer([HEAD, chunk(TEXT), chunk(DONE + b"\n"), chunk(TEXT), b"0\r\n\r\n"])
    assert (status(row), int(row["content_events"]), int(row["t_end"])) == (("ok", "none"), 1, 2_002)


def test_a_last_line_needs_no_newline(tmp_path: Path) -> None:
    row = Bench(tmp_path).answer([HEAD, chunk(TEXT), chunk(DONE) + b"0\r\n\r\n"])
    assert (status(row), int(row["server_eval_ns"])) == (("ok", "none"), NS[3])


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (b"", ("truncated", "no_done")),
        (b'{"model":"m","message":{"content":""},"done_reason":"stop","done":false}\n', ("truncated", "no_done")),
        (
            b'{"model":"m","message":{"content":""},"done_reason":"aborted","done":true}\n',
            ("stream_error", "finish_reason"),
        ),
        (b'{"model":"m","done":true}\n', ("ok", "none")),
        (b'{"error":"the runner died"}\n', ("stream_error", "event")),
        (b'{"model":"m","message":[]}\n', ("protocol_error", "bad_event")),
    ],
)
def test_how_a_stream_ends_is_its_status(tmp_path: Path, last: bytes, expected: tuple[str, str]) -> None:
    reads = [HEAD, chunk(TEXT), (chunk(last) if last else b"") + b"0\r\n\r\n"]
    assert status(Bench(tmp_path).answer(reads)) == expected


def whole(body: dict[str, Any] | bytes, code: str = "200 OK") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {code}\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    return head.encode() + data


@pytest.mark.parametrize(
    ("dialect", "answer", "expected"),
    [
        (GENERATE, whole({"response": "All of it.", "done": True, "done_reason": "stop"}), ("ok", "none")),
        (GENERATE, whole({"model": "m", "response": "Half of", "done": False}), ("truncated", "no_done")),
        (GENERATE, whole({"model": "m", "response": "", "done": True, "done_reason": "load"}), ("empty", "none")),
        (CHAT, whole({"error": "model is busy"}), ("stream_error", "event")),
        (CHAT, whole({"error": "model 'x' not found"}, "404 Not Found"), ("http_error", "http_status")),
        (CHAT, whole({"error": "server busy"}, "503 Service Unavailable"), ("http_error", "http_status")),
    ],
)  # fmt: skip
def test_whole_answers(tmp_path: Path, dialect: int, answer: bytes, expected: tuple[str, str]) -> None:
    assert status(Bench(tmp_path, dialect).answer([answer])) == expected


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(1, 600), max_size=5))
def test_any_split_of_a_response_leaves_the_same_row(tmp_path_factory: pytest.TempPathFactory, cuts: list[int]) -> None:
    data = HEAD + chunk(TEXT) + chunk(TEXT + DONE[:40]) + chunk(DONE[40:] + b"\n") + b"0\r\n\r\n"
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    row = Bench(tmp_path_factory.mktemp("split")).answer([data[a:b] for a, b in itertools.pairwise(places)])
    names = ("content_events", "events", "completion_tokens", "server_total_ns", "server_eval_ns")
    assert [int(row[name]) for name in names] == [2, 3, 282, NS[0], NS[3]]
    assert status(row) == ("ok", "none")
