"""Blocks on request classes, conversations by turn and users, for runs that have them."""

from __future__ import annotations

from collections.abc import Iterator

from fastllmload.documents.run import ClassObjectives, ClassResult, Conversations, RunDocument, TurnResult
from fastllmload.report.blocks import Block, Cell, Items, Table
from fastllmload.report.documents.results import class_table, few_samples_note, has_marks, marked
from fastllmload.report.text.numbers import NOT_KNOWN, count, percent, quantity
from fastllmload.report.text.traffic import class_targets, ending_texts, users_text

MOST = 50  # rows of a table
FIGURES = (("ttft", "p50"), ("ttft", "p99"), ("tpot", "p50"), ("tpot", "p99"), ("e2e", "p50"), ("e2e", "p99"))


def blocks(document: RunDocument) -> Iterator[Block]:
    """None for a run with one request class whose users wait for the end."""
    if document.classes:
        yield classes(document, document.classes)
    fairness = class_table(document, "Fairness of request classes")
    if fairness is not None:
        yield fairness
    if document.conversations is not None:
        yield turns(document.conversations)
    texts = [f"also ok: {text}" for text in ending_texts(document)]
    if document.users is not None:
        note = document.users.denominators
        texts.insert(0, f"Users: {users_text(document.users)}.{'' if note is None else f' {note}'}")
    if texts:
        yield Items(texts)


def classes(document: RunDocument, found: dict[str, ClassResult]) -> Table:
    """One row per request class."""
    met = {} if document.slo is None else document.slo.classes
    rows = [_class(name, one, met.get(name)) for name, one in list(found.items())[:MOST]]
    latencies = [f"{name.upper()} {q.upper()}" for name, q in FIGURES]
    columns = ["class", "ok", "failed", "left", "success", "requests/s", "output tok/s", *latencies, "objectives met"]
    rest = [f"{len(found) - MOST} more classes are in run.json."] if len(found) > MOST else []
    notes = ["Latencies in ms, of the requests of each class.", *(f"{one}." for one in class_targets(document)), *rest]
    return Table("Classes", columns, rows, [*notes, *few_samples_note(has_marks(rows))])


def _class(name: str, one: ClassResult, met: ClassObjectives | None) -> list[Cell]:
    numbers = [count(each) for each in (one.ok, one.failed, one.left)]
    rates = [quantity(each) for each in (one.req_s, one.output_tok_s)]
    latencies = [marked(getattr(one, metric), q) for metric, q in FIGURES]
    goal = percent(None if met is None else met.slo_attainment)
    return [name, *numbers, percent(one.success_rate), *rates, *latencies, goal]


def turns(found: Conversations) -> Table:
    """Totals of conversations, and one row per turn."""
    rows = [_turn(turn) for turn in found.turns[:MOST]]
    stopped = (
        f"{count(found.begun)} of {count(found.planned)} conversations begun, "
        f"{count(found.turns_sent)} of {count(found.turns_planned)} turns sent; "
        f"{count(found.ended_by_failure)} ended by a failure, {count(found.ended_by_leaving)} by leaving."
    )
    columns = ["turn", "requests", "TTFT P50 (ms)", "TTFT P99 (ms)", "prompt tokens", "of them cached"]
    return Table("Conversations", columns, rows, [stopped, *few_samples_note(has_marks(rows))])


def _turn(turn: TurnResult) -> list[Cell]:
    return [
        NOT_KNOWN if turn.turn is None else f"{turn.turn + 1:,.0f}",
        count(turn.requests),
        *(marked(turn.ttft, q) for q in ("p50", "p99")),
        quantity(turn.prompt_tokens_mean),
        percent(turn.cached_share),
    ]
