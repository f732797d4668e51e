"""Time to first action: from sending a request to the first thing that its reply asks for (docs/metric-definitions.md).

The first action of a reply is the first event with a tool call's name or arguments; of a reply without tool calls it is the
first answer token.
"""

from __future__ import annotations

import numpy as np

from fastllmload.arrays import Numbers, Rows
from fastllmload.metrics.request.durations import NULL
from fastllmload.metrics.tokens.timeline import of_kind
from fastllmload.records.layout import EVENT_TOOL, FLAG_TOOL
from fastllmload.records.run import Run

UNKNOWN = -1


def called(rows: Rows) -> bool:
    """Whether any reply of *rows* has a tool call."""
    return bool((rows["flags"] & FLAG_TOOL).any())


def first_call_ns(run: Run) -> Numbers:
    """Of each row of *run*: when the first event of a tool call came; 0 without tool calls, UNKNOWN where the events are not
    there.
    """
    tools = run.rows["flags"] & FLAG_TOOL > 0
    found = np.where(tools, UNKNOWN, 0).astype(np.int64)
    if tools.any():
        at = of_kind(run, EVENT_TOOL)
        rows, first = np.unique(run.events["row"][at], return_index=True)
        found[rows] = run.event_t[at[first]]
    return found


def ttfa(run: Run, mine: Numbers) -> Numbers:
    """Last byte sent to the first action of the reply, of the rows *mine*, in ns; NULL where either is not known."""
    rows, called_ns = run.rows[mine], first_call_ns(run)[mine]
    action = np.where(called_ns == 0, rows["t_first"], called_ns)
    return np.where((action > 0) & (rows["t_submit"] > 0), action - rows["t_submit"], NULL)
