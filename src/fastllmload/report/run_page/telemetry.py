"""Section on telemetry sampled during the run: metrics of the server, power, the host, on the shared time axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fastllmload.errors import RunFolderError
from fastllmload.report.blocks import Block, Folded, Paragraph, Section
from fastllmload.report.charts import Axis, Chart, Series, is_known
from fastllmload.report.documents import cluster
from fastllmload.report.run_page.context import ReportContext
from fastllmload.report.run_page.over_time import time_chart
from fastllmload.report.series.axis import Floats, TimeAxis
from fastllmload.telemetry.energy import labels_of, node_of
from fastllmload.telemetry.files import INDEX, ROWS
from fastllmload.telemetry.series import TelemetryRecord, TelemetrySeries, load
from fastllmload.telemetry.servers import DEVICE

MOST_LINES, MOST_CHARTS = 6, 24
SHARES = ("share", "ratio", "1")
# Series that share a chart: name -> title of the chart.
TOGETHER = {
    "running": "Requests at the server",
    "waiting": "Requests at the server",
    "prompt_tokens": "Tokens at the server",
    "generation_tokens": "Tokens at the server",
    "prefix_cache_queries": "Prefix cache",
    "prefix_cache_hits": "Prefix cache",
    "prefix_cache_hit_blocks": "Prefix cache",
    "prefix_cache_missed_blocks": "Prefix cache",
    "kv_usage": "KV cache in use",
    "draft_tokens": "Speculative decoding",
    "accepted_tokens": "Speculative decoding",
    "adapters_used": "Adapters",
    "adapters_total": "Adapters",
    "power_w": "Power",
    "energy_j": "Power by counters of energy",
    "utilisation": "Busy share",
    "memory_used_bytes": "Memory in use",
    "temperature_c": "Temperature",
    "sm_clock_mhz": "Clock",
    "host.net.rx_bytes": "Network of this host",
    "host.net.tx_bytes": "Network of this host",
    "host.cpu.busy": "CPU of this host",
    "host.cpu.steal": "CPU of this host",
}


@dataclass(frozen=True, eq=False)
class TelemetryCurve:
    """One line; lines with equal *title* and *unit* share a chart. *unit* "ms" is a duration."""

    title: str
    unit: str
    name: str
    source_kind: str
    x: Floats
    y: Floats


def sections(context: ReportContext) -> list[Section]:
    """None when the run has no telemetry."""
    blocks = [*cluster.blocks(context.document), *_blocks(context)]
    return [Section("Telemetry", blocks, "telemetry")] if blocks else []


def _blocks(context: ReportContext) -> list[Block]:
    if context.run.lost(INDEX, ROWS):
        return [Paragraph(context.reason("", INDEX, ROWS))]
    try:
        found = load(context.run.directory)
    except RunFolderError as problem:
        return [Paragraph(str(problem))]
    if context.axis is None or not found.series:
        return []
    curves = [curve for curve in curves_of(found.series, context.axis) if is_known(curve.y)]
    zero = [curve for curve in curves if not np.nan_to_num(curve.y).any()]
    shown = [curve for curve in curves if np.nan_to_num(curve.y).any() or _has_nonzero_neighbour(curve, curves)]
    target = _charts(context, "telemetry", [curve for curve in shown if curve.source_kind != "host"])
    host = _charts(context, "host", [curve for curve in shown if curve.source_kind == "host"])
    notes = map(Paragraph, _notes(found, [curve for curve in zero if curve not in shown]))
    return [*target, *([Folded("This host", host)] if host else []), *notes]


def _has_nonzero_neighbour(curve: TelemetryCurve, curves: Sequence[TelemetryCurve]) -> bool:
    """Whether another line of its chart has a value other than 0."""
    return any(
        other.title == curve.title and other.unit == curve.unit and np.nan_to_num(other.y).any() for other in curves
    )


def _notes(found: TelemetryRecord, zero: Sequence[TelemetryCurve]) -> Iterator[str]:
    """Series that are not drawn, sources, and problems of sources."""
    if zero:
        yield f"Always zero: {', '.join(dict.fromkeys(curve.name for curve in zero))}."
    yield f"Sampled from {', '.join(one.origin for one in found.sources)}."
    for what, why in found.absent.items():
        yield f"Not sampled: {what}, {why}."
    for source in found.sources:
        for problem, times in list(source.problems.items())[:4]:
            yield f"{source.origin}: {problem} ({times:,} of {source.n:,} times)."


def curves_of(series: Sequence[TelemetrySeries], axis: TimeAxis) -> Iterator[TelemetryCurve]:
    """Gauges unchanged, counters per second, pairs of a sum and a count as their mean."""
    end_ns = axis.zero_ns + axis.bins * axis.width_ns
    pairs = {(one.name, one.origin, one.labels): one for one in series}
    for one in series:
        stem, _, last = one.name.rpartition("_")
        counted = pairs.get((f"{stem}_count", one.origin, one.labels))
        summed = pairs.get((f"{stem}_sum", one.origin, one.labels))
        owner = " ".join(text for text in (_labels(one), _one_of(series, one)) if text != "")
        if last == "sum" and counted is not None:
            x, y = mean_between(one, counted, axis.zero_ns, end_ns)
            scale, unit = (1e3, "ms") if one.unit == "s" else (1.0, one.unit)
            yield TelemetryCurve(f"Mean {stem}", unit, owner or f"mean {stem}", one.source_kind, x, y * scale)
        elif last == "count" and summed is not None:
            continue
        else:
            x, y = values(one, axis.zero_ns, end_ns)
            title, own = chart_and_label(one)
            unit = f"{one.unit}/s" if one.kind == "counter" else "share" if one.unit in SHARES else one.unit
            yield TelemetryCurve(
                title, unit, " ".join(text for text in (own, owner) if text != ""), one.source_kind, x, y
            )


def _labels(one: TelemetrySeries) -> str:
    """The labels of a series; of a GPU its node and number."""
    if not one.name.startswith(DEVICE):
        return one.labels
    gpu = labels_of(one).get("gpu")
    return " ".join([node_of(one), *([] if gpu is None else [f"gpu{gpu}"])])


def _one_of(series: Sequence[TelemetrySeries], one: TelemetrySeries) -> str:
    """The source of *one*, by its label if it has one, where several sources have a series of that name."""
    if one.name.startswith(DEVICE):
        return one.pool or ""
    pools = {other.origin: other.pool for other in series if other.name == one.name}
    if len(pools) == 1:
        return ""
    alone = one.pool is not None and list(pools.values()).count(one.pool) == 1
    return str(one.pool) if alone else " ".join(text for text in (one.pool, one.origin) if text is not None)


def chart_and_label(series: TelemetrySeries) -> tuple[str, str]:
    """(title of its chart, its label there): `gpu0.power_w` and `gpu1.power_w` share a chart."""
    owner, dot, name = series.name.rpartition(".")
    if series.name.startswith(DEVICE):
        return f"{TOGETHER.get(name, name)} of each gpu", ""
    if dot and owner[-1:].isdigit():
        return f"{TOGETHER.get(name, name)} of each {owner.rstrip('0123456789')}", owner
    return TOGETHER.get(series.name, series.name), series.name


def _charts(context: ReportContext, key: str, curves: Sequence[TelemetryCurve]) -> list[Chart]:
    groups: dict[tuple[str, str], list[TelemetryCurve]] = {}
    for curve in curves:
        groups.setdefault((curve.title, curve.unit), []).append(curve)
    return [_chart(context, f"{key}-{n}", group) for n, group in enumerate(list(groups.values())[:MOST_CHARTS])]


def _chart(context: ReportContext, key: str, group: Sequence[TelemetryCurve]) -> Chart:
    series = [Series(one.name, one.y, one.x) for one in group[:MOST_LINES]]
    rest = len(group) - MOST_LINES
    note = f"{rest} more in telemetry.npy." if rest > 0 else ""
    return time_chart(context, key, group[0].title, Axis(unit=group[0].unit), series, note)


def values(series: TelemetrySeries, start_ns: int, end_ns: int, most: int = 400) -> tuple[Floats, Floats]:
    """(s since *start_ns*, value); a counter as its increase per second, one of energy between new values. At most about
    *most* points, each a mean of several samples.
    """
    t, y = values_at(series, start_ns, end_ns)
    if series.kind == "counter":
        if series.unit == "J":  # exporters renew these less often than they are read: zeros and peaks otherwise
            new = np.diff(y, prepend=y[:1]) != 0
            new[:1] = new[1:].all()  # else the first value may be much older than its read
            t, y = t[new], y[new]
        passed = np.diff(t)
        rising = np.diff(y)
        t, y = t[1:], np.where((passed > 0) & (rising >= 0), rising / np.maximum(passed, 1e-9), np.nan)
    if len(t) <= most:
        return t, y
    parts = np.arange(0, len(t), -(-len(t) // most))
    size = np.diff(np.append(parts, len(t)))
    return np.add.reduceat(t, parts) / size, np.add.reduceat(y, parts) / size


def mean_between(
    summed: TelemetrySeries, counted: TelemetrySeries, start_ns: int, end_ns: int
) -> tuple[Floats, Floats]:
    """(s since *start_ns*, mean of the values added since the previous sample); NaN without new values."""
    t, total = values_at(summed, start_ns, end_ns)
    at, n = values_at(counted, start_ns, end_ns)
    if len(t) < 2 or len(at) != len(t):
        return np.empty(0), np.empty(0)
    added, times = np.diff(total), np.diff(n)
    mean: Floats = np.where((times > 0) & (added >= 0), added / np.where(times > 0, times, 1.0), np.nan)
    return t[1:], mean


def values_at(series: TelemetrySeries, start_ns: int, end_ns: int) -> tuple[Floats, Floats]:
    """(s since *start_ns*, value) as sampled."""
    inside = (series.t_ns >= start_ns) & (series.t_ns <= end_ns)
    return (series.t_ns[inside] - start_ns) / 1e9, series.value[inside]
