"""What a prefix cache could find of the blocks of a trace when each call was sent, and what it found."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from fastllmload.arrays import Numbers, Rows
from fastllmload.documents.run_parts.sessions import BlockHits
from fastllmload.metrics.distribution.summary import distribution
from fastllmload.plan.plan import Plan
from fastllmload.records import layout

AGREE = 0.01  # of a token, in what a template adds


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
    if plan.blocks is None or not (block_tokens or plan.nodes is not None):
        return hits
    tokens = tokens if plan.nodes is None else prompt
    template = None if plan.nodes is None else template_tokens(plan, rows[counted])
    if plan.nodes is not None and template is None:
        return hits
    found = at_send(plan, rows, block_tokens) if template is None else messages_at_send(plan, rows, template)
    could = int(found[counted].sum())
    return msgspec.structs.replace(
        hits,
        template_tokens=template,
        ideal_at_send=could / tokens if tokens else None,
        reached=float(cached.sum()) / prompt / (could / tokens) if could else None,
        shortfall=distribution((found[counted] - cached).astype(np.float64), "tokens"),
    )


def at_send(plan: Plan, rows: Rows, block_tokens: int) -> Numbers:
    """Tokens of the leading full blocks of each row that calls had whose first token had come when it was sent."""
    found = np.zeros(len(rows), np.int64)
    full = rows["input_target"].astype(np.int64) // block_tokens
    for row, _, many in known_at_send(plan, rows, full):
        most = (
            max(int(rows["input_target"][row]) - 1, 0) // block_tokens
        )  # a server computes the last token in any case
        found[row] = min(many, most) * block_tokens
    return found


def messages_at_send(plan: Plan, rows: Rows, template: float) -> Numbers:
    """The same of messages, in tokens as the server counts them: with *template* tokens of each message, as if in front."""
    assert plan.nodes is not None
    size = plan.nodes["tokens"] + template * plan.nodes["opens"]
    found = np.zeros(len(rows), np.int64)
    for row, own, many in known_at_send(plan, rows, np.full(len(rows), len(plan.nodes))):
        found[row] = min(round(float(size[own[:many]].sum())), max(int(rows["prompt_tokens"][row]) - 1, 0))
    return found


def template_tokens(plan: Plan, rows: Rows) -> float | None:
    """How many tokens the server counts of each message in addition to its text, where *rows* agree in one number, next to a
    number for each prompt; None where they do not: another tokenizer, or tokens that depend on what a message is.
    """
    assert plan.calls is not None and plan.blocks is not None and plan.nodes is not None
    first = first_blocks(plan)
    total = np.concatenate(
        [np.zeros(1, np.int64), np.cumsum(plan.nodes["opens"][plan.blocks[: first[-1]]], dtype=np.int64)]
    )
    messages = (total[first[1:]] - total[first[:-1]])[rows["request"] % len(plan.calls)]
    more = rows["prompt_tokens"].astype(np.int64) - rows["input_target"]
    if not len(rows) or not messages.all():
        return None
    alike = int(messages.min()) == int(messages.max())
    terms = np.stack([messages, np.zeros_like(messages) if alike else np.ones_like(messages)], 1).astype(np.float64)
    each, of_prompt = np.linalg.lstsq(terms, more.astype(np.float64))[0].tolist()
    off = np.abs(terms @ np.array([each, of_prompt]) - more).max()
    return None if off > AGREE or each < -AGREE or of_prompt < -AGREE else round(max(each, 0.0), 6)


def first_blocks(plan: Plan) -> Numbers:
    """Where the blocks of each call begin in those of the plan; one more, after which are those of the warm-up."""
    assert plan.calls is not None
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(plan.calls["blocks"].astype(np.int64))])


def known_at_send(plan: Plan, rows: Rows, most: Numbers) -> Iterator[tuple[int, Numbers, int]]:
    """Each row in the order sent, with the first *most* of its blocks, and how many leading ones of these calls had whose
    first token had come by then.
    """
    assert plan.calls is not None and plan.blocks is not None
    first, blocks = first_blocks(plan), np.asarray(plan.blocks)
    ready = np.full(int(blocks.max(initial=0)) + 1, np.iinfo(np.int64).max)
    ready[blocks[first[-1] :]] = 0  # the warm-up had them
    sent = np.where(rows["t_submit"] > 0, rows["t_submit"], rows["t_dispatch"]).astype(np.int64)
    token = np.where((rows["t_any"] > 0) & (rows["status"] != layout.IN_FLIGHT), rows["t_any"], np.iinfo(np.int64).max)
    for one in np.argsort(sent, kind="stable").tolist():
        planned = int(rows["request"][one]) % len(plan.calls)
        own = blocks[first[planned] : first[planned + 1]][: most[one]].astype(np.int64)
        known = ready[own] <= sent[one]
        yield one, own, len(own) if known.all() else int(known.argmin())
        ready[own] = np.minimum(ready[own], token[one])
