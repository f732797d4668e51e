"""Section on request classes, conversations by turn, and user behavior, for runs that have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastllmload.documents.metric import Metric
from fastllmload.documents.read import convert
from fastllmload.report.documents.results import MARK, class_table, few_samples_note, marked
from fastllmload.report.html.charts.figure import render_table
from fastllmload.report.html.context import ReportContext, number, part
from fastllmload.report.html.markup import Markup, element, visible
from fastllmload.report.text.numbers import NOT_KNOWN, count, percent, quantity
from fastllmload.report.text.tables import Cell, Table
from fastllmload.report.text.traffic import class_targets

MOST = 50  # rows of a table
FIGURES = (("ttft", "p50"), ("ttft", "p99"), ("tpot", "p50"), ("tpot", "p99"), ("e2e", "p50"), ("e2e", "p99"))
USERS = {
    "left_by_plan": "left by plan",
    "ended_before_leaving": "had their answer before they would have left",
    "gave_up": "gave up at a deadline",
    "slow_readers": "read slowly",
}


def section(context: ReportContext) -> Markup | None:
    """None for a run with one request class whose users wait for the end."""
    found = [classes(context), class_table(context.document, "Fairness"), turns(context)]
    tables = [render_table(table) for table in found if table is not None]
    user_card = users(context)
    if not tables and user_card is None:
        return None
    return element("section", element("h2", "Traffic"), *tables, user_card, id="traffic", class_="blocks-below")


def classes(context: ReportContext) -> Table | None:
    """One row per request class."""
    found = context.get("classes")
    if not isinstance(found, Mapping) or not found:
        return None
    met = context.get("slo", "classes")
    rows = [_class(name, one, part(met, name)) for name, one in list(found.items())[:MOST]]
    latencies = [f"{name.upper() if name != 'tpot' else 'TPOT'} {q.upper()}" for name, q in FIGURES]
    columns = ["class", "ok", "failed", "left", "success", "requests/s", "output tok/s", *latencies, "objectives met"]
    rest = [f"{len(found) - MOST} more classes are in run.json."] if len(found) > MOST else []
    notes = [
        "Latencies in ms, of the requests of each class.",
        *(f"{one}." for one in class_targets(context.document)),
    ]
    return Table("Classes", columns, rows, [*notes, *rest, *few(rows)])


def few(rows: Sequence[Sequence[Cell]]) -> list[str]:
    """The note on percentiles of too few samples, where there are any."""
    return few_samples_note(any(str(cell).endswith(MARK) for row in rows for cell in row))


def _class(name: str, one: Any, met: Any) -> list[Cell]:
    numbers = [count(part(one, key)) for key in ("ok", "failed", "left")]
    rates = [quantity(part(one, key)) for key in ("req_s", "output_tok_s")]
    latencies = [marked(convert(part(one, metric) or {}, Metric), q) for metric, q in FIGURES]
    goal = percent(part(met, "slo_attainment"))
    return [visible(name, 60), *numbers, percent(part(one, "success_rate")), *rates, *latencies, goal]


def turns(context: ReportContext) -> Table | None:
    """Totals of conversations, and one row per turn."""
    found = context.get("conversations")
    if not isinstance(found, Mapping):
        return None
    given = found.get("turns")
    rows = [_turn(turn) for turn in given[:MOST]] if isinstance(given, Sequence) else []
    stopped = (
        f"{count(found.get('begun'))} of {count(found.get('planned'))} conversations begun, "
        f"{count(found.get('turns_sent'))} of {count(found.get('turns_planned'))} turns sent; "
        f"{count(found.get('ended_by_failure'))} ended by a failure, {count(found.get('ended_by_leaving'))} by leaving."
    )
    columns = ["turn", "requests", "TTFT P50 (ms)", "TTFT P99 (ms)", "prompt tokens", "of them cached"]
    return Table("Conversations", columns, rows, [stopped, *few(rows)])


def _turn(turn: Any) -> list[Cell]:
    at = number(part(turn, "turn"))
    return [
        NOT_KNOWN if at is None else f"{at + 1:,.0f}",
        count(part(turn, "requests")),
        *(marked(convert(part(turn, "ttft") or {}, Metric), q) for q in ("p50", "p99")),
        quantity(part(turn, "prompt_tokens_mean")),
        percent(part(turn, "cached_share")),
    ]


def users(context: ReportContext) -> Markup | None:
    found = context.get("users")
    if not isinstance(found, Mapping):
        return None
    texts = [f"{count(found.get(key))} {text}" for key, text in USERS.items() if number(found.get(key))]
    behavior = ", ".join(texts) or "all waited for the end"
    note = found.get("denominators")
    below = None if note is None else element("p", visible(note, 600), class_="note")
    return element("div", element("h3", "Users"), element("p", f"Users: {behavior}."), below, class_="card")
