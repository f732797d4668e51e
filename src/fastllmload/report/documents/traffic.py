"""Blocks on request classes, conversations by turn and users, for runs that have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastllmload.documents.fields import known
from fastllmload.documents.metric import Metric
from fastllmload.documents.run import RunDocument
from fastllmload.documents.run_parts.backends import BackendFigures, BackendMoves
from fastllmload.documents.run_parts.classes import ClassResult, ModelResult, PartResult
from fastllmload.documents.run_parts.objectives import ClassObjectives
from fastllmload.documents.run_parts.sessions import CallGroup, Conversations, SessionFigures, TurnResult
from fastllmload.report.blocks import Block, Cell, Items, Table
from fastllmload.report.documents.results import class_table, few_samples_note, has_marks, marked
from fastllmload.report.text.numbers import NOT_KNOWN, count, percent, quantity, some
from fastllmload.report.text.traffic import (
    balance_text,
    class_targets,
    ending_texts,
    gaps_of_part,
    has_objective,
    most_asked,
    session_texts,
    slots_text,
    users_text,
)

MOST = 50  # rows of a table
PART = [
    "requests", "failed", "requests/s", "output tok/s", "TTFT P50", "TTFT P99", "TPOT P50", "ITL P50", "ITL P99", "E2E P50",
    "E2E P99",
]  # fmt: skip
SPREAD = 12  # numbers of backends
FIGURES = (("ttft", "p50"), ("ttft", "p99"), ("tpot", "p50"), ("tpot", "p99"), ("e2e", "p50"), ("e2e", "p99"))


def blocks(document: RunDocument) -> Iterator[Block]:
    """None for a run with one request class whose users wait for the end."""
    if document.classes:
        yield classes(document, document.classes)
    if document.models:
        yield models("Models", most_asked(document.models))
        for name, one in (document.classes or {}).items():
            if one.models:
                yield models(f"Models of class {name}", one.models)
    if document.backends is not None:
        yield from backends(document.backends)
    fairness = class_table(document, "Fairness of request classes")
    if fairness is not None:
        yield fairness
    graphs = document.plan.description.workload.sessions is not None
    if document.conversations is not None and not graphs:
        yield turns(document.conversations)
    if document.sessions is not None and graphs:
        yield from sessions(document.sessions)
    texts = [f"also ok: {text}" for text in ending_texts(document)]
    if document.users is not None:
        note = document.users.denominators
        texts.insert(0, f"Users: {users_text(document.users)}.{'' if note is None else f' {note}'}")
    if document.slots is not None:
        texts.append(f"Slots: {slots_text(document.slots)}.")
    if texts:
        yield Items(texts)


def classes(document: RunDocument, found: dict[str, ClassResult]) -> Table:
    """One row per request class."""
    met = {} if document.slo is None else document.slo.classes
    rows = [
        _class(name, one, met.get(name) if has_objective(document, name) else None)
        for name, one in list(found.items())[:MOST]
    ]
    latencies = [f"{name.upper()} {q.upper()}" for name, q in FIGURES]
    mixed = any(one.loop is not None for one in found.values())
    rows = [row if mixed else row[:1] + row[4:] for row in rows]
    columns = [
        "class",
        *(["loop", "slots", "in flight"] if mixed else []),
        "ok",
        "failed",
        "left",
        "success",
        "requests/s",
        "output tok/s",
        "input tok/s",
        *latencies,
        "objectives met",
    ]
    rest = [f"{len(found) - MOST} more classes are in run.json."] if len(found) > MOST else []
    held = ["In flight: mean of a closed loop until the end of sending."] if mixed else []
    notes = [
        "Latencies in ms, of the requests of each class.",
        *held,
        *(f"{one}." for one in class_targets(document)),
        *rest,
    ]
    return Table("Classes", columns, rows, [*notes, *few_samples_note(has_marks(rows))])


def _class(name: str, one: ClassResult, met: ClassObjectives | None) -> list[Cell]:
    numbers = [count(each) for each in (one.ok, one.failed, one.left)]
    rates = [quantity(each) for each in (one.req_s, one.output_tok_s, one.input_tok_s)]
    latencies = [marked(getattr(one, metric), q) for metric, q in FIGURES]
    goal = percent(None if met is None else met.slo_attainment)
    return [
        name,
        one.loop or "",
        count(one.concurrency) if one.loop == "closed" else "",
        quantity(one.slots.achieved_mean) if one.slots is not None else "",
        *numbers,
        percent(one.success_rate),
        *rates,
        *latencies,
        goal,
    ]


def models(title: str, found: Sequence[ModelResult]) -> Table:
    """One row per model."""
    asked = any(one.share_asked is not None for one in found)
    columns, cells = _parts(found[:MOST])
    rows: list[list[Cell]] = [
        [
            str(one.name),
            *(percent(each) for each in ((one.share_asked, one.share_planned) if asked else ())),
            percent(one.share_sent),
            *each,
        ]
        for one, each in zip(found, cells, strict=False)
    ]
    shares = ["asked", "drawn", "sent"] if asked else ["sent"]
    rest = [f"{len(found) - MOST} more models are in run.json."] if len(found) > MOST else []
    notes = [f"Shares {'as asked, as drawn, and ' if asked else ''}of what was sent. Latencies in ms."]
    return Table(title, ["model", *shares, *columns], rows, [*notes, *rest, *few_samples_note(has_marks(rows))])


def backends(found: BackendFigures) -> Iterator[Block]:
    """One row per server of a router, those with the most requests first; then where the turns of sessions went."""
    if not some(found.named):
        yield Items([f"No answer has the header {found.header}: which server answered is not known."])
        return
    names, cells = _parts(found.each[:MOST])
    rows: list[list[Cell]] = [
        [one.name or "others", percent(one.share), percent(one.cached_share), *each]
        for one, each in zip(found.each, cells, strict=False)
    ]
    notes = [f"By {found.header} of the answers. Cached: of the prompts of answers that say it. Latencies in ms."]
    notes.append(f"{balance_text(found)[0].upper()}{balance_text(found)[1:]}.")
    if some(found.unnamed):
        notes.append(f"{count(found.unnamed)} answers do not have the header.")
    if len(found.each) > MOST:
        notes.append(f"{len(found.each) - MOST} more backends are in run.json.")
    notes += [] if found.caveat is None else [f"{found.caveat[0].upper()}{found.caveat[1:]}."]
    columns = ["backend", "share", "cached", *names]
    yield Table("Backends", columns, rows, [*notes, *few_samples_note(has_marks(rows))])
    if found.moves is not None and some(found.moves.compared):
        yield moves(found.moves)


def _parts(found: Sequence[PartResult]) -> tuple[list[str], list[list[Cell]]]:
    """Columns and cells of models or backends; with the share that met the objectives where there are any."""
    judged = any(one.slo_attainment is not None for one in found)
    cells: list[list[Cell]] = [
        [
            *(count(each) for each in (one.sent, one.failed)),
            *(quantity(each) for each in (one.req_s, one.output_tok_s)),
            *_quantiles(one.ttft),
            marked(one.tpot, "p50"),
            *_quantiles(gaps_of_part(one)[1]),
            *_quantiles(one.e2e),
            *([percent(one.slo_attainment)] if judged else []),
        ]
        for one in found
    ]
    return [*PART, *(["objectives met"] if judged else [])], cells


def moves(found: BackendMoves) -> Table:
    """Turns that went where the turn before of their session went, and those that went elsewhere."""
    compared = known(found.compared) or 0
    rows: list[list[Cell]] = [
        [
            name,
            count(turns),
            percent((known(turns) or 0) / compared if compared else None),
            percent(cached),
            *_quantiles(ttft),
        ]
        for name, turns, cached, ttft in (
            ("stayed", found.stayed, found.cached_share_stayed, found.ttft_stayed),
            ("moved", found.moved, found.cached_share_moved, found.ttft_moved),
        )
    ]
    moved = f"{count(found.sessions_moved)} of {count(found.sessions)} sessions moved."
    spread = ", ".join(f"{count(one.sessions)} with {one.backends}" for one in found.by_backends[:SPREAD])
    notes = [
        f"{moved} Sessions by their number of backends: {spread}.",
        f"If each request went to any backend, {percent(found.stayed_share_at_random)} of turns would stay.",
    ]
    columns = ["turns of sessions", "turns", "share", "of prompts cached", "TTFT P50 (ms)", "TTFT P99 (ms)"]
    return Table("Turns by backend", columns, rows, [*notes, *few_samples_note(has_marks(rows))])


def _quantiles(metric: Metric) -> list[str]:
    return [marked(metric, q) for q in ("p50", "p99")]


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


def sessions(found: SessionFigures) -> Iterator[Table]:
    """One row per figure of a session; then the calls by turn, and by depth where agents started others."""
    figures = [
        ("makespan (ms)", found.makespan),
        ("time to first action (ms)", found.first_action),
        ("time in the model (ms)", found.model_time),
        ("time in tools (ms)", found.tool_time),
        ("time in all tools (ms)", found.tool_time_all),
        ("makespan / that with recorded service times", found.stretch),
        ("calls", found.calls),
        ("agents", found.agents),
        ("most calls at once", found.in_flight),
    ]
    rows = [
        [name, quantity(metric.mean), *(marked(metric, q) for q in ("p50", "p90", "p99")), quantity(metric.max)]
        for name, metric in figures
        if metric.n
    ]
    notes = [f"{text}." for text in session_texts(found)]
    notes.append("Times in the model and in tools are those of each session's longest chain of calls and waits.")
    if found.caveat is not None:
        notes.append(f"{found.caveat}.")
    columns = ["of a completed session", "mean", "P50", "P90", "P99", "max"]
    yield Table("Sessions", columns, rows, [*notes, *few_samples_note(has_marks(rows))])
    yield calls(found.turns, "Calls by turn of their agent", "turn")
    if len(found.depths) > 1:
        yield calls(found.depths, "Calls by depth of their agent", "depth")


def calls(found: tuple[CallGroup, ...], title: str, label: str) -> Table:
    rows = [
        [
            f"{one.number + (label == 'turn'):,}" if one.number is not None else NOT_KNOWN,
            count(one.requests),
            *(marked(one.ttft, q) for q in ("p50", "p99")),
            quantity(one.prompt_tokens_mean),
            percent(one.cached_share),
        ]
        for one in found[:MOST]
    ]
    columns = [label, "requests", "TTFT P50 (ms)", "TTFT P99 (ms)", "prompt tokens", "of them cached"]
    return Table(title, columns, rows, few_samples_note(has_marks(rows)))


def _turn(turn: TurnResult) -> list[Cell]:
    return [
        NOT_KNOWN if turn.turn is None else f"{turn.turn + 1:,.0f}",
        count(turn.requests),
        *(marked(turn.ttft, q) for q in ("p50", "p99")),
        quantity(turn.prompt_tokens_mean),
        percent(turn.cached_share),
    ]
