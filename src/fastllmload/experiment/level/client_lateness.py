"""The planned load of a run, whether the client offered it, and how late the client was (spec/procedures 0.4.4)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.certificate.criteria import format_value
from fastllmload.documents.certificate import Certificate
from fastllmload.documents.fields import known
from fastllmload.experiment.level import criteria as rule
from fastllmload.metrics.distribution.percentiles import percentile
from fastllmload.metrics.run.success import failed_here
from fastllmload.metrics.run.window import Window, on_schedule
from fastllmload.records import layout
from fastllmload.records.run import Run

OFFERED = 0.98  # fraction of the planned rate that must have been offered for a pass with a limited client to count


def is_closed(run: Run) -> bool:
    return run.document.config.load.concurrency is not None


def load_of(run: Run) -> float:
    """Slots, or planned requests/s; inf for all at once, NaN if the run does not record it."""
    asked = run.document.config.load
    value = asked.concurrency if asked.concurrency is not None else asked.rate
    return math.nan if value is None else float(value)


def client_limits(run: Run, window: Window) -> tuple[str, ...]:
    """Why the client was the limit: late releases, errors of its own, or its certificate (spec/procedures 0.4.4)."""
    rows = run.rows[run.rows["phase"] == layout.MEASURE]
    found = []
    lag = percentile(np.sort(dispatch_lags(run, rows, window)), 0.99)
    if lag is not None and lag > rule.LAG_NS:
        found.append(f"P99 of the dispatch lag is {format_value(lag / 1e3, 'us')}, above 1 ms")
    own = int(failed_here(rows).sum())
    if own:
        found.append(f"{own} requests failed because no file descriptor, port or memory was free")
    certificate = run.document.certificate
    if certificate is not None and certificate.generator_limited:
        limiting = [one for one in certificate.reasons if one.limits_generator and one.severity != "note"]
        found += [one.text or one.code for one in limiting if one.code != "schedule_lag"]  # that is reported above
    return tuple(dict.fromkeys(found))


def dispatch_lags(run: Run, rows: npt.NDArray[Any], window: Window) -> rule.Numbers:
    """Dispatch lags in ns of the requests due in the window. Empty with a cap, or if all requests are sent at once: such
    requests are late by design.
    """
    asked = run.document.config.load
    if not asked.max_concurrency is asked.max_prefill is None or load_of(run) == math.inf:
        return np.empty(0, np.int64)
    timed = on_schedule(run.document.plan.description, rows["request_class"])
    due = rows[timed & window.holds(rows["t_sched"]) & (rows["t_dispatch"] > 0)]
    lags: rule.Numbers = due["t_dispatch"] - due["t_sched"]
    return lags


def offered_in_full(run: Run) -> bool:
    """Whether the planned load was offered. A closed loop without a planned rate always offers it."""
    found = run.document.certificate or Certificate()
    offered, planned = known(found.offered_rate), known(found.planned_rate)
    if offered is None or planned is None:
        return is_closed(run)
    return offered >= OFFERED * planned
