"""Counts requests by status, and their tokens, over the complete measure phase."""

from __future__ import annotations

import numpy as np

from fastllmload.documents.fields import known
from fastllmload.documents.metric import Metric
from fastllmload.documents.run import Counts
from fastllmload.metrics.distribution.summary import distribution
from fastllmload.metrics.request.durations import NULL, Mask, Nanoseconds
from fastllmload.metrics.request.tpot import came_whole
from fastllmload.metrics.run import success
from fastllmload.metrics.run.reasoning import reasoning_counts
from fastllmload.metrics.run.users import gave_up, left_by_plan
from fastllmload.metrics.run.window import Populations
from fastllmload.metrics.tokens.counts import SOURCES, TokenCounts
from fastllmload.records.generated_text import texts, tokenizer_of
from fastllmload.records.layout import CUT_AFTER_END, FINISH_OTHER, OK
from fastllmload.records.run import Run


def counts_of(run: Run, chosen: Populations, tokens: TokenCounts) -> Counts:
    """`counts` of run.json: requests by status, tokens of the successful ones, and the sources of the token counts."""
    rows = run.rows[chosen.measured]
    statuses = success.by_status(rows)
    left = int((left_by_plan(rows) | gave_up(rows)).sum())
    ok = chosen.measured & (run.rows["status"] == OK)
    unsent = never_reached(run, len(rows))
    sources = np.bincount(tokens.source[ok], minlength=len(SOURCES))
    return Counts(
        planned=len(rows) + unsent,
        dispatched=len(rows) - statuses["not_sent"],
        not_sent=statuses["not_sent"] + unsent,
        in_flight=statuses["in_flight"],
        ok=statuses["ok"],
        empty=statuses["empty"],
        refused=statuses["refused"],
        http_error=statuses["http_error"],
        rate_limited=statuses["rate_limited"],
        truncated=statuses["truncated"],
        timeout=statuses["timeout"],
        connection_error=statuses["connection_error"],
        protocol_error=statuses["protocol_error"],
        cancelled=statuses["cancelled"],
        stream_error=statuses["stream_error"],
        cut_after_end=int((rows["error"] == CUT_AFTER_END).sum()),
        unknown_finish=int(((rows["finish"] == FINISH_OTHER) & (rows["status"] == OK)).sum()),
        failed=len(rows) - statuses["ok"] - statuses["not_sent"] - statuses["in_flight"] - left,
        left=left,
        explicit_errors=success.explicit_errors(rows),
        submitted_in_window=int(chosen.submitted.sum()),
        latency_population=int(chosen.latency.sum()),
        came_whole=int((chosen.latency & came_whole(run)).sum()),
        input_tokens=int(np.maximum(tokens.input[ok], 0).sum()),
        output_tokens=int(np.maximum(tokens.output[ok], 0).sum()),
        output_tokens_source={name or "none": int(sources[n]) for n, name in enumerate(SOURCES)},
        **reasoning_counts(run, chosen, tokens),
        events=len(run.events),
    )


def never_reached(run: Run, sent: int) -> int:
    """Planned requests of a closed loop that no slot sent, because the run or a worker ended before. They were due at no
    instant, so they have no rows. 0 where the plan's length is not a bound, and for conversations, where turns wait for
    replies.
    """
    plan = run.document.plan
    load = plan.description.load
    bounded = load.loop == "closed" and load.duration_s is None and not load.cycles
    if not bounded or plan.description.conversations is not None or run.phase("measure") is None:
        return 0
    return max(0, int(known(plan.requests) or 0) - sent)


def usage_less_tokenizer(run: Run, population: Mask) -> Nanoseconds:
    """|visible tokens by usage - tokens of the recorded text| of each row in *population*; NULL where one is missing.

    Usage also counts the end token on some servers, so 1 is common.
    """
    found = np.full(len(run.rows), NULL, np.int64)
    reported = population & (run.rows["completion_tokens"] >= 0)
    tokenizer = tokenizer_of(run) if len(run.text) and reported.any() else None
    if tokenizer is None:
        return found[population]
    for row, text in texts(run):
        if reported[row]:
            visible = int(run.rows["completion_tokens"][row]) - max(0, int(run.rows["reasoning_tokens"][row]))
            found[row] = abs(visible - tokenizer.count(text))
    return found[population]


def consistency_metrics(run: Run, population: Mask) -> dict[str, Metric]:
    """`usage_less_tokenizer`: one value per request of the latency population whose text was recorded."""
    return {"usage_less_tokenizer": distribution(usage_less_tokenizer(run, population), "tokens")}
