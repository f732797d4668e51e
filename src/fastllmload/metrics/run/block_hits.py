"""What a prefix cache could find of the blocks of a trace when each call was sent, and what it found."""

from __future__ import annotations

import msgspec
import numpy as np

from fastllmload.arrays import Numbers, Rows
from fastllmload.documents.run_parts.sessions import BlockHits
from fastllmload.metrics.distribution.summary import distribution
from fastllmload.plan.plan import Plan
from fastllmload.records import layout


def block_hits(plan: Plan, rows: Rows, counted: Numbers, block_tokens: int) -> BlockHits | None:
    """*rows*: all calls that were sent in the phase; *counted*: positions of those that the figures are about. What was
    possible when each was sent is not known where prompts are not made of blocks alone.
    """
    counted = counted[(rows["cached_tokens"][counted] >= 0) & (rows["prompt_tokens"][counted] > 0)]
    if plan.calls is None or not len(counted):
        return None
    size = len(plan.calls)
    ideal = np.asarray(plan.calls["ideal_tokens"])[rows["request"][counted] % size]
    cached, prompt = rows["cached_tokens"][counted].astype(np.int64), int(rows["prompt_tokens"][counted].sum())
    tokens = int(rows["input_target"][counted].sum())
    hits = BlockHits(
        requests=len(counted),
        ideal=float(ideal.sum()) / tokens if tokens and (ideal >= 0).all() else None,
        achieved=float(cached.sum()) / prompt,
    )
    if plan.blocks is None or not block_tokens:
        return hits
    found = at_send(plan, rows, block_tokens)
    could = int(found[counted].sum())
    return msgspec.structs.replace(
        hits,
        ideal_at_send=could / tokens if tokens else None,
        reached=float(cached.sum()) / prompt / (could / tokens) if could else None,
        shortfall=distribution((found[counted] - cached).astype(np.float64), "tokens"),
    )


def at_send(plan: Plan, rows: Rows, block_tokens: int) -> Numbers:
    """Tokens of the leading full blocks of each row that calls had whose first token had come when it was sent."""
    assert plan.calls is not None and plan.blocks is not None
    size = len(plan.calls)
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(plan.calls["blocks"].astype(np.int64))])
    blocks = np.asarray(plan.blocks)
    ready = np.full(int(blocks.max(initial=0)) + 1, np.iinfo(np.int64).max)
    ready[blocks[first[-1] :]] = 0  # the warm-up had them
    sent = np.where(rows["t_submit"] > 0, rows["t_submit"], rows["t_dispatch"]).astype(np.int64)
    found = np.zeros(len(rows), np.int64)
    token = np.where((rows["t_any"] > 0) & (rows["status"] != layout.IN_FLIGHT), rows["t_any"], np.iinfo(np.int64).max)
    for one in np.argsort(sent, kind="stable").tolist():
        planned = int(rows["request"][one]) % size
        own = blocks[first[planned] : first[planned + 1]][: int(rows["input_target"][one]) // block_tokens]
        known = ready[own] <= sent[one]
        most = (
            max(int(rows["input_target"][one]) - 1, 0) // block_tokens
        )  # a server computes the last token in any case
        found[one] = min(len(own) if known.all() else int(known.argmin()), most) * block_tokens
        ready[own] = np.minimum(ready[own], token[one])
    return found
