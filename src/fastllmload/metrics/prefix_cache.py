"""What a prefix cache saves (IETF 5.7.4; metrics.md 7.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.distribution import scalar
from fastllmload.records.run import Run

Numbers = npt.NDArray[np.int64]


def change_percent(before: float | None, after: float | None) -> float | None:
    """100 (after - before) / before; None without either, or for 0 before."""
    return None if before is None or after is None or before == 0 else 100 * (after - before) / before


def ttft_reduction(off: float | None, on: float | None) -> float | None:
    """100 (off - on) / off: what the cache saves of a TTFT, in percent; negative when it is slower."""
    change = change_percent(off, on)
    return None if change is None else -change


def ttft_reductions(
    off: Mapping[str, float | None], on: Mapping[str, float | None], names: tuple[str, ...] = ("p50", "p95", "p99")
) -> dict[str, float | None]:
    """`ttft_reduction` of each percentile of two `metrics.ttft` of run.json."""
    return {name: ttft_reduction(off.get(name), on.get(name)) for name in names}


def throughput_improvement(off: float | None, on: float | None) -> float | None:
    """100 (on - off) / off in percent."""
    return change_percent(off, on)


def cache_hit_rate(cached_tokens: Numbers, prefix_tokens: Numbers) -> float | None:
    """Share of shared prefix tokens that came from the cache, over requests that share a prefix (prefix_tokens > 0).

    *cached_tokens*: what the server said, below 0 where it said nothing; those requests are left out. None when it
    never said anything, or nobody shares a prefix.
    """
    said = (cached_tokens >= 0) & (prefix_tokens > 0)
    shared = int(prefix_tokens[said].sum())
    return float(np.minimum(cached_tokens, prefix_tokens)[said].sum() / shared) if shared else None


def prefix_tokens(run: Run, rows: npt.NDArray[Any]) -> Numbers:
    """`prefix_tokens_of` the requests of *rows*."""
    return prefix_tokens_of(run, rows["request"])


def prefix_tokens_of(run: Run, requests: npt.NDArray[Any]) -> Numbers:
    """Tokens of each of *requests*, numbers of the plan, that are a part which other prompts have too; 0 where nothing
    is shared.

    All of the measure phase. A plan that does not say it of each request (conversations) says how long a prefix is that
    all of them share.
    """
    schedule = run.array("plan/schedule.npy", shape=(None,))
    if schedule is not None and "prefix_tokens" in (schedule.dtype.names or ()) and schedule["prefix_tokens"].any():
        found: Numbers = schedule["prefix_tokens"][requests % len(schedule)].astype(np.int64)
        return found
    described = run.manifest.get("plan", {}).get("description", {}).get("workload")
    asked = described if described is not None else run.manifest.get("config", {}).get("workload", {})
    if asked.get("prefix_len") and asked.get("prefix_share", 1.0) == 1.0:
        return np.full(len(requests), asked["prefix_len"], np.int64)
    return np.zeros(len(requests), np.int64)


def cache_metrics(run: Run, rows: npt.NDArray[Any]) -> dict[str, Any]:
    """`cache_hit_rate` over *rows*, which are ok: null when prompts share no prefix or the server says nothing."""
    shared, cached = prefix_tokens(run, rows), rows["cached_tokens"].astype(np.int64)
    sharing = shared > 0
    return {
        "cache_hit_rate": scalar(
            cache_hit_rate(cached, shared),
            "share",
            n=int((sharing & (cached >= 0)).sum()),
            n_null=int((sharing & (cached < 0)).sum()),
        )
    }
