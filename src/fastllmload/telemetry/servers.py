"""Maps the metric names of inference servers to common names: vLLM (V0, V1), SGLang, TGI, llama.cpp, our simulator.

A histogram of a server is two counters here, sum and count, whose increments over the window give its mean.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class KnownMetric:
    """One figure. Of *sources* the first that a page has is taken. *combine*: what its label sets make together."""

    name: str
    unit: str
    kind: str  # gauge, or counter: since the server's start
    sources: tuple[str, ...]
    combine: str = "sum"  # or mean, for shares


def histogram(name: str, unit: str, *sources: str) -> tuple[KnownMetric, KnownMetric]:
    return (
        KnownMetric(f"{name}_sum", unit, "counter", tuple(f"{source}_sum" for source in sources)),
        KnownMetric(f"{name}_count", "requests", "counter", tuple(f"{source}_count" for source in sources)),
    )


KNOWN: tuple[KnownMetric, ...] = (
    KnownMetric("running", "requests", "gauge", (
        "vllm:num_requests_running", "sglang:num_running_reqs", "tgi_batch_current_size",
        "llamacpp:requests_processing")),
    KnownMetric("waiting", "requests", "gauge", (
        "vllm:num_requests_waiting", "sglang:num_queue_reqs", "tgi_queue_size", "llamacpp:requests_deferred")),
    KnownMetric("kv_usage", "share", "gauge", (
        "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage",
        "llamacpp:kv_cache_usage_ratio"), "mean"),
    KnownMetric("prefix_cache_hits", "tokens", "counter", (
        "vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total", "sglang:cached_tokens_total")),
    KnownMetric("prefix_cache_queries", "tokens", "counter", (
        "vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total", "sglang:prompt_tokens_total")),
    KnownMetric("prefix_cache_hit_rate", "share", "gauge", ("sglang:cache_hit_rate",), "mean"),
    KnownMetric("preemptions", "preemptions", "counter", (
        "vllm:num_preemptions_total", "sglang:num_retracted_requests_total")),
    KnownMetric("prompt_tokens", "tokens", "counter", (
        "vllm:prompt_tokens_total", "sglang:prompt_tokens_total", "tgi_request_input_length_sum",
        "llamacpp:prompt_tokens_total")),
    KnownMetric("generation_tokens", "tokens", "counter", (
        "vllm:generation_tokens_total", "sglang:generation_tokens_total", "tgi_request_generated_tokens_sum",
        "llamacpp:tokens_predicted_total")),
    KnownMetric("requests_finished", "requests", "counter", (
        "vllm:request_success_total", "sglang:num_requests_total", "tgi_request_success")),
    KnownMetric("engine_steps", "steps", "counter", (
        "fastllmload_simulator:steps_total", "vllm:iteration_tokens_total_count", "llamacpp:n_decode_total")),
    KnownMetric("model_load_time", "s", "gauge", ("sglang:engine_load_weights_time",), "mean"),
    *histogram("queue_time", "s", "vllm:request_queue_time_seconds", "sglang:queue_time_seconds",
               "tgi_request_queue_duration"),
    *histogram("prefill_time", "s", "vllm:request_prefill_time_seconds"),
    *histogram("decode_time", "s", "vllm:request_decode_time_seconds"),
    *histogram("inference_time", "s", "vllm:request_inference_time_seconds", "tgi_request_inference_duration"),
    *histogram("server_ttft", "s", "vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds"),
)  # fmt: skip

SOURCES: frozenset[str] = frozenset(source for known in KNOWN for source in known.sources)


@dataclass(frozen=True)
class Engine:
    """A server that its page gives away. *pages*: where it tells its version, with the keys of version and batch limit."""

    name: str
    mark: re.Pattern[bytes]  # begins one of its series
    pages: tuple[str, ...] = ()
    version_key: str = "version"
    batch_key: str | None = None


def engine(name: str, prefix: str, *pages: str, version_key: str = "version", batch_key: str | None = None) -> Engine:
    return Engine(name, re.compile(b"\n" + prefix.encode()), pages, version_key, batch_key)


ENGINES: tuple[Engine, ...] = (
    engine("fastllmload simulator", "fastllmload_simulator:"),  # it speaks vLLM's names too, so it comes first
    engine("vllm", "vllm:", "/version"),
    engine("sglang", "sglang:", "/server_info", "/get_server_info", batch_key="max_running_requests"),
    engine("tgi", "tgi_", "/info", batch_key="max_batch_size"),
    engine("llama.cpp", "llamacpp:", "/props", version_key="build_info", batch_key="total_slots"),
)


def engine_of(page: bytes) -> Engine | None:
    """Whose metrics *page* has; None when none of the known."""
    text = b"\n" + page
    return next((engine for engine in ENGINES if engine.mark.search(text)), None)
