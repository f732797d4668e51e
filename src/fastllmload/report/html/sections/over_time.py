"""Section on the run over time: rates, requests in flight, tokens and percentiles on one shared time axis."""

from __future__ import annotations

import msgspec
import numpy as np

from fastllmload.arrivals.curve import described_curve
from fastllmload.documents.fields import known as number
from fastllmload.records.integrity import EVENTS, ROWS
from fastllmload.report.html.charts.chart import Chart, Layer, Line, Rule, Span
from fastllmload.report.html.charts.figure import empty, grid, known, middles
from fastllmload.report.html.charts.scales import Floats, Linear, Scale, for_durations, up_to
from fastllmload.report.html.context import ReportContext
from fastllmload.report.render.html import Markup, element
from fastllmload.report.series.axis import TimeAxis
from fastllmload.report.series.curves import percentiles_of_buckets, percentiles_over_time
from fastllmload.report.series.load import LoadSeries, load_over_time
from fastllmload.report.text.tokens import reasoned

TONES = {"max": ("c7", "thin"), "p99": ("c2", ""), "p90": ("c3", ""), "p50": ("c1", "")}
NAMES = {"p50": "P50", "p90": "P90", "p99": "P99", "max": "max"}
STEADY = ("poisson", "constant", "gamma", "bursty", "uniform")  # processes with one rate, or one curve of it
CURVE_POINTS = 600
SAMPLES = 100  # in a bin of percentiles over time, where the run is long enough


def section(context: ReportContext) -> Markup:
    return element("section", element("h2", "Over time"), _intro(context), grid(*charts(context)), id="time")


def _intro(context: ReportContext) -> Markup | None:
    if context.axis is None:
        return None
    text = (
        f"Seconds since the measured phase began, in bins of {context.axis.width_s:g} s. The shaded part is outside of "
        "the measurement window. Drag across a chart to zoom all of them, double-click to reset."
    )
    return element("p", text, class_="intro")


def charts(context: ReportContext) -> list[Markup]:
    axis = context.axis
    if axis is None:
        return [empty("rate", "Request rate", context.reason("No request of the measured phase was sent.", ROWS))]
    load = load_over_time(context.run, axis)
    gap_name = "Time between chunks" if context.gap_name == "tbc" else "Time between tokens"
    both = reasoned(context.document)
    return [
        rates(context, axis, load),
        in_flight(context, axis, load),
        token_rate(context, axis),
        _latency(context, "time-ttft", f"Time to first {'answer ' if both else ''}token", axis, "t_submit", "t_first"),
        *(
            [_latency(context, "time-ttft-any", "Time to first token of any kind", axis, "t_submit", "t_any")]
            if both
            else []
        ),
        gaps_over_time(context, gap_name),
        _latency(context, "time-e2e", "End to end, by submission", axis, "t_submit", "t_last"),
    ]


def time_chart(
    context: ReportContext, y: Scale, layers: list[Layer], label: str, y_unit: str = "", rules: tuple[Rule, ...] = ()
) -> Chart:
    """A chart of the time group; the time outside of the window is shaded."""
    axis, spans = context.axis, []
    assert axis is not None
    if axis.window is not None:
        start, end = axis.since_zero(axis.window.w0_ns), axis.since_zero(axis.window.w1_ns)
        before = "ramp" if context.document.config.load.duration is not None else "before"
        spans = [Span(0.0, start, before), Span(end, axis.seconds, "after the window")]
        spans = [span for span in spans if span.end - span.start > axis.seconds / 200]
        spans = [Span(s.start, s.end, s.label if s.end - s.start > axis.seconds / 14 else "") for s in spans]
    return Chart(Linear(0.0, axis.seconds, steps=8), y, layers, label, "s", y_unit, spans, rules, group="time")


def rates(context: ReportContext, axis: TimeAxis, load: LoadSeries) -> Markup:
    """Rates planned, sent, completed, failed."""
    x = middles(axis.edges_s)
    layers: list[Layer] = []
    closed = number(context.document.plan.description.load.concurrency) is not None
    if not closed:
        layers.append(Line("planned", x, load.planned, "c7", "area"))
    layers.append(Line("sent", x, load.sent, "c1"))
    layers.append(Line("completed", x, load.completed, "c3"))
    if load.failed.any():
        layers.append(Line("failed", x, load.failed, "c2"))
    if load.left.any():
        layers.append(Line("left", x, load.left, "c4"))
    asked = asked_line(context, axis)
    if asked is not None:
        layers.append(asked)
    scale = up_to([layer.y for layer in layers])
    chart = time_chart(context, scale, layers, "Requests per second planned, sent, completed and failed", "requests/s")
    return context.figures.add("rate", "Request rate", chart, "n")


