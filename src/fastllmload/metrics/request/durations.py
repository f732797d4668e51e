"""Computes differences of two times of each request, in integer ns; null where one of them did not happen."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

NULL = np.iinfo(np.int64).min  # null in arrays of ns; arrays of floats have NaN

Nanoseconds = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def between(rows: npt.NDArray[Any], start: str, end: str) -> Nanoseconds:
    """rows[end] - rows[start] in ns, NULL for rows that lack one of the two."""
    happened = (rows[start] > 0) & (rows[end] > 0)
    return np.where(happened, rows[end] - rows[start], NULL)


def committed(rows: npt.NDArray[Any]) -> Nanoseconds:
    """t_submit of each row, or t_dispatch where the last byte never left: the instant from which its user waits."""
    return np.where(rows["t_submit"] > 0, rows["t_submit"], rows["t_dispatch"])


def to_float(values: npt.NDArray[Any], scale: float = 1.0) -> npt.NDArray[np.float64]:
    """As floats divided by *scale*, NULL and NaN as NaN."""
    if values.dtype == np.int64:
        return np.where(values == NULL, np.nan, values / scale)
    return values / scale
