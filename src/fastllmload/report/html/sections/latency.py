"""Section on latencies: the table with intervals, and the curves on the tail axis."""

from __future__ import annotations

import math

import numpy as np

from fastllmload.documents.fields import known as number
from fastllmload.documents.metric import Metric
from fastllmload.records.integrity import EVENTS, ROWS
from fastllmload.report.documents.headlines import COLUMNS, headline_names, headline_table
from fastllmload.report.html.charts.chart import Chart, Line, Span, Whiskers
from fastllmload.report.html.charts.figure import empty, grid
from fastllmload.report.html.charts.scales import Tail, for_durations
from fastllmload.report.html.context import ReportContext
from fastllmload.report.render.html import Markup, element, render_table, table, visible
from fastllmload.report.series.curves import QuantileCurve, curve_of, curve_of_buckets
from fastllmload.report.text.numbers import count, quantity
from fastllmload.report.text.tokens import reasoned
from fastllmload.report.text.traffic import unstreamed_answers

PLACES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}


def section(context: ReportContext) -> Markup:
    return element(
        "section",
        element("h2", "Latency"),
        render_table(headline_table(context.document), "latency"),
        grid(*curves(context)),
        other_metrics(context),
        id="latency",
    )


def curves(context: ReportContext) -> list[Markup]:
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
    return [
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


def _pauses(context: ReportContext) -> QuantileCurve:
    if context.tokens is None:
        return curve_of(np.empty(0))
    pauses = context.tokens.pause_ns[context.populations.latency]
    return curve_of(pauses[~np.isnan(pauses)], 1e6)


def _pair(
    context: ReportContext, key: str, title: str, own: tuple[str, str, str], scheduled: tuple[str, str, str], why: str
) -> Markup:
    first, second = curve_of(context.milliseconds(*own[1:])[1]), curve_of(context.milliseconds(*scheduled[1:])[1])
    if first.n == 0:
        return empty(key, title, why)
    lines = [
        Line("from the scheduled instant", second.tail, second.value, "c2", "dash", second.solid_until),
        Line("from submission", first.tail, first.value, "c1", "", first.solid_until),
    ]
    return _figure(context, key, title, own[0], first, lines)


def _single(context: ReportContext, key: str, title: str, name: str, curve: QuantileCurve, why: str) -> Markup:
    if curve.n == 0:
        return empty(key, title, why)
    return _figure(
        context, key, title, name, curve, [Line(title, curve.tail, curve.value, "c1", "", curve.solid_until)]
    )


def _figure(context: ReportContext, key: str, title: str, name: str, curve: QuantileCurve, lines: list[Line]) -> Markup:
    whiskers = _whiskers(context.document.metric(name), "c1")
    high = max(1.0, float(curve.tail[-1]))
    chart = Chart(
        Tail(high),
        for_durations([*(line.y for line in lines), whiskers.low, whiskers.high]),
        lines,
        label=f"{title}: {curve.n} values by percentile, from {curve.value[0]:.4g} to {curve.value[-1]:.4g} ms",
        spans=[Span(curve.solid_until, high, "few samples", "thin-air")],
        whiskers=[whiskers],
    )
    note = "" if key != "cdf-itl" else "Computed from buckets 0.8 % to 1.6 % wide; the table above is exact."
    return context.figures.add(key, title, chart, "ms", note)


def _whiskers(metric: Metric, tone: str) -> Whiskers:
    """The intervals of the table."""
    places, low, high = [], [], []
    for column, q in PLACES.items():
        at_least, at_most = metric.interval(column) or (None, None)
        if at_least is not None and at_most is not None:
            places.append(-math.log10(1 - q))
            low.append(at_least)
            high.append(at_most)
    return Whiskers(np.array(places, np.float64), np.array(low, np.float64), np.array(high, np.float64), tone)


def other_metrics(context: ReportContext) -> Markup | None:
    """All other entries of `metrics`."""
    metrics = {name: metric for name, metric in (context.document.metrics or {}).items() if metric is not None}
    shown = headline_names(context.document)
    rows = [_metric_row(name, metric) for name, metric in metrics.items() if name not in shown and metric.n]
    scalars = [
        [visible(name, 60), visible(metric.unit, 40), quantity(metric.value)]
        for name, metric in metrics.items()
        if number(metric.value) is not None
    ]
    if not rows and not scalars:
        return None
    return element(
        "details",
        element("summary", "All other metrics"),
        table(["metric", "unit", "n", *COLUMNS.values()], rows) if rows else None,
        table(["metric", "unit", "value"], scalars, "narrow") if scalars else None,
        class_="card more",
    )


def _metric_row(name: str, metric: Metric) -> list[str | Markup]:
    values = [quantity(metric.statistic(column)) for column in COLUMNS]
    return [
        element("code", visible(name, 60)),
        visible(metric.unit, 40),
        count(metric.n),
        *values,
    ]
