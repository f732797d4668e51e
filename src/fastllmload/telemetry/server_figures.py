"""Figures that only the server knows (spec/metrics 7.7, 7.11), from its own metrics page; "not measured" without one."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from fastllmload.documents.run_parts.telemetry import ServerFigure, TelemetryEntry
from fastllmload.metrics.run.window import Window
from fastllmload.telemetry.sensors.sensor import COUNTER
from fastllmload.telemetry.series import TelemetryRecord, TelemetrySeries
from fastllmload.telemetry.servers import GPU, NODE, ROUTER, SERVER

NOT_MEASURED = "not measured"


class Spans:
    """The series of a run over its window."""

    def __init__(self, found: TelemetryRecord, window: Window | None) -> None:
        self._found = found
        self.window = window

    def gauge(self, series: TelemetrySeries) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Values in the window, gaps left out."""
        if self.window is None:
            return np.empty(0)
        return series.value[self.window.holds(series.t_ns) & ~np.isnan(series.value)]

    def counter(self, series: TelemetrySeries) -> tuple[float, float, float, float] | None:
        """(first, last, increment, seconds between), counting from 0 after a restart; None without two different samples."""
        seen = ~np.isnan(series.value)
        t, value = series.t_ns[seen], series.value[seen]
        if self.window is None or len(t) < 2:
            return None
        first, last = (int(np.abs(t - end).argmin()) for end in (self.window.w0_ns, self.window.w1_ns))
        if last <= first:
            return None
        steps = np.diff(value[first : last + 1])
        grown = np.where(steps >= 0, steps, value[first + 1 : last + 1]).sum()
        return float(value[first]), float(value[last]), float(grown), float(t[last] - t[first]) / 1e9

    def summary(self, series: TelemetrySeries) -> TelemetryEntry:
        """One entry of run.json `telemetry.series`; null where nothing was seen."""
        inside = np.zeros(0, np.bool_) if self.window is None else self.window.holds(series.t_ns)
        gaps = int(np.isnan(series.value[inside]).sum()) if len(inside) else 0
        entry = TelemetryEntry(
            name=series.name,
            source=series.source_name,
            origin=series.origin,
            unit=series.unit,
            kind=series.kind,
            n=int(inside.sum()) - gaps,
            n_failed=gaps,
            labels=series.labels or None,
        )
        if series.kind == COUNTER:
            first, last, delta, span_s = self.counter(series) or (None, None, None, None)
            return replace(
                entry, first=first, last=last, delta=delta, span_s=span_s, restarts=self.restarts(series) or None
            )
        values = self.gauge(series)
        if not len(values):
            return entry
        return replace(entry, mean=float(values.mean()), min=float(values.min()), max=float(values.max()))

    def restarts(self, series: TelemetrySeries) -> int:
        """How often a counter of a metrics page went back in the window."""
        if self.window is None or series.kind != COUNTER or series.source_kind not in (SERVER, ROUTER, GPU, NODE):
            return 0
        seen = self.window.holds(series.t_ns) & ~np.isnan(series.value)
        return int((np.diff(series.value[seen]) < 0).sum())

    def server(self, name: str) -> list[TelemetrySeries]:
        """Of all servers; of the routers in front of them, which count the same, if no server has it."""
        named = self._found.named(name)
        return [one for one in named if one.source_kind == SERVER] or [
            one for one in named if one.source_kind == ROUTER
        ]

    def increment(self, name: str) -> tuple[float, str] | None:
        """Increment of the counter *name* over all servers, and the server's name for it; None when one has none."""
        parts = [self.counter(series) for series in self.server(name)]
        grown = [part[2] for part in parts if part is not None]
        if not grown or len(grown) < len(parts):
            return None
        return sum(grown), self._source(name)

    def mean(self, name: str) -> tuple[list[float], str] | None:
        """Mean of the gauge *name* in the window, one per server."""
        means = [self.gauge(series) for series in self.server(name)]
        if not means or any(len(values) == 0 for values in means):
            return None
        return [float(values.mean()) for values in means], self._source(name)

    def _source(self, name: str) -> str:
        names = sorted({series.source_name for series in self.server(name)})
        servers = len(self.server(name))
        return ", ".join(names) + (f" ({servers} servers)" if servers > 1 else "")


