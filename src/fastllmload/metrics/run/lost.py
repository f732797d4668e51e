"""Sets figures to null that need a damaged file of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastllmload.records.integrity import EVENTS, ROWS, TEXT
from fastllmload.records.run import Run

# Computed from the stamps in rows only; all others need events or the text of answers.
OF_ROWS = frozenset(
    (
        *("ttft", "ttft_sched", "ttft_any", "ttft_any_sched", "ttft_dispatch", "ttfb", "ttfb_sched", "dispatch_lag"),
        *("send_time", "e2e", "e2e_sched", "e2e_dispatch", "total_duration", "total_duration_sched", "gen_duration"),
        *("final_silence", "req_s", "req_s_makespan", "success_rate", "completion_rate", "fail_rate", "errors"),
        *("refusals", "rtt_ms", "ttft_net_adjusted", "cold_start_latency", "server_total_duration"),
        *("server_load_duration", "server_prompt_eval_duration", "server_eval_duration", "server_ttft"),
    )
)
BLOCKS = ("window", "errors", "by_target", "slo", "fairness", "classes", "conversations", "users", "steadiness")
OF_EVENTS = ("slo", "fairness", "classes", "steadiness")
COUNTS_OF_EVENTS = (
    "events", "output_tokens", "output_tokens_source", "reasoning_tokens", "answer_tokens", "reasoning_tokens_source",
)  # fmt: skip
KEPT = ("unit", "pooled_as", "insufficient", "note", "caveat")


def without_lost(found: dict[str, Any], run: Run) -> dict[str, Any]:
    """*found* (the result of `measure`) with null for every figure that needs a damaged file of *run*."""
    damage = run.lost(EVENTS, TEXT)
    if damage is None:
        return found
    no_rows = run.lost(ROWS) is not None
    metrics = {
        name: each if name in OF_ROWS and not no_rows else without_values(each, damage)
        for name, each in found["metrics"].items()
    }
    kept = {} if no_rows else found["counts"] | dict.fromkeys(COUNTS_OF_EVENTS)
    flat = {name: None for name, each in found.items() if is_flat(each) and (no_rows or needs_events(name))}
    return {
        **found,
        **flat,
        "metrics": metrics,
        "counts": {name: kept.get(name) for name in found["counts"]},
        **dict.fromkeys(BLOCKS if no_rows else OF_EVENTS),
        "incidents": [*run.document.incidents, f"{damage}; figures that need it are n/a"],
    }


def is_flat(value: object) -> bool:
    return value is None or isinstance(value, int | float)


def needs_events(name: str) -> bool:
    """Whether one of vLLM's flat keys needs events; those of TTFT, E2E and of requests do not."""
    return name not in ("duration", "completed", "failed", "request_throughput", "total_input_tokens") and not (
        name.endswith(("_ttft_ms", "_ttft_any_ms", "_e2el_ms"))
    )


def without_values(metric: Mapping[str, Any], damage: str) -> dict[str, Any]:
    """The metric without its values, and with the reason."""
    empty = {name: value if name in KEPT else None for name, value in metric.items()}
    return {**empty, **({"n": 0} if "n" in metric else {}), "not_estimable": {}, "note": f"not known: {damage}"}
