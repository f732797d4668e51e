"""When a cap on the load was full, and how long it held each release back: --max-concurrency, --max-prefill.

A worker has its part of a cap. It is full while as many requests as that are in flight, or wait for their first token, which
the rows say. So what a cap delayed is separate from what the other cap or the client did.
"""

from __future__ import annotations

import numpy as np

from fastllmload.arrays import Rows
from fastllmload.certificate.evidence import Times
from fastllmload.records.run import Run

NEVER = np.iinfo(np.int64).max


def first_tokens(rows: Rows) -> Times:
    """When each request stopped to wait for its first token, of any kind: then, or when it ended without one."""
    return np.where(rows["t_any"] > 0, rows["t_any"], ends(rows))


def ends(rows: Rows) -> Times:
    return np.where(rows["t_end"] > 0, rows["t_end"], NEVER)


def full_spans(begun: Times, until: Times, most: int) -> Times:
    """Rows (begin, end) of the intervals in which at least *most* of the requests were between *begun* and *until*."""
    t = np.concatenate([until, begun])
    step = np.repeat([-1, 1], [len(until), len(begun)])
    order = np.argsort(t, kind="stable")  # at one instant those that end first
    t, count = t[order], np.cumsum(step[order])
    full = np.concatenate([[False], count >= most])
    begins, finishes = t[full[1:] & ~full[:-1]], t[full[:-1] & ~full[1:]]
    finishes = np.concatenate([finishes, np.full(len(begins) - len(finishes), NEVER)])
    return np.column_stack([begins, finishes])


def spans_of_workers(run: Run, rows: Rows, until: Times, cap: int | None) -> dict[int, Times]:
    """By worker, when its part of *cap* was full of *rows*, each of which counts from its dispatch up to *until*."""
    if cap is None:
        return {}
    hosts = run.document.hosts
    workers = max(1, sum(len(host.workers) for host in hosts) if hosts else len(run.document.workers))
    found = {}
    for worker in np.unique(rows["worker"]).tolist():
        own = rows["worker"] == worker
        part = max(1, cap // workers + (worker < cap % workers))
        found[worker] = full_spans(rows["t_dispatch"][own], until[own], part)
    return found


def held_ns(rows: Rows, spans: dict[int, Times]) -> Times:
    """For how long of the time from its scheduled instant to its dispatch each of *rows* was held back, ns."""
    found = np.zeros(len(rows), np.int64)
    for worker, of_worker in spans.items():
        own = np.flatnonzero(rows["worker"] == worker)
        late = np.maximum(rows["t_dispatch"][own], rows["t_sched"][own])
        found[own] = full_before(of_worker, late) - full_before(of_worker, rows["t_sched"][own])
    return found


def full_before(spans: Times, t: Times) -> Times:
    """Of the time before each of *t*, how much lies in *spans*, which ascend without overlaps."""
    if not len(spans):
        return np.zeros(len(t), np.int64)
    begin, end = spans[:, 0], spans[:, 1]
    complete = np.concatenate([np.zeros(1, np.int64), np.cumsum(end[:-1] - begin[:-1])])
    at = np.searchsorted(begin, t, side="right")
    inside = np.minimum(t, end[at - 1]) - begin[at - 1]
    found: Times = np.where(at > 0, complete[at - 1] + inside, 0)
    return found


def let_go(rows: Rows, spans: dict[int, Times]) -> Times:
    """When each of *rows* could be sent: at its scheduled instant, or when the cap was last full before its dispatch."""
    found = rows["t_sched"].astype(np.int64)
    for worker, of_worker in spans.items():
        own = np.flatnonzero(rows["worker"] == worker)
        before = np.searchsorted(of_worker[:, 1], rows["t_dispatch"][own], side="right")
        last = np.where(before > 0, of_worker[np.maximum(before, 1) - 1, 1], 0) if len(of_worker) else 0
        found[own] = np.maximum(found[own], last)
    return found
