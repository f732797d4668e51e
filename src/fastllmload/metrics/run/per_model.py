"""Computes the figures of each of several models or adapters that one run asks, over the populations of the run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastllmload.arrays import Mask
from fastllmload.documents.fields import known
from fastllmload.documents.plan import ModelPlan
from fastllmload.documents.run import ModelResult
from fastllmload.errors import RunFolderError
from fastllmload.metrics.distribution.summary import distribution
from fastllmload.metrics.request import durations
from fastllmload.metrics.request.latencies import in_time
from fastllmload.metrics.run import success
from fastllmload.metrics.run.per_class import failures
from fastllmload.metrics.run.window import Populations
from fastllmload.metrics.tokens.counts import TokenCounts
from fastllmload.plan.plan import Plan
from fastllmload.records import layout
from fastllmload.records.run import Run


def models_of_rows(run: Run) -> npt.NDArray[np.int64] | None:
    """Index into `plan.description.models` of each row, -1 outside of the measurement; None without several models."""
    if not run.document.plan.description.models:
        return None
    try:
        of_request = Plan.read_record(run.directory / "plan").request_model
    except RunFolderError:
        return None
    if of_request is None or not len(of_request):
        return None
    found: npt.NDArray[np.int64] = of_request[run.rows["request"] % len(of_request)].astype(np.int64)
    found[run.rows["phase"] != layout.MEASURE] = -1  # a warm-up has a plan of its own
    return found


def models_block(run: Run, chosen: Populations, tokens: TokenCounts) -> tuple[ModelResult, ...]:
    """`models` of run.json, in the order of their numbers; empty without several models."""
    numbers = models_of_rows(run)
    if numbers is None:
        return ()
    planned = run.document.plan.description.models
    total, sent = sum(known(one.requests) or 0 for one in planned), chosen.measured & (run.rows["t_dispatch"] > 0)
    return tuple(
        of_model(run, chosen, tokens, numbers == number, sent, one, total) for number, one in enumerate(planned)
    )


def of_model(
    run: Run, chosen: Populations, tokens: TokenCounts, mine: Mask, sent: Mask, planned: ModelPlan, total: float
) -> ModelResult:
    """Counts over the complete phase; latencies of successful requests in the window."""
    rows, ok = run.rows[sent & mine], sent & mine & (run.rows["status"] == layout.OK)
    kept = run.rows[in_time(run.rows, chosen.latency & mine)]
    return ModelResult(
        name=planned.name,
        share_asked=planned.share,
        share_planned=(known(planned.requests) or 0) / total if total else None,
        share_sent=len(rows) / int(sent.sum()) if sent.any() else None,
        planned=planned.requests,
        sent=len(rows),
        ok=int(ok.sum()),
        failed=failures(rows),
        success_rate=success.success_rate(run.rows[chosen.submitted & mine]),
        errors=success.error_groups(rows),
        input_tokens=int(tokens.input[ok].sum()),
        output_tokens=int(tokens.output[ok].sum()),
        ttft=distribution(durations.ttft(kept), "ms"),
        e2e=distribution(durations.e2e(kept), "ms"),
    )
