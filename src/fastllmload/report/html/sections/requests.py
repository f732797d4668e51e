"""Section on single requests: tokens of chosen ones against a reader, and failures by class."""

from __future__ import annotations

import numpy as np

from fastllmload.documents.fields import known as number
from fastllmload.documents.run import ErrorCount
from fastllmload.records.integrity import EVENTS
from fastllmload.report.documents.results import error_text_table, target_table
from fastllmload.report.html.charts.chart import Chart, Columns, Layer, Line
from fastllmload.report.html.charts.figure import empty, grid
from fastllmload.report.html.charts.scales import Linear, duration, up_to
from fastllmload.report.html.context import ReportContext
from fastllmload.report.html.sections.over_time import time_chart
from fastllmload.report.render.html import Markup, element, joined, render_table, table, visible
from fastllmload.report.series.chosen_requests import Delivery, choose_rows, delivery_of, thinned
from fastllmload.report.series.load import failures_over_time
from fastllmload.report.text.numbers import count, percent

STATUS_TONES = ("c2", "c5", "c4", "c6", "c1", "c3", "c8", "c7")


def section(context: ReportContext) -> Markup:
    return element(
        "section",
        element("h2", "Requests"),
        element("p", _intro(context), class_="intro"),
        grid(*timelines(context)),
        element("h2", "Failures", id="failures"),
        failures(context),
        id="requests",
    )


def _intro(context: ReportContext) -> str:
    first = duration(context.reader.first_ns / 1e6)
    return (
        f"Tokens of single requests against a reader of {context.reader.speed:g} tokens/s, who needs the first token "
        f"{first} after submission. Shaded, and marked on the time axis: the reader has nothing to read and waits. "
        "A pause during which there is text left to read is not counted."
    )


def timelines(context: ReportContext) -> list[Markup]:
    """One chart per chosen request (SG figure 1)."""
    if context.tokens is None:
        return [empty("timeline-0", "Token timeline", context.reason("No request was sent.", EVENTS))]
    chosen = choose_rows(context.tokens, context.populations.latency, context.populations.measured)
    if not chosen:
        return [empty("timeline-0", "Token timeline", "No request delivered a token.")]
    pauses = context.tokens.pause_ns
    deliveries = [delivery_of(context.run, row, why, float(pauses[row]), context.reader) for row, why in chosen.items()]
    return [timeline(context, f"timeline-{n}", delivery) for n, delivery in enumerate(deliveries)]


def timeline(context: ReportContext, key: str, found: Delivery) -> Markup:
    steps = thinned(found)
    t, received = steps.t_s, steps.received
    first, each = found.reader.first_ns / 1e9, found.reader.per_token_ns / 1e9
    due_x, due_y = np.array([first, first + (found.tokens - 1) * each]), np.array([1.0, float(found.tokens)])
    layers: list[Layer] = [Line("deadline of each token", due_x, due_y, "c7", "dash")]
    if len(found.waits):
        layers.append(Line("reader, with waits", steps.read_s, steps.read, "c2", "thin"))
    layers.append(Line("received", np.concatenate([[0.0], t]), np.concatenate([[0.0], received]), "c1", step=True))
    last = max(float(t[-1]), float(due_x[-1]), float(found.read_s[-1]), 0.001)
    chart = Chart(
        Linear(0.0, last * 1.02, steps=8),
        up_to([np.array([float(found.tokens)])], least=5.0),  # whole tokens
        layers,
        label=f"{found.why}: {found.tokens} tokens, the reader waits {found.wait_s:.3g} s",
        x_unit="s",
        y_unit="tokens",
        wait_bars=steps.waits,
    )
    return context.figures.add(key, found.why, chart, "n", _delivery_text(found))


def _delivery_text(found: Delivery) -> str:
    if found.slack_s < 0:
        text = f"The reader waits {duration(1e3 * found.wait_s)} in total"
    else:
        text = (
            f"The reader never waits: every token arrived at least {duration(1e3 * found.slack_s)} before its deadline"
        )
    pause = "" if found.pause_s is None else f"; longest pause {duration(1e3 * found.pause_s)}"
    ended = "" if found.status == "ok" else f" Ended as {found.status}."
    tokens = "1 token" if found.tokens == 1 else f"{count(found.tokens)} tokens"
    return f"Request {found.request}, {tokens}. {text}{pause}.{ended}"


def failures(context: ReportContext) -> Markup:
    """Tables by class and by URL, error messages of the server, and failures over time."""
    rows = [_group(context, group) for group in context.document.errors]
    if not rows:
        return element("p", _none_failed(context), class_="card good")
    head = ["status", "error", "HTTP", "errno", "requests", "of all sent"]
    listed = element("div", table(head, rows, "failures"), class_="card")
    tables = (
        target_table(context.document, "By URL"),
        error_text_table(context.document, "Error messages of the server"),
    )
    more = [render_table(each) for each in tables if each is not None]
    return element("div", listed, _over_time(context), *more, class_="grid start")


def _none_failed(context: ReportContext) -> str:
    sent = number(context.document.counts.dispatched)
    open_ = number(context.document.counts.in_flight)
    if not sent:
        return "No request was sent."
    if open_:
        return f"No request failed; {count(open_)} of {count(sent)} were still in flight at the end."
    return "The one request did not fail." if sent == 1 else f"None of {count(sent)} requests failed."


def _group(context: ReportContext, group: ErrorCount) -> list[str | Markup]:
    times, sent = number(group.count), number(context.document.counts.dispatched)
    share = times / sent if times is not None and sent else None
    bar = element("svg", element("rect", width=round(100 * (share or 0.0), 2), height=8), class_="meter",
                  viewBox="0 0 100 8", preserveAspectRatio="none", aria_hidden="true")  # fmt: skip
    texts = [
        visible("\N{EN DASH}" if each is None else each, 200)
        for each in (group.status, group.error, group.http_status, group.errno)
    ]
    return [*texts, count(times), joined(bar, percent(share))]


def _over_time(context: ReportContext) -> Markup | None:
    if context.axis is None:
        return None
    found = failures_over_time(context.run, context.axis)
    if not found:
        return None
    edges, base = context.axis.edges_s, np.zeros(context.axis.bins)
    layers: list[Layer] = []
    for number_, (status, counted) in enumerate(found.items()):
        layers.append(Columns(status, edges, base + counted, STATUS_TONES[number_ % len(STATUS_TONES)], base))
        base = base + counted
    chart = time_chart(context, up_to([base]), layers, "Failed requests over time by status", "requests")
    return context.figures.add(
        "failures-time", "Failures over time", chart, "n", f"Requests in bins of {context.axis.width_s:g} s."
    )
