"""Sessions that are under way when a run begins, so that its load is from the start what it will be later.

Each slot of a closed loop begins in the middle of a session: at an instant of its age, which calls follow from recorded
service times and the trace's waits. Calls that were due before that instant are not sent; the others are due when they would
have been. Where all calls of a session were due before it, the slot is free when their last one would have ended.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np

from fastllmload.errors import InputError, InvalidValue
from fastllmload.workload.graph import CallGraph, Numbers, gathered
from fastllmload.workload.paths import due_and_end

FRESH, STATIONARY, SHARE = "fresh", "stationary", "share"
AFTER_ALL_NS = 1 << 61  # instant of sessions that begin when a slot is free


@dataclass(frozen=True)
class Start:
    """*how*: where sessions begin, FRESH, STATIONARY, or a SHARE of their length between *low* and *high*."""

    how: str = FRESH
    low: float = 0.0
    high: float = 0.0


def read_start(text: str) -> Start:
    """`fresh`, `stationary` or `share:LOW,HIGH`. InvalidValue with the reason."""
    if text in (FRESH, STATIONARY):
        return Start(text)
    name, _, numbers = text.partition(":")
    try:
        low, high = (float(part) for part in numbers.split(","))
    except ValueError:
        low, high = 1.0, 0.0
    if name != SHARE or not 0 <= low <= high < 1:
        raise InvalidValue(
            "session-start-invalid",
            f"is not a start of sessions; write {FRESH}, {STATIONARY} or {SHARE}:LOW,HIGH with "
            f"0 <= LOW <= HIGH < 1, such as {SHARE}:0.25,0.75",
        )
    return Start(SHARE, low, high)


@dataclass(frozen=True, eq=False)
class UnderWay:
    """*graph*: the session of each slot, in the order in which their first calls are due; then those that follow. *live*:
    sessions that began before time zero. *due_ns* of all calls, and their *end_ns*, from time zero; negative due: not sent.
    *latest*: of each agent that had begun the last call that is not sent, in order of their instants.
    """

    graph: CallGraph
    live: int
    due_ns: Numbers
    end_ns: Numbers
    latest: Numbers


def under_way(graph: CallGraph, start: Start, slots: int, sessions: int, factor: float, seed: str) -> UnderWay:
    """The first *sessions* (or one for each slot, where that is more) that *slots* send of *graph*, whose waits take
    *factor* of their time. InputError for a graph without times.
    """
    due, end = due_and_end(
        replace(graph, wait_ns=scaled(graph.wait_ns, factor), edge_wait_ns=scaled(graph.edge_wait_ns, factor))
    )
    length = np.maximum.reduceat(end, graph.first_call[:-1])
    if not length.any():
        raise InputError(
            "option-not-applicable",
            "--session-start: the calls of the trace have neither recorded service times nor waits, so no instant within a "
            "session is known; leave it out",
        )
    chosen, age = ages(length, start, slots, random.Random(seed))
    over = np.maximum.reduceat(due, graph.first_call[:-1])[chosen] < age
    many = int(over.sum())
    rest = following(graph.sessions, chosen[~over], max(sessions - slots, 0) + many)
    age[over] -= length[chosen[over]]
    chosen[over] = rest[:many]
    first_due = [
        int(mine[mine >= 0].min())
        for mine in (
            due[slice(*graph.first_call[one : one + 2])] - at
            for one, at in zip(chosen.tolist(), age.tolist(), strict=True)
        )
    ]
    order = np.argsort(first_due, kind="stable")
    chosen, age = chosen[order], age[order]
    follow = len(rest) - many
    all_chosen = np.concatenate([chosen, rest[many:]])
    begins = np.concatenate([-age, AFTER_ALL_NS + np.arange(follow)])
    call, first = gathered(graph.first_call, all_chosen)
    offset = np.repeat(begins, np.diff(first))
    found = replace(graph.copies(all_chosen), start_ns=begins)
    due, end = due[call] + offset, end[call] + offset
    return UnderWay(found, int((age > 0).sum()), due, end, latest_unsent(found, due))


def scaled(wait_ns: Numbers, factor: float) -> Numbers:
    return np.round(wait_ns * factor).astype(np.int64)


def ages(length: Numbers, start: Start, slots: int, stream: random.Random) -> tuple[Numbers, Numbers]:
    """The session of each slot, and its age in ns.

    STATIONARY: instants at equal distances on the line of all sessions, one after the other. So a session is chosen in
    proportion to its length, and its age is uniform: what an observer finds who comes at any time.
    """
    if start.how == STATIONARY:
        ends = np.cumsum(length)
        at = ((np.arange(slots) + stream.random()) / slots * ends[-1]).astype(np.int64)
        chosen = np.searchsorted(ends, at, "right")
        return chosen, at - (ends - length)[chosen]
    chosen = np.arange(slots) % len(length)
    share = np.array([stream.uniform(start.low, start.high) for _ in range(slots)])
    return chosen, (length[chosen] * share).astype(np.int64)


def following(sessions: int, used: Numbers, count: int) -> Numbers:
    """*count* of the *sessions* in their order, round by round, each left out as often as it was *used*."""
    left = np.bincount(used, minlength=sessions)
    found, have = [np.empty(0, np.int64)], 0
    while have < count:
        one_round = np.flatnonzero(left <= 0)
        left -= 1
        found.append(one_round)
        have += len(one_round)
    return np.concatenate(found)[:count]


def latest_unsent(graph: CallGraph, due_ns: Numbers) -> Numbers:
    past = np.flatnonzero(due_ns < 0)
    agent = graph.session_of()[past] * (int(graph.chain.max()) + 1) + graph.chain[past]
    order = np.lexsort((past, due_ns[past], agent))
    last = np.append(np.diff(agent[order]) != 0, True)[: len(past)]
    found: Numbers = past[order[last]]
    in_order: Numbers = found[np.argsort(due_ns[found], kind="stable")]
    return in_order
