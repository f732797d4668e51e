"""Figures that only the server knows (spec/metrics 7.7, 7.11), from its own metrics page; "not measured" without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from fastllmload.arrays import Mask
from fastllmload.documents.run_parts.telemetry import ServerFigure, TelemetryEntry
from fastllmload.metrics.run.window import Window
from fastllmload.telemetry.sensors.sensor import COUNTER
from fastllmload.telemetry.series import TelemetryRecord, TelemetrySeries, Times
from fastllmload.telemetry.servers import GPU, NODE, ROUTER, SERVER

NOT_MEASURED = "not measured"
MISSED = 0.05  # of the window that a page may not have been read at one end


class HitCount(NamedTuple):
    """How servers count hits of their prefix cache: by counters of hits and of the *rest*, or by a gauge. *why*: it is left
    out where another way is used.
    """

    name: str
    hits: str
    rest: str
    why: str

    def servers(self, spans: Spans) -> set[str]:
        return {one.origin for one in spans.server(self.hits, *([self.rest] if self.rest else []))}


TOKENS = HitCount("tokens", "prefix_cache_hits", "prefix_cache_queries", "counts tokens")
BLOCKS = HitCount("blocks", "prefix_cache_hit_blocks", "prefix_cache_missed_blocks", "counts blocks")
OWN_RATE = HitCount("the server's gauge", "prefix_cache_hit_rate", "", "has a gauge of its own only")


class Spans:
    """The series of a run over its window."""

    def __init__(self, found: TelemetryRecord, window: Window | None) -> None:
        self._found = found
        self.window = window
        self._read_ns: dict[str, Times] = {}

    def gauge(self, series: TelemetrySeries, among: Mask | None = None) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Values in the window, *among* these reads if given; gaps left out."""
        if self.window is None:
            return np.empty(0)
        chosen = self.window.holds(series.t_ns) & ~np.isnan(series.value)
        return series.value[chosen if among is None else chosen & among]

    def counter(self, series: TelemetrySeries) -> tuple[float, float, float, float] | None:
        """(first, last, increment, seconds between), counting from 0 after a restart; None without two different samples."""
        seen = ~np.isnan(series.value)
        t, value = series.t_ns[seen], series.value[seen]
        born = self._born(series, t)
        if born is not None:
            t, value = np.insert(t, 0, born), np.insert(value, 0, 0.0)
        if self.window is None or len(t) < 2:
            return None
        first, last = (int(np.abs(t - end).argmin()) for end in (self.window.w0_ns, self.window.w1_ns))
        if last <= first:
            return None
        steps = np.diff(value[first : last + 1])
        grown = np.where(steps >= 0, steps, value[first + 1 : last + 1]).sum()
        return float(value[first]), float(value[last]), float(grown), float(t[last] - t[first]) / 1e9

    def _born(self, series: TelemetrySeries, seen_ns: Times) -> int | None:
        """The latest read of its page before that counter was there. It was 0: servers show some from the first event on."""
        if series.source_kind not in (SERVER, ROUTER) or series.kind != COUNTER or not len(seen_ns):
            return None
        before = self._reads(series.origin)
        before = before[before < seen_ns[0]]
        return int(before[-1]) if len(before) else None

    def _reads(self, origin: str) -> Times:
        """When the page at *origin* was read, in order."""
        if origin not in self._read_ns:
            read = [one.t_ns[~np.isnan(one.value)] for one in self._found.series if one.origin == origin]
            self._read_ns[origin] = np.unique(np.concatenate([np.empty(0, np.int64), *read]))
        return self._read_ns[origin]

    def covered(self, origin: str) -> bool:
        """Whether the page at *origin* was read up to both ends of the window, but for two reads or a part of MISSED."""
        reads = self._reads(origin)
        if self.window is None or len(reads) < 2:
            return False
        ends = (self.window.w0_ns, self.window.w1_ns)
        missed = max(int(np.abs(reads - end).min()) for end in ends)
        return missed <= max(2 * float(np.median(np.diff(reads))), MISSED * (ends[1] - ends[0]))

    def all_covered(self, name: str) -> bool:
        """Whether the pages of all servers that have *name* were; else a sum over them would be too small."""
        return all(self.covered(one.origin) for one in self.server(name))

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
        """How often a counter of a metrics page, or a part of a sum, went back in the window."""
        if self.window is None or series.kind != COUNTER or series.source_kind not in (SERVER, ROUTER, GPU, NODE):
            return 0
        seen = self.window.holds(series.t_ns) & ~np.isnan(series.value)
        parts = int(self.window.holds(series.restarts_ns).sum())
        return int((np.diff(series.value[seen]) < 0).sum()) + parts

    @property
    def servers(self) -> list[str]:
        """Origins of the pages of all servers; of routers, if there are no servers."""
        pages = {one.origin: one.kind for one in self._found.sources} or {
            one.origin: one.source_kind for one in self._found.series
        }
        found = {kind: [origin for origin, each in pages.items() if each == kind] for kind in (SERVER, ROUTER)}
        return found[SERVER] or found[ROUTER]

    def server(self, *names: str) -> list[TelemetrySeries]:
        """Of all servers that have all *names*, those called the first; of the routers in front of them, which count the
        same, if no server has them.
        """
        have = [{one.origin for one in self._found.named(name)} for name in names]
        named = [one for one in self._found.named(names[0]) if all(one.origin in each for each in have)]
        return [one for one in named if one.source_kind == SERVER] or [
            one for one in named if one.source_kind == ROUTER
        ]

    def increment(self, *names: str) -> tuple[float, str] | None:
        """Increment of the first counter of *names* over all servers that have all of them, and the servers' name for it;
        None if one of them has no value.
        """
        series = self.server(*names)
        parts = [self.counter(one) for one in series]
        grown = [part[2] for part in parts if part is not None]
        return (sum(grown), self.source(series)) if grown and len(grown) == len(parts) else None

    def mean(self, name: str) -> tuple[list[float], str] | None:
        """Mean of the gauge *name* in the window, one per server."""
        series = self.server(name)
        means = [self.gauge(one) for one in series]
        if not means or any(len(values) == 0 for values in means):
            return None
        return [float(values.mean()) for values in means], self.source(series)

    def source(self, series: Sequence[TelemetrySeries]) -> str:
        """The servers' names of *series*, and of how many of them it is."""
        names, of = sorted({one.source_name for one in series}), len({one.origin for one in series})
        all_servers = len(self.servers)
        if series and all(one.source_kind == ROUTER and one.origin not in self.servers for one in series):
            return f"{', '.join(names)} ({of} router{'s' if of > 1 else ''})"
        many = f" ({of} of {all_servers} servers)" if of < all_servers else f" ({of} servers)" if of > 1 else ""
        return ", ".join(names) + many


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
    return figure(unit, *(spans.increment(name) or ()) if spans.all_covered(name) else ())


