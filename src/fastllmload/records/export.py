"""Rows of a run for other programs: one JSON object per request, or CSV of the same keys without the token lists."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import IO, Any

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.records.timeline import on_timeline
from fastllmload.records.token_counts import SOURCES, TokenCounts, count_tokens

TIMES = ("t_sched", "t_dispatch", "t_submit", "t_headers", "t_any", "t_first", "t_last", "t_end")
SERVER_SAID = ("total", "load", "prompt_eval", "eval")  # durations of an Ollama server's own clock
SCALARS = (
    "request_id",
    "session_id",
    "turn",
    "class",
    "worker",
    "url",
    *(f"{name}_ns" for name in TIMES),
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
    *(f"server_{name}_ns" for name in SERVER_SAID),
)
LISTS = ("token_ns", "token_counts", "read_ids")


class RowNames:
    """Texts that the manifest has for numbers in rows: the run's id, the targets, the classes of requests."""

    def __init__(self, manifest: dict[str, Any]) -> None:
        run_id = manifest.get("run_id")
        self.prefix = f"{run_id}-" if run_id is not None else ""
        self.urls = manifest.get("config", {}).get("target", {}).get("urls") or []
        self.classes = manifest.get("plan", {}).get("classes") or []
        self.numbers = {layout.PHASE_NAMES.index(phase["name"]): phase["number"] for phase in manifest.get("phases", ())}

    def request_id(self, row: np.void) -> str:
        """What the server saw as X-Request-Id, when the run has an id: run, phase, request."""
        return f"{self.prefix}{self.numbers.get(int(row['phase']), int(row['phase']))}-{row['request']}"

    def url(self, number: int) -> str | int:
        return str(self.urls[number]) if number < len(self.urls) else number

    def request_class(self, number: int) -> str | int:
        return str(self.classes[number]) if number < len(self.classes) else number


def error_of(row: np.void) -> str | None:
    """Name of the error class; None when there was none."""
    return layout.ERROR_NAMES[row["error"]] if row["error"] else None


def scalars(names: RowNames, row: np.void, tokens: TokenCounts, number: int) -> dict[str, Any]:
    """All keys of a request but its token lists, in the contract's order; null where something did not happen."""
    happened = int(row["t_submit"]) > 0
    return {
        "request_id": names.request_id(row),
        "session_id": int(row["session"]),
        "turn": int(row["turn"]),
        "class": names.request_class(int(row["request_class"])),
        "worker": int(row["worker"]),
        "url": names.url(int(row["url"])),
        **{f"{name}_ns": int(row[name]) or None for name in TIMES},
        "status": layout.STATUS_NAMES[row["status"]],
        "http_status": int(row["http_status"]) or None,
        "error": error_of(row),
        "input_tokens": int(tokens.input[number]),
        "output_tokens": int(tokens.output[number]),
        "reasoning_tokens": int(tokens.reasoning[number]),
        "cached_tokens": int(row["cached_tokens"]) if row["cached_tokens"] >= 0 else None,
        "output_tokens_source": SOURCES[tokens.source[number]],
        "bytes_sent": int(row["bytes_sent"]),
        "bytes_received": int(row["bytes_received"]),
        "connection_reused": bool(row["flags"] & layout.FLAG_REUSED) if happened else None,
        "finish_reason": layout.FINISH_NAMES[row["finish"]] if row["finish"] else None,
        "timestamp_source": layout.STAMP_NAMES[row["stamps"]] if row["t_first"] else None,
        **{f"server_{name}_ns": int(row[f"server_{name}_ns"]) or None for name in SERVER_SAID},
    }


def token_lists(run: Run, timed: npt.NDArray[np.bool_], number: int) -> dict[str, Any]:
    """One entry per event of the content timeline: its time, its tokens (null: not said), its read in this request."""
    part = slice(int(run.first_event[number]), int(run.first_event[number + 1]))
    chosen = timed[part]
    reads = np.cumsum((run.event_stamp[part] & layout.STAMP_SAME_READ) == 0)
    return {
        "token_ns": run.event_t[part][chosen].tolist(),
        "token_counts": [count or None for count in run.event_tokens[part][chosen].tolist()],
        "read_ids": reads[chosen].tolist(),
    }


def records(run: Run) -> Iterator[dict[str, Any]]:
    """One object per request, by phase and request."""
    names = RowNames(run.manifest)
    tokens = count_tokens(run)
    timed = on_timeline(run)
    for number, row in enumerate(run.rows):
        yield {**scalars(names, row, tokens, number), **token_lists(run, timed, number)}


def export_jsonl(run: Run, stream: IO[bytes]) -> None:
    """Write one JSON object and a newline per request."""
    encoder = msgspec.json.Encoder()
    for record in records(run):
        stream.write(encoder.encode(record))
        stream.write(b"\n")


def export_csv(run: Run, stream: IO[str]) -> None:
    """Write a header line and one line per request; what did not happen is an empty cell."""
    names = RowNames(run.manifest)
    tokens = count_tokens(run)
    writer = csv.DictWriter(stream, SCALARS, lineterminator="\n")
    writer.writeheader()
    for number, row in enumerate(run.rows):
        writer.writerow(scalars(names, row, tokens, number))
