"""What a prefix cache saves (IETF 5.7.4; metrics.md 7.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.distribution import scalar

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


def prefix_tokens(manifest: Mapping[str, Any], requests: int) -> Numbers:
    """Shared prefix of each of *requests* rows, from the plan that was sent; 0 where nothing is shared."""
    planned = manifest.get("plan", {}).get("description", {}).get("workload")
    asked = planned if planned is not None else manifest.get("config", {}).get("workload", {})
    return np.full(requests, asked.get("prefix_len") or 0, np.int64)


def cache_metrics(manifest: Mapping[str, Any], rows: npt.NDArray[Any]) -> dict[str, Any]:
    """`cache_hit_rate` over *rows*, which are ok: null when prompts share no prefix or the server says nothing."""
    shared, cached = prefix_tokens(manifest, len(rows)), rows["cached_tokens"].astype(np.int64)
    sharing = shared > 0
    return {
        "cache_hit_rate": scalar(
            cache_hit_rate(cached, shared),
            "share",
            n=int((sharing & (cached >= 0)).sum()),
            n_null=int((sharing & (cached < 0)).sum()),
        )
    }
