"""The content timeline: those events of a request that carry content tokens (metrics.md 3.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastllmload.records import layout
from fastllmload.records.run import Run

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# Kinds on the timeline, by kind number; whitespace is on it only behind the first content.
ALWAYS = np.zeros(256, np.bool_)
ALWAYS[[layout.EVENT_CONTENT, layout.EVENT_TOOL, layout.EVENT_REFUSAL]] = True


def on_timeline(run: Run) -> Mask:
    """One item per event of the run: whether it is on its request's content timeline."""
    mask = ALWAYS[run.event_kind]
    white = np.flatnonzero(run.event_kind == layout.EVENT_WHITESPACE)
    if len(white):
        # Content events before each event of the run; a whitespace event with one before it in its row is timed.
        before = np.concatenate([[0], np.cumsum(mask)])
        row_start = run.first_event[run.events["row"][white]]
        mask[white] = before[white] > before[row_start]
    return mask


@dataclass(frozen=True)
class Timeline:
    """Timed events of chosen requests: request k has items `first[k]:first[k + 1]` of the others.

    *rows*: row numbers of the chosen requests; *tokens*: tokens per event as the server said, 0 = it did not.
    """

    rows: Numbers
    first: Numbers
    t_ns: Numbers
    tokens: Numbers

    @property
    def events(self) -> Numbers:
        """Number of timed events of each chosen request."""
        return np.diff(self.first)

    def gaps(self) -> tuple[Numbers, Mask]:
        """ns between consecutive timed events, and which of them lie inside one request (the others join two)."""
        inside = np.ones(max(0, len(self.t_ns) - 1), np.bool_)
        borders = self.first[1:-1]
        borders = borders[(borders > 0) & (borders < len(self.t_ns))]
        inside[borders - 1] = False
        return np.diff(self.t_ns), inside


def timeline(run: Run, chosen: Mask) -> Timeline:
    """The content timelines of the rows where *chosen* is true."""
    mask = on_timeline(run)
    if not chosen.all():
        mask &= np.repeat(chosen, np.diff(run.first_event))
    running = np.concatenate([[0], np.cumsum(mask)])
    rows = np.flatnonzero(chosen)
    per_row = running[run.first_event[1:]] - running[run.first_event[:-1]]
    first = np.concatenate([[0], np.cumsum(per_row[rows])])
    return Timeline(rows, first, run.event_t[mask], run.event_tokens[mask].astype(np.int64))