def server_figures(spans: Spans, largest: tuple[int, str] | None) -> dict[str, ServerFigure]:
    """run.json `server`: name -> {value, unit, source}. *largest*: a server's maximum batch size, and who says so."""
    return {
        "queue_wait_ms": ratio(spans, "queue_time_sum", "queue_time_count", "ms", 1e3),
        "prefill_ms": ratio(spans, "prefill_time_sum", "prefill_time_count", "ms", 1e3),
        "decode_ms": ratio(spans, "decode_time_sum", "decode_time_count", "ms", 1e3),
        "server_ttft_ms": ratio(spans, "server_ttft_sum", "server_ttft_count", "ms", 1e3),
        "preemptions": count(spans, "preemptions", "preemptions"),
        "preemption_rate": ratio(spans, "preemptions", "requests_finished", "preemptions/request"),
        "prefix_cache_hit_rate": hit_rate(spans),
        "prompt_tokens": count(spans, "prompt_tokens", "tokens"),
        "generation_tokens": count(spans, "generation_tokens", "tokens"),
        "running": total(spans, "running"),
        "waiting": total(spans, "waiting"),
        **({"paused": total(spans, "paused")} if spans.server("paused") else {}),
        "kv_usage": average(spans, "kv_usage", "share"),
        "batch_utilization": batch_utilization(spans, largest),
        "model_load_time_s": average(spans, "model_load_time", "s"),
        "recovery_rate": figure("share"),  # no known server reports it
        "preemption_loss": figure("requests"),
    }


def figure(unit: str, value: float | None = None, source: str = NOT_MEASURED) -> ServerFigure:
    return ServerFigure(value=value, unit=unit, source=source)


def count(spans: Spans, name: str, unit: str) -> ServerFigure:
    return figure(unit, *spans.increment(name) or ())


def ratio(spans: Spans, over: str, under: str, unit: str, scale: float = 1.0) -> ServerFigure:
    """Increment of one counter by that of another; null when the latter did not move."""
    top, bottom = spans.increment(over), spans.increment(under)
    if top is None or bottom is None or bottom[0] <= 0:
        return figure(unit)
    return figure(unit, scale * top[0] / bottom[0], top[1] if top[1] == bottom[1] else f"{top[1]} / {bottom[1]}")


def hit_rate(spans: Spans) -> ServerFigure:
    """By counters of tokens, else of blocks, else by the server's own gauge; the source says which."""
    of_tokens = ratio(spans, "prefix_cache_hits", "prefix_cache_queries", "share")
    if of_tokens.value is not None:
        return replace(of_tokens, source=f"{of_tokens.source}, tokens")
    hits, missed = spans.increment("prefix_cache_hit_blocks"), spans.increment("prefix_cache_missed_blocks")
    if hits is not None and missed is not None and hits[0] + missed[0] > 0:
        return figure("share", hits[0] / (hits[0] + missed[0]), f"{hits[1]} / (+ {missed[1]}), blocks")
    gauge = average(spans, "prefix_cache_hit_rate", "share")
    return gauge if gauge.value is None else replace(gauge, source=f"{gauge.source}, the server's gauge")


def total(spans: Spans, name: str) -> ServerFigure:
    found = spans.mean(name)
    return figure("requests") if found is None else figure("requests", sum(found[0]), found[1])


def average(spans: Spans, name: str, unit: str) -> ServerFigure:
    found = spans.mean(name)
    return figure(unit) if found is None else figure(unit, sum(found[0]) / len(found[0]), found[1])


def batch_utilization(spans: Spans, largest: tuple[int, str] | None) -> ServerFigure:
    """Average batch size / maximum batch size, the mean over servers."""
    found = spans.mean("running")
    if found is None or largest is None:
        return figure("share")
    return figure("share", sum(found[0]) / len(found[0]) / largest[0], f"{found[1]} / {largest[1]}")
