"""The file of `vllm bench serve --save-result`, also of the tools that write the same (SGLang's does not)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fastllmload.arrays import Floats
from fastllmload.compare.foreign.result import (
    FROM,
    NS_PER_S,
    RATES_WITHOUT,
    WITH_DRAIN,
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

TOOL = "vLLM"
REQUIRED = ("duration", "completed", "request_throughput", "mean_ttft_ms", "median_ttft_ms")
OURS = {"ttft": "ttft_any", "tpot": "tpot_any", "itl": "tbc", "e2el": "e2e"}  # by their name
THEIRS = {
    "ttft_any": f"ttft: until the first chunk, which may have no text, and {FROM}",
    "tpot_any": "tpot: until the last chunk, also one without a token",
    "tbc": "itl: gaps between chunks, however many tokens they have",
    "itl": "itl: gaps between chunks, of which nearly all have one token here",
    "e2e": "e2el: until the last chunk, also one without a token, and from before the request is written",
    "req_s_makespan": f"request_throughput: {WITH_DRAIN}",
    "output_tok_s_makespan": f"output_throughput: {WITH_DRAIN}",
}
WITHOUT = {
    "ttft": "its ttft ends at any token, reasoning included: compare ttft_any",
    "tpot": "its tpot counts all tokens, reasoning included: compare tpot_any",
    **RATES_WITHOUT,
}
STATISTIC = re.compile(r"(mean|median|std|p[0-9.]+)_([a-z0-9]+)_ms")
NAMES = {
    "mean": "mean",
    "median": "p50",
    "std": "std",
    **{f"p{q}": f"p{q}" for q in (50, 75, 90, 95, 99)},
    "p99.9": "p999",
}
DETAILS = ("ttfts", "itls", "output_lens")


def is_vllm(found: Mapping[str, Any]) -> bool:
    return all(name in found for name in REQUIRED)


def read_vllm(found: Mapping[str, Any], place: str) -> ForeignResult:
    if not is_number(found["duration"]) or found["duration"] < 0:
        raise ValueError(f"duration is {found['duration']!r}, not a number of seconds")
    completed = whole_number(found["completed"])
    sent = whole_number(found.get("num_prompts"))
    failed = whole_number(found.get("failed"))
    if failed is None and sent is not None and completed is not None:
        failed = sent - completed  # earlier versions do not write it
    return ForeignResult(
        tool=TOOL,
        theirs=THEIRS,
        without=WITHOUT,
        advice="save it with --save-detailed",
        model=str(found["model_id"]) if found.get("model_id") else None,
        completed=completed,
        failed=failed,
        input_tokens=whole_number(found.get("total_input_tokens")),
        output_tokens=whole_number(found.get("total_output_tokens")),
        seconds=float(found["duration"]),
        load=load_text(found["request_rate"], found.get("max_concurrency")) if "request_rate" in found else None,
        metrics=summaries(found),
        requests=requests_of(found, place) if all(found.get(name) for name in DETAILS) else None,
    )


def summaries(found: Mapping[str, Any]) -> dict[str, Metric]:
    by_metric: dict[str, dict[str, Any]] = {}
    for key, value in found.items():
        match = STATISTIC.fullmatch(key)
        if match is not None:
            by_metric.setdefault(match[2], {})[match[1]] = value
    completed = whole_number(found["completed"]) or 0
    return known_only(
        {ours: summary(by_metric.get(theirs, {}), NAMES) for theirs, ours in OURS.items()}
        | {
            "req_s_makespan": rate(found["request_throughput"], "requests/s") if completed else None,
            "output_tok_s_makespan": rate(found.get("output_throughput"), "tokens/s") if completed else None,
        }
    )


def requests_of(found: Mapping[str, Any], place: str) -> ForeignRequests:
    """What `--save-detailed` adds. RunFolderError for lists of unequal lengths."""
    ttfts, itls, lengths = (found[name] for name in DETAILS)
    errors = found.get("errors") or [""] * len(ttfts)
    starts = found.get("start_times") or list(range(len(ttfts)))
    if len({len(each) for each in (ttfts, itls, lengths, errors, starts)}) > 1:
        raise RunFolderError(
            "result-file-invalid",
            f"{place}: ttfts, itls, output_lens, errors and start_times have different lengths; it was changed since vLLM "
            "wrote it",
        )
    order = np.argsort(np.asarray(starts, np.float64), kind="stable")
    ok = np.array([not errors[k] for k in order], np.bool_)
    chosen = [int(k) for k in order if not errors[k]]
    first = np.concatenate([[0], np.cumsum([len(itls[k]) for k in chosen])]).astype(np.int64)
    gaps = ns_of([gap for k in chosen for gap in itls[k]])
    ttft, tokens = ns_of([ttfts[k] for k in chosen]), np.array([lengths[k] for k in chosen], np.int64)
    after = np.array([gaps[begin:end].sum() for begin, end in pairwise(first.tolist())], np.float64)
    streamed, several = ttft > 0, tokens > 1  # without a stream ttft is 0
    latencies = {
        "ttft_any": np.where(streamed, ttft, np.nan),
        "tpot_any": np.where(streamed & several, after / np.where(several, tokens - 1, 1), np.nan),
        "e2e": np.where(streamed, ttft + after, np.nan),
    }
    return ForeignRequests(ok, latencies, tokens, gaps, first)


def ns_of(seconds: Sequence[float | None]) -> Floats:
    """NaN for null. ValueError for a negative time."""
    found = np.asarray(seconds, np.float64) * NS_PER_S
    if (found < 0).any():
        raise ValueError(f"a time of {found.min() / NS_PER_S:g} s")
    return found
