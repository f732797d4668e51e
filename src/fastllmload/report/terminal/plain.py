"""The plain view: one line every five seconds, for pipes, files and CI logs."""

from __future__ import annotations

from collections.abc import Sequence

from fastllmload.documents.run import RunDocument
from fastllmload.report.render.terminal import print_screen
from fastllmload.report.terminal.outlet import Outlet, Redact
from fastllmload.report.terminal.snapshot import HostSnapshot, Snapshot, others, worst
from fastllmload.report.terminal.summary import summary
from fastllmload.report.text.failures import errors, failed_counts
from fastllmload.report.text.numbers import asked_rate, clock, count, percent, quantity

EVERY_S = 5.0
HOSTS = 3  # that are shown


class PlainView:
    """Uses the time of the snapshots, so that equal snapshots give equal lines."""

    def __init__(self, outlet: Outlet, redact: Redact) -> None:
        self._outlet = outlet
        self._redact = redact
        self._due = 0.0

    def banner(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._line(line)

    def phase(self, name: str, planned: int | None, seconds: float | None) -> None:
        self._due = EVERY_S
        self._line(phase_line(name, planned, seconds))

    def due(self, t: float) -> bool:
        return t >= self._due

    def update(self, snapshot: Snapshot) -> None:
        if not self.due(snapshot.t):
            return
        self._due = (snapshot.t // EVERY_S + 1) * EVERY_S
        for line in (snapshot_line(snapshot), *host_lines(snapshot)):
            self._line(line)

    def message(self, text: str) -> None:
        self._line(text)

    def finish(self, document: RunDocument, folder: str | None = None) -> None:
        print_screen(self._outlet, summary(document, folder))

    def close(self) -> None:
        self._outlet.flush()

    def _line(self, text: str) -> None:
        self._outlet.write(self._redact(text) + "\n")
        self._outlet.flush()


def phase_line(name: str, planned: int | None, seconds: float | None) -> str:
    """`measure: 15,000 requests in 0:30`."""
    requests = "" if planned is None else f" {planned:,} request{'' if planned == 1 else 's'}"
    length = "" if seconds is None else f" in {clock(seconds)}" if requests else f" {clock(seconds)}"
    return f"{name}:{requests}{length}" if requests or length else name


WARMUP = "warmup"


def load_text(snapshot: Snapshot) -> str:
    """`498.7 of 500/s`, `64 slots, 120/s` in a closed loop, or `40/s asked + 64 slots, 160/s` in a mix of both."""
    achieved = quantity(snapshot.achieved_rate)
    if snapshot.concurrency is not None:
        asked = "" if snapshot.asked_rate is None else f"{asked_rate(snapshot.asked_rate)} asked + "
        return f"{asked}{snapshot.concurrency:,} slots, {achieved}/s"
    if snapshot.asked_rate is None:
        return f"{achieved}/s"
    return f"{achieved} of {asked_rate(snapshot.asked_rate)}"


def snapshot_line(snapshot: Snapshot) -> str:
    """One line for *snapshot*; two percentiles are p50/p99."""
    parts = [
        f"{clock(snapshot.t):>7} {snapshot.phase}",
        load_text(snapshot),
        f"ok {count(snapshot.ok)}",
        f"failed {count(snapshot.failed)}",
        f"in flight {count(snapshot.in_flight)}",
        *([] if snapshot.waiting is None else [f"waiting {count(snapshot.waiting)}"]),
        *(
            f"{name} {_pair(p50, p99)} {unit}"
            for name, p50, p99, unit in (
                ("ttft" if snapshot.gaps else "", snapshot.ttft_p50_ms, snapshot.ttft_p99_ms, "ms"),
                *(
                    [("ttft_any", snapshot.ttft_any_p50_ms, snapshot.ttft_any_p99_ms, "ms")]
                    if snapshot.ttft_any_p50_ms is not None
                    else []
                ),
                (snapshot.gaps, snapshot.itl_p50_ms, snapshot.itl_p99_ms, "ms"),
                ("lag", snapshot.lag_p50_us, snapshot.lag_p99_us, "us"),
            )
            if name and (snapshot.phase != WARMUP or p50 is not None)  # the warm-up is not measured
        ),
        f"cpu {percent(snapshot.client_cpu)}",
    ]
    wrong = errors(snapshot.errors)
    where = failed_counts(snapshot.failed_at, most=2)
    return ", ".join(parts) + (f"; {wrong}" if wrong != "" else "") + (f"; failed at {where}" if where != "" else "")


def host_lines(snapshot: Snapshot) -> list[str]:
    """One line per host of a run over many; of more than HOSTS only the worst, and a line about the others."""
    shown = worst(snapshot.hosts, HOSTS)
    lines = [*map(_host_line, shown), others(snapshot.hosts, shown)]
    return [f"{'':>7} {line}" for line in lines if line]


def _host_line(host: HostSnapshot) -> str:
    parts = [
        f"host {host.number} ({host.name}) {host.state}",
        f"sent {count(host.sent)}",
        f"ok {count(host.ok)}",
        f"failed {count(host.failed)}",
        f"in flight {count(host.in_flight)}",
        f"events {quantity(host.events_per_s)}/s",
        f"lag p99 {quantity(host.lag_p99_us)} us",
    ]
    return ", ".join(parts)


def _pair(p50: float | None, p99: float | None) -> str:
    return quantity(None) if p50 is None and p99 is None else f"{quantity(p50)}/{quantity(p99)}"
