"""Assigns the requests of a plan to workers and targets, and derives the number of connections to each target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload._ext.plan.bodies import Bodies
from fastllmload._ext.plan.talk import Talks
from fastllmload.engine.workers.spec import TargetSpec
from fastllmload.host.limits import TargetConnections
from fastllmload.plan.plan import Plan

MOST_REQUESTS = 1 << 32  # rows number requests with 32 bits
LOOPBACK = ("127.", "::1")
Place = tuple[str, str, int]  # family, numeric address, port


def conversations(
    plan: Plan, worker: int, workers: int, slots: int = 0, bodies: Bodies | None = None
) -> dict[str, Any]:
    """Arguments of the reactor: the first requests of this worker's sessions (of each round of *slots* in a closed loop),
    without those of `slot_pools`, and what follows them all.
    """
    if plan.turns is None:
        return {}
    starts, begun = plan.starts, plan.open_starts
    positions = np.arange(len(begun)) % slots if slots else np.arange(len(begun))
    numbers = np.ascontiguousarray(begun[positions % workers == worker], np.uint32)
    joints = plan.joints
    of_class = plan.request_class if len(joints) > 1 else None
    talks = Talks(
        plan.turns, plan.body_offset, plan.bodies, joints, len(starts), of_class, bodies, plan.tools, **graph(plan)
    )
    return {"numbers": numbers, "talks": talks, **agents(plan)}


def graph(plan: Plan) -> dict[str, Any]:
    """Arguments of Talks: what a plan of graphs has in addition."""
    if plan.edges is None:
        return {}
    return {
        "edges": plan.edges,
        "first_edge": np.searchsorted(plan.edges["source"], np.arange(plan.requests + 1)).astype(np.uint32),
        "first_request": np.append(plan.starts, plan.requests).astype(np.uint32),
        "pieces": plan.pieces,
    }


def agents(plan: Plan) -> dict[str, Any]:
    """Arguments of the reactor: the agent of each request, of plans with graphs; nothing for others."""
    if plan.edges is None or plan.calls is None:
        return {}
    calls = plan.calls
    chain, parent, place = (calls[name].astype(np.int32) for name in ("chain", "parent", "turn"))
    order = np.lexsort((place, chain, calls["session"]))
    same = np.diff(calls["session"][order].astype(np.int64)) == 0
    last = np.append(~(same & (np.diff(chain[order]) == 0)), True)
    place[order[last]] = -1 - place[order[last]]
    return {"chain": chain, "parent": parent, "place": place}


def slot_starts(plan: Plan, worker: int, workers: int, slots: int) -> npt.NDArray[np.int64]:
    """When the slots of *worker* begin, in ns from time zero: at once, but for sessions that are under way."""
    begins = np.zeros(slots, np.int64)
    if plan.turns is not None:
        mine = plan.starts[:slots]
        begins[: len(mine)] = plan.turns["think_ns"][mine]
    return before_end(plan, np.ascontiguousarray(begins[worker::workers]))


def before_end(plan: Plan, opens_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Those of the ascending *opens_ns* at which the phase still sends."""
    seconds = plan.duration_s
    return opens_ns if seconds is None else opens_ns[: np.searchsorted(opens_ns, round(seconds * 1e9))]


@dataclass(frozen=True)
class SlotPools:
    """What *worker* has of the classes that are closed loops, each with its slots, in the order of their numbers.

    Slots of a class follow those of the class before it in the deal to workers, so that each has as many as any other, or
    one more; every slot has as many requests as any other of its class, or one more. Where slots change, that is so of the
    most that there are.
    """

    slots: npt.NDArray[np.uint32]  # the most that are open at once
    sizes: npt.NDArray[np.uint32]  # how many of *numbers* each class has
    limits: npt.NDArray[np.uint64]  # requests that may be sent of each
    numbers: npt.NDArray[np.uint32]  # requests of the plan that begin in a slot
    opens_ns: npt.NDArray[np.int64]  # when slots open, ascending
    opens_of: npt.NDArray[np.uint32]  # the class of each
    closes_ns: npt.NDArray[np.int64]  # when one slot less is wanted, class by class
    closes: npt.NDArray[np.uint32]  # how many of these each class has
    owns: npt.NDArray[
        np.uint32
    ]  # with how many of its requests the slots of each class begin, which it does not repeat
    change: bool  # slots of any class do

    def schedule(self, arrivals: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], tuple[npt.NDArray[Any], ...]]:
        """Openings and *arrivals* in order of time, an opening before an arrival of the same instant; and the pools as the
        reactor takes them.
        """
        order = np.argsort(np.concatenate([self.opens_ns, arrivals]), kind="stable")
        instants = np.concatenate([self.opens_ns, arrivals])[order]
        places = np.flatnonzero(order < len(self.opens_ns))
        return instants, (
            self.slots, self.sizes, self.limits, self.numbers, places, self.opens_of, self.closes, self.owns,
        )  # fmt: skip


