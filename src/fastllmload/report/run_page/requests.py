"""Section on single requests: tokens of chosen ones against a reader, and failures by class."""

from __future__ import annotations

from itertools import cycle

import numpy as np

from fastllmload.documents.fields import known as number
from fastllmload.documents.run_parts.counts import ErrorCount
from fastllmload.records.integrity import EVENTS
from fastllmload.report.blocks import Bar, Block, Cell, Columns, Paragraph, Section, Table
from fastllmload.report.charts import Axis, Chart, Series, Span
from fastllmload.report.documents.results import error_text_table, target_table
from fastllmload.report.run_page.context import ReportContext
from fastllmload.report.run_page.over_time import time_chart
from fastllmload.report.series.chosen_requests import Delivery, choose_rows, delivery_of, thinned
from fastllmload.report.series.load import failures_over_time
from fastllmload.report.text.numbers import count, duration, percent
from fastllmload.report.text.tokens import has_tokens

STATUS_TONES = ("c2", "c5", "c4", "c6", "c1", "c3", "c8", "c7")


def sections(context: ReportContext) -> list[Section]:
    if not has_tokens(context.document):
        return [Section("Failures", failures(context), "failures")]
    return [
        Section("Requests", [Paragraph(_intro(context)), *timelines(context)], "requests"),
        Section("Failures", failures(context), "failures"),
    ]


def _intro(context: ReportContext) -> str:
    first = duration(context.reader.first_ns / 1e6)
    return (
        f"Tokens of single requests against a reader of {context.reader.speed:g} tokens/s, who needs the first token "
        f"{first} after submission. Shaded, and marked on the time axis: the reader has nothing to read and waits. "
        "A pause during which there is text left to read is not counted."
    )


def timelines(context: ReportContext) -> list[Chart]:
    """One chart per chosen request (SG figure 1)."""
    tokens, why, chosen = context.tokens, "No request delivered a token.", {}
    if tokens is None:
        why = context.reason("No request was sent.", EVENTS)
    else:
        chosen = choose_rows(tokens, context.populations.latency, context.populations.measured)
    if tokens is None or not chosen:
        return [Chart("Token timeline", note=why, key="timeline-0")]
    pauses = tokens.pause_ns
    deliveries = [delivery_of(context.run, row, why, float(pauses[row]), context.reader) for row, why in chosen.items()]
    return [timeline(f"timeline-{n}", delivery) for n, delivery in enumerate(deliveries)]


def timeline(key: str, found: Delivery) -> Chart:
    steps = thinned(found)
    first, each = found.reader.first_ns / 1e9, found.reader.per_token_ns / 1e9
    due = [first, first + (found.tokens - 1) * each]
    t, received = (np.concatenate([[0.0], values]) for values in (steps.t_s, steps.received))
    series = [
        Series("deadline of each token", [1.0, float(found.tokens)], due, style="dash", tone="c7"),
        *(
            [Series("reader, with waits", steps.read, steps.read_s, style="thin", tone="c2")]
            if len(found.waits)
            else []
        ),
        Series("received", received, t, style="step", tone="c1"),
    ]
    last = max(float(t[-1]), due[-1], float(found.read_s[-1]), 0.001)
    x, y = Axis(unit="s", low=0.0, high=last * 1.02), Axis(unit="tokens", least=5.0)  # whole tokens
    waits = [Span(start, end, loud=True) for start, end in steps.waits.tolist()]
    return Chart(found.why, series, x, y, _delivery_text(found), spans=waits, key=key)


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


def failures(context: ReportContext) -> list[Block]:
    """Tables by class and by URL, error messages of the server, and failures over time."""
    rows = [_group(context, group) for group in context.document.errors]
    if not rows:
        return [Paragraph(_none_failed(context))]
    tables = (
        Table("", ["status", "error", "HTTP", "errno", "requests", "of all sent"], rows),
        _over_time(context),
        target_table(context.document, "By URL"),
        error_text_table(context.document, "Error messages of the server"),
    )
    return [Columns([each for each in tables if each is not None])]


def _none_failed(context: ReportContext) -> str:
    sent = number(context.document.counts.dispatched)
    open_ = number(context.document.counts.in_flight)
    if not sent:
        return "No request was sent."
    if open_:
        return f"No request failed; {count(open_)} of {count(sent)} were still in flight at the end."
    return "The one request did not fail." if sent == 1 else f"None of {count(sent)} requests failed."


def _group(context: ReportContext, group: ErrorCount) -> list[Cell]:
    times, sent = number(group.count), number(context.document.counts.dispatched)
    share = times / sent if times is not None and sent else None
    texts = [
        "\N{EN DASH}" if each is None else str(each)
        for each in (group.status, group.error, group.http_status, group.errno)
    ]
    return [*texts, count(times), Bar(percent(share), 0.0, share)]


def _over_time(context: ReportContext) -> Chart | None:
    found = {} if context.axis is None else failures_over_time(context.run, context.axis)
    if context.axis is None or not found:
        return None
    base, series = np.zeros(context.axis.bins), []
    for (status, counted), tone in zip(found.items(), cycle(STATUS_TONES), strict=False):
        series.append(Series(status, base + counted, context.axis.edges_s, style="columns", tone=tone, base=base))
        base = base + counted
    note = f"Requests in bins of {context.axis.width_s:g} s."
    return time_chart(context, "failures-time", "Failures over time", Axis(unit="requests"), series, note)
