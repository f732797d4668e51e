"""Power of the system under test, tokens per second and watt (ASIAI-M6, M7; metrics.md 6.8). None without a sensor."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def power_w(t_ns: npt.NDArray[np.int64], watts: npt.NDArray[np.float64], start_ns: int, end_ns: int) -> float | None:
    """Time average over [start, end] of samples that ascend in time; NaN samples are left out.

    Between two samples power is taken as linear, before the first and after the last as constant. None without a sample
    inside, or without a duration: a sensor that was read only before or after tells nothing.
    """
    seen = ~np.isnan(watts)
    t, w = t_ns[seen], watts[seen]
    inside = (t >= start_ns) & (t <= end_ns)
    if end_ns <= start_ns or not inside.any():
        return None
    at = np.unique(np.concatenate([[start_ns], t[inside], [end_ns]]))
    # Relative to the start: ns since boot do not fit a float exactly.
    seconds = (at - start_ns) / 1e9
    level = np.interp(seconds, (t - start_ns) / 1e9, w)
    above = level - level[0]  # so that a constant power is exactly that
    return float(level[0] + (np.diff(seconds) * (above[1:] + above[:-1])).sum() / 2 / seconds[-1])


def tok_s_per_w(tok_s: float | None, watts: float | None) -> float | None:
    """tokens/s / W; None without either, or without any power."""
    return None if tok_s is None or watts is None or watts <= 0 else tok_s / watts
