"""Draw sessions of a plan for a terminal: a line per agent, what its calls wait for and how long they took when recorded."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastllmload.plan.conversations.turns import line_edges
from fastllmload.plan.plan import EDGE_START, Plan
from fastllmload.workload.graph import WaitKind

MOST_SESSIONS, MOST_AGENTS = 3, 8  # that are drawn
LABEL, WIDTH = 10, 64
CALL = "█"
WAITS = {WaitKind.TOOL: "t", WaitKind.USER: "u", WaitKind.AGENT: "a", WaitKind.UNKNOWN: "."}
LEGEND = f"{CALL} call, {', '.join(f'{sign} waits ({kind.name.lower()})' for kind, sign in WAITS.items())}"
Floats = npt.NDArray[np.float64]


def draw_sessions(plan: Plan) -> list[list[str]]:
    """The first sessions with several calls, one picture each; none for a plan without sessions."""
    if plan.calls is None or plan.turns is None:
        return []
    starts = np.append(plan.starts, plan.requests)
    several = np.flatnonzero(np.diff(starts) > 1)[:MOST_SESSIONS].tolist()
    drawn = [_one(plan, number, int(starts[number]), int(starts[number + 1])) for number in several]
    return [*drawn[:-1], [*drawn[-1], f"{'':<{LABEL}}  {LEGEND}"]] if drawn else []


def _one(plan: Plan, number: int, low: int, high: int) -> list[str]:
    assert plan.calls is not None
    calls = plan.calls[low:high]
    due, end, begin = instants(plan, low, high)
    length = float(end.max())
    known = bool(np.isfinite(calls["service_s"]).all())
    took = f"{length:.3g} s" if known else f"{length:.3g} s without the time of calls, which is not recorded"
    lines = [f"session {number + 1:<6} {high - low:,} calls, {took}"]
    scale = (WIDTH - 1) / length if length > 0 else 0.0
    chains = np.unique(calls["chain"])
    for chain in chains[:MOST_AGENTS]:
        row = [" "] * WIDTH
        for one in np.flatnonzero(calls["chain"] == chain):
            sign = WAITS[WaitKind(calls["kind"][one])]
            for at in range(int(begin[one] * scale), int(due[one] * scale)):
                row[at] = sign
            for at in range(int(due[one] * scale), int(end[one] * scale) + 1):
                row[at] = CALL
        depth = int(calls["depth"][calls["chain"] == chain][0])
        lines.append(f"{'  ' * depth + f'agent {chain}':<{LABEL}} │{''.join(row)}".rstrip())
    if len(chains) > MOST_AGENTS:
        lines.append(f"{'':<{LABEL}} │{len(chains) - MOST_AGENTS} more agents")
    return lines


def instants(plan: Plan, low: int, high: int) -> tuple[Floats, Floats, Floats]:
    """s from the session's start: when each call is due and ends, with recorded service times, and when its wait begins."""
    assert plan.calls is not None and plan.turns is not None
    edges = line_edges(plan.turns) if plan.edges is None else plan.edges
    first, last = np.searchsorted(edges["source"], [low, high])
    service = np.nan_to_num(plan.calls["service_s"][low:high])
    wait = plan.turns["think_ns"][low:high] / 1e9
    due, begin = np.zeros(high - low), np.zeros(high - low)
    end = service.copy()
    incoming: dict[int, list[tuple[int, float, bool]]] = {}
    for edge in edges[first:last]:
        place = int(edge["source"]) - low, int(edge["wait_ns"]) / 1e9, bool(edge["flags"] & EDGE_START)
        incoming.setdefault(int(edge["target"]) - low, []).append(place)
    for call, sources in sorted(incoming.items()):
        gates = [((due if start else end)[of] + extra, (due if start else end)[of]) for of, extra, start in sources]
        latest, begin[call] = max(gates)
        due[call] = latest + wait[call]
        end[call] = due[call] + service[call]
    return due, end, begin
