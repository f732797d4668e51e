"""Adds vLLM's keys at the top level of run.json, for dashboards that read them."""

from __future__ import annotations

from typing import Any

from fastllmload.metrics.run.window import Window

VLLM = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e"}  # vLLM's name: name here
REASONING = {"ttft_any": "ttft_any", "tpot_any": "tpot_any"}  # for runs with reasoning
FLAT = {"mean": "mean", "median": "p50", "std": "std", "p90": "p90", "p95": "p95", "p99": "p99", "p999": "p999"}


def flat_keys(
    metrics: dict[str, Any], counts: dict[str, Any], slo: dict[str, Any] | None, window: Window | None
) -> dict[str, Any]:
    """vLLM's keys, and those of REASONING where answers reason. `itl` are the gaps by the chosen option: vLLM's are gaps
    between chunks.
    """
    output, taken = metrics["output_tok_s"]["value"], metrics["input_tok_s"]["value"]
    flat: dict[str, Any] = {
        "duration": None if window is None else window.seconds,
        "completed": counts["ok"],
        "failed": counts["failed"],
        "total_input_tokens": counts["input_tokens"],
        "total_output_tokens": counts["output_tokens"],
        "request_throughput": metrics["req_s"]["value"],
        "output_throughput": output,
        "total_token_throughput": None if output is None or taken is None else output + taken,
        "request_goodput": None if slo is None else slo["request_goodput"],
    }
    for name, metric in (VLLM | REASONING if counts["reasoned"] else VLLM).items():
        chosen = metrics[metrics["share_single"]["pooled_as"] if metric == "itl" else metric]
        flat.update({f"{key}_{name}_ms": chosen[field] for key, field in FLAT.items()})
    return flat
