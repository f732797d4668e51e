"""Builds the content timeline: the events of a request that carry content tokens (spec/metrics 3.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastllmload._ext.measure import tokenline
from fastllmload.arrays import Mask, Numbers
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.records.scratch import room
from fastllmload.records.worker_files import as_bytes

AT_ONCE = 1 << 17  # events

# Kinds on the timeline, by kind number; whitespace is on it only after the first content.
ALWAYS = np.zeros(256, np.bool_)
ALWAYS[[layout.EVENT_CONTENT, layout.EVENT_TOOL, layout.EVENT_REFUSAL]] = True

# Kinds that carry generated tokens, on the timeline or not.
BEARING = ALWAYS.copy()
BEARING[[layout.EVENT_WHITESPACE, layout.EVENT_REASONING]] = True


def stated_tokens(tokens: npt.NDArray[np.uint16], unreported: int) -> Numbers:
    """Tokens of each event by the server, else *unreported*; *tokens*: `Run.event_tokens` or a part of it."""
    found = tokens.astype(np.int64)
    return np.where(found == 0, unreported, np.where(found == layout.TOKENS_NONE, 0, found))


def on_timeline(run: Run, part: slice | None = None) -> Mask:
    """One item per event of the run, or of its rows *part*: whether it is on its request's content timeline."""
    first = run.first_event if part is None else run.first_event[part.start : part.stop + 1]
    kinds = run.event_kind[int(first[0]) : int(first[-1])]
    mask = ALWAYS[kinds]
    white = np.flatnonzero(kinds == layout.EVENT_WHITESPACE)
    if len(white):
        # Content events before each event of the run; a whitespace event with one before it in its row is timed.
        before = np.concatenate([[0], np.cumsum(mask)])
        row_start = run.first_event[run.events["row"][white + first[0]]] - first[0]
        mask[white] = before[white] > before[row_start]
    return mask


def stretches(first: Numbers, at_once: int) -> Iterator[slice]:
    """All rows in parts of about *at_once* events and at least one row; row r has the events `first[r]:first[r + 1]`."""
    start, rows = 0, len(first) - 1
    while start < rows:
        stop = max(start + 1, int(np.searchsorted(first, first[start] + at_once, side="right")) - 1)
        yield slice(start, min(stop, rows))
        start = stop


def of_kind(run: Run, kind: int) -> Numbers:
    """Positions of the events of this *kind*."""
    kinds = run.event_kind
    found = [begin + np.flatnonzero(kinds[begin : begin + AT_ONCE] == kind) for begin in range(0, len(kinds), AT_ONCE)]
    return np.concatenate([np.empty(0, np.int64), *found])


@dataclass(frozen=True)
class Timeline:
    """Timed events (chunks) of chosen requests: request k has items `first[k]:first[k + 1]` of the others.

    *rows*: row numbers of the chosen requests; *t_ns*: CLOCK_MONOTONIC ns; *tokens*: tokens per event as the server reports
    them, 0 = it does not, `layout.TOKENS_NONE` = none.
    """

    rows: Numbers
    first: Numbers
    t_ns: Numbers
    tokens: npt.NDArray[np.uint16]

    @property
    def events(self) -> Numbers:
        return np.diff(self.first)


def timeline(run: Run, chosen: Mask) -> Timeline:
    """The content timelines of the rows where *chosen* is true."""
    rows = np.flatnonzero(chosen)
    first = np.zeros(len(rows) + 1, np.int64)
    events, picked = as_bytes(run.events), chosen.view(np.uint8)
    tokenline.count_timed(events, run.first_event, picked, first)
    n, folder = int(first[-1]), run.directory
    t_ns, tokens = room(n, np.int64, folder), room(n, np.uint16, folder)
    tokenline.take_timed(events, run.first_event, picked, t_ns, tokens)
    return Timeline(rows, first, t_ns, tokens)
