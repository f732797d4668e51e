"""Reports the TTFT of the first request after readiness, in a run that is declared a cold start (spec/metrics 7.11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastllmload.documents.metric import Metric
from fastllmload.metrics.distribution.summary import scalar
from fastllmload.metrics.request.durations import ttft
from fastllmload.records.run import Run

DECLARED = "cold_start"  # --declare cold_start=yes
YES = ("yes", "true", "1")


def declared_cold(declarations: Mapping[str, Any]) -> bool:
    """Whether the tester declares that the target has just become ready."""
    return str(declarations.get(DECLARED, "")).lower() in YES


def cold_start_metrics(run: Run) -> dict[str, Metric]:
    """`cold_start_latency`: ttft of the very first request, warm-up included; null in other runs and without a token."""
    sent = np.flatnonzero(run.rows["t_submit"] > 0)
    if not declared_cold(run.document.declarations) or len(sent) == 0:
        return {"cold_start_latency": scalar(None, "ms")}
    first = sent[np.argmin(run.rows["t_submit"][sent])]
    row = run.rows[first : first + 1]
    return {"cold_start_latency": scalar(float(ttft(row)[0]) / 1e6 if row["t_first"][0] > 0 else None, "ms")}
