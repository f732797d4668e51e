"""Sessions that are under way when a run begins, so that its load is from the start what it will be later.

Each slot of a closed loop begins in the middle of a session: at an instant of its age, which calls follow from recorded
service times and the trace's waits. Calls that were due before that instant are not sent; the others are due when they would
have been. Where all calls of a session were due before it, the slot is free when their last one would have ended.

An open loop begins with the sessions that have arrived before, at instants of the same process, and have not ended.

Conversations have no recorded times. A slot begins with one of their turns, and those before it are its history.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

import numpy as np

from fastllmload.arrivals.process import ArrivalProcess, OnOff, draw_schedule
from fastllmload.errors import InputError, InvalidValue
from fastllmload.workload.graph import CallGraph, Numbers, gathered
from fastllmload.workload.paths import due_and_end

FRESH, STATIONARY, SHARE = "fresh", "stationary", "share"
AFTER_ALL_NS = 1 << 61  # instant of sessions that begin when a slot is free
MOST_BEFORE = 1_000_000  # arrivals before time zero
SETTLING = 64  # mean gaps after which a process of arrivals no longer shows where it began


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
    """*graph*: the session of each slot, in the order in which their first calls are due; then those that follow. In an open
    loop all by that order. *live*: sessions that began before time zero; *ending*: more of them, of which no call is left.
    *due_ns* of all calls, and their *end_ns*, from time zero; negative due: not sent. *latest*: of each agent that had begun
    the last call that is not sent, in order of their instants.
    """

    graph: CallGraph
    live: int
    due_ns: Numbers
    end_ns: Numbers
    latest: Numbers
    ending: int = 0


def under_way(graph: CallGraph, start: Start, slots: int, sessions: int, factor: float, seed: str) -> UnderWay:
    """The first *sessions* (or one for each slot, where that is more) that *slots* send of *graph*, whose waits take
    *factor* of their time. InputError for a graph without times.
    """
    due, end, length = recorded_times(graph, factor)
    chosen, age = ages(length, start, slots, random.Random(seed))
    over = np.maximum.reduceat(due, graph.first_call[:-1])[chosen] < age
    many = int(over.sum())
    rest = following(graph.sessions, chosen[~over], max(sessions - slots, 0) + many)
    age[over] -= length[chosen[over]]
    chosen[over] = rest[:many]
    order = np.argsort(first_left(graph, due, chosen, age), kind="stable")
    chosen, age = chosen[order], age[order]
    follow = len(rest) - many
    begins = np.concatenate([-age, AFTER_ALL_NS + np.arange(follow)])
    return begun_at(graph, due, end, np.concatenate([chosen, rest[many:]]), begins)


def arriving(
    graph: CallGraph, process: ArrivalProcess, rate: float, at_ns: Numbers, factor: float, seed: str
) -> UnderWay:
    """The sessions of *graph*, whose waits take *factor* of their time, that arrive at the instants *at_ns*, and those that
    had arrived before by the same *process* and have not ended at time zero: what an observer finds who comes at any time
    of an endless run, which has the sessions one after the other, round by round. InputError for a graph without times.
    """
    due, end, length = recorded_times(graph, factor)
    stream = random.Random(seed)
    next_one = stream.randrange(graph.sessions)
    before = arrived_before(process, rate, int(length.max()), stream)
    chosen, age = (next_one + np.arange(-len(before), 0)) % graph.sessions, -before
    live = length[chosen] > age
    left = live & (np.maximum.reduceat(due, graph.first_call[:-1])[chosen] >= age)
    chosen = np.concatenate([chosen[left], (next_one + np.arange(len(at_ns))) % graph.sessions])
    begins = np.concatenate([before[left], at_ns])
    order = np.argsort(first_left(graph, due, chosen, -begins), kind="stable")
    found = begun_at(graph, due, end, chosen[order], begins[order])
    return replace(found, ending=int((live & ~left).sum()))


def arrived_before(process: ArrivalProcess, rate: float, span_ns: int, stream: random.Random) -> Numbers:
    """Instants of the arrivals within *span_ns* before time zero, in ns (negative), of a *process* that has run for long.
    The distance from its begin to time zero is a multiple of its mean gap, or of its on and off periods.
    """
    if rate * span_ns / 1e9 > MOST_BEFORE:
        raise InputError(
            "plan-too-large",
            f"--session-start: at {rate:g} sessions/s {rate * span_ns / 1e9:,.0f} sessions arrive within the length of the "
            f"longest, {span_ns / 1e9:,.0f} s, more than the {MOST_BEFORE:,} that a plan begins with; lower --rate",
        )
    step = process.on + process.off if isinstance(process, OnOff) else 1.0 / rate
    seconds = math.ceil((span_ns / 1e9 + SETTLING / rate) / step) * step
    found = draw_schedule(process, rate, stream, seconds=seconds) - round(seconds * 1e9)
    return found[(found >= -span_ns) & (found < 0)]


def recorded_times(graph: CallGraph, factor: float) -> tuple[Numbers, Numbers, Numbers]:
    """When each call is due and ends, from its session's start, and the length of each session, in ns; waits take *factor*
    of their time. InputError for a graph without times.
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
    return due, end, length


def first_left(graph: CallGraph, due_ns: Numbers, sessions: Numbers, age_ns: Numbers) -> list[int]:
    """When the first call is due that each of the *sessions* has left at its age, in ns from time zero."""
    calls = (due_ns[slice(*graph.first_call[one : one + 2])] for one in sessions.tolist())
    return [int(mine[mine >= age].min()) - age for mine, age in zip(calls, age_ns.tolist(), strict=True)]


def begun_at(graph: CallGraph, due_ns: Numbers, end_ns: Numbers, sessions: Numbers, begins_ns: Numbers) -> UnderWay:
    """Copies of the *sessions* of *graph* that begin at *begins_ns*; *due_ns* and *end_ns* from the begin of each."""
    call, first = gathered(graph.first_call, sessions)
    offset = np.repeat(begins_ns, np.diff(first))
    found = replace(graph.copies(sessions), start_ns=begins_ns)
    due = due_ns[call] + offset
    return UnderWay(found, int((begins_ns < 0).sum()), due, end_ns[call] + offset, latest_unsent(found, due))


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


def turns_over(turns: Numbers, start: Start, slots: int, seed: str) -> tuple[Numbers, Numbers]:
    """The conversation of each slot, of those that have *turns*, and how many of these are over. Turns count alike: how long
    one takes is up to the server.
    """
    return ages(turns, start, slots, random.Random(seed))


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
