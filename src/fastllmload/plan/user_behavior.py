"""User behavior of each request, drawn before time zero: one CLIENT_ROW item per request.

The stream O/users gives two draws per request, whatever the options: the first selects who cancels, the second who reads
slowly.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.errors import InputError, value_code
from fastllmload.plan.plan import CLIENT_ROW
from fastllmload.settings import UserBehavior
from fastllmload.workload.user_behavior import read_abandon, read_cancel_after, read_slow_readers


def drawn_users(behaviour: UserBehavior, seed: str, requests: int) -> npt.NDArray[Any] | None:
    """None when every user waits for the end. InputError for invalid options."""
    if behaviour == UserBehavior():
        return None
    rows = np.zeros(requests, CLIENT_ROW)
    stream = random.Random(seed)
    drawn = np.array([stream.random() for _ in range(2 * requests)]).reshape(requests, 2)
    try:
        if behaviour.cancel_after is not None:
            after, cancels = read_cancel_after(behaviour.cancel_after), drawn[:, 0] < behaviour.cancel_share
            rows["cancel_tokens"][cancels], rows["cancel_ns"][cancels] = after.tokens, after.ns
        if behaviour.slow_readers is not None:
            slow = read_slow_readers(behaviour.slow_readers)
            slow_users = drawn[:, 1] < slow.share
            rows["read_rate"][slow_users], rows["read_bytes"][slow_users] = slow.rate, slow.in_bytes
        if behaviour.abandon is not None:
            abandonment = read_abandon(behaviour.abandon)
            rows["abandon_ns"], rows["abandon_e2e"] = abandonment.ns, abandonment.e2e
    except ValueError as problem:
        raise InputError(value_code(problem), f"what users do {problem}") from None
    return rows


def described_users(behaviour: UserBehavior, rows: npt.NDArray[Any] | None) -> dict[str, Any]:
    """The user behavior as plan.json describes it: counts and conditions."""
    assert rows is not None
    return {
        "cancel_share": behaviour.cancel_share,
        "cancel_after": behaviour.cancel_after,
        "cancelling": int(np.count_nonzero((rows["cancel_tokens"] > 0) | (rows["cancel_ns"] > 0))),
        "slow_readers": behaviour.slow_readers,
        "reading_slowly": int(np.count_nonzero(rows["read_rate"] > 0)),
        "abandon": behaviour.abandon,
    }
