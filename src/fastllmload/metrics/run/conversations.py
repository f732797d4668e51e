"""Reports conversations: how many were completed, what ended the others, and figures by turn."""

from __future__ import annotations

import numpy as np

from fastllmload.arrays import Mask, Numbers, Rows
from fastllmload.documents.fields import known
from fastllmload.documents.run_parts.sessions import Conversations, TurnResult
from fastllmload.errors import RunFolderError
from fastllmload.metrics.distribution.summary import distribution
from fastllmload.metrics.request.durations import ttft
from fastllmload.metrics.run.window import Populations
from fastllmload.plan.plan import Plan
from fastllmload.records import layout
from fastllmload.records.run import Run

MOST_TURNS = 32


def conversations_block(run: Run, chosen: Populations) -> Conversations | None:
    """`conversations` of run.json; None without any. *tool_call_replies*: replies with tool calls before another turn."""
    description = run.document.plan.description
    every = (description.conversations, *(one.conversations for one in description.classes))
    planned = [one for one in every if one is not None]
    if not planned:
        return None
    sent = chosen.measured & (run.rows["t_dispatch"] > 0) & conversing(run)
    rows = run.rows[sent]
    answers = run.rows[chosen.latency & conversing(run)]
    turn = turns_of(run, answers)
    last = last_turns(rows)
    ended_badly = last[last["status"] != layout.OK]
    return Conversations(
        planned=sum(int(known(one.conversations) or 0) for one in planned),
        begun=len(last),
        turns_sent=len(rows),
        turns_planned=sum(int(known(one.requests) or 0) for one in planned),
        ended_by_failure=int(np.count_nonzero(ended_badly["status"] != layout.CANCELLED)),
        ended_by_leaving=int(np.count_nonzero(ended_badly["status"] == layout.CANCELLED)),
        tool_call_replies=int(np.count_nonzero(rows["flags"] & layout.FLAG_TOOL))
        - int(np.count_nonzero(last["flags"] & layout.FLAG_TOOL)),
        turns=tuple(one_turn(answers[turn == number], number) for number in np.unique(turn)[:MOST_TURNS]),
    )


def turns_of(run: Run, rows: Rows) -> Numbers:
    """Index of each of *rows* in its conversation, of which the first turns may be history of the plan."""
    sent: Numbers = rows["turn"].astype(np.int64)
    if not run.document.plan.description.begun_classes:
        return sent
    try:
        calls = Plan.read_record(run.directory / "plan").calls
    except RunFolderError:
        return sent
    return sent if calls is None else calls["turn"][rows["request"] % len(calls)].astype(np.int64)


def conversing(run: Run) -> Mask:
    """Rows of classes that have conversations; all rows without classes."""
    classes = run.document.plan.description.classes
    numbers = [number for number, one in enumerate(classes) if one.conversations is not None]
    return np.isin(run.rows["request_class"], numbers) if classes else np.ones(len(run.rows), np.bool_)


def last_turns(rows: Rows) -> Rows:
    """The latest turn of each conversation that was sent."""
    order = np.lexsort((rows["turn"], rows["session"]))
    sessions = rows["session"][order]
    last: Rows = rows[order[np.append(sessions[1:] != sessions[:-1], True)]] if len(rows) else rows
    return last


def one_turn(rows: Rows, turn: np.integer) -> TurnResult:
    counted = rows[rows["prompt_tokens"] > 0]
    reported = counted[counted["cached_tokens"] >= 0]
    cached = float(reported["cached_tokens"].sum() / reported["prompt_tokens"].sum()) if len(reported) else None
    return TurnResult(
        turn=int(turn),
        requests=len(rows),
        ttft=distribution(ttft(rows), "ms"),
        prompt_tokens_mean=float(counted["prompt_tokens"].mean()) if len(counted) else None,
        cached_share=cached,
    )
