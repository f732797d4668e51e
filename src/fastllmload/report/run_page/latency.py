"""Section on latencies: the table with intervals, and the curves on the tail axis."""

from __future__ import annotations

import math

import numpy as np

from fastllmload.documents.fields import known as number
from fastllmload.documents.metric import Metric
from fastllmload.records.integrity import EVENTS, ROWS
from fastllmload.report.blocks import Block, Folded, Section, Table
from fastllmload.report.charts import Axis, Chart, Series, Span
from fastllmload.report.documents.headlines import COLUMNS, headline_names, headline_table
from fastllmload.report.run_page.context import ReportContext
from fastllmload.report.series.curves import QuantileCurve, curve_of, curve_of_buckets
from fastllmload.report.text.numbers import count, quantity
from fastllmload.report.text.tokens import has_tokens, reasoned
from fastllmload.report.text.traffic import of_open_loops, unstreamed_answers

PLACES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}


def section(context: ReportContext) -> Section:
    blocks = [headline_table(context.document), *curves(context), *other_metrics(context)]
    return Section("Latency", blocks, "latency")


def curves(context: ReportContext) -> list[Chart]:
    """TTFT, gaps, TPOT and E2E against the percentile."""
    unstreamed = unstreamed_answers(context.document) == "all"
    why = "The answers were not streamed." if unstreamed else "No request in the window had two tokens."
    no_success = context.reason("No request submitted in the window succeeded.", ROWS)
    no_gaps = context.reason(why, EVENTS) if len(context.latency_rows) else no_success
    gaps = context.tokens
    gap_curve = curve_of_buckets(gaps.gap_counts.sum(axis=0), 1e6) if gaps is not None else curve_of(np.empty(0))
    both = reasoned(context.document)
    gap_title = f"Time between {'answer ' if both else ''}{'chunks' if context.gap_name == 'tbc' else 'tokens'}"
    no_answer = "No request in the window had an answer token." if both and len(context.latency_rows) else no_success
    first = _pair(
        context,
        "cdf-ttft",
        "Time to first answer token" if both else "Time to first token",
        ("ttft", "t_submit", "t_first"),
        ("ttft_sched", "t_sched", "t_first"),
        no_answer,
    )
    any_kind = (("ttft_any", "t_submit", "t_any"), ("ttft_any_sched", "t_sched", "t_any"))
    found = [
        first,
        *([_pair(context, "cdf-ttft-any", "Time to first token of any kind", *any_kind, no_success)] if both else []),
        _single(context, "cdf-itl", gap_title, context.gap_name, gap_curve, no_gaps),
        _pair(
            context,
            "cdf-e2e",
            "End to end",
            ("e2e", "t_submit", "t_last"),
            ("e2e_sched", "t_sched", "t_last"),
            no_success,
        ),
        _single(context, "cdf-pause", "Longest pause of each request", "max_pause", _pauses(context), no_gaps),
    ]
    return found if has_tokens(context.document) else [chart for chart in found if chart.key == "cdf-e2e"]


def _pauses(context: ReportContext) -> QuantileCurve:
    if context.tokens is None:
        return curve_of(np.empty(0))
    pauses = context.tokens.pause_ns[context.populations.latency]
    return curve_of(pauses[~np.isnan(pauses)], 1e6)


def _pair(
    context: ReportContext, key: str, title: str, own: tuple[str, str, str], scheduled: tuple[str, str, str], why: str
) -> Chart:
    first, second = curve_of(context.milliseconds(*own[1:])[1]), curve_of(context.milliseconds(*scheduled[1:])[1])
    lines = [
        Series(
            f"from the scheduled instant{of_open_loops(context.document)}",
            second.value,
            second.tail,
            style="dash",
            until=second.solid_until,
            tone="c2",
        ),
        Series("from submission", first.value, first.tail, until=first.solid_until, tone="c1"),
    ]
    return _chart(context, key, title, own[0], first, lines, why)


def _single(context: ReportContext, key: str, title: str, name: str, curve: QuantileCurve, why: str) -> Chart:
    line = Series(title, curve.value, curve.tail, until=curve.solid_until, tone="c1")
    return _chart(context, key, title, name, curve, [line], why)


def _chart(
    context: ReportContext, key: str, title: str, name: str, curve: QuantileCurve, lines: list[Series], why: str
) -> Chart:
    """The curve with the intervals of the table; *why* where it has no values."""
    if curve.n == 0:
        return Chart(title, note=why, key=key)
    high = max(1.0, float(curve.tail[-1]))
    note = "" if key != "cdf-itl" else "Computed from buckets 0.8 % to 1.6 % wide; the table above is exact."
    series = [*lines, _intervals(context.document.metric(name))]
    few = Span(curve.solid_until, high, "few samples")
    return Chart(title, series, Axis(scale="tail", high=high), Axis(unit="ms"), note, spans=[few], key=key)


def _intervals(metric: Metric) -> Series:
    """Those of the table."""
    places, low, high = [], [], []
    for column, q in PLACES.items():
        at_least, at_most = metric.interval(column) or (None, None)
        if at_least is not None and at_most is not None:
            places.append(-math.log10(1 - q))
            low.append(at_least)
            high.append(at_most)
    return Series("", low, places, low, high, style="interval", tone="c1")


def other_metrics(context: ReportContext) -> list[Block]:
    """All other entries of `metrics`."""
    metrics = {name: metric for name, metric in (context.document.metrics or {}).items() if metric is not None}
    shown = headline_names(context.document)
    rows = [
        [name, metric.unit, count(metric.n), *(quantity(metric.statistic(column)) for column in COLUMNS)]
        for name, metric in metrics.items()
        if name not in shown and metric.n
    ]
    single = [
        [name, metric.unit, quantity(metric.value)]
        for name, metric in metrics.items()
        if number(metric.value) is not None
    ]
    tables = (
        Table("", ["metric", "unit", "n", *COLUMNS.values()], rows),
        Table("", ["metric", "unit", "value"], single),
    )
    present = [table for table in tables if table.rows]
    return [Folded("All other metrics", present)] if present else []
