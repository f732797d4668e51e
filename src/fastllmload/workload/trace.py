"""Traces: recorded instants and lengths of requests, and the blocks of text that they shared.

| name | file |
|---|---|
| azure | CSV `TIMESTAMP,ContextTokens,GeneratedTokens` (2023 and 2024) |
| burstgpt | CSV `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type`, seconds |
| mooncake | JSON lines `timestamp` (ms), `input_length`, `output_length`, `hash_ids` of blocks of 512 tokens or other |
| trace | CSV `timestamp,input,output`, seconds |

Rows without a prompt or an answer (failed requests in BurstGPT) are left out and counted.
"""

from __future__ import annotations

import csv
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload import quantities
from fastllmload.documents.plan import TraceFacts
from fastllmload.errors import InputError
from fastllmload.files import LARGEST_DATASET, read_bounded
from fastllmload.workload.dataset import MOST_TOKENS, check_uncompressed
from fastllmload.workload.instants import LATEST_S, moment
from fastllmload.workload.plain import LONGEST_FIELD
from fastllmload.workload.request import field_error
from fastllmload.workload.traces import mooncake
from fastllmload.workload.traces.trace_file import TraceFile

TRACES = ("azure", "burstgpt", "mooncake", "trace")
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Trace:
    """Requests in the order of their instants. *t_ns* int64 from the first one; *input*, *output* int64 tokens.

    *block* int64 ids of shared blocks of *block_tokens*, request i has `block[first[i]:first[i + 1]]`; None if the trace
    has no blocks.
    """

    name: str
    sha256: str
    t_ns: Numbers
    input: Numbers
    output: Numbers
    left_out: int = 0
    block: Numbers | None = None
    first: Numbers | None = None
    block_tokens: int = mooncake.BLOCK

    def __len__(self) -> int:
        return len(self.t_ns)

    def blocks_of(self, request: int) -> list[int]:
        """Block ids of a request; empty for a trace without blocks."""
        if self.block is None or self.first is None:
            return []
        return [int(one) for one in self.block[self.first[request] : self.first[request + 1]]]

    def part(self, start_s: float, end_s: float | None) -> Trace:
        """Requests in [*start_s*, *end_s*) of the trace, with time zero at *start_s*. InputError when there are none."""
        start = round(start_s * 1e9)
        low = int(np.searchsorted(self.t_ns, start))
        high = len(self) if end_s is None else int(np.searchsorted(self.t_ns, round(end_s * 1e9)))
        if low >= high:
            last = self.t_ns[-1] / 1e9
            end = "its end" if end_s is None else f"--trace-to {end_s:g} s"
            raise InputError(
                "schedule-empty",
                f"the trace has no request from --trace-from {start_s:g} s to {end}; it spans 0 to {last:g} s",
            )
        block, first = self.block, self.first
        if block is not None and first is not None:
            block, first = block[first[low] : first[high]], first[low : high + 1] - first[low]
        return replace(
            self, t_ns=self.t_ns[low:high] - start, input=self.input[low:high], output=self.output[low:high],
            block=block, first=first,
        )  # fmt: skip


def read_trace(name: str, path: Path) -> Trace:
    """The trace in *path*. InputError names file, line and cause."""
    try:
        raw = read_bounded(path, LARGEST_DATASET)
    except OSError as problem:
        raise InputError("file-unreadable", f"--dataset-path {path} cannot be read: {problem.strerror}") from None
    check_uncompressed(path, raw)
    sha256 = hashlib.sha256(raw).hexdigest()
    if name == "mooncake":
        return _read_mooncake(path, sha256, raw)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise InputError(
            "dataset-invalid", f"--dataset-path {path} is not text: byte {problem.start} is not UTF-8"
        ) from None
    lines = text.split("\n")  # not splitlines: a cell or JSON text may contain other line separators
    return _read_table(name, path, sha256, lines)


# -- CSV --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TraceColumns:
    """Header names of time, input and output, and how a time is written."""

    time: str
    input: str
    output: str
    ns: Callable[[str], int]


def _seconds(text: str) -> int:
    """A time, plain numbers in seconds, exact to the nanosecond."""
    ns = quantities.nanoseconds(text)
    if ns is None or ns < 0:
        raise ValueError(f"{text!r} is not a time in seconds")
    if ns > LATEST_S * 1_000_000_000:
        raise ValueError(f"time {text!r} is too large for seconds; write seconds")
    return ns


TABLES = {
    "azure": TraceColumns("TIMESTAMP", "ContextTokens", "GeneratedTokens", moment),
    "burstgpt": TraceColumns("Timestamp", "Request tokens", "Response tokens", _seconds),
    "trace": TraceColumns("timestamp", "input", "output", _seconds),
}


