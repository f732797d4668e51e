"""What a graph of calls says about its sessions before it is sent: instants, critical path, makespan, fan-out, depth."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fastllmload.workload.graph import UNKNOWN, CallGraph, Numbers


def recorded_service_ns(graph: CallGraph) -> Numbers:
    """N: end minus start; 0 where one of them is not recorded."""
    known = (graph.start_recorded_ns >= 0) & (graph.end_recorded_ns >= 0)
    return np.where(known, graph.end_recorded_ns - graph.start_recorded_ns, 0)


def due_and_end(
    graph: CallGraph, service_ns: Numbers | int | None = None, absolute: bool = False
) -> tuple[Numbers, Numbers]:
    """N: when each call is due and ends, from its session's start, if each takes *service_ns* (None: as recorded).

    *absolute*: from the first session's start.
    """
    due, end, _ = _gates(graph, service_ns)
    offset = np.repeat(graph.start_ns, np.diff(graph.first_call)) if absolute else np.int64(0)
    return due + offset, end + offset


def _gates(graph: CallGraph, service_ns: Numbers | int | None) -> tuple[Numbers, Numbers, Numbers]:
    """Due instants, ends, and the predecessor that each call waits for longest; -1: none."""
    service = recorded_service_ns(graph) if service_ns is None else np.broadcast_to(service_ns, len(graph))
    due, end, gate = [0] * len(graph), service.tolist(), [UNKNOWN] * len(graph)
    edges = sorted(
        zip(graph.edge_to.tolist(), graph.edge_from.tolist(), graph.edge_wait_ns.tolist(), graph.edge_from_start.tolist(),
            strict=True)
    )  # fmt: skip
    wait = graph.wait_ns.tolist()
    for number, (to, of, extra, from_start) in enumerate(edges):
        at = (due[of] if from_start else end[of]) + extra
        if gate[to] == UNKNOWN or at > due[to]:
            due[to], gate[to] = at, of
        if number + 1 == len(edges) or edges[number + 1][0] != to:
            due[to] += wait[to]
            end[to] += due[to]
    return np.array(due, np.int64), np.array(end, np.int64), np.array(gate, np.int64)


@dataclass(frozen=True)
class CriticalPath:
    """The calls of the longest chain to the last end in the foreground, and its parts in ns."""

    calls: tuple[int, ...]
    length_ns: int
    service_ns: int
    wait_ns: int
    tool_ns: int  # part of wait_ns


def critical_paths(graph: CallGraph, service_ns: Numbers | int | None = None) -> list[CriticalPath]:
    """The critical path of each session if each call takes *service_ns* (None: as recorded)."""
    due, end, gate = _gates(graph, service_ns)
    found = []
    for low, high in pairwise(graph.first_call.tolist()):
        foreground = low + np.flatnonzero(~graph.background[low:high])
        last = int(foreground[np.flatnonzero(end[foreground] == end[foreground].max())[-1]])
        line = [last]
        while gate[line[-1]] != UNKNOWN:
            line.append(int(gate[line[-1]]))
        line.reverse()
        waits = int(graph.wait_ns[line].sum())
        service = int((end[line] - due[line]).sum())
        length = int(end[last])
        found.append(
            CriticalPath(tuple(line), length, service, length - service, min(int(graph.tool_ns[line].sum()), waits))
        )
    return found


@dataclass(frozen=True, eq=False)
class SessionShapes:
    """S: figures of each session, with the service times that they were computed for."""

    calls: Numbers
    agents: Numbers
    makespan_ns: Numbers  # to the last end in the foreground
    tree_ns: Numbers  # to the last end of all
    fan_out: Numbers  # most children of one agent
    depth: Numbers  # levels of agents: 1 without children
    children_at_once: Numbers  # most children that run at the same time


def session_shapes(graph: CallGraph, service_ns: Numbers | int | None = None) -> SessionShapes:
    """*service_ns*: of each call; None: as recorded."""
    due, end = due_and_end(graph, service_ns)
    rows = []
    for low, high in pairwise(graph.first_call.tolist()):
        if high - low == 1:
            rows.append((1, 1, int(end[low]), int(end[low]), 0, 1, 0))
            continue
        part = slice(low, high)
        chain, ends = graph.chain[part], end[part]
        agents = int(chain.max()) + 1
        first = [int(np.argmax(chain == one)) for one in range(agents)]
        children = np.array([graph.parent_chain[low + at] for at in first[1:]], np.int64)
        lives = [(int(due[low + at]), int(ends[chain == one].max())) for one, at in enumerate(first) if one]
        foreground = ends[~graph.background[part]]
        rows.append(
            (high - low, agents, int(foreground.max()), int(ends.max()),
             int(np.bincount(children[children >= 0]).max(initial=0)), int(graph.depth[part].max()) + 1, _at_once(lives))
        )  # fmt: skip
    return SessionShapes(*np.array(rows, np.int64).T)


def _at_once(lives: list[tuple[int, int]]) -> int:
    """Most of the intervals [start, end) that share an instant."""
    changes = sorted([(end, -1) for _, end in lives] + [(start, 1) for start, _ in lives])
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most
