"""Computes the main figures of each request class, over the same window and populations as those of the run."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastllmload.documents.run import RunDocument
from fastllmload.metrics.distribution.summary import distribution
from fastllmload.metrics.objectives.objective import class_name
from fastllmload.metrics.request import e2e as ends
from fastllmload.metrics.request import ttft as starts
from fastllmload.metrics.request.latencies import in_time
from fastllmload.metrics.request.tpot import came_whole, spaced, tpot, tpot_any
from fastllmload.metrics.run import success
from fastllmload.metrics.run.throughput import output_tok_s, req_s
from fastllmload.metrics.run.users import gave_up, left_by_plan
from fastllmload.metrics.run.window import Populations, Window
from fastllmload.metrics.tokens.counts import TokenCounts
from fastllmload.metrics.tokens.itl import gap_metrics, pooled
from fastllmload.metrics.tokens.times import TokenTimes
from fastllmload.records import layout
from fastllmload.records.run import Run

GAPS = ("itl", "tbc", "itl_b")


def classes_block(
    run: Run, window: Window | None, chosen: Populations, tokens: TokenCounts, times: TokenTimes
) -> dict[str, Any] | None:
    """`classes` of run.json, by name; None with fewer than two classes."""
    numbers = np.unique(run.rows["request_class"][chosen.measured]).tolist()
    if len(numbers) < 2:
        return None
    named = {class_name(n, run.document): one_class(run, window, chosen, tokens, times, n) for n in numbers}
    return {name: {**target_of(run.document, name), **one} for name, one in named.items()}


def target_of(document: RunDocument, name: str) -> dict[str, Any]:
    """Target and protocol of class *name*; {} where the classes are those of a data set."""
    found = next((one for one in document.target.classes if one.name == name), None)
    return {} if found is None else {"endpoint_type": found.endpoint_type, "urls": found.urls, "model": found.model}


def one_class(
    run: Run, window: Window | None, chosen: Populations, tokens: TokenCounts, times: TokenTimes, number: int
) -> dict[str, Any]:
    """Counts over the complete phase; latencies of successful requests in the window; rates per second of the window."""
    members = run.rows["request_class"] == number
    kept = in_time(run.rows, chosen.latency & members)
    rows, submitted, measured = (
        run.rows[kept],
        run.rows[chosen.submitted & members],
        run.rows[chosen.measured & members],
    )
    ok = chosen.measured & members & (run.rows["status"] == layout.OK)
    gaps = gap_metrics(times, pooled(run, chosen.latency & members, tokens, times))
    in_ns = {
        "ttft": starts.ttft(rows),
        "ttft_sched": starts.ttft_sched(rows),
        "tpot": tpot(rows, spaced(run, tokens.timed)[kept]),
        **of_any_token(run, rows, tokens, kept),
        "e2e": ends.e2e(rows),
        "e2e_sched": ends.e2e_sched(rows),
    }
    return {
        "planned": len(measured),
        "ok": int(np.count_nonzero(measured["status"] == layout.OK)),
        "failed": failures(measured),
        "left": int((left_by_plan(measured) | gave_up(measured)).sum()),
        "came_whole": int(came_whole(run)[kept].sum()),
        "success_rate": success.success_rate(submitted),
        "req_s": None if window is None else req_s(run, window, ok),
        "output_tok_s": None if window is None else output_tok_s(run, window, tokens, ok),
        "input_tokens_mean": mean(tokens.input[kept]),
        "output_tokens_mean": mean(tokens.output[kept]),
        **{name: distribution(values, "ms") for name, values in in_ns.items()},
        **{name: gaps[name] for name in GAPS if name in gaps},
    }


def of_any_token(run: Run, rows: Any, tokens: TokenCounts, kept: Any) -> dict[str, Any]:
    """Metrics that include reasoning; {} for a class whose answers do not reason."""
    if not (rows["reasoning_events"] > 0).any():
        return {}
    return {"ttft_any": starts.ttft_any(rows), "tpot_any": tpot_any(rows, spaced(run, tokens.output)[kept])}


def failures(rows: Any) -> int:
    """Number of requests that are neither ok, nor unsent, nor left by their users, nor in flight."""
    ended = rows[~np.isin(rows["status"], (layout.OK, layout.NOT_SENT, layout.IN_FLIGHT))]
    return int((~left_by_plan(ended) & ~gave_up(ended)).sum())


def mean(values: Any) -> float | None:
    return float(values.mean()) if len(values) else None
