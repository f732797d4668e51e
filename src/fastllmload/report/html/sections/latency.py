"""Section on latencies: the table with intervals, and the curves on the tail axis."""

from __future__ import annotations

import math

import numpy as np

from fastllmload.documents.fields import known as number
from fastllmload.documents.metric import Metric
from fastllmload.records.integrity import EVENTS, ROWS
from fastllmload.report.documents.results import AT_LEAST, latency_notes, marked, success_note
from fastllmload.report.html.charts.chart import Chart, Line, Span, Whiskers
from fastllmload.report.html.charts.figure import empty, grid
from fastllmload.report.html.charts.scales import Tail, for_durations
from fastllmload.report.html.context import ReportContext
from fastllmload.report.render.html import Markup, element, joined, table, visible
from fastllmload.report.series.curves import QuantileCurve, curve_of, curve_of_buckets
from fastllmload.report.text.doubts import bound
from fastllmload.report.text.numbers import count, quantity
from fastllmload.report.text.tokens import headlines, reasoned
from fastllmload.report.text.traffic import unstreamed_answers

COLUMNS = {"mean": "mean", "p50": "P50", "p90": "P90", "p95": "P95", "p99": "P99", "p999": "P99.9", "max": "max"}
MAIN = {
    "ttft": ("Time to first token", "from submission"),
    "ttft_sched": ("Time to first token", "from the scheduled instant"),
    "ttft_any": ("Time to first token of any kind", "from submission, reasoning included"),
    "itl": ("Between tokens", "pooled over all requests"),
    "itl_b": ("Between tokens", "those of one chunk arrive together"),
    "tbc": ("Between chunks", "a chunk may carry several tokens"),
    "tpot": ("Per output token", "one value per request"),
    "tpot_any": ("Per token of any kind", "reasoning included, one value per request"),
    "e2e": ("End to end", "from submission to the last token"),
    "e2e_sched": ("End to end", "from the scheduled instant"),
}
OF_ANSWER = {  # where answers reason
    "ttft": "Time to first answer token",
    "ttft_sched": "Time to first answer token",
    "itl": "Between answer tokens",
    "itl_b": "Between answer tokens",
    "tbc": "Between answer chunks",
    "tpot": "Per answer token",
}
PLACES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}


def section(context: ReportContext) -> Markup:
    return element(
        "section",
        element("h2", "Latency"),
        element("div", main_table(context), _footnote(context), class_="card"),
        grid(*curves(context)),
        other_metrics(context),
        id="latency",
    )


def main_table(context: ReportContext) -> Markup:
    """One row per latency, each percentile with its 95 % interval; the success rate below, in the same table."""
    rows: list[list[str | Markup]] = []
    for name in headlines(context.document, tuple(MAIN)):
        label, meaning = MAIN[name]
        label = OF_ANSWER.get(name, label) if reasoned(context.document) else label
        metric = context.document.metric(name)
        if name in ("itl", "itl_b", "tbc") and name != context.gap_name:
            continue
        head = joined(label, " ", element("code", name), element("small", meaning))
        rows.append([head, size(metric), *(cell(metric, column) for column in COLUMNS)])
    body = table(["ms", "n", *COLUMNS.values()], rows, "latency")
    last = element("p", *success_note(context.document), class_="success")
    return joined(body, last)


def size(metric: Metric) -> Markup:
    """n, and below it the number of requests without a value."""
    nulls = number(metric.n_null)
    return joined(count(metric.n), element("small", f"{nulls:,.0f} without") if nulls else None)


def cell(metric: Metric, column: str) -> Markup:
    """A value and its interval, if any; a star where there are fewer samples than needed."""
    shown, few = marked(metric, column), column in metric.insufficient
    value = element("span", shown, class_="few" if few or shown.startswith(AT_LEAST) else None)
    known = bound(metric, column) is None
    return joined(value, element("small", interval(metric, column)) if known else None)


def interval(metric: Metric, column: str) -> str | None:
    """The interval below a value; None where the column or the value has none."""
    ends, missing = metric.interval(column), metric.why_not_estimable(column)
    if metric.statistic(column) is None or (column not in PLACES and ends is None and missing is None):
        return None
    if ends is None or ends == (None, None):
        needed = None if missing is None else number(missing.requests_needed)
        return "not estimable" if needed is None else f"needs {needed:,.0f}"
    low, high = (None if end is None else quantity(end) for end in ends)
    if low is None or high is None:
        return f"≥ {low}" if high is None else f"≤ {high}"
    return f"{low}\N{EN DASH}{high}"


def _footnote(context: ReportContext) -> Markup:
    if not context.document.metric("ttft").n and not context.document.metric("e2e").n:
        return element(
            "p", "No request submitted in the window succeeded, so latencies are not available.", class_="note"
        )
    sentences = ["Below each value: its 95 % confidence interval"]
    shown = [context.document.metric(name) for name in MAIN if name in ("ttft", "tpot", "e2e", context.gap_name)]
    needs = any(metric.not_estimable for metric in shown)
    sentences[0] += ", or how many requests like these one needs." if needs else "."
    few = any(metric.n and metric.insufficient for metric in shown)
    sentences += [f"{text.removesuffix('.')}." for text in latency_notes(context.document, few)]
    if context.gap_name == "tbc":
        sentences.append("The server sent several tokens in a chunk, so gaps are those between chunks.")
    return element("p", " ".join(sentences), class_="note")


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
    shown = headlines(context.document, tuple(MAIN))
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
