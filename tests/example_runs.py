"""Runs whose rows and events are those of the worked examples, for the tests of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from typed_documents import typed

from fastllmload.metrics.tokens.counts import TokenCounts, count_tokens
from fastllmload.metrics.tokens.times import TokenTimes, token_times
from fastllmload.records import layout
from fastllmload.records.run import Run

MS = 1_000_000
BASE = 1_000_000 * MS  # times of 0 mean "did not happen", so examples that begin at 0 are moved
KINDS = {
    "role": layout.EVENT_NAMES.index("role"),
    "ws": layout.EVENT_WHITESPACE,
    "reason": layout.EVENT_REASONING,
    "text": layout.EVENT_CONTENT,
}


def ns(ms: float) -> int:
    return BASE + round(ms * MS)


def run_of(requests: list[dict[str, Any]], manifest: dict[str, Any] | None = None) -> Run:
    """A run whose rows and events are those of *requests* (fields of kind "request"; "status" is ok by default)."""
    rows = np.zeros(len(requests), layout.REQUEST)
    events: list[tuple[int, int, int, int, int]] = []
    first = [0]
    for number, asked in enumerate(requests):
        row = rows[number]
        for name in ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens"):
            row[name] = -1
        row["phase"], row["status"], row["request"] = layout.MEASURE, asked.get("status", layout.OK), number
        row["request_class"] = asked.get("class", 0)
        row["t_sched"], row["t_dispatch"] = ns(asked["t_sched"]), ns(asked["t_dispatch"])
        row["t_submit"], row["t_headers"], row["t_end"] = (
            ns(asked["t_submit"]),
            ns(asked["headers"]),
            ns(asked["t_end"]),
        )
        row["completion_tokens"] = asked["output_tokens"]
        if "hidden_reasoning_tokens" in asked:
            row["reasoning_tokens"] = asked["hidden_reasoning_tokens"]
        for t, n, what in asked["chunks"]:
            events.append((ns(t), number, KINDS[what], 1, n, 0, 0))
            count(row, ns(t), what)
        first.append(len(events))
    made = np.array(events, layout.EVENT) if events else np.empty(0, layout.EVENT)
    return Run(Path("."), typed(manifest or {}), rows, made, np.array(first, np.int64))


def count(row: Any, t: int, what: str) -> None:
    """What the client keeps of one event on its row."""
    if what == "role":
        return
    if row["t_any"] == 0:
        row["t_any"] = t
    if row["t_first"] == 0:
        row["t_last"] = t
    if what == "reason":
        row["reasoning_events"] += 1
    elif what == "ws" and row["t_first"] == 0:
        row["leading_events"] += 1
    else:
        row["t_first"] = row["t_first"] or t
        row["t_last"] = t
        row["content_events"] += 1


def streamed(token_ms: list[float], ok: bool = True, ended: float | None = None, **more: Any) -> dict[str, Any]:
    """One request that was sent at 0 and got one token at each of *token_ms*; not *ok*: it broke at *ended*."""
    end = ended if ended is not None else (token_ms[-1] if token_ms else 0.0)
    return {"t_sched": 0, "t_dispatch": 0, "t_submit": 0, "headers": 0, "chunks": [[t, 1, "text"] for t in token_ms],
            "t_end": end, "output_tokens": len(token_ms),
            "status": layout.OK if ok else layout.TRUNCATED, **more}  # fmt: skip


def timed(run: Run) -> tuple[TokenCounts, TokenTimes]:
    """Token counts and token times of all rows."""
    tokens = count_tokens(run)
    return tokens, token_times(run, np.ones(len(run.rows), bool), tokens)
