"""Identifies requests whose simulated users left by plan, gave up, or read slowly; none of these is a server failure.

Denominators: requests of users who left by plan (whatever the server did) or read slowly (which determines their times) are
in neither the latency nor the attainment population. A request that its user gave up after a deadline was not served: it
stays in the attainment population, misses every objective, and does not count in `fail_rate`; `abandon_rate` is the share of
such requests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.documents.run import Users
from fastllmload.records import layout

Rows = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


def left_by_plan(rows: Rows) -> Mask:
    found: Mask = rows["error"] == layout.CLIENT_CANCELLED
    return found


def gave_up(rows: Rows) -> Mask:
    found: Mask = rows["error"] == layout.CLIENT_ABANDONED
    return found


def read_slowly(rows: Rows) -> Mask:
    found: Mask = (rows["client"] & layout.CLIENT_SLOW) != 0
    return found


def excluded(rows: Rows) -> Mask:
    """Requests that are in no population, because they do not show how the server performs."""
    return left_by_plan(rows) | read_slowly(rows)


def users_block(rows: Rows) -> Users | None:
    """`users` of run.json, over the *rows* of the measure phase; None when all of them waited for the end."""
    if not rows["client"].any():
        return None
    left, gone, slow = left_by_plan(rows), gave_up(rows), read_slowly(rows)
    chosen = (rows["client"] & layout.CLIENT_CANCELS) != 0
    heard = left & (rows["content_events"] > 0)
    return Users(
        chosen_to_leave=int(chosen.sum()),
        left_by_plan=int(left.sum()),
        ended_before_leaving=int((chosen & (rows["status"] == layout.OK)).sum()),
        events_until_they_left=float(rows["content_events"][heard].mean()) if heard.any() else None,
        gave_up=int(gone.sum()),
        slow_readers=int(slow.sum()),
        denominators=(
            "requests that users left by plan or read slowly count in no latency, success rate or attainment; requests that "
            "users gave up count in success_rate, fail_rate and attainment as neither ok nor failed"
        ),
    )
