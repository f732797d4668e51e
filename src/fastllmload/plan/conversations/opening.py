"""How a plan begins with sessions that are under way: which of their calls are left, when these are due, and after what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastllmload.arrivals.process import ArrivalProcess
from fastllmload.plan.conversations.turns import scheduled
from fastllmload.plan.plan import EDGE, EDGE_START
from fastllmload.plan.prompts.source import Origin
from fastllmload.workload.graph import CallGraph
from fastllmload.workload.synthetic import Quota
from fastllmload.workload.underway import AFTER_ALL_NS, Start, UnderWay, arriving, under_way

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ChosenCalls:
    """The calls of a phase: *call* in the graph and the *round* of each; session s has those from *first[s]* on. int64."""

    call: Numbers
    round: Numbers
    first: Numbers


def alone_calls(call: Numbers) -> ChosenCalls:
    """Each in a session of its own."""
    return ChosenCalls(call, np.zeros(len(call), np.int64), np.arange(len(call) + 1))


@dataclass(frozen=True)
class Opening:
    """How the measured phase begins, in the middle of sessions. A closed loop has *slots*, and sends as many sessions as
    *quota* has requests if *by_starts*, else those of a pool; in an open loop sessions arrive at *at_ns*, by *process* and
    *rate*. *origin* of that phase, *stream* of what is drawn here; *primed*: a warm-up sends what the server has seen.
    """

    start: Start
    slots: int
    quota: Quota
    by_starts: bool
    origin: Origin
    stream: str
    primed: bool
    process: ArrivalProcess | None = None
    rate: float = 0.0
    at_ns: Numbers | None = None

    def under_way(self, graph: CallGraph, sessions: int, speed: float) -> UnderWay:
        """*sessions* in all, in a closed loop."""
        factor = 1.0 / speed
        if self.process is None or self.at_ns is None:
            return under_way(graph, self.start, self.slots, sessions, factor, self.stream)
        return arriving(graph, self.process, self.rate, self.at_ns, factor, self.stream)


def left_edges(
    under: UnderWay, chosen: ChosenCalls, session: Numbers, think_ns: Numbers, factor: float
) -> npt.NDArray[np.void]:
    """The edges between the *chosen* calls, which are all that is left. What a call waited for before time zero makes it due
    some time after the first call of its session is. Sets *think_ns* of the first calls: when they are due.
    """
    graph, many = under.graph, len(chosen.call)
    place = np.full(len(graph), -1, np.int64)
    place[chosen.call] = np.arange(many)
    source, target = place[graph.edge_from], place[graph.edge_to]
    wait = np.round(graph.edge_wait_ns * factor).astype(np.int64)
    both = (source >= 0) & (target >= 0)
    found = np.zeros(int(both.sum()), EDGE)
    found["source"], found["target"], found["wait_ns"] = source[both], target[both], wait[both]
    found["flags"] = np.where(graph.edge_from_start[both], EDGE_START, 0)
    past = (source < 0) & (target >= 0)
    since = np.where(graph.edge_from_start, under.due_ns[graph.edge_from], under.end_ns[graph.edge_from]) + wait
    latest = np.full(many, np.iinfo(np.int64).min)
    np.maximum.at(latest, target[past], since[past])
    first = chosen.first[:-1]
    due = under.due_ns[chosen.call[first]]
    think_ns[first] = np.where(due < AFTER_ALL_NS, due, 0)
    waits = np.flatnonzero(latest > np.iinfo(np.int64).min)
    waits = waits[~np.isin(waits, first)]
    more = np.zeros(len(waits), EDGE)
    more["source"], more["target"], more["flags"] = first[session[waits]], waits, EDGE_START
    more["wait_ns"] = latest[waits] - due[session[waits]]
    found = np.concatenate([found, more])
    return found[np.lexsort((found["target"], found["source"]))]


def arrivals_of(turns: npt.NDArray[np.void], first: Numbers) -> Numbers:
    """Instants of an open loop's *turns*: those at which the *first* calls of sessions are due, which then wait no more."""
    due = turns["think_ns"][first].copy()
    turns["think_ns"][first] = 0
    found = scheduled(due, turns)
    assert found is not None
    return found
