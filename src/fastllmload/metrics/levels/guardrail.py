"""Computes the overhead of guardrail filters (IETF 5.10.4; spec/metrics 7.9) from complete runs, by percentile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastllmload.metrics.levels.prefix_cache import change_percent

NAMES = ("p50", "p95", "p99", "mean")

Metrics = Mapping[str, Any]  # "metrics" of a run.json


def difference(metrics: Metrics | None, baseline: Metrics, metric: str) -> dict[str, float | None] | None:
    """metric - baseline in ms by percentile; None for a configuration that was not run."""
    if metrics is None:
        return None
    figures, base = metrics[metric], baseline[metric]
    return {name: None if figures[name] is None or base[name] is None else figures[name] - base[name] for name in NAMES}


def overheads(
    baseline: Metrics,
    input_filter: Metrics | None = None,
    output_filter: Metrics | None = None,
    full: Metrics | None = None,
) -> dict[str, dict[str, float | None] | None]:
    """Milliseconds that each configuration adds: TTFT for the input filter, E2E for the other two.

    IETF defines none for the output filter; E2E is this program's choice.
    """
    return {
        "input_filter_ttft_ms": difference(input_filter, baseline, "ttft"),
        "output_filter_e2e_ms": difference(output_filter, baseline, "e2e"),
        "total_e2e_ms": difference(full, baseline, "e2e"),
    }


def throughput_change(baseline: float | None, configured: float | None) -> float | None:
    """100 (configured - baseline) / baseline in percent: negative when slower, as in IETF Table 14."""
    return change_percent(baseline, configured)
