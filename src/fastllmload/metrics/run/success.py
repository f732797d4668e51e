"""Computes how requests ended: counts by status and URL, their tokens, success, groups of errors (spec/metrics 3.5, 6.3)."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from fastllmload.arrays import Mask, Numbers, Rows
from fastllmload.documents.fields import known
from fastllmload.documents.metric import Metric
from fastllmload.documents.run_parts.counts import Counts, ErrorCount, TargetCounts
from fastllmload.metrics.distribution.summary import distribution, estimated, scalar
from fastllmload.metrics.request.durations import NULL
from fastllmload.metrics.request.tpot import came_whole
from fastllmload.metrics.run.reasoning import with_reasoning
from fastllmload.metrics.run.window import Populations, gave_up, left_by_plan, unended, unsent
from fastllmload.metrics.tokens.counts import SOURCES, TokenCounts
from fastllmload.records import layout
from fastllmload.records.generated_text import texts, tokenizer_of
from fastllmload.records.run import Run
from fastllmload.statistics.interval import ConfidenceInterval, Estimate, share_interval

# "errors" counts explicit errors only; IETF Table 7 has 99.7% completion with 0 errors.
EXPLICIT = (
    layout.HTTP_ERROR, layout.RATE_LIMITED, layout.CONNECTION_ERROR, layout.PROTOCOL_ERROR, layout.TRUNCATED,
    layout.STREAM_ERROR,
)  # fmt: skip


def by_status(rows: Rows) -> dict[str, int]:
    counts = np.bincount(rows["status"], minlength=len(layout.STATUS_NAMES))
    return {name: int(counts[number]) for number, name in enumerate(layout.STATUS_NAMES)}


def success_rate(rows: Rows) -> float | None:
    """ok / submitted; None when nothing was submitted."""
    return float(np.count_nonzero(rows["status"] == layout.OK)) / len(rows) if len(rows) else None


def own_failures(rows: Rows) -> dict[str, Mask]:
    """Requests that failed because this host had no descriptor, port or memory for them; one mask each."""
    error = {name: rows["error"] == layout.ERROR_NAMES.index(name) for name in ("no_fd", "no_port", "body_too_large")}
    # With another status it is one body above the limit of bodies.
    cut = error.pop("body_too_large") & (rows["status"] == layout.CONNECTION_ERROR)
    return {**error, "no_memory": cut}


def failed_here(rows: Rows) -> Mask:
    """Requests that failed for any of the reasons of `own_failures`."""
    found: Mask = np.any(list(own_failures(rows).values()), axis=0)
    return found


def explicit_errors(rows: Rows) -> int:
    return int(np.isin(rows["status"], EXPLICIT).sum())


def success_metrics(rows: Rows) -> dict[str, Metric]:
    """Rates over the *rows* of the attainment population. completion_rate (IETF 5.5, 5.8) is the same quotient as
    success_rate; `errors` is another number, see EXPLICIT."""
    rate = success_rate(rows)
    refused = float(np.count_nonzero(rows["status"] == layout.REFUSED))
    estimate = share_interval(rows["status"] == layout.OK) if len(rows) else None
    return {
        "success_rate": estimated(rate, "share", estimate),
        "completion_rate": estimated(rate, "share", estimate),
        **fail_rates(rows, rate, estimate),
        "errors": scalar(float(explicit_errors(rows)), "requests"),
        "refusals": scalar(refused, "requests"),
    }


def fail_rates(rows: Rows, rate: float | None, estimate: Estimate | None) -> dict[str, Metric]:
    """fail_rate and abandon_rate, which sum to 1 with success_rate; abandon_rate only where users could give up."""
    gone = int(gave_up(rows).sum())
    if not gone and not (rows["client"] & layout.CLIENT_ABANDONS).any():
        return {"fail_rate": estimated(None if rate is None else 1 - rate, "share", complement(estimate))}
    failed = len(rows) - int(np.count_nonzero(rows["status"] == layout.OK)) - gone
    return {
        "fail_rate": scalar(failed / len(rows) if len(rows) else None, "share"),
        "abandon_rate": scalar(gone / len(rows) if len(rows) else None, "share"),
    }


def complement(estimate: Estimate | None) -> Estimate | None:
    """The estimate of 1 - share."""
    if isinstance(estimate, ConfidenceInterval):
        return ConfidenceInterval(1 - estimate.high, 1 - estimate.low)
    return estimate


def error_groups(rows: Rows) -> tuple[ErrorCount, ...]:
    """Failed requests by (status, error class, HTTP status, errno), the most frequent first."""
    names = ["status", "error", "http_status", "error_number"]
    rows = rows[~left_by_plan(rows) & ~gave_up(rows)]
    failed = rows[(rows["status"] > layout.OK) & (rows["status"] < layout.HOST_LOST)]
    groups, counts = np.unique(
        np.stack([failed[name].astype(np.int64) for name in names], axis=1), axis=0, return_counts=True
    )
    found = zip(groups.tolist(), counts.tolist(), strict=True)
    return tuple(
        ErrorCount(
            status=layout.STATUS_NAMES[status],
            error=layout.ERROR_NAMES[error] if error else None,
            http_status=http_status or None,
            errno=number or None,
            count=count,
        )
        for (status, error, http_status, number), count in sorted(found, key=lambda group: -group[1])
    )


def by_target(run: Run, rows: Rows) -> tuple[TargetCounts, ...]:
    """`by_target` of run.json over the measured *rows*, in the order of `target.urls`; empty with one URL."""
    urls = run.document.target.urls
    return tuple(one_target(url, rows[rows["url"] == k]) for k, url in enumerate(urls)) if len(urls) > 1 else ()


def one_target(url: str, rows: Rows) -> TargetCounts:
    """The counts of one URL, as in `counts`; a request that was never sent has no URL."""
    sent = rows[~unsent(rows)]
    ok = int(np.count_nonzero(sent["status"] == layout.OK))
    others = int(unended(sent).sum() + (left_by_plan(sent) | gave_up(sent)).sum())
    return TargetCounts(url=url, dispatched=len(sent), ok=ok, failed=len(sent) - ok - others, errors=error_groups(sent))


def counts_of(run: Run, chosen: Populations, tokens: TokenCounts) -> Counts:
    """`counts` of run.json: requests by status, tokens of the successful ones, and the sources of the token counts."""
    rows = run.rows[chosen.measured]
    statuses = by_status(rows)
    left = int((left_by_plan(rows) | gave_up(rows)).sum())
    ok = chosen.measured & (run.rows["status"] == layout.OK)
    without_row = never_reached(run, len(rows))
    sources = np.bincount(tokens.source[ok], minlength=len(SOURCES))
    return replace(
        with_reasoning(replace(Counts(), **statuses), run, chosen, tokens),
        planned=len(rows) + without_row,
        dispatched=len(rows) - int(unsent(rows).sum()),
        host_lost=statuses["host_lost"] or None,
        not_sent=statuses["not_sent"] + without_row,
        cut_after_end=int((rows["error"] == layout.CUT_AFTER_END).sum()),
        unknown_finish=int(((rows["finish"] == layout.FINISH_OTHER) & (rows["status"] == layout.OK)).sum()),
        failed=len(rows) - statuses["ok"] - statuses["not_sent"] - int(unended(rows).sum()) - left,
        left=left,
        explicit_errors=explicit_errors(rows),
        submitted_in_window=int(chosen.submitted.sum()),
        latency_population=int(chosen.latency.sum()),
        came_whole=int((chosen.latency & came_whole(run)).sum()),
        input_tokens=int(np.maximum(tokens.input[ok], 0).sum()),
        output_tokens=int(np.maximum(tokens.output[ok], 0).sum()),
        output_tokens_source={name or "none": int(sources[n]) for n, name in enumerate(SOURCES)},
        events=run.event_count,
    )


def never_reached(run: Run, sent: int) -> int:
    """Planned requests of a closed loop that no slot sent, because the run or a worker ended before. They were due at no
    instant, so they have no rows. 0 where the plan's length is not a bound, for conversations, where turns wait for replies,
    and where hosts are excluded, whose part of the plan is not known.
    """
    plan = run.document.plan
    load = plan.description.load
    bounded = load.loop == "closed" and load.duration_s is None and not load.cycles
    partial = plan.description.conversations is not None or run.document.excluded_hosts
    if not bounded or partial or run.phase("measure") is None:
        return 0
    return max(0, int(known(plan.requests) or 0) - sent)


def usage_less_tokenizer(run: Run, population: Mask) -> Numbers:
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
