"""What load a run asked for, whether the client offered it, and what the client was late with (procedures 0.4.4)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.certificate.criteria import shown
from fastllmload.experiment.level import criteria as rule
from fastllmload.metrics.run.window import Window
from fastllmload.records import layout
from fastllmload.records.run import Run

OWN_ERRORS = tuple(layout.ERROR_NAMES.index(name) for name in ("no_fd", "no_port"))
OFFERED = 0.98  # of the planned rate must have been offered for a pass of a limited client to count


def is_closed(run: Run) -> bool:
    return run.manifest.get("config", {}).get("load", {}).get("concurrency") is not None


def load_of(run: Run) -> float:
    """Slots, or planned requests/s; inf for all at once, NaN where the run does not say."""
    asked = run.manifest.get("config", {}).get("load", {})
    value = asked.get("concurrency") if asked.get("concurrency") is not None else asked.get("rate")
    return math.nan if value is None else float(value)


def client_limits(run: Run, window: Window) -> tuple[str, ...]:
    """Why the client was the limit: late releases, errors of its own, or its certificate (procedures 0.4.4)."""
    rows = run.rows[run.rows["phase"] == layout.MEASURE]
    found = []
    lag = rule.late_p99_ns(dispatch_lags(run, rows, window))
    if lag is not None and lag > rule.LAG_NS:
        found.append(f"P99 of the dispatch lag is {shown(lag / 1e3, 'us')}, above 1 ms")
    own = int(np.isin(rows["error"], OWN_ERRORS).sum())
    if own:
        found.append(f"{own} requests failed for want of file descriptors or ports")
    certificate = run.manifest.get("certificate") or {}
    if certificate.get("generator_limited"):
        found += [reason["text"] for reason in certificate.get("reasons", ()) if limiting(reason)]
    return tuple(dict.fromkeys(found))


def limiting(reason: Mapping[str, Any]) -> bool:
    """Whether a reason of the certificate makes the client the limit; the lag has been said already."""
    return (
        bool(reason.get("limits_generator"))
        and reason.get("severity") != "note"
        and reason.get("code") != "schedule_lag"
    )


def dispatch_lags(run: Run, rows: npt.NDArray[Any], window: Window) -> rule.Numbers:
    """Of releases due in the window. None of a loop with a cap, or of everything at once: these are late by design."""
    asked = run.manifest.get("config", {}).get("load", {})
    if asked.get("max_concurrency") is not None or load_of(run) == math.inf:
        return np.empty(0, np.int64)
    due = rows[window.holds(rows["t_sched"]) & (rows["t_dispatch"] > 0)]
    lags: rule.Numbers = due["t_dispatch"] - due["t_sched"]
    return lags


def offered_in_full(run: Run) -> bool:
    """Whether the load that was planned is the load that was offered; a closed loop offers what it can by itself."""
    found = run.manifest.get("certificate") or {}
    offered, planned = found.get("offered_rate"), found.get("planned_rate")
    if offered is None or planned is None:
        return is_closed(run)
    return float(offered) >= OFFERED * float(planned)
