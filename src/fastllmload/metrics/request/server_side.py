"""Reports the durations that an Ollama server sends in its last object (D35), by its own clock and names.

They are never pooled with client figures, which include queueing, loading and the network.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from fastllmload.arrays import Floats, Mask, Numbers, Rows
from fastllmload.documents.metric import Metric
from fastllmload.metrics.distribution.summary import distribution
from fastllmload.metrics.request.durations import NULL
from fastllmload.metrics.request.tpot import SHORTEST_NS
from fastllmload.metrics.run.window import Populations
from fastllmload.records.run import Run

DURATIONS = ("total", "load", "prompt_eval", "eval")
NOTE = "the server's own clock; not comparable with client figures of another server"
TTFT_NOTE = "prompt_eval_duration of the server: without queueing, model loading and the network; not a client's ttft"


def server_side_metrics(run: Run, chosen: Populations) -> dict[str, Metric]:
    """`server_*` of run.json over the latency population; empty distributions where the server reports none."""
    rows = run.rows[chosen.latency]
    found = {f"server_{name}_duration": duration(rows, name) for name in DURATIONS}
    reported = {name: replace(distribution(values, "ms"), note=NOTE) for name, values in found.items()}
    rates = gen_tok_s(rows)
    short = degenerate(rows)
    kept = np.where(short, np.nan, rates)
    n_null = int((np.isnan(kept) & ~short).sum())
    return {
        **reported,
        "server_ttft": replace(distribution(duration(rows, "prompt_eval"), "ms"), note=TTFT_NOTE),
        "server_gen_tok_s": replace(
            distribution(kept, "tokens/s", n_null=n_null), n_degenerate=int(short.sum()), note=NOTE
        ),
    }


def duration(rows: Rows, name: str) -> Numbers:
    """ns, NULL where the server did not report it; *name* is one of DURATIONS."""
    reported = rows[f"server_{name}_ns"]
    return np.where(reported > 0, reported, NULL)


def degenerate(rows: Rows) -> Mask:
    """Tokens were counted, but generated in less than 10 ms: the rate is 0.0 by rule (ASIAI-M1)."""
    spent = rows["server_eval_ns"]
    return (spent > 0) & (spent < SHORTEST_NS) & (rows["completion_tokens"] >= 0)


def gen_tok_s(rows: Rows) -> Floats:
    """eval_count / eval_duration (ASIAI-M1 for Ollama); NaN without either."""
    spent, tokens = rows["server_eval_ns"], rows["completion_tokens"]
    reported = (spent > 0) & (tokens >= 0)
    rates = np.divide(tokens * 1e9, spent, out=np.full(len(rows), np.nan), where=reported)
    return np.where(degenerate(rows), 0.0, rates)
