"""The state of a run at one instant for a live view, computed by the supervisor from the shared counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fastllmload.report.text.numbers import count

SILENT_S = 2.0  # a host reports four times a second; what it is silent for longer than this is shown
STATUSES = ("running", "ended", "late", "lost")  # of a host, the worst last


@dataclass(frozen=True, kw_only=True)
class HostSnapshot:
    """One host of a run over many; counts are those of the phase so far."""

    number: int
    name: str
    status: str = "running"  # or late: it began after time zero, ended, lost
    silent_s: float = 0.0  # since something was received from it
    sent: int = 0
    ok: int = 0
    failed: int = 0
    in_flight: int = 0
    events_per_s: float | None = None
    lag_p99_us: float | None = None

    @property
    def silent(self) -> bool:
        return self.silent_s > SILENT_S and self.status in ("running", "late")

    @property
    def state(self) -> str:
        """`running`, or `silent 3 s`."""
        return f"silent {self.silent_s:.0f} s" if self.silent else self.status

    @property
    def badness(self) -> tuple[int, float, int, float]:
        return STATUSES.index(self.status), self.silent_s * self.silent, self.failed, self.lag_p99_us or 0.0


@dataclass(frozen=True, kw_only=True)
class ClassSnapshot:
    """One class of a mix, as far as its rows are written: about a second ago, two over many hosts."""

    name: str
    in_flight: int = 0
    ok: int = 0
    failed: int = 0
    latency: str = "ttft"  # which one the percentiles are of: e2e where answers are not streams of tokens
    p50_ms: float | None = None
    p99_ms: float | None = None


def worst(hosts: Sequence[HostSnapshot], most: int) -> Sequence[HostSnapshot]:
    """All *hosts* where they are at most *most*; else that many of them, the worst first."""
    return hosts if len(hosts) <= most else sorted(hosts, key=lambda host: host.badness, reverse=True)[:most]


def others(hosts: Sequence[HostSnapshot], shown: Sequence[HostSnapshot]) -> str:
    """`97 more hosts: 96 running, 1 late`; empty if all are shown."""
    numbers = {host.number for host in shown}
    by_status = Counter(host.status for host in hosts if host.number not in numbers)
    rest = sum(by_status.values())
    each = ", ".join(f"{count(by_status[status])} {status}" for status in STATUSES if by_status[status])
    return f"{count(rest)} more host{'' if rest == 1 else 's'}: {each}" if rest else ""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Counts, rates and percentiles of the phase so far. None: not known (yet)."""

    t: float  # seconds since the phase's time zero
    phase: str
    asked_rate: float | None = None  # requests/s; None in a closed loop, inf for all at once
    achieved_rate: float | None = None  # releases/s, of open and of closed loops
    concurrency: int | None = None  # slots of a closed loop, or of the closed loops of a mix
    released: int = 0
    ended: int = 0
    ok: int = 0
    failed: int = 0
    in_flight: int = 0
    waiting: int | None = None  # of those in flight, for their first token; only with --max-prefill
    connections: int = 0
    ttft_p50_ms: float | None = None
    ttft_p99_ms: float | None = None
    ttft_any_p50_ms: float | None = None  # to the first token of any kind; only where answers reason
    ttft_any_p99_ms: float | None = None
    # Name of the gaps between chunks: tbc where each is to be spread over its chunk's tokens; "": answers are not tokens
    gaps: str = "itl"
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
    hosts: Sequence[HostSnapshot] = ()  # of a run over many
    classes: Sequence[ClassSnapshot] = ()  # of a mix