def ratio(spans: Spans, over: str, under: str, unit: str, scale: float = 1.0) -> ServerFigure:
    """Increment of one counter by that of another, of servers that have both; null when the latter did not move."""
    top, bottom = spans.increment(over, under), spans.increment(under, over)
    if top is None or bottom is None or bottom[0] <= 0:
        return figure(unit)
    return figure(unit, scale * top[0] / bottom[0], top[1] if top[1] == bottom[1] else f"{top[1]} / {bottom[1]}")


def hit_rate(spans: Spans) -> ServerFigure:
    """By counters of tokens, else of blocks, else by the server's own gauge; the source says which, and of how many."""
    return counted_hits(spans)[0]


def counted_hits(spans: Spans) -> tuple[ServerFigure, HitCount | None]:
    """`hit_rate`, and how its servers count. Tokens and blocks have no common unit, so it is of the servers of one way."""
    of_tokens = ratio(spans, TOKENS.hits, TOKENS.rest, "share")
    if of_tokens.value is not None:
        return replace(of_tokens, source=f"{of_tokens.source}, {TOKENS.name}"), TOKENS
    hits, missed = spans.increment(BLOCKS.hits, BLOCKS.rest), spans.increment(BLOCKS.rest, BLOCKS.hits)
    if hits is not None and missed is not None and hits[0] + missed[0] > 0:
        both = f"{hits[1]} / (+ {missed[1]}), {BLOCKS.name}"
        return figure("share", hits[0] / (hits[0] + missed[0]), both), BLOCKS
    gauge = average(spans, OWN_RATE.hits, "share")
    if gauge.value is None:
        return gauge, None
    return replace(gauge, source=f"{gauge.source}, {OWN_RATE.name}"), OWN_RATE


def without_hits(spans: Spans) -> tuple[list[str], dict[str, str]]:
    """(servers that `hit_rate` is of, why it is not of the others)."""
    way = counted_hits(spans)[1]
    if way is None:
        return [], {}
    have = {each: each.servers(spans) for each in (TOKENS, BLOCKS, OWN_RATE)}
    servers = spans.servers
    of = [origin for origin in servers if origin in have[way]]
    left = [origin for origin in servers if origin not in have[way]] if of else []  # else it is the routers'
    return of, {
        origin: next((each.why for each in have if origin in have[each]), "does not report it") for origin in left
    }


def total(spans: Spans, name: str) -> ServerFigure:
    found = spans.mean(name) if spans.all_covered(name) else None
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
