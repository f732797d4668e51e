"""Writes run folders with made-up requests through the real recorder, for tests of records, metrics and reports.

Everything is drawn from a seed. Times are CLOCK_MONOTONIC-like ns that begin at ORIGIN_NS.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fastllmload._ext.record.recorder import Recorder
from fastllmload.records import layout

ORIGIN_NS = 5_000_000_000_000
MS = 1_000_000
KIND = {name: number for number, name in enumerate(layout.EVENT_NAMES)}


@dataclass
class Request:
    """Fields of one row, its events (t_ns, kind, stamp, tokens) and its escaped text, all in ns and row terms."""

    fields: dict[str, int]
    events: list[tuple[int, int, int, int]] = field(default_factory=list)
    text: list[tuple[int, bytes]] = field(default_factory=list)


@dataclass(frozen=True)
class Shape:
    """What kind of requests to draw."""

    requests: int = 200
    rate: float = 50.0
    tokens_per_event: int = 1
    say_tokens: bool = False  # the server reports how many tokens an event carries
    usage: bool = True
    text: bool = False
    failures: float = 0.15


def ns(ms: float) -> int:
    return round(ms * MS)


def draw_request(rng: np.random.Generator, shape: Shape, number: int, t_sched: int, phase: int) -> Request:
    """One request: role, maybe leading whitespace, maybe reasoning, content, finish, usage, [DONE]."""
    t_dispatch = t_sched + ns(rng.exponential(0.05))
    t_submit = t_dispatch + ns(rng.exponential(0.2)) + 1000
    t_headers = t_submit + ns(rng.gamma(4, 5))
    fields = {
        "request": number,
        "session": number,
        "phase": phase,
        "t_sched": t_sched,
        "t_dispatch": t_dispatch,
        "t_submit_start": t_submit - 500,
        "t_submit": t_submit,
        "t_headers": t_headers,
        "input_target": int(rng.integers(10, 400)),
        "output_target": 64,
        "http_status": 200,
        "retry_after_ms": -1,
        "prompt_tokens": -1,
        "completion_tokens": -1,
        "reasoning_tokens": -1,
        "cached_tokens": -1,
        "bytes_sent": 900,
        "bytes_received": 5000,
        "request_class": int(rng.integers(0, 3)),
        "flags": layout.FLAG_STREAM | layout.FLAG_DONE | (layout.FLAG_REUSED if rng.random() < 0.8 else 0),
    }
    request = Request(fields)
    t = t_headers
    request.events.append((t, KIND["role"], 1, 0))
    counts = {"content": 0, "reasoning": 0, "whitespace": 0}

    def emit(kind: str, tokens: int, text: bytes, late: float) -> None:
        nonlocal t
        same_read = rng.random() < 0.05 and len(request.events) > 1
        t = t if same_read else t + ns(rng.exponential(late)) + 1
        request.events.append((t, KIND[kind], 1 | (4 if same_read else 0), tokens if shape.say_tokens else 0))
        counts[kind] += tokens
        fields.setdefault("t_any", t)
        if kind == "content":
            fields.setdefault("t_first", t)
            fields["t_last"] = t
        fields["text_bytes"] = fields.get("text_bytes", 0) + len(text)
        if shape.text and kind != "reasoning":
            request.text.append((t, text))

    for _ in range(int(rng.integers(0, 3))):
        emit("whitespace", 1, b"\\n", 30)
    for _ in range(int(rng.integers(1, 5)) if rng.random() < 0.3 else 0):
        emit("reasoning", shape.tokens_per_event, b" hm", 10)
    for _ in range(int(rng.integers(1, 30)) if rng.random() > 0.03 else 0):
        tokens = int(rng.integers(1, shape.tokens_per_event + 1))
        emit("content", tokens, b" w\\u00f6rd" * tokens, 15)
    request.events.append((t, KIND["finish"], 5, 0))
    t += ns(rng.exponential(1))
    if shape.usage:
        request.events.append((t, KIND["usage"], 1, 0))
        fields["prompt_tokens"] = fields["input_target"] + 4
        fields["completion_tokens"] = sum(counts.values())
        fields["reasoning_tokens"] = counts["reasoning"]
    fields["t_end"] = fields["t_end_user"] = t + 1000
    fields["finish"] = layout.FINISH_NAMES.index("stop")
    fields["status"] = layout.OK if "t_first" in fields else layout.EMPTY
    fields["events"] = len(request.events)
    kinds = [kind for _, kind, _, _ in request.events]
    fields["content_events"] = kinds.count(KIND["content"])
    fields["reasoning_events"] = kinds.count(KIND["reasoning"])
    fields["leading_events"] = kinds.count(KIND["whitespace"])
    if rng.random() < shape.failures:
        break_request(rng, request)
    return request


def break_request(rng: np.random.Generator, request: Request) -> None:
    """Make it fail: refused at the connection, answered with an error status, or cut in the middle of its stream."""
    fields = request.fields
    how = int(rng.integers(0, 4))
    times = ("t_headers", "t_any", "t_first", "t_last")
    counts = ("events", "content_events", "reasoning_events", "leading_events", "text_bytes", "finish")
    if how < 2:
        for name in times + counts:
            fields.pop(name, None)
        request.events, request.text = [], []
        fields["completion_tokens"] = fields["reasoning_tokens"] = fields["prompt_tokens"] = -1
        fields["t_end"] = fields["t_submit"] + ns(3)
    if how == 0:
        fields.update(t_submit=0, http_status=0, status=layout.CONNECTION_ERROR, error=1)
    elif how == 1:
        fields.update(t_headers=fields["t_end"] - 5, http_status=503, status=layout.HTTP_ERROR, error=21)
    elif how == 2:
        fields.update(status=layout.TRUNCATED, error=layout.ERROR_NAMES.index("closed_in_body"))
    else:
        fields.update(status=layout.TIMEOUT, error=layout.ERROR_NAMES.index("deadline"))


def draw_requests(seed: int, shape: Shape, start_ns: int = ORIGIN_NS, phase: int = layout.MEASURE) -> list[Request]:
    """Poisson arrivals from *start_ns*."""
    rng = np.random.default_rng(seed)
    t_sched = start_ns + np.cumsum(rng.exponential(1e9 / shape.rate, shape.requests)).astype(np.int64)
    return [draw_request(rng, shape, i, int(t), phase) for i, t in enumerate(t_sched)]


def write_workers(directory: Path, requests: list[Request], workers: int = 1, text: bool = False) -> None:
    """workers/<w>/…: request i belongs to worker i mod *workers*; records in the order of their times."""
    for w in range(workers):
        folder = directory / "workers" / str(w)
        folder.mkdir(parents=True)
        recorder = Recorder(folder, text=text)
        steps: list[tuple[int, int, int, Any]] = []
        for i, request in enumerate(requests):
            if request.fields["request"] % workers == w:
                steps.append((request.fields["t_dispatch"], 0, i, None))
                steps.extend((event[0], 1, i, event) for event in request.events)
                steps.extend((t, 2, i, text_) for t, text_ in request.text)
        rows = {}
        for _, what, i, value in sorted(steps, key=lambda step: step[:3]):
            if what == 0:
                rows[i] = recorder.add_row(**{**requests[i].fields, "worker": w})
            elif what == 1:
                recorder.add_event(value[0], rows[i], *value[1:])
            else:
                recorder.add_text(rows[i], value)
        recorder.close()


def write_manifest(directory: Path, status: str = "done", phases: list[dict[str, Any]] | None = None) -> None:
    """run.json with what readers of rows need."""
    manifest = {"schema_version": 1, "status": status, "phases": phases or []}
    (directory / "run.json").write_text(json.dumps(manifest))


def duration_phase(start_ns: int, seconds: float, ramp_share: float = 0.1) -> dict[str, Any]:
    """The manifest's entry of a measure phase that was bounded by time."""
    return {
        "name": "measure",
        "number": 1,
        "start_ns": start_ns,
        "end_ns": start_ns + round(seconds * 1e9),
        "bound": "duration",
        "ramp_share": ramp_share,
    }
