"""Requests that met their objectives (metrics.md 5.12, 6.4). All comparisons are inclusive; a failed request never does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.between import NULL
from fastllmload.metrics.e2e import e2e
from fastllmload.metrics.tpot import tpot
from fastllmload.metrics.ttft import ttft

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

PER_REQUEST = ("ttft", "tpot", "e2el")  # vLLM's --goodput names, in ms


def within(values: npt.NDArray[Any], limit_ms: float, null_passes: bool) -> Mask:
    """Which of *values* (ns) are at most *limit_ms*."""
    null = values == NULL if values.dtype == np.int64 else np.isnan(values)
    met = values <= round(limit_ms * 1e6)
    return np.where(null, null_passes, met)


def meets(rows: npt.NDArray[Any], timed: Numbers, limits_ms: Mapping[str, float]) -> Mask:
    """Which rows meet all of *limits_ms* by ttft, tpot and e2el, whatever their status. A null tpot passes."""
    met = np.ones(len(rows), np.bool_)
    for name, limit in limits_ms.items():
        if name == "ttft":
            met &= within(ttft(rows), limit, False)
        elif name == "tpot":
            met &= within(tpot(rows, timed), limit, True)
        elif name == "e2el":
            met &= within(e2e(rows), limit, False)
    return met


def request_goodput(slo_ok: Mask, seconds: float | None) -> float | None:
    """Requests with slo_ok per second of the window (SG 2.3)."""
    return None if seconds is None or seconds <= 0 else float(np.count_nonzero(slo_ok)) / seconds


def token_goodput(slo_ok: Mask, timed: Numbers, seconds: float | None) -> float | None:
    """Content tokens of the requests with slo_ok per second of the window (SG eq. 5); unknown counts add nothing."""
    return None if seconds is None or seconds <= 0 else float(np.maximum(timed[slo_ok], 0).sum()) / seconds


def slo_attainment(slo_ok: Mask) -> float | None:
    """Share of all submitted requests with slo_ok; None when none was submitted."""
    return float(np.count_nonzero(slo_ok)) / len(slo_ok) if len(slo_ok) else None
