"""Section on request classes, conversations by turn, and user behavior, for runs that have them."""

from __future__ import annotations

from collections.abc import Sequence

from fastllmload.documents.fields import known as number
from fastllmload.documents.run import ClassObjectives, ClassResult, TurnResult
from fastllmload.report.blocks import Cell, Table
from fastllmload.report.documents.results import MARK, class_table, few_samples_note, marked
from fastllmload.report.html.charts.figure import render_table
from fastllmload.report.html.context import ReportContext
from fastllmload.report.html.markup import Markup, element, visible
from fastllmload.report.text.numbers import NOT_KNOWN, count, percent, quantity
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
    found = context.document.classes
    if not found:
        return None
    met = {} if context.document.slo is None else context.document.slo.classes
    rows = [_class(name, one, met.get(name)) for name, one in list(found.items())[:MOST]]
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


def _class(name: str, one: ClassResult, met: ClassObjectives | None) -> list[Cell]:
    numbers = [count(each) for each in (one.ok, one.failed, one.left)]
    rates = [quantity(each) for each in (one.req_s, one.output_tok_s)]
    latencies = [marked(getattr(one, metric), q) for metric, q in FIGURES]
    goal = percent(None if met is None else met.slo_attainment)
    return [visible(name, 60), *numbers, percent(one.success_rate), *rates, *latencies, goal]


def turns(context: ReportContext) -> Table | None:
    """Totals of conversations, and one row per turn."""
    found = context.document.conversations
    if found is None:
        return None
    rows = [_turn(turn) for turn in found.turns[:MOST]]
    stopped = (
        f"{count(found.begun)} of {count(found.planned)} conversations begun, "
        f"{count(found.turns_sent)} of {count(found.turns_planned)} turns sent; "
        f"{count(found.ended_by_failure)} ended by a failure, {count(found.ended_by_leaving)} by leaving."
    )
    columns = ["turn", "requests", "TTFT P50 (ms)", "TTFT P99 (ms)", "prompt tokens", "of them cached"]
    return Table("Conversations", columns, rows, [stopped, *few(rows)])


def _turn(turn: TurnResult) -> list[Cell]:
    return [
        NOT_KNOWN if turn.turn is None else f"{turn.turn + 1:,.0f}",
        count(turn.requests),
        *(marked(turn.ttft, q) for q in ("p50", "p99")),
        quantity(turn.prompt_tokens_mean),
        percent(turn.cached_share),
    ]


def users(context: ReportContext) -> Markup | None:
    found = context.document.users
    if found is None:
        return None
    texts = [f"{count(getattr(found, key))} {text}" for key, text in USERS.items() if number(getattr(found, key))]
    behavior = ", ".join(texts) or "all waited for the end"
    note = found.denominators
    below = None if note is None else element("p", visible(note, 600), class_="note")
    return element("div", element("h3", "Users"), element("p", f"Users: {behavior}."), below, class_="card")
