"""Computes figures of answers with reasoning: their number, their reasoning tokens and the rate of these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from fastllmload.arrays import Floats, Mask, Numbers, Rows
from fastllmload.documents.metric import Metric
from fastllmload.documents.run_parts.counts import Counts
from fastllmload.metrics.distribution.summary import distribution
from fastllmload.metrics.request.durations import between, to_float
from fastllmload.metrics.request.tpot import came_whole, per_second
from fastllmload.metrics.run.window import Populations
from fastllmload.metrics.tokens.counts import UNKNOWN, TokenCounts, all_reasoning, leading_tokens, reasoning_tokens
from fastllmload.metrics.tokens.timeline import of_kind
from fastllmload.records import layout
from fastllmload.records.run import Run

# Source of the number: the server's usage; its count for each reasoning event; all output, where no answer token came; the
# output less the answer, where there is nearly one event per token.
SOURCES = ("usage", "events", "output", "chunks", "unknown")
USAGE, EVENTS, OUTPUT, CHUNKS, UNREPORTED = range(len(SOURCES))


@dataclass(frozen=True)
class Reasoning:
    """Per row of a run: reasoning *tokens*, UNKNOWN where not known, and their *source* as a position in SOURCES."""

    tokens: Numbers
    source: npt.NDArray[np.uint8]


def reasoning_of(run: Run, tokens: TokenCounts) -> Reasoning:
    """Reasoning tokens of every row; 0 from usage for answers without reasoning."""
    rows = run.rows
    streamed, alone = rows["reasoning_events"] > 0, all_reasoning(rows)
    reported = reasoning_tokens(run)
    unreported = streamed & ~alone & (reported < 0)
    source = np.select(
        [alone, rows["reasoning_tokens"] >= 0, reported >= 0, unreported & (tokens.timed >= 0), unreported],
        [OUTPUT, USAGE, EVENTS, CHUNKS, UNREPORTED],
        USAGE,
    ).astype(np.uint8)
    found = np.where(source == UNREPORTED, UNKNOWN, tokens.reasoning)
    if (source == CHUNKS).any():
        rest = np.maximum(tokens.output - tokens.timed - leading_tokens(run), 0)
        found = np.where(source == CHUNKS, rest, found)
    return Reasoning(found, source)


def with_reasoning(counts: Counts, run: Run, chosen: Populations, tokens: TokenCounts) -> Counts:
    """*counts* with those of reasoning: answers of the latency population, and tokens of all successful requests."""
    ok = chosen.measured & (run.rows["status"] == layout.OK)
    found = reasoning_of(run, tokens)
    selected = ok & ((run.rows["reasoning_events"] > 0) | (found.tokens > 0))
    reasoning, known = found.tokens[ok], found.tokens[ok] >= 0
    sources = np.bincount(found.source[selected], minlength=len(SOURCES))
    return replace(
        counts,
        reasoned=int((chosen.latency & (run.rows["reasoning_events"] > 0)).sum()),
        all_reasoning=int((chosen.latency & all_reasoning(run.rows)).sum()),
        reasoning_tokens=int(reasoning[known].sum()),
        answer_tokens=int(np.maximum(tokens.output[ok] - reasoning, 0)[known].sum()),
        reasoning_tokens_source={name: int(sources[n]) for n, name in enumerate(SOURCES)},
    )


def reasoning_metrics(run: Run, population: Mask, tokens: TokenCounts) -> dict[str, Metric]:
    """`reasoning_tok_s` of the requests in *population* that streamed reasoning."""
    reasoned = population & (run.rows["reasoning_events"] > 0)
    selected = np.flatnonzero(reasoned)
    selected = selected[np.argsort(run.rows["t_sched"][selected], kind="stable")]
    rate = (
        reasoning_tok_s(run.rows[selected], reasoning_of(run, tokens).tokens[selected])
        if len(selected)
        else np.empty(0)
    )
    rate[(came_whole(run) | reasons_again(run, reasoned))[selected]] = np.nan
    return {"reasoning_tok_s": distribution(rate, "tokens/s")}


def reasoning_tok_s(rows: Rows, reasoning: Numbers) -> Floats:
    """Reasoning tokens / (t_first - t_any); NaN where their number is unknown. Without an answer token, whose arrival would
    end the last of them: (reasoning tokens - 1) / (t_last - t_any).
    """
    answered = rows["t_first"] > 0
    took = np.where(answered, to_float(between(rows, "t_any", "t_first")), to_float(between(rows, "t_any", "t_last")))
    return np.where(reasoning >= 0, per_second(np.where(answered, reasoning, reasoning - 1), took), np.nan)


def reasons_again(run: Run, chosen: Mask) -> Mask:
    """Rows of *chosen* with reasoning after their first answer token; the duration of their reasoning is not known."""
    if run.elsewhere is not None:
        return chosen & (run.elsewhere.totals["reasons_again"] > 0)
    again = np.zeros(len(run.rows), np.bool_)
    if chosen.any():
        at = of_kind(run, layout.EVENT_REASONING)
        row = run.events["row"][at]
        first = run.rows["t_first"][row]
        again[row[(first > 0) & (run.event_t[at] > first)]] = True
    return again & chosen
