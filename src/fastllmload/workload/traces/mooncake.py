"""Mooncake traces: instants, lengths and ids of blocks of 512 tokens; also with sessions, whose rows can mean two things.

Rows of one `session_id` follow each other, `delay` ms after the end of the answer before. They are whole prompts, or
(AIPerf's reading) additions to the prompts before them: where each row begins with the ids of the row before it they are
whole, where none does they are additions, else the user has to say.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload.errors import InputError
from fastllmload.workload.calls import After, TracedCall, build_graph
from fastllmload.workload.graph import CallGraph
from fastllmload.workload.request import field_error
from fastllmload.workload.sharing.blocks import block_ids
from fastllmload.workload.traces.recorded import overlap_notes
from fastllmload.workload.traces.trace_file import MILLISECOND, TraceFile, time_ns, tokens

BLOCK = 512
EMPTY = "without a prompt or an answer"


class MooncakeRow(msgspec.Struct):
    """One line; times in ms."""

    output_length: int
    input_length: int | None = None
    hash_ids: list[int] | None = None
    timestamp: int | float | None = None
    created_time: int | float | None = None
    session_id: str | int | None = None
    delay: int | float | None = None
    delay_ms: int | float | None = None

    def at(self) -> float | None:
        return self.created_time if self.timestamp is None else self.timestamp

    def wait(self) -> float | None:
        return self.delay_ms if self.delay is None else self.delay

    def prompt_tokens(self, size: int, where: str) -> int:
        """As stated, else that of full blocks. InputError when neither is there."""
        if self.input_length is None and not self.hash_ids:
            raise field_error(f"{where}: it has neither input_length nor hash_ids; add one of them")
        stated = len(self.hash_ids or ()) * size if self.input_length is None else self.input_length
        return tokens(stated, where, "input_length")


class SessionName(msgspec.Struct):
    """What a line says of its session."""

    session_id: str | int | None = None


def has_sessions(file: TraceFile) -> bool:
    """Whether a row says which session it is of, also in a name with escapes. InputError where lines are not JSON."""
    if b"session_id" not in file.raw and b"\\u" not in file.raw:
        return False
    return any(row.session_id is not None for _, row in file.rows(SessionName))


def blocks_of(row: MooncakeRow, size: int, where: str) -> npt.NDArray[Any]:
    """Its ids, none where it has none. InputError when they do not cover the prompt, or are not 64-bit numbers."""
    ids = row.hash_ids or []
    if row.hash_ids is not None and row.input_length is not None and len(ids) * size < row.input_length:
        raise field_error(
            f"{where}: {len(ids)} hash_ids of {size} tokens do not cover input_length {row.input_length}; "
            "correct one of them"
        )
    if row.input_length is not None and (len(ids) - 1) * size >= row.input_length:
        raise field_error(
            f"{where}: {len(ids)} hash_ids of {size} tokens are more than its {row.input_length} tokens need; "
            "correct hash_ids or input_length"
        )
    return block_ids(ids, where)


def read(file: TraceFile) -> CallGraph:
    try:
        return _read(file, file.block_tokens or BLOCK, [])
    except InputError:
        size = None if file.block_tokens is not None else _other_size(file)
        if size is None:
            raise
    return _read(file, size, [f"blocks have {size} tokens, which all rows fit, and not {BLOCK}"])


def _other_size(file: TraceFile) -> int | None:
    """The smallest power of two that is the block size of all rows; None when there is none, and where BLOCK is one."""
    low, high, bounded = 1, 1 << 30, 0
    for _, row in file.rows(MooncakeRow):
        if row.hash_ids and row.input_length is not None and row.input_length > 0:
            many = len(row.hash_ids)
            low = max(low, -(-row.input_length // many))
            if many > 1:
                bounded += 1
                high = min(high, (row.input_length - 1) // (many - 1))
    size = 1 << (low - 1).bit_length()
    return size if bounded > 1 and size <= high and not low <= BLOCK <= high else None


def _read(file: TraceFile, size: int, notes: list[str]) -> CallGraph:
    rows: dict[str, list[TracedCall]] = {}
    plain, latest = True, -1
    left_out: Counter[str] = Counter()
    for number, (where, row) in enumerate(file.rows(MooncakeRow), 1):
        prompt, answer = row.prompt_tokens(size, where), tokens(row.output_length, where, "output_length")
        if prompt < 1 or answer < 1:
            left_out[EMPTY] += 1
            continue
        at, wait = row.at(), row.wait()
        start = None if at is None else time_ns(at, MILLISECOND, where, "timestamp")
        session = f"row-{number}" if row.session_id is None else f"{row.session_id}"
        turns = rows.setdefault(session, [])
        if row.session_id is None and start is not None:
            if start < latest:
                raise InputError(
                    "trace-unsorted",
                    f"{where}: timestamp {at:g} is earlier than {latest / MILLISECOND:g} before it; sort the file",
                )
            latest = start
        plain = plain and row.session_id is None
        call = TracedCall(
            f"{session}.{len(turns)}" if row.session_id is not None else session, where, session, prompt, answer
        )
        call.start_ns, call.blocks = start, blocks_of(row, size, where)
        call.wait_ns = -1 if wait is None else time_ns(wait, MILLISECOND, where, "delay")
        turns.append(call)
    calls = [call for turns in rows.values() for call in turns]
    gaps = sum(_follow(turns) for turns in rows.values())
    notes += overlap_notes(Counter(), gaps)
    if not plain:
        notes.append(_reading(file, rows, size))
    return build_graph(
        "mooncake",
        file.sha256,
        calls,
        block_tokens=size,
        scope=file.scope or "file",
        left_out=left_out,
        notes=notes,
        begins="timestamp",
    )


def _follow(turns: list[TracedCall]) -> int:
    """Set what each of *turns* waits for; returns how many waits had to be taken from instants of starts."""
    gaps = 0
    turns[0].wait_ns = 0
    for before, call in pairwise(turns):
        call.after = [After(before.id)]
        if call.wait_ns >= 0:
            continue
        call.wait_ns = 0
        if call.start_ns is None or before.start_ns is None:
            raise field_error(f"{call.where}: it has neither a delay nor a timestamp; add delay, in milliseconds")
        if call.start_ns < before.start_ns:
            raise InputError(
                "trace-unsorted",
                f"{call.where}: timestamp {call.start_ns / MILLISECOND:g} is earlier than the session's "
                f"{before.start_ns / MILLISECOND:g} before it; sort the file",
            )
        call.wait_ns = call.start_ns - before.start_ns
        gaps += 1
    return gaps


# -- whole prompts or additions ----------------------------------------------------------------------------------------


def _reading(file: TraceFile, sessions: dict[str, list[TracedCall]], size: int) -> str:
    """Make later rows additions if they are; the sentence that says which. InputError when it cannot be known."""
    pairs = [pair for turns in sessions.values() for pair in pairwise(turns)]
    reading, why = file.prompts, "as stated"
    if reading == "auto":
        reading, why = _detected(pairs, size)
    if reading == "delta":
        for before, call in pairs:
            call.context = before.id
        return f"rows of a session are additions to the prompts before them: {why}"
    return f"rows of a session are whole prompts: {why}"


def _detected(pairs: list[tuple[TracedCall, TracedCall]], size: int) -> tuple[str, str]:
    if not pairs:
        return "whole", "each session has one row"
    grown = sum(1 for before, call in pairs if _grows(before, call, size))
    apart = sum(1 for before, call in pairs if not _begins_alike(before, call))
    if grown and not apart:
        return "whole", f"{grown} of {len(pairs)} later rows begin with the blocks of the row before"
    if apart == len(pairs) and all(call.blocks is not None and len(call.blocks) for _, call in pairs):
        return "delta", f"none of {len(pairs)} later rows begins with the block that the row before begins with"
    raise InputError(
        "trace-prompts-ambiguous",
        f"{pairs[0][1].where}: rows of a session can be whole prompts or additions, and {grown} of {len(pairs)} later rows "
        "begin with the blocks of the row before; use --trace-prompts whole or --trace-prompts delta",
    )


def _grows(before: TracedCall, call: TracedCall, size: int) -> bool:
    """Whether *call* begins with all full blocks of *before*."""
    if before.blocks is None or call.blocks is None:
        return False
    full = before.blocks[: before.input // size]
    return len(full) > 0 and bool(np.array_equal(call.blocks[: len(full)], full))


def _begins_alike(before: TracedCall, call: TracedCall) -> bool:
    if before.blocks is None or call.blocks is None or not len(before.blocks) or not len(call.blocks):
        return False
    return bool(before.blocks[0] == call.blocks[0])
