"""The columns of the request export: values, null masks and the names of enumerated values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.arrays import Mask
from fastllmload.metrics.run.per_backend import Backends, backends_of_rows
from fastllmload.metrics.run.per_model import models_of_rows
from fastllmload.metrics.tokens.counts import SOURCES, UNKNOWN, TokenCounts, answers_tokens, count_tokens
from fastllmload.metrics.tokens.timeline import BEARING, on_timeline, stated_tokens, stretches
from fastllmload.metrics.tokens.times import token_times
from fastllmload.records import layout
from fastllmload.records.hosts import positions
from fastllmload.records.run import RowNames, Run

TIMES = ("t_sched", "t_dispatch", "t_submit", "t_headers", "t_any", "t_first", "t_last", "t_end")
SERVER_DURATIONS = ("total", "load", "prompt_eval", "eval")  # durations of an Ollama server's own clock
LISTS = ("token_ns", "token_counts", "read_ids", "untimed_ns", "untimed_counts")
AT_ONCE = 4096  # requests per block
EVENTS_AT_ONCE = 1 << 17  # events per block, where lists of events are exported
Values = npt.NDArray[Any]


@dataclass(frozen=True)
class ExportColumn:
    """One value per row; null where *null* is true. With *names*, a value is an index into them."""

    values: Values
    null: Mask | None = None
    names: Sequence[Any] | None = None

    def to_list(self) -> list[Any]:
        """Python values, None for null."""
        found: list[Any] = self.values.tolist()
        if self.names is not None:
            found = [self.names[value] for value in found]
        for index in () if self.null is None else np.flatnonzero(self.null).tolist():
            found[index] = None
        return found


Rows = Values
Make = Callable[[Rows, "Source", slice], ExportColumn]


@dataclass(frozen=True)
class Source:
    """The input of the columns: names of the run, token counts, and which rows have all of their events."""

    names: RowNames
    tokens: TokenCounts
    complete: Mask
    of_tokens: Mask  # answers of each row are tokens
    models: npt.NDArray[np.int64] | None = None  # of each row; None: not known
    model_names: Sequence[str] = ()
    backends: Backends | None = None  # None: not asked which server answers


def plain(name: str) -> Make:
    return lambda rows, source, part: ExportColumn(rows[name])


def unless(name: str, absent: int) -> Make:
    return lambda rows, source, part: ExportColumn(rows[name], rows[name] == absent)


def named(name: str, names: Sequence[str], absent: int | None = None) -> Make:
    return lambda rows, source, part: ExportColumn(rows[name], None if absent is None else rows[name] == absent, names)


def counted(name: str, names: Sequence[Any] | None = None) -> Make:
    return lambda rows, source, part: ExportColumn(getattr(source.tokens, name)[part], None, names)


def of_answer(name: str) -> Make:
    """Null where answers have no tokens."""
    return lambda rows, source, part: ExportColumn(getattr(source.tokens, name)[part], ~source.of_tokens[part])


def numbered(numbers: Values, names: Callable[[int], Sequence[Any]]) -> ExportColumn:
    return ExportColumn(numbers, None, names(int(numbers.max(initial=0))))


def _timed(rows: Rows, source: Source, part: slice) -> ExportColumn:
    """Tokens on the content timeline, the n of TPOT; null where they cannot be separated from reasoning tokens."""
    timed = source.tokens.timed[part]
    return ExportColumn(timed, (timed < 0) | ~source.complete[part] | ~source.of_tokens[part])


def _reasoning(rows: Rows, source: Source, part: slice) -> ExportColumn:
    """Null where reasoning was streamed and the server reports its tokens neither in its usage nor per event."""
    tokens = source.tokens.reasoning[part]
    unreported = (rows["reasoning_events"] > 0) & (rows["reasoning_tokens"] < 0) & (tokens == 0)
    return ExportColumn(tokens, unreported | ~source.of_tokens[part])


def _client(rows: Rows, source: Source, part: slice) -> ExportColumn:
    """Planned user behavior, names joined by +; null for a user who waits for the end."""
    bits = range(1 << len(layout.CLIENT_NAMES))
    names = ["+".join(name for at, name in enumerate(layout.CLIENT_NAMES) if bit >> at & 1) for bit in bits]
    return ExportColumn(rows["client"], rows["client"] == 0, names)


REQUEST_COLUMNS: dict[str, Make] = {  # in output order
    "request_id": lambda rows, source, _: ExportColumn(np.arange(len(rows)), None, source.names.request_ids(rows)),
    "session_id": plain("session"),
    "turn": plain("turn"),
    "class": lambda rows, source, _: numbered(rows["request_class"], source.names.class_names),
    "worker": plain("worker"),
    "url": lambda rows, source, _: numbered(rows["url"], source.names.url_names),
    **{f"{name}_ns": unless(name, 0) for name in TIMES},
    "status": named("status", layout.STATUS_NAMES),
    "http_status": unless("http_status", 0),
    "error": named("error", layout.ERROR_NAMES, 0),
    "input_tokens": counted("input"),
    "output_tokens": of_answer("output"),
    "reasoning_tokens": _reasoning,
    "cached_tokens": unless("cached_tokens", -1),
    "output_tokens_source": counted("source", SOURCES),
    "bytes_sent": plain("bytes_sent"),
    "bytes_received": plain("bytes_received"),
    "connection_reused": lambda rows, *_: ExportColumn((rows["flags"] & layout.FLAG_REUSED) > 0, rows["t_submit"] <= 0),
    "finish_reason": named("finish", layout.FINISH_NAMES, 0),
    "timestamp_source": lambda rows, *_: ExportColumn(rows["stamps"], rows["t_first"] == 0, layout.STAMP_NAMES),
    **{f"server_{name}_ns": unless(f"server_{name}_ns", 0) for name in SERVER_DURATIONS},
    "phase": named("phase", layout.PHASE_NAMES),
    "client": _client,
    "timed_tokens": _timed,
    "t_connected_ns": unless("t_connected", 0),
    "t_tls_ns": lambda rows, *_: ExportColumn(
        rows["t_connected"] + rows["tls_us"] * np.int64(1000), rows["tls_us"] == 0
    ),
    "streamed": lambda rows, *_: ExportColumn((rows["flags"] & layout.FLAG_STREAM) > 0, rows["t_headers"] == 0),
}


def _host(rows: Rows, source: Source, part: slice) -> ExportColumn:
    """The host of each request, by its worker; null for a worker of none."""
    at = positions(source.names.hosts, rows["worker"])
    return ExportColumn(np.maximum(at, 0), at < 0, source.names.host_names())


def _model(rows: Rows, source: Source, part: slice) -> ExportColumn:
    """The model that each request names; null outside of the measurement."""
    numbers = np.full(len(rows), -1) if source.models is None else source.models[part]
    return ExportColumn(np.maximum(numbers, 0), numbers < 0, source.model_names)


def _backend(rows: Rows, source: Source, part: slice) -> ExportColumn:
    """The server of a router, as its answer says; null where it says none. `(other)`: one of too many names."""
    if source.backends is None:
        return ExportColumn(np.zeros(len(rows), np.int64), np.ones(len(rows), np.bool_), ("",))
    numbers = source.backends.of_row[part]
    return ExportColumn(np.maximum(numbers, 0), numbers < 0, [name or "(other)" for name in source.backends.names])


def columns_of(run: Run) -> dict[str, Make]:
    """REQUEST_COLUMNS, of a run over many hosts with the host, of one with several models with the model, of one that
    asked for it with the backend.
    """
    host = {"host": _host} if run.document.hosts else {}
    model = {"model": _model} if run.document.plan.description.models else {}
    backend = {} if run.document.config.target.backend_header is None else {"backend": _backend}
    return {**REQUEST_COLUMNS, **host, **model, **backend}


@dataclass(frozen=True)
class Block:
    """Columns of the rows *part* of a run; *tokens* are the token counts of the run."""

    part: slice
    tokens: TokenCounts
    columns: dict[str, ExportColumn]


def blocks(run: Run, at_once: int = AT_ONCE, events_at_once: int | None = None) -> Iterator[Block]:
    """All rows by phase and request, in blocks of at most *at_once* rows and about *events_at_once* events."""
    names = [str(one.name) for one in run.document.plan.description.models]
    source = Source(
        RowNames(run.document), count_tokens(run), run.complete_rows, answers_tokens(run),
        models_of_rows(run), names, backends_of_rows(run),
    )  # fmt: skip
    spans = [slice(0, len(run.rows))] if events_at_once is None else stretches(run.first_event, events_at_once)
    for begin, end in (
        (at, min(at + at_once, span.stop)) for span in spans for at in range(span.start, span.stop, at_once)
    ):
        part, rows = slice(begin, end), np.array(run.rows[begin:end])
        yield Block(part, source.tokens, {name: make(rows, source, part) for name, make in columns_of(run).items()})


def token_lists(run: Run, part: slice, tokens: TokenCounts) -> dict[str, list[list[Any] | None]]:
    """Per row, one entry per event with generated tokens: on the content timeline (`token_ns`, `token_counts`, `read_ids`)
    or off it (`untimed_ns`, `untimed_counts`). Unknown counts are null, and so are all lists where events are lost.
    """
    first = run.first_event[part.start : part.stop + 1]
    if run.elsewhere is not None:
        names = ("token_ns", "token_counts", "read_ids", "untimed_ns", "untimed_counts")
        return {name: [None] * (len(first) - 1) for name in names}
    events = slice(int(first[0]), int(first[-1]))
    timed = on_timeline(run, part)
    other = BEARING[run.event_kind[events]] & ~timed
    timed_ends, other_ends = (
        np.concatenate([[0], np.cumsum(mask)])[first - first[0]].tolist() for mask in (timed, other)
    )
    found = {
        "token_ns": split_at(run.event_t[events][timed].tolist(), timed_ends),
        "token_counts": split_at(with_nulls(known_counts(run, part, tokens)), timed_ends),
        "read_ids": split_at(read_numbers(run, part, first)[timed].tolist(), timed_ends),
        "untimed_ns": split_at(run.event_t[events][other].tolist(), other_ends),
        "untimed_counts": split_at(with_nulls(stated_tokens(run.event_tokens[events][other], UNKNOWN)), other_ends),
    }
    incomplete = set(np.flatnonzero(~run.complete_rows[part]).tolist())
    return {name: [None if k in incomplete else each for k, each in enumerate(lists)] for name, lists in found.items()}


def known_counts(run: Run, part: slice, tokens: TokenCounts) -> npt.NDArray[np.int64]:
    """Tokens of each timed event of the rows in *part*, UNKNOWN where a chunk is only assumed to carry one."""
    chosen = np.zeros(len(run.rows), np.bool_)
    chosen[part] = True
    times = token_times(run, chosen, tokens)
    stated = stated_tokens(times.chunks.tokens, UNKNOWN)
    counts = np.ones(len(stated), np.int64) if times.sizes is None else times.sizes.astype(np.int64)
    return np.where(np.repeat(times.known(), times.chunks.events), counts, stated)


def with_nulls(tokens: npt.NDArray[np.int64]) -> list[int | None]:
    return ExportColumn(tokens, tokens == UNKNOWN).to_list()


def read_numbers(run: Run, part: slice, first: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Number of the read, from 1 in each request, that brought each event of the rows in *part*."""
    new_read = (run.event_stamp[int(first[0]) : int(first[-1])] & layout.STAMP_SAME_READ) == 0
    running = np.concatenate([[0], np.cumsum(new_read)])
    before = np.repeat(running[first[:-1] - first[0]], np.diff(first))
    numbers: npt.NDArray[np.int64] = running[1:] - before
    return numbers


def split_at(items: list[Any], borders: list[int]) -> list[list[Any]]:
    return [items[begin:end] for begin, end in pairwise(borders)]
