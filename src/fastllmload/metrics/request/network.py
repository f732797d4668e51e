"""Computes the network's share of a latency (IETF 4.7.3; spec/metrics 7.12)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from msgspec.structs import asdict

from fastllmload.arrays import Mask, Numbers
from fastllmload.documents.fields import known
from fastllmload.documents.metric import Distribution, Metric
from fastllmload.metrics.distribution.percentiles import percentile
from fastllmload.metrics.distribution.summary import distribution, without_nulls
from fastllmload.metrics.request.durations import NULL, between, ttft
from fastllmload.records.run import Run

OF_REQUESTS, OUTSIDE_THE_RUN = "connects of requests", "connects before and after the run"


class RoundTrips(Metric, frozen=True, kw_only=True):
    WRITTEN: ClassVar[tuple[str, ...]] = ("unit", "n", "p50", "p95")


class NetAdjusted(Distribution, frozen=True, kw_only=True):
    WRITTEN: ClassVar[tuple[str, ...]] = (*Distribution.WRITTEN, "rtt_p50_ms")


def rtt_ms(connect_ns: Numbers, method: str | None = None) -> RoundTrips:
    """P50, P95 and number of TCP connect times (NULL left out), which take one round trip each. P50 is None without any."""
    ordered = np.sort(without_nulls(connect_ns))
    p50, p95 = (None if ns is None else ns / 1e6 for ns in (percentile(ordered, 0.5), percentile(ordered, 0.95)))
    return RoundTrips(unit="ms", n=len(ordered), p50=p50, p95=p95, method=method)


def ttft_net_adjusted(ttft_ms: float | None, rtt_p50_ms: float | None) -> float | None:
    """TTFT less one round trip, in ms. In addition to TTFT, never instead of it; it may be below 0 and is not clamped."""
    return None if ttft_ms is None or rtt_p50_ms is None else ttft_ms - rtt_p50_ms


def network_metrics(run: Run, population: Mask) -> dict[str, Metric]:
    """`rtt_ms` from the connections that were made for a request, of any phase; where all were open in advance, from the
    connects before and after the run (`method`; IETF 4.7.3). `ttft_net_adjusted` where it is configured.
    """
    rtt = rtt_ms(between(run.rows, "t_dispatch", "t_connected"), OF_REQUESTS)
    if not rtt.n:
        target = run.document.target
        found = [round(ms * 1e6) for ms in (*target.connect_ms, *target.connect_after_ms)]
        rtt = rtt_ms(np.array(found, np.int64), OUTSIDE_THE_RUN)
    if not run.document.config.output.ttft_net_adjusted:
        return {"rtt_ms": rtt}
    adjusted = np.full(0, NULL, np.int64)
    if (p50 := known(rtt.p50)) is not None:
        adjusted = ttft(run.rows[population]) - round(p50 * 1e6)
    fields = asdict(distribution(adjusted, "ms")) | {"rtt_p50_ms": rtt.p50}
    return {"rtt_ms": rtt, "ttft_net_adjusted": NetAdjusted(**fields)}
