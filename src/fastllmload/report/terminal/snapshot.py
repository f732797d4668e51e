"""The state of a run at one instant for a live view, computed by the supervisor from the shared counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Counts, rates and percentiles of the phase so far. None: not known (yet)."""

    t: float  # seconds since the phase's time zero
    phase: str
    asked_rate: float | None = None  # requests/s; None in a closed loop, inf for all at once
    achieved_rate: float | None = None  # releases/s
    concurrency: int | None = None  # slots of a closed loop
    released: int = 0
    ended: int = 0
    ok: int = 0
    failed: int = 0
    in_flight: int = 0
    connections: int = 0
    ttft_p50_ms: float | None = None
    ttft_p99_ms: float | None = None
    ttft_any_p50_ms: float | None = None  # to the first token of any kind; only where answers reason
    ttft_any_p99_ms: float | None = None
    gaps: str = "itl"  # name of the gaps between chunks: tbc where each is to be spread over its chunk's tokens
    itl_p50_ms: float | None = None
    itl_p99_ms: float | None = None
    e2e_p50_ms: float | None = None
    lag_p50_us: float | None = None
    lag_p99_us: float | None = None
    client_cpu: float | None = None  # share of a core, the busiest worker
    events_per_s: float | None = None
    errors: Mapping[str, int] = field(default_factory=dict)  # by class
    failed_at: Mapping[str, int] | None = None  # by URL, of several; None with one
    gc_runs: int = 0
    eta: float | None = None  # seconds until the phase ends
