"""The metrics as functions, which `fastllmload.metrics` offers. Definitions: docs/metric-definitions.md.

*rows* is `Run.rows` or a part of it: shape (n,), dtype `layout.REQUEST`. Results have shape (n,): int64 ns with NULL where a
time did not happen, or float64 with NaN. A mask is bool of shape (rows of the run,). Functions raise nothing unless they say
so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastllmload.documents.write import plain
from fastllmload.metrics.distribution.summary import summarize
from fastllmload.metrics.objectives.report import request_goodput, slo_attainment, slo_ok
from fastllmload.metrics.request.durations import (
    NULL,
    dispatch_lag,
    e2e,
    e2e_dispatch,
    e2e_sched,
    final_silence,
    gen_duration,
    send_time,
    total_duration,
    total_duration_sched,
    ttfb,
    ttfb_sched,
    ttft,
    ttft_any,
    ttft_any_sched,
    ttft_dispatch,
    ttft_sched,
)
from fastllmload.metrics.request.tpot import (
    decode_tok_s,
    gen_tok_s,
    norm_latency,
    norm_latency_sched,
    request_tok_s,
    request_tok_s_dispatch,
    tpot,
    tpot_any,
    tpot_n,
)
from fastllmload.metrics.run.measure import measure as measured
from fastllmload.metrics.run.throughput import input_tok_s, output_tok_s, req_s
from fastllmload.metrics.run.window import Populations, Window, populations, window_of
from fastllmload.metrics.tokens.counts import TokenCounts, count_tokens
from fastllmload.metrics.tokens.fluidity import Fluidity, fluidity_of
from fastllmload.metrics.tokens.itl import PooledGaps, TokenGaps, jitter, max_pause
from fastllmload.metrics.tokens.itl import pooled as pooled_gaps
from fastllmload.metrics.tokens.times import TokenTimes, token_times

if TYPE_CHECKING:
    from fastllmload.records.run import Run


def measure(run: Run) -> dict[str, Any]:
    """run.json of *run* with its metrics, counts, errors, objectives and vLLM's keys, computed now."""
    return plain(measured(run))


__all__ = [
    "NULL", "Fluidity", "PooledGaps", "Populations", "TokenCounts", "TokenGaps", "TokenTimes", "Window", "count_tokens",
    "decode_tok_s", "dispatch_lag", "e2e", "e2e_dispatch", "e2e_sched", "final_silence", "fluidity_of", "gen_duration",
    "gen_tok_s", "input_tok_s", "jitter", "max_pause", "measure", "norm_latency", "norm_latency_sched", "output_tok_s",
    "pooled_gaps", "populations", "req_s", "request_goodput", "request_tok_s", "request_tok_s_dispatch", "send_time",
    "slo_attainment", "slo_ok", "summarize", "token_times", "total_duration", "total_duration_sched", "tpot",
    "tpot_any", "tpot_n", "ttfb", "ttfb_sched", "ttft", "ttft_any", "ttft_any_sched", "ttft_dispatch", "ttft_sched",
    "window_of",
]  # fmt: skip
