"""Requests that the model's context does not hold are refused before they are sent."""

from __future__ import annotations

import numpy as np

from fastllmload.errors import InputError
from fastllmload.plan.plan import Plan


def refuse_beyond(plan: Plan, limit: int | None) -> None:
    """InputError when prompt and answer of any request of *plan* are more than *limit* tokens together.

    Nothing is refused without a limit, or where lengths are words because no tokenizer counts.
    """
    if limit is None or not plan.requests or plan.description["workload"]["tokenizer"] == "none":
        return
    whole = plan.input_tokens.astype(np.int64) + plan.output_tokens
    beyond = np.flatnonzero(whole > limit)
    if not len(beyond):
        return
    worst = int(beyond[np.argmax(whole[beyond])])
    raise InputError(
        f"{len(beyond):,} of {plan.requests:,} requests do not fit into the model's context of {limit:,} tokens; "
        f"request {worst:,} has {plan.input_tokens[worst]:,} for the prompt and {plan.output_tokens[worst]:,} for the "
        "answer: use shorter ones with --isl and --osl, or say with --context-limit what the model takes"
    )
