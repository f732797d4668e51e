"""What plan.json says of the sessions of a trace, and how exactly prompts share what the trace's shared."""

from __future__ import annotations

import numpy as np

from fastllmload import settings as asked
from fastllmload.documents.plan import IdealHitRates, SessionFacts, WaitFacts
from fastllmload.workload.graph import UNKNOWN, CallGraph, Numbers, WaitKind
from fastllmload.workload.paths import session_shapes
from fastllmload.workload.sharing.ideal import IdealHits, ideal_hits
from fastllmload.workload.underway import UnderWay


def session_facts(
    graph: CallGraph, ideal: IdealHits | None, bounded: IdealHits | None, workload: asked.Workload, order: Numbers | None,
    under: UnderWay | None,
) -> SessionFacts:  # fmt: skip
    """What plan.json says of the sessions of *graph*, which are sent; *ideal*: what a cache without end finds of them when
    calls come in *order* (None: as they are due); *bounded*: what the given cache finds of messages.
    """
    shapes = session_shapes(graph)
    waits = {
        kind.name.lower(): WaitFacts(count=int(mine.sum()), mean_s=float(graph.wait_ns[mine].mean()) / 1e9)
        for kind in WaitKind
        if (mine := (graph.wait_kind == kind) & (graph.wait_ns > 0)).any()
    }
    return SessionFacts(
        timing=workload.trace_timing,
        sessions=graph.sessions,
        calls=len(graph) if under is None else int((under.due_ns >= 0).sum()),
        edges=len(graph.edge_from),
        joins=int((np.bincount(graph.edge_to, minlength=1) > 1).sum()),
        agents_max=int(shapes.agents.max()),
        fan_out_max=int(shapes.fan_out.max()),
        depth_max=int(shapes.depth.max()),
        makespan_mean_s=float(shapes.makespan_ns.mean()) / 1e9,
        waits=waits,
        ideal=None if ideal is None else ideal_rates(graph, ideal, bounded, workload.cache_blocks, order, under),
        notes=(*graph.notes, *(f"{count} entries left out: {reason}" for reason, count in graph.left_out.items())),
        start=None if under is None else workload.session_start,
        under_way=None if under is None else under.live,
        ending=None if under is None else under.ending or None,
        calls_before=None if under is None else int((under.due_ns < 0).sum()),
    )


def ideal_rates(
    graph: CallGraph, found: IdealHits, bounded: IdealHits | None, cache_blocks: int | None, order: Numbers | None,
    under: UnderWay | None,
) -> IdealHitRates:  # fmt: skip
    if cache_blocks is not None and graph.messages is None:
        bounded = ideal_hits(graph, capacity=cache_blocks, order=order)
    if under is not None:
        sent = np.flatnonzero(under.due_ns >= 0)
        found, bounded = found.of(sent), None if bounded is None else bounded.of(sent)
    return IdealHitRates(
        token_share=found.token_rate(),
        whole_block_share=found.whole_rate(),
        block_share=found.block_rate(),
        scope=found.scope,
        block_tokens=graph.block_tokens if graph.block_tokens and graph.messages is None else None,
        cache_blocks=cache_blocks,
        cache_token_share=None if bounded is None else bounded.token_rate(),
    )


def inexact_turns(workload: asked.Workload, known: bool) -> tuple[str, ...]:
    """Why a server can find another share of a data set's conversations in its cache than the ideal one. *known*: that is
    stated.
    """
    if not known:
        return (
            "no ideal hit rate is stated: it is counted in messages and tokens, so it needs a chat endpoint and --tokenizer",
        )
    found = [
        f"prompts are messages, counted in tokens of {workload.tokenizer}: a server also counts what its chat template adds"
    ]
    if workload.history != "planned":
        found.append(
            "conversations contain the server's replies, which count as cached: a server that does not keep what it "
            "generated finds less; with --history planned the plan has all of each prompt"
        )
    return tuple(found)


def inexact(graph: CallGraph, workload: asked.Workload, form: str, templated: bool, missing: int) -> tuple[str, ...]:
    """Why a server can find another share of *graph*'s prompts in its cache than the ideal one. Empty: with blocks of the
    trace's size it finds that one. *form*: of the prompts, words, ids or messages; *templated*: they are in a chat template.
    *missing*: tokens that the recorded server had cached, and no prompt has.
    """
    found = []
    continued = bool((graph.context != UNKNOWN).any())
    if graph.messages is not None:
        found.append(
            f"prompts are messages of the file, counted in tokens of {workload.tokenizer}: a server also counts what its "
            "chat template and definitions of tools add, and has in its cache what a warm-up sent, unless --warmup 0"
            if workload.tokenizer != "none"
            else "prompts are messages of the file, and without --tokenizer their tokens are not known, so no ideal hit "
            "rate is stated"
        )
    elif form != "ids":
        template = " after a chat template" if templated else ""
        found.append(
            f"prompts are words of one {workload.tokenizer} token each{template}: a server whose tokens are others has "
            "other lengths and blocks; --endpoint-type openai-completions --prompt-form ids is exact"
            if workload.tokenizer != "none"
            else f"prompts are words{template}, and without --tokenizer their tokens are not known"
        )
    if continued and workload.history != "planned":
        found.append(
            "conversations contain the server's replies, which count as cached: a server that does not keep what it "
            "generated finds less; with --history planned the plan has all of each prompt"
        )
    if graph.block is None and graph.prefix_tokens is not None and not continued and graph.messages is None:
        found.append(
            "prompts share tokens, not blocks of one size: a server that keeps full blocks finds up to one block less of "
            "each"
        )
        if missing:
            found.append(
                f"{missing:,} of {int(graph.prefix_tokens.sum()):,} tokens that the recorded server had cached are in no "
                "earlier prompt of the trace (replies, or prompts before it) and are new text here"
            )
    return tuple(found)
