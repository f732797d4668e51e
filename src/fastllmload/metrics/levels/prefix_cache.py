"""Computes what a prefix cache gains and what guardrail filters cost (IETF 5.7.4, 5.10.4; spec/metrics 7.6, 7.9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastllmload.arrays import Numbers, Rows, Values
from fastllmload.documents.fields import known
from fastllmload.documents.metric import Metric, Value
from fastllmload.documents.plan import WorkloadDescription
from fastllmload.records.run import Run


def change_percent(before: float | None, after: float | None) -> float | None:
    """100 (after - before) / before; None without either, or for 0 before."""
    return None if before is None or after is None or before == 0 else 100 * (after - before) / before


def ttft_reduction(off: float | None, on: float | None) -> float | None:
    """100 (off - on) / off: the reduction of a TTFT by the cache in percent; negative when it is slower."""
    change = change_percent(off, on)
    return None if change is None else -change


def ttft_reductions(off: Mapping[str, float | None], on: Mapping[str, float | None]) -> dict[str, float | None]:
    """`ttft_reduction` of each percentile of two `metrics.request.ttft` of run.json."""
    return {name: ttft_reduction(off.get(name), on.get(name)) for name in ("p50", "p95", "p99")}


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


NAMES = ("p50", "p95", "p99", "mean")

Metrics = Mapping[str, Any]  # "metrics" of a run.json


def difference(metrics: Metrics | None, baseline: Metrics, metric: str) -> dict[str, float | None] | None:
    """metric - baseline in ms by percentile; None for a configuration that was not run."""
    if metrics is None:
        return None
    figures, base = metrics[metric], baseline[metric]
    return {name: None if figures[name] is None or base[name] is None else figures[name] - base[name] for name in NAMES}


def overheads(
    baseline: Metrics,
    input_filter: Metrics | None = None,
    output_filter: Metrics | None = None,
    full: Metrics | None = None,
) -> dict[str, dict[str, float | None] | None]:
    """Milliseconds that each configuration adds: TTFT for the input filter, E2E for the other two.

    IETF defines none for the output filter; E2E is this program's choice.
    """
    return {
        "input_filter_ttft_ms": difference(input_filter, baseline, "ttft"),
        "output_filter_e2e_ms": difference(output_filter, baseline, "e2e"),
        "total_e2e_ms": difference(full, baseline, "e2e"),
    }
