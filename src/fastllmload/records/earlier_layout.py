"""Converts records of the layout before brackets: 16-byte event rows without bounds, request rows with `t_first_floor`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.records import layout

EVENT = np.dtype([("t_ns", "<i8"), ("row", "<u4"), ("kind", "u1"), ("stamp", "u1"), ("tokens", "<u2")])


def is_earlier(found: np.dtype[Any], expected: np.dtype[Any]) -> bool:
    """Whether *found* is the earlier layout of *expected*."""
    if expected == layout.EVENT:
        return found == EVENT
    return expected == layout.REQUEST and found.itemsize == expected.itemsize and "t_first_floor" in (found.names or ())


def to_current_layout(records: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """*records* in the layout *dtype*: 0 for fields that were not recorded, and the brackets that can be computed."""
    if records.dtype == dtype:
        return records
    known = np.zeros(len(records), dtype)
    for name in set(records.dtype.names or ()) & set(dtype.names or ()):
        known[name] = records[name]
    if dtype == layout.EVENT:
        known["bracket_ns"] = brackets(known)
    return known


def brackets(events: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """Brackets of events. One that shared a read, or was stamped by the process, came after the previous read."""
    order = np.argsort(events["row"], kind="stable")
    t, row, stamp = events["t_ns"][order], events["row"][order], events["stamp"][order]
    number = np.arange(len(t))
    new_read = (stamp & layout.STAMP_SAME_READ) == 0
    begin = np.maximum.accumulate(np.where(new_read, number, 0)) if len(t) else number
    follows = (begin > 0) & (row[np.maximum(begin - 1, 0)] == row) if len(t) else np.zeros(0, np.bool_)
    span = np.where(follows, t - t[np.maximum(begin - 1, 0)] if len(t) else t, layout.BRACKET_OPEN)
    exact = (stamp & layout.STAMP_CLASS_MASK) == layout.STAMP_KERNEL
    found = np.zeros(len(t), np.uint32)
    found[order] = np.where(exact, 0, np.clip(span, 0, layout.BRACKET_OPEN))
    return found
