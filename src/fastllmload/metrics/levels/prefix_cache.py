"""Computes what a prefix cache gains and what guardrail filters cost (IETF 5.7.4, 5.10.4; spec/metrics 7.6, 7.9)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastllmload.arrays import Numbers, Rows, Values
from fastllmload.documents.fields import known
from fastllmload.documents.metric import Metric, Value
from fastllmload.documents.plan import WorkloadDescription
from fastllmload.documents.procedure import ByPercentile, ByStatistic
from fastllmload.records.run import Run


def change_percent(before: float | None, after: float | None) -> float | None:
    """100 (after - before) / before; None without either, or for 0 before."""
    return None if before is None or after is None or before == 0 else 100 * (after - before) / before


def ttft_reduction(off: float | None, on: float | None) -> float | None:
    """100 (off - on) / off: the reduction of a TTFT by the cache in percent; negative when it is slower."""
    change = change_percent(off, on)
    return None if change is None else -change


def ttft_reductions(off: ByPercentile, on: ByPercentile) -> ByPercentile:
    """`ttft_reduction` of each percentile."""
    return ByPercentile(
        p50=ttft_reduction(off.p50, on.p50), p95=ttft_reduction(off.p95, on.p95), p99=ttft_reduction(off.p99, on.p99)
    )


def cache_hit_rate(cached_tokens: Numbers, prefix_tokens: Numbers) -> float | None:
    """Share of shared prefix tokens that came from the cache, over requests that share a prefix (prefix_tokens > 0).

    *cached_tokens*: as the server reports them, below 0 where it does not; those requests are left out. None when the
    server reports none, or no request shares a prefix.
    """
    reported = (cached_tokens >= 0) & (prefix_tokens > 0)
    shared = int(prefix_tokens[reported].sum())
    return float(np.minimum(cached_tokens, prefix_tokens)[reported].sum() / shared) if shared else None


def prefix_tokens(run: Run, requests: Values) -> Numbers:
    """Tokens of each of *requests* (plan numbers of the measure phase) that its prompt shares with others; 0 without any.

    Where the plan has no value per request (conversations), it is the length of the prefix that all of them share.
    """
    schedule = run.array("plan/schedule.npy", shape=(None,))
    if schedule is not None and "prefix_tokens" in (schedule.dtype.names or ()) and schedule["prefix_tokens"].any():
        found: Numbers = schedule["prefix_tokens"][requests % len(schedule)].astype(np.int64)
        return found
    planned = run.document.plan.description.workload
    length, share = known(planned.prefix_len), known(planned.prefix_share)
    if planned == WorkloadDescription():  # a folder without a plan
        asked = run.document.config.workload
        length, share = known(asked.prefix_len), asked.prefix_share
    if length and share in (None, 1.0):
        return np.full(len(requests), length, np.int64)
    return np.zeros(len(requests), np.int64)


TEMPLATE = 64  # tokens that a chat template may add to a prompt
UNLIKE = 0.05  # share by which two counts of a prompt may differ and still be of one tokenizer
OTHER_UNIT = (
    "null: the server counts {said:,} tokens where the plan counts {ours:,}: its cached tokens are another unit"
)


def cache_metrics(run: Run, rows: Rows) -> dict[str, Metric]:
    """`cache_hit_rate` over successful *rows*: null when prompts share no prefix, the server does not report cached tokens
    or counts with another tokenizer than the plan. `cached_prompt_share`: of the prompt tokens, both counted by the server.
    """
    shared, cached = prefix_tokens(run, rows["request"]), rows["cached_tokens"].astype(np.int64)
    sharing, counted = shared > 0, (cached >= 0) & (rows["prompt_tokens"] > 0)
    prompts = int(rows["prompt_tokens"][counted].sum())
    unlike = other_unit(rows[sharing & counted & (rows["input_target"] > 0)])
    return {
        "cache_hit_rate": Value(
            unit="share",
            value=cache_hit_rate(cached, shared) if unlike is None else None,
            n=int((sharing & (cached >= 0)).sum()),
            n_null=int((sharing & (cached < 0)).sum()),
            note=unlike,
        ),
        "cached_prompt_share": Value(
            unit="share", value=float(cached[counted].sum() / prompts) if prompts else None, n=int(counted.sum())
        ),
    }


def other_unit(rows: Rows) -> str | None:
    """Why the server's token counts cannot be compared with the plan's; None where both are about equal."""
    if not len(rows):
        return None
    ours, reported = rows["input_target"].astype(np.int64), rows["prompt_tokens"].astype(np.int64)
    more = float(np.median(reported - ours))
    if -UNLIKE * float(np.median(ours)) <= more <= TEMPLATE + UNLIKE * float(np.median(ours)):
        return None
    return OTHER_UNIT.format(said=int(reported.sum()), ours=int(ours.sum()))


@dataclass(frozen=True)
class Latencies:
    """Of one configuration, in ms."""

    ttft: ByStatistic
    e2e: ByStatistic


def difference(one: float | None, base: float | None) -> float | None:
    return None if one is None or base is None else one - base


def differences(one: ByStatistic, base: ByStatistic) -> ByStatistic:
    """*one* - *base* of each statistic."""
    return ByStatistic(
        p50=difference(one.p50, base.p50),
        p95=difference(one.p95, base.p95),
        p99=difference(one.p99, base.p99),
        mean=difference(one.mean, base.mean),
    )


def overheads(
    baseline: Latencies,
    input_filter: Latencies | None = None,
    output_filter: Latencies | None = None,
    full: Latencies | None = None,
) -> dict[str, ByStatistic | None]:
    """Milliseconds that each configuration adds: TTFT for the input filter, E2E for the other two. None for one that was
    not run.

    IETF defines none for the output filter; E2E is this program's choice.
    """
    return {
        "input_filter_ttft_ms": None if input_filter is None else differences(input_filter.ttft, baseline.ttft),
        "output_filter_e2e_ms": None if output_filter is None else differences(output_filter.e2e, baseline.e2e),
        "total_e2e_ms": None if full is None else differences(full.e2e, baseline.e2e),
    }
