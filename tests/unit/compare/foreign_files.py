"""Result files of other tools, in their layout, with figures that are known: requests 0.1 s apart, chunks of one token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

REQUESTS, TOKENS, GAP_S, EVERY_S = 200, 5, 0.010, 0.1
# TTFT of request k in s: 21 ms to 60 ms, in an order without a trend
TTFTS = [0.021 + 0.001 * (k * 17 % 40) for k in range(REQUESTS)]
BEGIN = 1_800_000_000.0


def percentile(values: list[float], q: float) -> float:
    return float(np.percentile(values, q))


def starts() -> list[float]:
    return [BEGIN + EVERY_S * k for k in range(REQUESTS)]


def seconds() -> float:
    """From the first request to the last answer."""
    return max(start + ttft + GAP_S * (TOKENS - 1) for start, ttft in zip(starts(), TTFTS, strict=True)) - BEGIN


def vllm(detailed: bool = True, factor: float = 1.0, **changes: Any) -> dict[str, Any]:
    """*factor*: of all times."""
    ttfts = [each * factor for each in TTFTS]
    gap, lasted = GAP_S * factor, seconds()
    e2els = [each + gap * (TOKENS - 1) for each in ttfts]
    found: dict[str, Any] = {
        "date": "20270115-080000", "endpoint_type": "openai", "backend": "openai", "label": None, "model_id": "m",
        "tokenizer_id": "m", "num_prompts": REQUESTS, "request_rate": 10.0, "burstiness": 1.0, "max_concurrency": None,
        "duration": lasted, "completed": REQUESTS, "failed": 0, "total_input_tokens": 8 * REQUESTS,
        "total_output_tokens": TOKENS * REQUESTS, "request_throughput": REQUESTS / lasted, "request_goodput": None,
        "output_throughput": TOKENS * REQUESTS / lasted, "total_token_throughput": (TOKENS + 8) * REQUESTS / lasted,
    }  # fmt: skip
    gaps = [gap] * (TOKENS - 1) * REQUESTS
    for name, values in {"ttft": ttfts, "tpot": [gap] * REQUESTS, "itl": gaps, "e2el": e2els}.items():
        found[f"mean_{name}_ms"] = float(np.mean(values)) * 1e3
        found[f"median_{name}_ms"] = percentile(values, 50) * 1e3
        found[f"std_{name}_ms"] = float(np.std(values)) * 1e3
        found[f"p99_{name}_ms"] = percentile(values, 99) * 1e3
    if detailed:
        found |= {
            "input_lens": [8] * REQUESTS, "output_lens": [TOKENS] * REQUESTS, "ttfts": ttfts,
            "itls": [[gap] * (TOKENS - 1)] * REQUESTS, "start_times": starts(), "generated_texts": ["x"] * REQUESTS,
            "errors": [""] * REQUESTS,
        }  # fmt: skip
    return found | changes


def aiperf(**changes: Any) -> dict[str, Any]:
    def block(values: list[float], unit: str = "ms") -> dict[str, Any]:
        of = {f"p{q}": percentile(values, q) for q in (1, 5, 10, 25, 50, 75, 90, 95, 99)}
        of |= {"avg": float(np.mean(values)), "std": float(np.std(values)), "min": min(values), "max": max(values)}
        return {"unit": unit, **of}

    lasted = seconds()
    ttfts = [each * 1e3 for each in TTFTS]
    return {
        "schema_version": "1.0",
        "aiperf_version": "0.13.0",
        "request_throughput": {"unit": "requests/sec", "avg": REQUESTS / lasted},
        "request_count": {"unit": "requests", "avg": float(REQUESTS)},
        "error_request_count": None,
        "time_to_first_token": block(ttfts),
        "inter_token_latency": block([GAP_S * 1e3] * REQUESTS),
        "inter_chunk_latency": block([GAP_S * 1e3] * REQUESTS),
        "request_latency": block([each + GAP_S * 1e3 * (TOKENS - 1) for each in ttfts]),
        "output_token_throughput": {"unit": "tokens/sec", "avg": TOKENS * REQUESTS / lasted},
        "benchmark_duration": {"unit": "sec", "avg": lasted},
        "total_isl": {"unit": "tokens", "avg": 8.0 * REQUESTS},
        "total_osl": {"unit": "tokens", "avg": float(TOKENS * REQUESTS)},
        "input_config": {
            "endpoint": {"model_names": ["m"], "streaming": True},
            "loadgen": {"request_rate": 10.0, "request_rate_mode": "poisson"},
        },
        **changes,
    }


def aiperf_records() -> list[dict[str, Any]]:
    """One line per request, one of the warm-up, one failed."""

    def record(k: int, ttft: float, phase: str = "profiling", error: dict[str, Any] | None = None) -> dict[str, Any]:
        start = round(starts()[k] * 1e9)
        end = start + round((ttft + GAP_S * (TOKENS - 1)) * 1e9)
        metadata = {"session_num": k, "request_start_ns": start, "request_end_ns": end, "worker_id": "w",
                    "record_processor_id": "r", "benchmark_phase": phase}  # fmt: skip
        metrics = {
            "input_sequence_length": {"value": 8, "unit": "tokens"},
            "output_sequence_length": {"value": TOKENS, "unit": "tokens"},
            "time_to_first_token": {"value": ttft * 1e3, "unit": "ms"},
            "request_latency": {"value": (ttft + GAP_S * (TOKENS - 1)) * 1e3, "unit": "ms"},
            "inter_chunk_latency": {"value": [GAP_S * 1e3] * (TOKENS - 1), "unit": "ms"},
            "inter_token_latency": {"value": GAP_S * 1e3, "unit": "ms"},
        }
        return {"metadata": metadata, "metrics": metrics if error is None else {}, "error": error}

    good = [record(k, ttft) for k, ttft in enumerate(TTFTS)]
    failed = record(5, 0.02, error={"code": 500, "type": "E", "message": "no"})
    return [record(0, 9.0, "warmup"), *good[100:], failed, *good[:100]]


def guidellm(requests: bool = True, benchmarks: int = 1, version: int = 1) -> dict[str, Any]:
    def of(values: list[float]) -> dict[str, Any]:
        names = {"p05": 5, "p10": 10, "p25": 25, "p50": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99, "p999": 99.9}
        at = {name: float(np.percentile(values, q, method="inverted_cdf")) for name, q in names.items()}
        found = {"mean": float(np.mean(values)), "median": at["p50"], "std_dev": float(np.std(values)), "min": min(values),
                 "max": max(values), "count": len(values), "total_sum": sum(values), "percentiles": at}  # fmt: skip
        return {"successful": found, "incomplete": None, "errored": None, "total": found}

    def request(start: float, ttft: float) -> dict[str, Any]:
        last = start + ttft + GAP_S * (TOKENS - 1)
        times = {"request_start": start, "first_token_iteration": start + ttft, "first_output_token_iteration": start + ttft,
                 "last_token_iteration": last, "request_end": last + 0.002, "token_iterations": TOKENS}  # fmt: skip
        return {
            "request_id": "r",
            "info": {"status": "completed", "timings": times},
            "output_tokens": TOKENS,
            "prompt_tokens": 8,
        }

    e2e = [each + GAP_S * (TOKENS - 1) + 0.002 for each in TTFTS]
    early = request(BEGIN - 1, 9.0)  # of the warm-up
    one = {
        "type_": "generative_benchmark",
        "config": {"strategy": {"type_": "poisson", "rate": 10.0}},
        "duration": 20.0,
        "scheduler_metrics": {
            "measure_start_time": BEGIN, "measure_end_time": BEGIN + 20.0,
            "requests_made": {"successful": REQUESTS + 1, "errored": 0, "incomplete": 0, "total": REQUESTS + 1},
        },
        "metrics": {
            "request_totals": {"successful": REQUESTS, "errored": 0, "incomplete": 0, "total": REQUESTS},
            "requests_per_second": of([10.0]), "output_tokens_per_second": of([50.0]),
            "prompt_token_count": of([8.0] * REQUESTS), "output_token_count": of([float(TOKENS)] * REQUESTS),
            "time_to_first_token_ms": of([each * 1e3 for each in TTFTS]), "request_latency": of(e2e),
            "time_to_first_output_token_ms": of([each * 1e3 for each in TTFTS]),
            "inter_token_latency_ms": of([GAP_S * 1e3] * REQUESTS),
        },
        "requests": {
            "successful": [early, *map(request, starts(), TTFTS)] if requests else [], "errored": [], "incomplete": []
        },
    }  # fmt: skip
    return {"metadata": {"version": version, "guidellm_version": "0.8.1"}, "args": {}, "benchmarks": [one] * benchmarks}


def write(path: Path, *found: dict[str, Any]) -> str:
    path.write_text("\n".join(json.dumps(each) for each in found))
    return str(path)
