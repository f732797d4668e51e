"""Section on the run over time: rates, requests in flight, tokens and percentiles on one shared time axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastllmload.arrivals.curve import described_curve
from fastllmload.documents.fields import known as number
from fastllmload.documents.plan import Curve, PlanDescription
from fastllmload.records.integrity import EVENTS, ROWS
from fastllmload.report.blocks import Paragraph, Section
from fastllmload.report.charts import Axis, Chart, Floats, Rule, Series, Span, is_known
from fastllmload.report.run_page.context import ReportContext
from fastllmload.report.series.axis import TimeAxis
from fastllmload.report.series.curves import percentiles_of_buckets, percentiles_over_time
from fastllmload.report.series.load import LoadSeries, load_over_time
from fastllmload.report.text.tokens import has_tokens, reasoned
from fastllmload.report.text.traffic import of_open_loops

TONES = {"max": "c7", "p99": "c2", "p90": "c3", "p50": "c1"}
NAMES = {"p50": "P50", "p90": "P90", "p99": "P99", "max": "max"}
STEADY = ("poisson", "constant", "gamma", "bursty", "uniform")  # processes with one rate, or one curve of it
CURVE_POINTS = 600
SAMPLES = 100  # in a bin of percentiles over time, where the run is long enough


def section(context: ReportContext) -> Section:
    return Section("Over time", [*_intro(context), *charts(context)], "time")


def _intro(context: ReportContext) -> list[Paragraph]:
    if context.axis is None:
        return []
    text = (
        f"Seconds since the measured phase began, in bins of {context.axis.width_s:g} s. The shaded part is outside of "
        "the measurement window. Drag across a chart to zoom all of them, double-click to reset."
    )
    return [Paragraph(text)]


def charts(context: ReportContext) -> list[Chart]:
    axis = context.axis
    if axis is None:
        return [
            Chart("Request rate", note=context.reason("No request of the measured phase was sent.", ROWS), key="rate")
        ]
    load = load_over_time(context.run, axis)
    gap_name = "Time between chunks" if context.gap_name == "tbc" else "Time between tokens"
    both = reasoned(context.document)
    found = [
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
    return found if has_tokens(context.document) else [*found[:2], found[-1]]


def time_chart(
    context: ReportContext,
    key: str,
    title: str,
    y: Axis,
    series: Sequence[Series],
    note: str = "",
    marks: Sequence[Rule] = (),
) -> Chart:
    """A chart of the time group; the time outside of the window is shaded."""
    axis, spans = context.axis, []
    assert axis is not None
    if axis.window is not None:
        start, end = axis.since_zero(axis.window.w0_ns), axis.since_zero(axis.window.w1_ns)
        before = "ramp" if context.document.config.load.duration is not None else "before"
        found = ((0.0, start, before), (end, axis.seconds, "after the window"))
        spans = [
            Span(left, right, name if right - left > axis.seconds / 14 else "")
            for left, right, name in found
            if right - left > axis.seconds / 200
        ]
    x = Axis(unit="s", low=0.0, high=axis.seconds)
    return Chart(title, series, x, y, note, marks, spans, key, "time")


def rates(context: ReportContext, axis: TimeAxis, load: LoadSeries) -> Chart:
    """Rates planned, sent, completed, failed."""
    x = axis.middles_s
    closed = number(context.document.plan.description.load.concurrency) is not None
    series = [
        *(
            []
            if closed
            else [Series(f"planned{of_open_loops(context.document)}", load.planned, x, style="area", tone="c7")]
        ),
        Series("sent", load.sent, x, tone="c1"),
        Series("completed", load.completed, x, tone="c3"),
        *([Series("failed", load.failed, x, tone="c2")] if load.failed.any() else []),
        *([Series("left", load.left, x, tone="c4")] if load.left.any() else []),
        *asked_line(context, axis),
    ]
    return time_chart(context, "rate", "Request rate", Axis(unit="requests/s"), series)


def asked_line(context: ReportContext, axis: TimeAxis) -> list[Series]:
    """The requested rate (requests/s), also where it changes; nothing for a closed loop, a trace, and conversations, whose
    turns have no schedule.
    """
    description = context.document.plan.description
    arrivals = description.load.arrivals
    if arrivals is None or arrivals.name not in STEADY or axis.sent_ns is None or description.conversations is not None:
        return []
    end, rate = axis.since_zero(axis.sent_ns), number(arrivals.rate)
    if arrivals.curve is not None:
        t = np.linspace(0.0, end, CURVE_POINTS)
        asked = described_curve(arrivals.curve).rate(t)
        return [Series("asked", asked, t, style="dash", tone="c7")]
    return [] if rate is None else [_level(f"asked {rate:g}/s", rate, end)]


def asked_slots(curve: Curve, axis: TimeAxis) -> Series:
    """The slots of a closed loop whose number changes."""
    t = np.linspace(0.0, axis.seconds, CURVE_POINTS)
    return Series("asked", described_curve(curve).rate(t), t, style="dash", tone="c7")


def asked_of_classes(described: PlanDescription, axis: TimeAxis) -> Series:
    """The slots of all closed loops of a mix, where those of any change."""
    t = np.linspace(0.0, axis.seconds, CURVE_POINTS)
    loads = [described.classes[number].load for number in described.closed_classes]
    curves = [None if load is None else load.concurrency_curve for load in loads]
    each = [
        described_curve(curve).rate(t) if curve is not None else np.full(len(t), float(slots))
        for curve, slots in zip(curves, described.closed_classes.values(), strict=True)
    ]
    return Series("asked in closed loops", np.sum(each, axis=0), t, style="dash", tone="c7")


def _level(name: str, value: float, end: float) -> Series:
    return Series(name, [value, value], [0.0, end], style="dash", tone="c7")


def in_flight(context: ReportContext, axis: TimeAxis, load: LoadSeries) -> Chart:
    answer = "answer " if reasoned(context.document) else ""
    slots = number(context.document.plan.description.load.concurrency)
    curve = context.document.plan.description.load.concurrency_curve
    cap = slots if slots is not None else context.document.config.load.max_concurrency
    prefill, described = context.document.config.load.max_prefill, context.document.plan.description
    mix = sum(described.closed_classes.values())
    waiting = Series(f"waiting for a first {answer}token", load.waiting, axis.middles_s, style="area", tone="c5")
    series = [
        *([waiting] if has_tokens(context.document) else []),
        *([] if prefill is None else [_level(f"at most {prefill:g} waiting", prefill, axis.seconds)]),
        Series("in flight", load.in_flight, axis.middles_s, tone="c1"),
        *([] if curve is None else [asked_slots(curve, axis)]),
        *(
            []
            if cap is None or curve is not None or described.slots_change
            else [_level(f"{'asked' if slots is not None else 'cap'} {cap:g}", cap, axis.seconds)]
        ),
        *([asked_of_classes(described, axis)] if described.slots_change else []),
        *(
            []
            if not mix or slots is not None or described.slots_change
            else [_level(f"asked {mix:g} in closed loops", mix, axis.seconds)]
        ),
    ]
    y = Axis(unit="requests")
    return time_chart(context, "flight", "In flight", y, series, "Time-weighted mean of each bin.")


def token_rate(context: ReportContext, axis: TimeAxis) -> Chart:
    tokens = context.tokens
    if tokens is None or not tokens.chunks_s.any():
        why = "No token arrived."
        return Chart("Output tokens", note=context.reason(why, EVENTS) if tokens is None else why, key="tokens")
    series = [Series("chunks, all requests", tokens.chunks_s, axis.middles_s, style="dash", tone="c7")]
    unknown = "The server did not report token counts" if len(context.latency_rows) else "No request succeeded"
    note = f"{unknown}: the chart has chunks only."
    if tokens.tokens_s is not None:
        series.append(Series("tokens, successful requests", tokens.tokens_s, axis.middles_s, tone="c1"))
        note = ""
    return time_chart(context, "tokens", "Output tokens", Axis(unit="per second"), series, note)


def _latency(context: ReportContext, key: str, title: str, axis: TimeAxis, start: str, end: str) -> Chart:
    t, values = context.milliseconds(start, end)
    coarse = axis.coarser(len(values), SAMPLES)
    return _percentiles(context, key, title, coarse, percentiles_over_time(coarse, t, values))


def gaps_over_time(context: ReportContext, title: str) -> Chart:
    tokens = context.tokens
    if tokens is None:
        return Chart(title, note=context.reason("No token arrived.", EVENTS), key="time-itl")
    return _percentiles(context, "time-itl", title, tokens.gap_axis, percentiles_of_buckets(tokens.gap_counts, 1e6))


def _percentiles(context: ReportContext, key: str, title: str, axis: TimeAxis, found: dict[str, Floats]) -> Chart:
    present = [name for name in TONES if is_known(found[name])]
    if not present:
        return Chart(title, note="No request in the window gave a value.", key=key)
    series = [
        Series(NAMES[name], found[name], axis.middles_s, style="thin" if name == "max" else "line", tone=TONES[name])
        for name in present
    ]
    left_out = [NAMES[name] for name in NAMES if name not in present]
    note = f"Bins of {axis.width_s:g} s."
    if left_out:
        note += f" Too few values in a bin for {' and '.join(left_out)}."
    return time_chart(context, key, title, Axis(unit="ms"), series, note)