def asked_line(context: ReportContext, axis: TimeAxis) -> Line | None:
    """The requested rate (requests/s), also where it changes; None for a closed loop, a trace, and conversations, whose
    turns have no schedule.
    """
    description = context.document.plan.description
    arrivals = description.load.arrivals
    if arrivals is None or arrivals.name not in STEADY or axis.sent_ns is None or description.conversations is not None:
        return None
    end, rate = axis.since_zero(axis.sent_ns), number(arrivals.rate)
    if arrivals.curve is not None:
        t = np.linspace(0.0, end, CURVE_POINTS)
        return Line("asked", t, described_curve(msgspec.to_builtins(arrivals.curve)).rate(t), "c7", "dash")
    return None if rate is None else Line(f"asked {rate:g}/s", np.array([0.0, end]), np.full(2, rate), "c7", "dash")


def in_flight(context: ReportContext, axis: TimeAxis, load: LoadSeries) -> Markup:
    x = middles(axis.edges_s)
    layers: list[Layer] = [
        Line(
            f"waiting for a first {'answer ' if reasoned(context.document) else ''}token", x, load.waiting, "c5", "area"
        ),
        Line("in flight", x, load.in_flight, "c1"),
    ]
    slots = number(context.document.plan.description.load.concurrency)
    cap = slots if slots is not None else context.document.config.load.max_concurrency
    if cap is not None:
        ends = np.array([0.0, axis.seconds])
        layers.append(Line(f"{'asked' if slots is not None else 'cap'} {cap:g}", ends, np.full(2, cap), "c7", "dash"))
    chart = time_chart(
        context,
        up_to([layer.y for layer in layers]),
        layers,
        "Requests in flight, and those without a first token",
        "requests",
    )
    return context.figures.add("flight", "In flight", chart, "n", "Time-weighted mean of each bin.")


def token_rate(context: ReportContext, axis: TimeAxis) -> Markup:
    tokens = context.tokens
    if tokens is None:
        return empty("tokens", "Output tokens", context.reason("No token arrived.", EVENTS))
    x = middles(axis.edges_s)
    layers: list[Layer] = [Line("chunks, all requests", x, tokens.chunks_s, "c7", "dash")]
    unknown = "The server did not report token counts" if len(context.latency_rows) else "No request succeeded"
    heights, note = [tokens.chunks_s], f"{unknown}: the chart has chunks only."
    if tokens.tokens_s is not None:
        layers.append(Line("tokens, successful requests", x, tokens.tokens_s, "c1"))
        heights, note = [tokens.chunks_s, tokens.tokens_s], ""
    if not tokens.chunks_s.any():
        return empty("tokens", "Output tokens", "No token arrived.")
    chart = time_chart(context, up_to(heights), layers, "Output tokens and chunks per second", "per second")
    return context.figures.add("tokens", "Output tokens", chart, "n", note)


def _latency(context: ReportContext, key: str, title: str, axis: TimeAxis, start: str, end: str) -> Markup:
    t, values = context.milliseconds(start, end)
    coarse = axis.coarser(len(values), SAMPLES)
    return _percentiles(context, key, title, coarse, percentiles_over_time(coarse, t, values))


def gaps_over_time(context: ReportContext, title: str) -> Markup:
    tokens = context.tokens
    if tokens is None:
        return empty("time-itl", title, context.reason("No token arrived.", EVENTS))
    return _percentiles(context, "time-itl", title, tokens.gap_axis, percentiles_of_buckets(tokens.gap_counts, 1e6))


def _percentiles(context: ReportContext, key: str, title: str, axis: TimeAxis, found: dict[str, Floats]) -> Markup:
    present = [name for name in TONES if known(found[name])]
    if not present:
        return empty(key, title, "No request in the window gave a value.")
    x = middles(axis.edges_s)
    layers: list[Layer] = [Line(NAMES[name], x, found[name], *TONES[name]) for name in present]
    scale = for_durations([found[name] for name in present])
    chart = time_chart(context, scale, layers, f"{title} over time: {', '.join(NAMES[name] for name in present)}")
    left_out = [NAMES[name] for name in NAMES if name not in present]
    note = f"Bins of {axis.width_s:g} s."
    if left_out:
        note += f" Too few values in a bin for {' and '.join(left_out)}."
    return context.figures.add(key, title, chart, "ms", note)
