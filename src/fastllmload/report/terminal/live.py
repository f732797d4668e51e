"""The live view: a table that is redrawn in place four times a second and fits a terminal of 80 by 24."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import IO, cast

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from fastllmload.documents.run import RunDocument
from fastllmload.report.render.terminal import print_screen
from fastllmload.report.terminal.outlet import Outlet, Redact
from fastllmload.report.terminal.plain import WARMUP, load_text, phase_line
from fastllmload.report.terminal.snapshot import ClassSnapshot, HostSnapshot, Snapshot, others, worst
from fastllmload.report.terminal.summary import summary
from fastllmload.report.text.failures import errors, failed_counts
from fastllmload.report.text.numbers import clock, count, percent, quantity

EVERY_S = 0.25
BAR, LABEL, HOST = 30, 11, 15
HOSTS = 8  # that are shown: with them the view has 23 lines
CLASSES = 8
# One row for each later row, so that the view keeps its height
UNMEASURED = [(name, "not measured in the warm-up", "dim") for name in ("ttft", "itl", "e2e", "lag")]


OF_ANSWER, OF_ANY = "  first answer token", "  first token of any kind"  # where answers reason


class LiveView:
    """Draws when it gets a snapshot, without a thread; *now* returns seconds."""

    def __init__(self, outlet: Outlet, redact: Redact, now: Callable[[], float] = time.monotonic) -> None:
        self._outlet = outlet
        self._redact = redact
        self._now = now
        self._console = Console(file=cast(IO[str], outlet), highlight=False, markup=False, emoji=False)
        self._live: Live | None = None
        self._drawn_at = float("-inf")

    def banner(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.message(line)

    def phase(self, name: str, planned: int | None, seconds: float | None) -> None:
        self.message(phase_line(name, planned, seconds))
        if self._live is None:
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stderr=False,
                redirect_stdout=False,
            )
            self._live.start()

    def due(self, t: float) -> bool:
        return self._live is not None and self._now() - self._drawn_at >= EVERY_S

    def update(self, snapshot: Snapshot) -> None:
        if self._live is None or not self.due(snapshot.t):
            return
        self._drawn_at = self._now()
        self._live.update(render_snapshot(snapshot, self._redact), refresh=True)

    def message(self, text: str) -> None:
        self._console.print(Text(self._redact(text)))

    def finish(self, document: RunDocument, folder: str | None = None) -> None:
        self.close()
        print_screen(self._outlet, summary(document, folder))

    def close(self) -> None:
        """Show the cursor again."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._outlet.flush()


def render_snapshot(snapshot: Snapshot, redact: Redact = str) -> Group:
    """One name and value per line; lines too long for the terminal are truncated, never wrapped."""
    lines = []
    for name, text, style in _rows(snapshot):
        parts = ((f"{name:<{LABEL}}", "bold"), (redact(text), style))
        lines.append(Text.assemble(*parts, no_wrap=True, overflow="ellipsis"))
    return Group(*lines, *_hosts(snapshot, redact), *_classes(snapshot, redact))


def _classes(now: Snapshot, redact: Redact) -> list[Text]:
    """A table of the classes of a mix, those with the most failures first where there is no room for all."""
    if not now.classes:
        return []
    shown = now.classes
    if len(shown) > CLASSES:
        shown = sorted(shown, key=lambda one: (-one.failed, -one.ok))[:CLASSES]
    titles = _class_columns(("flight", "ok", "failed", "p50 ms", "p99 ms"))
    head = f"{f'{count(len(now.classes))} classes':<{HOST}}{'':<10}{titles}"
    lines = [Text(head, "bold"), *(_class(one, redact) for one in shown)]
    rest = len(now.classes) - len(shown)
    return [*lines, Text(f"{count(rest)} more classes")] if rest else lines


def _class(one: ClassSnapshot, redact: Redact) -> Text:
    name = redact(one.name)
    counts = [count(each) for each in (one.in_flight, one.ok, one.failed)]
    figures = _class_columns([*counts, quantity(one.p50_ms), quantity(one.p99_ms)])
    return Text.assemble(
        (f"{name if len(name) < HOST else f'{name[: HOST - 2]}…':<{HOST}}", "bold"),
        (f"{one.latency:<10}{figures}", "red" if one.failed else ""),
        no_wrap=True,
        overflow="ellipsis",
    )


def _class_columns(texts: Sequence[str]) -> str:
    return "".join(f"{text:>{width}}" for text, width in zip(texts, (9, 9, 8, 11, 11), strict=True))


