"""Calls of sessions that were sent, what made each of them due, and the longest chain of them.

The critical path of a session is walked back from the last call that something waits for: before each call lies the wait,
and before that the reply (or the start) that made it due.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.arrays import Mask, Numbers, Rows
from fastllmload.errors import RunFolderError
from fastllmload.plan.plan import EDGE_START, Plan
from fastllmload.records.run import Run
from fastllmload.workload.graph import WaitKind

WAITS = {WaitKind.TOOL: "tool", WaitKind.USER: "user", WaitKind.AGENT: "agent", WaitKind.UNKNOWN: "unknown"}
PARTS = ("prefill", "decode", *WAITS.values(), "client")


@dataclass(frozen=True)
class SentCalls:
    """Calls that were sent, by session and in the order of the plan. *rows* of the run; *call*: CALL items; *first*: of each
    session (S + 1); *planned*: calls of each session in the plan (S).

    *cause*: position of the call whose end (or instant, where *from_start*) made a call due, -1 for the first ones;
    *wait_ns* from then on.
    """

    rows: Rows
    at: Numbers  # in run.rows
    call: npt.NDArray[np.void]
    first: Numbers
    planned: Numbers
    cause: Numbers
    from_start: Mask
    wait_ns: Numbers

    @property
    def entire(self) -> Mask:
        """Whether a session was sent from its first call on."""
        first = self.call[self.first[:-1]]
        found: Mask = (first["turn"] == 0) & (first["chain"] == 0)
        return found

    @property
    def session(self) -> Numbers:
        return np.repeat(np.arange(len(self.planned)), np.diff(self.first))

    @property
    def begin(self) -> Numbers:
        """First send of each session."""
        return np.minimum.reduceat(sent_ns(self.rows), self.first[:-1])

    def total(self, values: npt.NDArray[Any]) -> Numbers:
        """Sum over the calls of each session."""
        return np.add.reduceat(values.astype(np.int64), self.first[:-1])

    def most(self, values: npt.NDArray[Any]) -> Numbers:
        return np.maximum.reduceat(values.astype(np.int64), self.first[:-1])


def sent_calls(run: Run, sent: Mask) -> SentCalls | None:
    """The calls of the rows *sent*; None where the plan has no sessions, or its record is lost."""
    try:
        plan = Plan.read_record(run.directory / "plan")
    except RunFolderError:
        return None
    at = np.flatnonzero(sent)
    if plan.calls is None or not len(plan.calls) or not len(at):
        return None
    of_plan, size = np.asarray(plan.calls), len(plan.calls)
    request = run.rows["request"][at].astype(np.int64)
    number = of_plan["session"][request % size].astype(np.int64) + request // size * (int(of_plan["session"].max()) + 1)
    order = np.lexsort((request, number))
    at, request, number = at[order], request[order], number[order]
    rows = run.rows[at]
    first = np.append(np.flatnonzero(np.diff(number, prepend=-1)), len(number))
    planned = np.bincount(of_plan["session"])[of_plan["session"][request[first[:-1]] % size]]
    cause, from_start, wait_ns = causes(plan, of_plan, rows, request, size)
    return SentCalls(rows, at, of_plan[request % size], first, planned, cause, from_start, wait_ns)


@dataclass(frozen=True)
class SentEdges:
    """What calls waited for. *place*: position of the call, ascending; *source*: that of the call it waited for."""

    place: Numbers
    source: Numbers
    wait_ns: Numbers
    from_start: Mask

    def events(self, rows: Rows) -> Numbers:
        """The instant that each edge made its call wait for."""
        of = rows[self.source]
        found: Numbers = np.where(self.from_start, of["t_sched"], of["t_end"]) + self.wait_ns
        return found


def edges_of(plan: Plan, of_plan: npt.NDArray[np.void], request: Numbers, size: int) -> SentEdges:
    """The edges of the plan between calls that were both sent. *request*: of each call; *size*: of the plan."""
    if plan.edges is None:
        source = np.flatnonzero(of_plan["session"][1:] == of_plan["session"][:-1])
        target, wait, start = source + 1, np.zeros(len(source), np.int64), np.zeros(len(source), np.bool_)
    else:
        source, target = plan.edges["source"].astype(np.int64), plan.edges["target"].astype(np.int64)
        wait, start = np.asarray(plan.edges["wait_ns"]), (plan.edges["flags"] & EDGE_START) > 0
    by_target = np.argsort(target, kind="stable")
    many = np.bincount(target, minlength=size)
    begins = np.cumsum(many) - many
    planned = request % size
    place = np.repeat(np.arange(len(request)), many[planned])
    inside = np.arange(len(place)) - np.repeat(np.cumsum(many[planned]) - many[planned], many[planned])
    edge = by_target[np.repeat(begins[planned], many[planned]) + inside]
    wanted = source[edge] + (request[place] - planned[place])
    sorter = np.argsort(request, kind="stable")
    found = np.minimum(np.searchsorted(request, wanted, sorter=sorter), len(request) - 1)
    there = request[sorter[found]] == wanted
    edge = edge[there]
    return SentEdges(place[there], sorter[found[there]], wait[edge], start[edge])


def sent_edges(run: Run, calls: SentCalls) -> SentEdges:
    """The edges between *calls*. RunFolderError where the record of the plan is lost."""
    plan = Plan.read_record(run.directory / "plan")
    of_plan = np.asarray(plan.calls)
    return edges_of(plan, of_plan, calls.rows["request"].astype(np.int64), len(of_plan))


def causes(
    plan: Plan, of_plan: npt.NDArray[np.void], rows: Rows, request: Numbers, size: int
) -> tuple[Numbers, Mask, Numbers]:
    """What made each call due: the latest of the instants that it waits for."""
    edges = edges_of(plan, of_plan, request, size)
    last = np.lexsort((edges.events(rows), edges.place))  # of several assignments to one item the last counts
    cause, from_start = np.full(len(request), -1, np.int64), np.zeros(len(request), np.bool_)
    cause[edges.place[last]], from_start[edges.place[last]] = edges.source[last], edges.from_start[last]
    caused = np.where(from_start, rows["t_sched"][cause], rows["t_end"][cause])
    return cause, from_start, np.where(cause >= 0, rows["t_sched"] - caused, 0)


def sent_ns(rows: Rows) -> Numbers:
    return np.where(rows["t_submit"] > 0, rows["t_submit"], rows["t_dispatch"])


def critical_path(calls: SentCalls, session: int) -> list[float]:
    """ns of PARTS on the chain that ends with the session's last call in the foreground; their sum is the makespan. As that
    begins with the session's first send, how late this was does not count. A call that begins the chain later has waited
    until it was due, for an unknown reason.
    """
    low, high = int(calls.first[session]), int(calls.first[session + 1])
    rows, call = calls.rows, calls.call
    begin = int(sent_ns(rows[low:high]).min())
    ends = np.where(call["background"][low:high] == 0, rows["t_end"][low:high], 0)
    found = dict.fromkeys(PARTS, 0.0)
    place, from_start, waited = low + int(np.argmax(ends)), False, "unknown"
    while place >= 0:
        row = rows[place]
        begun, until, due = int(sent_ns(rows[place : place + 1])[0]), int(row["t_end"]), int(row["t_sched"])
        if not from_start:
            token = int(row["t_any"]) if row["t_any"] else until
            found["prefill"] += token - begun
            found["decode"] += until - token
            found["client"] += begun - due
        if calls.cause[place] < 0:
            late = waited if from_start else "client"
            found["unknown" if due > begin else late] += due - begin
            break
        waited = WAITS[WaitKind(call["kind"][place])]
        found[waited] += int(calls.wait_ns[place])
        from_start, place = bool(calls.from_start[place]), int(calls.cause[place])
    return list(found.values())


def recorded_ns(calls: SentCalls, session: int) -> float:
    """The makespan of a session with the recorded service times, and with the waits of this run, which --trace-speed has
    divided; NaN where a service time is unknown. A call that waits for nothing begins at its own instant.
    """
    low, high = int(calls.first[session]), int(calls.first[session + 1])
    service = calls.call["service_s"][low:high] * 1e9
    if np.isnan(service).any():
        return float("nan")
    due = calls.rows["t_sched"][low:high]
    begins = (due - due.min()).astype(np.float64).tolist()
    ends = [0.0] * (high - low)
    for number in range(high - low):
        cause = int(calls.cause[low + number]) - low
        if cause >= 0:
            base = begins[cause] if calls.from_start[low + number] else ends[cause]
            begins[number] = base + float(calls.wait_ns[low + number])
        ends[number] = begins[number] + float(service[number])
    foreground = calls.call["background"][low:high] == 0
    longest = max(end for end, waited in zip(ends, foreground, strict=True) if waited)
    return longest or float("nan")