def slot_pools(plan: Plan, worker: int, workers: int) -> SlotPools | None:
    """None where *worker* has no slot of a class."""
    slots, numbers, opens, closes, owns, before = [], [], [], [], [], 0
    begun = plan.description.begun_classes
    starts, changes = plan.starts, plan.class_slot_changes
    of_class = plan.request_class[starts]
    for number, asked in plan.closed_classes.items():
        mine = starts[of_class == number]
        many = asked if plan.closed_cycles else min(asked, len(mine))
        dealt = (np.arange(many) + before) % workers == worker
        numbers.append(mine[np.resize(dealt, len(mine))] if many else mine)
        slots.append(int(dealt.sum()) if len(numbers[-1]) else 0)
        opening, closing = np.zeros(slots[-1], np.int64), np.empty(0, np.int64)
        owns.append(slots[-1] if number in begun else 0)
        if number in begun and plan.turns is not None:
            opening = before_end(plan, plan.turns["think_ns"][numbers[-1][: slots[-1]]])
        if number in changes:
            opening, closing = changes[number].of_worker((worker - before) % workers, workers)
        opens.append(opening)
        closes.append(closing)
        before += many
    if not sum(slots):
        return None
    opens_ns = np.concatenate(opens)
    order = np.argsort(opens_ns, kind="stable")
    sizes = np.array([len(each) for each in numbers], np.uint32)
    rounds = MOST_REQUESTS // plan.requests if plan.closed_cycles else 1
    first = np.array(owns, np.uint64)
    limits = first + (sizes - first) * np.uint64(rounds)
    return SlotPools(
        slots=np.array(slots, np.uint32),
        sizes=sizes,
        limits=limits,
        numbers=np.concatenate(numbers).astype(np.uint32),
        opens_ns=opens_ns[order],
        opens_of=np.repeat(np.arange(len(opens)), [len(each) for each in opens])[order].astype(np.uint32),
        closes_ns=np.concatenate(closes),
        closes=np.array([len(each) for each in closes], np.uint32),
        owns=np.array(owns, np.uint32),
        change=bool(changes),
    )


def slot_requests(total: int, slots: int, worker: int, workers: int) -> int:
    """Requests of *total* for the slots of *worker*, when all slots have equally many, or one more."""
    rounds, rest = divmod(total, slots)
    return rounds * partition_size(slots, worker, workers) + partition_size(rest, worker, workers)


def partition_size(total: int, worker: int, workers: int) -> int:
    """Items of *total* for *worker* when they are distributed round robin."""
    return (total - worker + workers - 1) // workers if total > worker else 0


def routed(plan: Plan, class_targets: Sequence[tuple[int, int]]) -> npt.NDArray[np.uint16] | None:
    """Targets of the requests when classes have their own: round robin within a class, one for a conversation."""
    if not class_targets:
        return None
    found = np.zeros(plan.requests, np.uint16)
    starts = plan.starts
    for number, (first, many) in enumerate(class_targets):
        mine = starts[plan.request_class[starts] == number]
        found[mine] = first + np.arange(len(mine)) % many
    return followed(plan, found)


def followed(plan: Plan, found: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
    """The targets *found* for first turns, extended to the later turns of each conversation."""
    starts = plan.starts
    if plan.turns is None or not len(starts):
        return found
    return found[np.repeat(starts, np.diff(np.append(starts, plan.requests)))]


def target_connections(
    plan: Plan,
    targets: Sequence[TargetSpec],
    class_targets: Sequence[tuple[int, int]],
    seconds: npt.NDArray[np.float64],
    in_flight: int,
    churn_per_s: float,
) -> list[TargetConnections]:
    """Connections by address and port: *in_flight* in proportion to *seconds* (Little's law), *churn_per_s* to requests. The
    slots of each closed loop of a mix are in proportion to its own requests.
    """
    chosen = routed(plan, class_targets)
    if chosen is None:
        chosen = np.zeros(plan.requests, np.uint16)
        chosen[plan.starts] = np.arange(len(plan.starts)) % len(targets)
        chosen = followed(plan, chosen)
    closed = plan.closed_classes
    slots, every = np.zeros(len(targets)), sum(closed.values())
    for number, own in closed.items():
        of_class = np.bincount(chosen[plan.request_class == number], minlength=len(targets))
        slots += min(1.0, in_flight / every) * own * of_class / max(1, of_class.sum())  # of a host: its part of them
    opened = ~np.isin(plan.request_class, list(closed)) if closed else slice(None)
    busy_s = np.bincount(chosen[opened], seconds[opened], len(targets))
    rest = max(0.0, in_flight - float(slots.sum()))
    many = np.bincount(chosen, minlength=len(targets))
    names: dict[Place, str] = {}
    for target in targets:
        names.setdefault((target.family, target.address, target.port), target.url)
    found = []
    for place, url in names.items():
        mine = [(one.family, one.address, one.port) == place for one in targets]
        part = float(busy_s[mine].sum() / busy_s.sum()) if busy_s.sum() > 0 else 1.0
        churn = churn_per_s * float(many[mine].sum()) / max(1, plan.requests)
        loopback = place[1].startswith(LOOPBACK)
        most = None if plan.cycles or plan.closed_cycles else int(many[mine].sum())
        together = math.ceil(rest * part + float(slots[mine].sum()) - 1e-9)
        found.append(TargetConnections(url, together, churn, loopback, place[0] != "unix", most))
    return found
