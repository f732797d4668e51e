"""GuideLLM's `benchmarks.json`: one result per benchmark, each with its requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastllmload.arrays import Floats
from fastllmload.compare.foreign.result import (
    FROM,
    NS_PER_S,
    ForeignRequests,
    ForeignResult,
    is_number,
    known_only,
    load_text,
    rate,
    summary,
    whole_number,
)
from fastllmload.documents.metric import Metric
from fastllmload.errors import RunFolderError

TOOL = "GuideLLM"
FILE = "benchmarks.json"
VERSION = 1  # of the layout
OURS = {  # their metric, and its factor to ms
    "ttft_any": ("time_to_first_token_ms", 1.0),
    "ttft": ("time_to_first_output_token_ms", 1.0),
}
STATISTICS = {"p50": "p50", "p75": "p75", "p90": "p90", "p95": "p95", "p99": "p99", "p999": "p999"}
WINDOW = "successful requests within its window, which its warm-up and cool-down leave out"
THEIRS = {
    "ttft_any": f"time_to_first_token_ms: {FROM}",
    "ttft": f"time_to_first_output_token_ms: {FROM}",
    "tpot_any": "inter_token_latency_ms of each request; its own summary weighs each with its tokens, ours counts it once",
    "e2e": f"request_latency, cut at the last token, as ours: {FROM}",
    "total_duration": f"request_latency: {FROM}",
    "req_s": f"requests_per_second: {WINDOW}",
    "output_tok_s": f"output_tokens_per_second: {WINDOW}, their tokens evenly spread over the chunks",
}
WITHOUT = {
    "tpot": "its inter_token_latency counts all tokens, reasoning included: compare tpot_any",
    "itl": "it records the first and the last token only, no gaps; its inter_token_latency is a mean per request (tpot_any)",
    "tpot_any": "its inter_token_latency_ms weighs each request with its tokens",
    "e2e": "its request_latency lasts until the end of the stream: compare total_duration",
    "output_tok_s_makespan": "its rate is of a window: compare output_tok_s",
    "req_s_makespan": "its rate is of a window: compare req_s",
}


def is_guidellm(found: Mapping[str, Any]) -> bool:
    benchmarks = found.get("benchmarks")
    return (
        isinstance(benchmarks, list) and bool(benchmarks) and "requests_per_second" in benchmarks[0].get("metrics", {})
    )


def read_guidellm(found: Mapping[str, Any], number: int | None, place: str) -> ForeignResult:
    """Benchmark *number*, from 1. RunFolderError for another layout, and where one of several must be named."""
    metadata, benchmarks = found.get("metadata") or {}, found["benchmarks"]
    if metadata.get("version") != VERSION:
        raise RunFolderError(
            "schema-version",
            f"{place} has metadata.version {metadata.get('version')!r} of GuideLLM; this version reads {VERSION}",
        )
    one = benchmarks[chosen(len(benchmarks), number, place) - 1]
    metrics, totals = one["metrics"], one["metrics"].get("request_totals") or {}
    completed = whole_number(totals.get("successful"))
    requests = requests_of(one)
    return ForeignResult(
        tool=TOOL,
        theirs=THEIRS,
        without={name: why for name, why in WITHOUT.items() if requests is None or name not in requests.latencies},
        advice="keep all requests of it (no --sample-requests)",
        version=metadata.get("guidellm_version"),
        completed=completed,
        failed=whole_number(totals.get("errored")),
        input_tokens=total_of(metrics, "prompt_token_count"),
        output_tokens=total_of(metrics, "output_token_count"),
        seconds=one.get("duration"),
        load=load_of((one.get("config") or {}).get("strategy") or {}),
        metrics=summaries(metrics),
        requests=requests,
    )


def chosen(many: int, number: int | None, place: str) -> int:
    """*number*, or 1 of one result. RunFolderError for no such result."""
    if number is None and many == 1:
        return 1
    if number is None or not 1 <= number <= many:
        raise RunFolderError(
            "result-file-several",
            f"{place} has {many} results; name one of them: {place.partition('#')[0]}#1 to #{many}",
        )
    return number


def summaries(metrics: Mapping[str, Any]) -> dict[str, Metric]:
    found = {ours: block_of(metrics, theirs, scale) for ours, (theirs, scale) in OURS.items()}
    found["total_duration"] = block_of(metrics, "request_latency", 1e3)
    found["req_s"] = rate(successful(metrics, "requests_per_second").get("mean"), "requests/s")
    found["output_tok_s"] = rate(successful(metrics, "output_tokens_per_second").get("mean"), "tokens/s")
    return known_only(found)


def successful(metrics: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return (metrics.get(name) or {}).get("successful") or {}


def block_of(metrics: Mapping[str, Any], name: str, scale: float) -> Metric | None:
    found = successful(metrics, name)
    flat = {**(found.get("percentiles") or {}), **{name: found.get(name) for name in ("mean", "std_dev", "min", "max")}}
    return summary(
        flat,
        {**STATISTICS, "mean": "mean", "std_dev": "std", "min": "min", "max": "max"},
        scale,
        whole_number(found.get("count")),
    )


def total_of(metrics: Mapping[str, Any], name: str) -> int | None:
    return whole_number(successful(metrics, name).get("total_sum"))


def load_of(strategy: Mapping[str, Any]) -> str | None:
    """As far as the strategy is one that has a counterpart."""
    kind = strategy.get("type_")
    if kind in ("constant", "poisson", "async") and is_number(strategy.get("rate")):
        return load_text(strategy["rate"], strategy.get("max_concurrency"))
    if kind == "concurrent":
        return load_text(None, strategy.get("streams"))
    if kind == "synchronous":
        return load_text(None, 1)
    return load_text(None, strategy.get("max_concurrency")) if kind == "throughput" else None


def requests_of(one: Mapping[str, Any]) -> ForeignRequests | None:
    """The requests that were begun in the window; None where the file has only some of them."""
    times, given = one.get("scheduler_metrics") or {}, one.get("requests") or {}
    made = times.get("requests_made") or {}
    groups = {name: given.get(name) or [] for name in ("successful", "errored")}
    if not groups["successful"] or any(len(groups[name]) < (made.get(name) or 0) for name in groups):
        return None
    begin, end = (float(times[f"measure_{name}_time"]) for name in ("start", "end"))
    sent = [(name == "successful", each) for name, group in groups.items() for each in group]
    rows = [(ok, each) for ok, each in sent if begin <= started(each) <= end]
    rows.sort(key=lambda row: started(row[1]))
    good = [each for ok, each in rows if ok]
    if not good:
        return None
    start, first, answer, last = (
        seconds(good, name)
        for name in ("request_start", "first_token_iteration", "first_output_token_iteration", "last_token_iteration")
    )
    tokens = np.array([whole_number(each.get("output_tokens")) or 0 for each in good], np.int64)
    several = tokens > 1
    named = {
        "ttft_any": (first - start) * NS_PER_S,
        "ttft": (answer - start) * NS_PER_S,
        "tpot_any": np.where(several, (last - first) * NS_PER_S / np.where(several, tokens - 1, 1), np.nan),
        "e2e": (last - start) * NS_PER_S,
        "total_duration": (seconds(good, "request_end") - start) * NS_PER_S,
    }
    found = {name: values for name, values in named.items() if not np.isnan(values).all()}
    return ForeignRequests(np.array([ok for ok, _ in rows], np.bool_), found, tokens)


def timings(request: Mapping[str, Any]) -> Mapping[str, Any]:
    return (request.get("info") or {}).get("timings") or {}


def started(request: Mapping[str, Any]) -> float:
    """In s; NaN for a request that was not sent."""
    found = timings(request).get("request_start")
    return float("nan") if found is None else float(found)


def seconds(requests: Sequence[Mapping[str, Any]], name: str) -> Floats:
    return np.array(
        [each if is_number(each := timings(request).get(name)) else np.nan for request in requests], np.float64
    )