def _read_table(name: str, path: Path, sha256: str, lines: list[str]) -> Trace:
    columns = TABLES[name]
    rows: list[tuple[int, int, int]] = []
    left_out = 0
    csv.field_size_limit(LONGEST_FIELD)
    table = csv.reader(lines)
    header = [cell.strip() for cell in next(_rows(path, table), [])]
    where = [_column(path, header, wanted) for wanted in (columns.time, columns.input, columns.output)]
    for cells in _rows(path, table):
        if not cells:
            continue
        try:
            at, prompt, answer = (cells[column].strip() for column in where)
            row = columns.ns(at), _tokens(prompt), _tokens(answer)
        except IndexError:
            raise field_error(
                f"{path} line {table.line_num}: {len(cells)} values, the header has {len(header)}"
            ) from None
        except ValueError as problem:
            raise field_error(f"{path} line {table.line_num}: {problem}") from None
        if row[1] < 1 or row[2] < 1:
            left_out += 1
            continue
        if rows and row[0] < rows[-1][0]:
            raise InputError(
                "trace-unsorted",
                f"{path} line {table.line_num}: timestamp {at!r} is earlier than the previous line's; sort the file",
            )
        rows.append(row)
    return _trace(name, path, sha256, rows, left_out)


def _rows(path: Path, table: Any) -> Iterator[list[str]]:
    """The rows of a csv reader. InputError for invalid CSV."""
    try:
        yield from table
    except csv.Error as problem:
        raise InputError("dataset-invalid", f"{path} line {table.line_num} is not CSV: {problem}") from None


def _column(path: Path, header: list[str], wanted: str) -> int:
    lowered = [cell.lower() for cell in header]
    if wanted.lower() not in lowered:
        raise InputError(
            "dataset-invalid", f"{path} line 1: column {wanted!r} is missing; it has {', '.join(header) or 'nothing'}"
        )
    return lowered.index(wanted.lower())


def _tokens(text: str) -> int:
    try:
        number = float(text) if text else 0.0
        whole = int(number)
    except (ValueError, OverflowError):
        number, whole = math.nan, 0
    if number != whole or not 0 <= number <= MOST_TOKENS:
        raise ValueError(f"{text!r} is not a number of tokens from 0 to {MOST_TOKENS}")
    return whole


def _trace(name: str, path: Path, sha256: str, rows: list[tuple[int, int, int]], left_out: int) -> Trace:
    if not rows:
        raise InputError(
            "dataset-empty", f"--dataset-path {path} contains no request ({left_out} rows without prompt or answer)"
        )
    table = np.array(rows, np.int64)
    return Trace(name, sha256, table[:, 0] - table[0, 0], table[:, 1], table[:, 2], left_out)


# -- Mooncake ---------------------------------------------------------------------------------------------------------


def _read_mooncake(path: Path, sha256: str, raw: bytes) -> Trace:
    """The rows as `traces/mooncake.py` reads and checks them, each a session of one call."""
    graph = mooncake.read(TraceFile(path, raw, sha256))
    if graph.sessions < len(graph):
        raise InputError("dataset-invalid", f"--dataset-path {path}: rows have a session_id; read them as sessions")
    return Trace(
        "mooncake", sha256, graph.start_ns - graph.start_ns[0], graph.input, graph.output, sum(graph.left_out.values()),
        block=graph.block, first=graph.first_block, block_tokens=graph.block_tokens or mooncake.BLOCK,
    )  # fmt: skip


# -- prefix sharing ----------------------------------------------------------------------------------------------------


def prefix_hit_rate(trace: Trace) -> float | None:
    """Share of all prompt tokens in leading blocks that an unlimited prefix cache has seen; None without blocks."""
    if trace.block is None:
        return None
    seen: set[int] = set()
    found = sum(cached_tokens(trace, request, seen) for request in range(len(trace)))
    return found / float(trace.input.sum())


def cached_tokens(trace: Trace, request: int, seen: set[int]) -> int:
    """Tokens of *request*'s leading full blocks that are in *seen*; adds all its full blocks to *seen*."""
    full = trace.blocks_of(request)[: int(trace.input[request]) // trace.block_tokens]
    hits = next((n for n, one in enumerate(full) if one not in seen), len(full))
    seen.update(full)
    return hits * trace.block_tokens


def shared_tokens(trace: Trace) -> Numbers:
    """int64 tokens of each request's leading full blocks that other requests have too; 0 for a trace without blocks."""
    shared = np.zeros(len(trace), np.int64)
    if trace.block is None:
        return shared
    users: Counter[int] = Counter()
    full = [trace.blocks_of(n)[: int(tokens) // trace.block_tokens] for n, tokens in enumerate(trace.input)]
    for blocks in full:
        users.update(set(blocks))
    for request, blocks in enumerate(full):
        unshared = next((n for n, one in enumerate(blocks) if users[one] == 1), len(blocks))
        shared[request] = unshared * trace.block_tokens
    return shared


def rounds(instants: Numbers, speed: float) -> Iterator[npt.NDArray[np.float64]]:
    """The *instants* of a trace, int64 ns, as seconds at *speed*, repeated without end; a round ends one mean gap after its
    last one.
    """
    once = instants / 1e9 / speed
    length = float(once[-1]) + (float(once[-1]) / (len(once) - 1) if len(once) > 1 and once[-1] > 0 else 1.0)
    number = 0
    while True:
        yield once + number * length
        number += 1


def describe_trace(trace: Trace) -> TraceFacts:
    return TraceFacts(
        sha256=trace.sha256,
        rows=len(trace),
        left_out=trace.left_out,
        seconds=float(trace.t_ns[-1]) / 1e9,
        prefix_hit_rate=prefix_hit_rate(trace),
    )
