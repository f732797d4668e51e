"""Computes how requests ended: counts by status and URL, success, groups of errors (spec/metrics 3.5, 6.3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.documents.metric import Metric
from fastllmload.documents.run import ErrorCount, TargetCounts
from fastllmload.metrics.distribution.summary import estimated, scalar
from fastllmload.metrics.run.users import gave_up, left_by_plan
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.statistics.interval import ConfidenceInterval, Estimate, share_interval

Rows = npt.NDArray[Any]

# "errors" counts explicit errors only; IETF Table 7 has 99.7% completion with 0 errors.
EXPLICIT = (
    layout.HTTP_ERROR,
    layout.RATE_LIMITED,
    layout.CONNECTION_ERROR,
    layout.PROTOCOL_ERROR,
    layout.TRUNCATED,
    layout.STREAM_ERROR,
)


def by_status(rows: Rows) -> dict[str, int]:
    """Number of requests of each status, all statuses named."""
    counts = np.bincount(rows["status"], minlength=len(layout.STATUS_NAMES))
    return {name: int(counts[number]) for number, name in enumerate(layout.STATUS_NAMES)}


def success_rate(rows: Rows) -> float | None:
    """ok / submitted; None when nothing was submitted."""
    return float(np.count_nonzero(rows["status"] == layout.OK)) / len(rows) if len(rows) else None


def explicit_errors(rows: Rows) -> int:
    """Requests that ended with an explicit error, see EXPLICIT."""
    return int(np.isin(rows["status"], EXPLICIT).sum())


def success_metrics(rows: Rows) -> dict[str, Metric]:
    """Rates over the *rows* of the attainment population. completion_rate (IETF 5.5, 5.8) is the same quotient as
    success_rate; `errors` is another number, see EXPLICIT."""
    rate = success_rate(rows)
    refused = float(np.count_nonzero(rows["status"] == layout.REFUSED))
    estimate = share_interval(rows["status"] == layout.OK) if len(rows) else None
    return {
        "success_rate": estimated(rate, "share", estimate),
        "completion_rate": estimated(rate, "share", estimate),
        **fail_rates(rows, rate, estimate),
        "errors": scalar(float(explicit_errors(rows)), "requests"),
        "refusals": scalar(refused, "requests"),
    }


def fail_rates(rows: Rows, rate: float | None, estimate: Estimate | None) -> dict[str, Metric]:
    """fail_rate and abandon_rate, which sum to 1 with success_rate; abandon_rate only where users could give up."""
    gone = int(gave_up(rows).sum())
    if not gone and not (rows["client"] & layout.CLIENT_ABANDONS).any():
        return {"fail_rate": estimated(None if rate is None else 1 - rate, "share", complement(estimate))}
    failed = len(rows) - int(np.count_nonzero(rows["status"] == layout.OK)) - gone
    return {
        "fail_rate": scalar(failed / len(rows) if len(rows) else None, "share"),
        "abandon_rate": scalar(gone / len(rows) if len(rows) else None, "share"),
    }


def complement(estimate: Estimate | None) -> Estimate | None:
    """The estimate of 1 - share."""
    return (
        ConfidenceInterval(1 - estimate.high, 1 - estimate.low)
        if isinstance(estimate, ConfidenceInterval)
        else estimate
    )


def error_groups(rows: Rows) -> tuple[ErrorCount, ...]:
    """Failed requests by (status, error class, HTTP status, errno), the most frequent first."""
    names = ["status", "error", "http_status", "error_number"]
    rows = rows[~left_by_plan(rows) & ~gave_up(rows)]
    failed = rows[(rows["status"] > layout.OK) & (rows["status"] < len(layout.STATUS_NAMES))]
    groups, counts = np.unique(
        np.stack([failed[name].astype(np.int64) for name in names], axis=1), axis=0, return_counts=True
    )
    found = zip(groups.tolist(), counts.tolist(), strict=True)
    return tuple(
        ErrorCount(
            status=layout.STATUS_NAMES[status],
            error=layout.ERROR_NAMES[error] if error else None,
            http_status=http_status or None,
            errno=number or None,
            count=count,
        )
        for (status, error, http_status, number), count in sorted(found, key=lambda group: -group[1])
    )


def by_target(run: Run, rows: Rows) -> tuple[TargetCounts, ...]:
    """`by_target` of run.json over the measured *rows*, in the order of `target.urls`; empty with one URL."""
    urls = run.document.target.urls
    return tuple(one_target(url, rows[rows["url"] == k]) for k, url in enumerate(urls)) if len(urls) > 1 else ()


def one_target(url: str, rows: Rows) -> TargetCounts:
    """The counts of one URL, as in `counts`; a request that was never sent has no URL."""
    sent = rows[rows["status"] != layout.NOT_SENT]
    ok = int(np.count_nonzero(sent["status"] == layout.OK))
    others = int((sent["status"] == layout.IN_FLIGHT).sum() + (left_by_plan(sent) | gave_up(sent)).sum())
    return TargetCounts(url=url, dispatched=len(sent), ok=ok, failed=len(sent) - ok - others, errors=error_groups(sent))
