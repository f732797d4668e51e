"""Reads all events of a run in one pass, in blocks: tokens over time, gaps in buckets, lateness against a reader.

Time grows with the number of tokens; memory does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.tokens.counts import answers_tokens
from fastllmload.metrics.tokens.idle import Reader
from fastllmload.metrics.tokens.timeline import BEARING, Timeline, stated_tokens, stretches, timeline
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.report.series.axis import Floats, TimeAxis, Times
from fastllmload.report.series.curves import BUCKETS, bucket_of

Mask = npt.NDArray[np.bool_]

EVENTS_AT_ONCE = 1 << 19


@dataclass(frozen=True)
class TokenSeries:
    """*chunks_s*: token-bearing events per second of all measured requests whose answers are tokens; *tokens_s*: output
    tokens per second of the successful ones, None when the server did not report their number. Both float64[bins] of the
    axis.

    *gap_counts*: int64[bins, BUCKETS] of the coarser *gap_axis*, by the time of the gap's end. *late_ns*, *pause_ns*:
    per row of the run `lateness` (above 0: how long the reader waits in total) and the longest gap, NaN without one.
    """

    chunks_s: Floats
    tokens_s: Floats | None
    gap_axis: TimeAxis
    gap_counts: Times
    late_ns: Floats
    pause_ns: Floats


def token_series(run: Run, axis: TimeAxis, latency: Mask, within_chunks: bool, reader: Reader) -> TokenSeries:
    """*latency*: rows whose gaps count (metrics.run.window.populations). *within_chunks*: tokens of one chunk have gaps of
    0 between them (IETF B.2.1, direct and option B); else gaps are those between chunks (option A).
    """
    measured = (run.rows["phase"] == layout.MEASURE) & answers_tokens(run)
    ok = measured & (run.rows["status"] == layout.OK)
    counted = bool(ok.any()) and bool((run.rows["completion_tokens"][ok] >= 0).all())
    gap_axis = axis.coarser(int(run.rows["content_events"][latency].sum()), 200)
    chunks, tokens = np.zeros(axis.bins), np.zeros(axis.bins)
    gap_counts = np.zeros(gap_axis.bins * BUCKETS, np.int64)
    late, pause = np.full(len(run.rows), np.nan), np.full(len(run.rows), np.nan)
    for rows, part in slices(run):
        add_tokens(part, axis, measured[rows], ok[rows] & counted, chunks, tokens)
        line = timeline(part, measured[rows])
        number = np.arange(rows.start, rows.stop)[measured[rows]]
        late[number] = lateness(part, line, reader)
        pause[number] = add_gaps(gap_axis, line, latency[number], within_chunks, gap_counts)
    return TokenSeries(
        chunks / axis.width_s,
        tokens / axis.width_s if counted else None,
        gap_axis,
        gap_counts.reshape(gap_axis.bins, BUCKETS),
        late,
        pause,
    )


def slices(run: Run, at_once: int = EVENTS_AT_ONCE) -> Iterator[tuple[slice, Run]]:
    """The run in blocks of complete requests with about *at_once* events each, with the rows of each block."""
    for part in stretches(run.first_event, at_once):
        yield part, rows_of(run, part.start, part.stop)


def rows_of(run: Run, start: int, stop: int) -> Run:
    """A run with only these rows; its events are copied."""
    first = run.first_event[start : stop + 1]
    events = np.array(run.events[int(first[0]) : int(first[-1])])
    events["row"] -= np.uint32(start)
    return replace(run, rows=run.rows[start:stop], events=events, first_event=first - first[0])


def add_tokens(part: Run, axis: TimeAxis, measured: Mask, ok: Mask, chunks: Floats, tokens: Floats) -> None:
    """Add the tokens of each request, distributed over its events as the server reports, else evenly."""
    row = part.events["row"]
    bearing = BEARING[part.event_kind]
    if not measured.all():
        bearing &= measured[row]
    row, where = row[bearing], axis.bin_of(part.event_t[bearing])
    chunks += np.bincount(where, minlength=axis.bins)
    if not ok.any():
        return
    weight = stated_tokens(part.event_tokens[bearing], 1).astype(np.float64)
    total = np.bincount(row, weight, len(part.rows))
    output = np.where(ok, part.rows["completion_tokens"], 0)
    share = np.where(total > 0, output / np.maximum(total, 1), 0.0)
    tokens += np.bincount(where, weight * share[row], axis.bins)


def lateness(part: Run, line: Timeline, reader: Reader) -> Floats:
    """ns by which each request missed its deadlines at most, max(t_i - d_i); negative when all tokens were early, NaN
    without a token. All tokens of a chunk arrive with it, so its first token is the latest against its deadline.
    """
    submitted = part.rows["t_submit"][line.rows]
    tokens = np.maximum(line.tokens, 1).astype(np.int64)
    before = np.cumsum(tokens) - tokens
    some = line.events > 0
    start = np.zeros(len(line.rows), np.int64)
    start[some] = before[line.first[:-1][some]]
    first_due = submitted + reader.first_ns - start * reader.per_token_ns
    due = np.repeat(first_due, line.events) + before * reader.per_token_ns
    return np.where(submitted > 0, greatest(line.t_ns - due, line.first), np.nan)


def greatest(values: Times, first: Times) -> Floats:
    """The maximum of `values[first[k]:first[k + 1]]` for each k, NaN for an empty range."""
    found = np.full(len(first) - 1, np.nan)
    some = np.diff(first) > 0
    if some.any():
        found[some] = np.maximum.reduceat(values, first[:-1][some])
    return found


def add_gaps(axis: TimeAxis, line: Timeline, chosen: Mask, within_chunks: bool, counts: Times) -> Floats:
    """Count the gaps of the *chosen* requests of *line* by the bin of their end and their bucket.

    Returns the longest gap of every request of *line* in ns, NaN where it has none.
    """
    later = np.ones(len(line.t_ns), np.bool_)
    later[line.first[:-1][line.events > 0]] = False
    ns = np.diff(line.t_ns, prepend=line.t_ns[:1])[later]
    per_request = np.maximum(line.events - 1, 0)
    kept = np.repeat(chosen, per_request)
    where = axis.bin_of(line.t_ns[later][kept]) * BUCKETS + bucket_of(ns[kept])
    counts += np.bincount(where, minlength=len(counts))
    if within_chunks:
        inside = np.where(np.repeat(chosen, line.events), np.maximum(line.tokens, 1) - 1, 0)
        added = np.bincount(axis.bin_of(line.t_ns), inside, axis.bins)
        counts[::BUCKETS] += added.astype(np.int64)
    return greatest(ns, np.concatenate([[0], np.cumsum(per_request)]))
