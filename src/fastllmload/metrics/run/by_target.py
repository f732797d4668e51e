"""Counts how the requests to each URL ended, in a run with several URLs."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastllmload.metrics.run.success import Rows, error_groups
from fastllmload.metrics.run.users import gave_up, left_by_plan
from fastllmload.records import layout
from fastllmload.records.run import Run


def by_target(run: Run, rows: Rows) -> list[dict[str, Any]]:
    """`by_target` of run.json over the measured *rows*, in the order of `target.urls`; empty with one URL."""
    urls = (run.manifest.get("target") or {}).get("urls") or ()
    return [one_target(url, rows[rows["url"] == number]) for number, url in enumerate(urls)] if len(urls) > 1 else []


def one_target(url: str, rows: Rows) -> dict[str, Any]:
    """The counts of one URL, as in `counts`; a request that was never sent has no URL."""
    sent = rows[rows["status"] != layout.NOT_SENT]
    ok = int(np.count_nonzero(sent["status"] == layout.OK))
    others = int((sent["status"] == layout.IN_FLIGHT).sum() + (left_by_plan(sent) | gave_up(sent)).sum())
    return {
        "url": url,
        "dispatched": len(sent),
        "ok": ok,
        "failed": len(sent) - ok - others,
        "errors": error_groups(sent),
    }
