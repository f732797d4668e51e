"""Computes goodput and attainment from the requests that met their objectives (metrics.md 6.4)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


def request_goodput(slo_ok: Mask, seconds: float | None) -> float | None:
    """Requests with slo_ok per second of the time base (SG 2.3)."""
    return None if seconds is None or seconds <= 0 else float(np.count_nonzero(slo_ok)) / seconds


def token_goodput(slo_ok: Mask, n_r: Numbers, seconds: float | None) -> float | None:
    """Content tokens of the requests with slo_ok per second of the time base (SG eq. 5); unknown counts add nothing."""
    return None if seconds is None or seconds <= 0 else float(np.maximum(n_r[slo_ok], 0).sum()) / seconds


def slo_attainment(slo_ok: Mask) -> float | None:
    """Share of all submitted requests with slo_ok; None when none was submitted."""
    return float(np.count_nonzero(slo_ok)) / len(slo_ok) if len(slo_ok) else None
