"""Computes the main figures of each request class, over the same window and populations as those of the run."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from fastllmload.documents.metric import Metric
from fastllmload.documents.run_parts.classes import ClassResult
from fastllmload.metrics.distribution.summary import distribution
from fastllmload.metrics.objectives.objective import class_name
from fastllmload.metrics.request import durations
from fastllmload.metrics.request.latencies import in_time
from fastllmload.metrics.request.tpot import came_whole, spaced, tpot, tpot_any
from fastllmload.metrics.run import success
from fastllmload.metrics.run.bounds import bounded, of_part
from fastllmload.metrics.run.slots import class_slots
from fastllmload.metrics.run.throughput import input_tok_s, output_tok_s, req_s
from fastllmload.metrics.run.window import Populations, Window, gave_up, left_by_plan, on_schedule, unended
from fastllmload.metrics.tokens.counts import TokenCounts, answers_tokens
from fastllmload.metrics.tokens.itl import gap_metrics, pooled
from fastllmload.metrics.tokens.times import TokenTimes
from fastllmload.records import layout
from fastllmload.records.run import Run


def classes_block(
    run: Run, window: Window | None, chosen: Populations, tokens: TokenCounts, times: TokenTimes
) -> dict[str, ClassResult] | None:
    """`classes` of run.json, by name; None with fewer than two classes."""
    numbers = np.unique(run.rows["request_class"][chosen.measured]).tolist()
    if len(numbers) < 2:
        return None
    found = {class_name(n, run.document): one_class(run, window, chosen, tokens, times, n) for n in numbers}
    for one in run.document.target.classes:  # empty where the classes are those of a data set
        if one.name in found:
            found[one.name] = replace(found[one.name], endpoint_type=one.endpoint_type, urls=one.urls, model=one.model)
    return found


def one_class(
    run: Run, window: Window | None, chosen: Populations, tokens: TokenCounts, times: TokenTimes, number: int
) -> ClassResult:
    """Counts over the complete phase; latencies of successful requests in the window; rates per second of the window. A
    closed loop next to open ones has no latency from the schedule.
    """
    members = run.rows["request_class"] == number
    described = run.document.plan.description
    mixed, slots = bool(described.closed_classes), described.closed_classes.get(number)
    kept = in_time(run.rows, chosen.latency & members)
    of_tokens = bool(answers_tokens(run)[members].all())
    rows, measured = run.rows[kept], run.rows[chosen.measured & members]
    ok = chosen.measured & members & (run.rows["status"] == layout.OK)
    gaps = gap_metrics(times, pooled(run, chosen.latency & members, tokens, times))
    reasoned = (rows["reasoning_events"] > 0).any()
    due = rows[on_schedule(described, rows["request_class"])]
    latencies: dict[str, Metric] = {
        "ttft": distribution(durations.ttft(rows), "ms"),
        "ttft_sched": distribution(durations.ttft_sched(due), "ms"),
        "e2e": distribution(durations.e2e(rows), "ms"),
        "e2e_sched": distribution(durations.e2e_sched(due), "ms"),
    }
    if reasoned:
        latencies["ttft_any"] = distribution(durations.ttft_any(rows), "ms")
    latencies |= bounded(of_part(run, window, chosen.measured & members, answers_tokens(run)), latencies)
    return ClassResult(
        loop=None if not mixed else "open" if slots is None else "closed",
        concurrency=slots,
        slots=class_slots(run, chosen, number),
        planned=len(measured),
        ok=int(np.count_nonzero(measured["status"] == layout.OK)),
        failed=failures(measured),
        left=int((left_by_plan(measured) | gave_up(measured)).sum()),
        came_whole=int(came_whole(run)[kept].sum()) if of_tokens else None,
        success_rate=success.success_rate(run.rows[chosen.submitted & members]),
        req_s=None if window is None else req_s(run, window, ok),
        output_tok_s=None if window is None or not of_tokens else output_tok_s(run, window, tokens, ok),
        input_tok_s=None if window is None else input_tok_s(run, window, tokens.input, ok),
        input_tokens_mean=mean(tokens.input[kept]),
        output_tokens_mean=mean(tokens.output[kept]) if of_tokens else None,
        ttft=latencies["ttft"],
        ttft_sched=latencies["ttft_sched"],
        e2e=latencies["e2e"],
        e2e_sched=latencies["e2e_sched"],
        tpot=distribution(tpot(rows, spaced(run, tokens.timed)[kept]), "ms"),
        ttft_any=latencies.get("ttft_any"),
        tpot_any=distribution(tpot_any(rows, spaced(run, tokens.output)[kept]), "ms") if reasoned else None,
        itl=gaps["itl"],
        tbc=gaps["tbc"],
        itl_b=gaps["itl_b"],
    )


def failures(rows: Any) -> int:
    """Number of requests that are neither ok, nor unsent, nor left by their users, nor in flight."""
    ended = rows[~np.isin(rows["status"], (layout.OK, layout.NOT_SENT)) & ~unended(rows)]
    return int((~left_by_plan(ended) & ~gave_up(ended)).sum())


def mean(values: Any) -> float | None:
    return float(values.mean()) if len(values) else None
