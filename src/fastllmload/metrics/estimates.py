"""How intervals stand in run.json: `ci95`, and `not_estimable` with the reason where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastllmload.statistics.interval import Estimate, Interval, NotEstimable


def ends(estimate: Estimate, scale: float = 1.0) -> list[float] | None:
    """[low, high] divided by *scale*; None where there is no interval."""
    return [estimate.low / scale, estimate.high / scale] if isinstance(estimate, Interval) else None


def refused(estimate: NotEstimable) -> dict[str, Any]:
    """Why there is no interval, and how many requests like these would carry one (None: more do not help)."""
    return {"reason": estimate.reason, "requests_needed": estimate.needed}


def stated(estimate: Estimate | None) -> dict[str, Any]:
    """Of a single number; None where there is no number."""
    missing = {"not_estimable": refused(estimate)} if isinstance(estimate, NotEstimable) else {}
    return {"ci95": None if estimate is None else ends(estimate), **missing}


def stated_all(estimates: Mapping[str, Estimate] | None, scale: float) -> dict[str, Any]:
    """Of the figures of a distribution by name, in units of *scale*; None where there is no value at all."""
    if estimates is None:
        return {"ci95": None, "not_estimable": {}}
    return {
        "ci95": {name: ends(found, scale) for name, found in estimates.items()},
        "not_estimable": {name: refused(found) for name, found in estimates.items() if isinstance(found, NotEstimable)},
    }