def _hosts(now: Snapshot, redact: Redact) -> list[Text]:
    """A table of the hosts of a run over many, and a line about those that it has no room for."""
    if not now.hosts:
        return []
    shown = worst(now.hosts, HOSTS)
    titles = _columns(("sent", "ok", "failed", "flight", "events/s", "lag p99 us"))
    head = f"{f'{count(len(now.hosts))} hosts':<{HOST}}{'':<10}{titles}"
    lines = [Text(head, "bold"), *(_host(host, redact) for host in shown)]
    rest = others(now.hosts, shown)
    return [line for line in (*lines, Text(rest)) if line.plain]


def _host(host: HostSnapshot, redact: Redact) -> Text:
    name = redact(host.name)
    room = HOST - 2 - len(str(host.number))
    if len(name) > room:  # names of hosts mostly differ at their ends
        name = "…" + name[len(name) - room + 1 :]
    counts = [count(each) for each in (host.sent, host.ok, host.failed, host.in_flight)]
    figures = _columns([*counts, quantity(host.events_per_s), quantity(host.lag_p99_us)])
    bad = host.status == "lost" or host.failed > 0
    warning = host.silent or host.status == "late" or late(host.lag_p99_us)
    style = "red" if bad else "yellow" if warning else ""
    return Text.assemble(
        (f"{f'{host.number} {name}':<{HOST}}", "bold"),
        (f"{host.state:<10}{figures}", style),
        no_wrap=True,
        overflow="ellipsis",
    )


def _columns(texts: Sequence[str]) -> str:
    return "".join(f"{text:>{width}}" for text, width in zip(texts, (9, 9, 7, 8, 10, 11), strict=True))


def late(lag_p99_us: float | None) -> bool:
    return lag_p99_us is not None and lag_p99_us > 1000


def _waiting(now: Snapshot) -> str:
    return "" if now.waiting is None else f", {count(now.waiting)} waiting for a first token"


def _rows(now: Snapshot) -> list[tuple[str, str, str]]:
    busy = now.client_cpu is not None and now.client_cpu > 0.85
    return [
        (now.phase, _progress(now), ""),
        ("rate", load_text(now), ""),
        ("requests", f"{count(now.ok)} ok, {count(now.failed)} failed of {count(now.released)} sent", ""),
        ("in flight", f"{count(now.in_flight)} on {count(now.connections)} connections{_waiting(now)}", ""),
        *(_latencies(now) if now.phase != WARMUP or now.ttft_p50_ms is not None else UNMEASURED),
        ("events", f"{quantity(now.events_per_s)}/s", ""),
        (
            "client",
            f"busiest worker {percent(now.client_cpu)} of a core, {now.gc_runs} garbage collections",
            "yellow" if busy or now.gc_runs else "",
        ),
        ("errors", errors(now.errors) or "none", "red" if now.failed else ""),
        *(
            ()
            if now.failed_at is None
            else (("failed at", failed_counts(now.failed_at) or "none", "red" if now.failed else ""),)
        ),
    ]


def _latencies(now: Snapshot) -> list[tuple[str, str, str]]:
    reasons = now.ttft_any_p50_ms is not None
    found = [
        ("ttft", _pair(now.ttft_p50_ms, now.ttft_p99_ms, "ms") + (OF_ANSWER if reasons else ""), ""),
        *([("ttft_any", _pair(now.ttft_any_p50_ms, now.ttft_any_p99_ms, "ms") + OF_ANY, "")] if reasons else []),
        (now.gaps, _pair(now.itl_p50_ms, now.itl_p99_ms, "ms"), ""),
        ("e2e", f"p50 {quantity(now.e2e_p50_ms):>8} ms", ""),
        ("lag", _pair(now.lag_p50_us, now.lag_p99_us, "us"), "yellow" if late(now.lag_p99_us) else ""),
    ]
    return found if now.gaps else found[-2:]


def _pair(p50: float | None, p99: float | None, unit: str) -> str:
    return f"p50 {quantity(p50):>8}   p99 {quantity(p99):>8} {unit}"


def _progress(now: Snapshot) -> str:
    """A progress bar of the phase where its end is known."""
    if now.eta is None or now.t + now.eta <= 0:
        return clock(now.t)
    filled = min(BAR, max(0, int(BAR * now.t / (now.t + now.eta))))
    return f"{'█' * filled}{'░' * (BAR - filled)} {clock(now.t)}, {clock(now.eta)} left"
