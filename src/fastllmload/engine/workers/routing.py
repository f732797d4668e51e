"""Which request of a plan goes to which target, and how many connections each target sees by that."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fastllmload.engine.workers.spec import TargetSpec
from fastllmload.host.limits import TargetConnections
from fastllmload.plan.plan import Plan

LOOPBACK = ("127.", "::1")
Place = tuple[str, str, int]  # family, numeric address, port


def routed(plan: Plan, class_targets: Sequence[tuple[int, int]]) -> npt.NDArray[np.uint16] | None:
    """The target of each request where classes have targets of their own: each class's in turn, and all turns of a
    conversation at one.
    """
    if not class_targets:
        return None
    found = np.zeros(plan.requests, np.uint16)
    starts = plan.starts
    for number, (first, many) in enumerate(class_targets):
        mine = starts[plan.request_class[starts] == number]
        found[mine] = first + np.arange(len(mine)) % many
    return followed(plan, found)


def followed(plan: Plan, found: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
    """The targets *found* for first turns, which those behind them go to too."""
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
    """The connections of each place that *targets* name, of *in_flight* in all: those of its requests, by how many
    *seconds* each of them takes (Little's law); and of *churn_per_s* those of its requests by their number.
    """
    chosen = routed(plan, class_targets)
    if chosen is None:
        chosen = np.zeros(plan.requests, np.uint16)
        chosen[plan.starts] = np.arange(len(plan.starts)) % len(targets)
        chosen = followed(plan, chosen)
    held = np.bincount(chosen, seconds, len(targets))
    many = np.bincount(chosen, minlength=len(targets))
    names: dict[Place, str] = {}
    for target in targets:
        names.setdefault((target.family, target.address, target.port), target.url)
    found = []
    for place, url in names.items():
        mine = [(one.family, one.address, one.port) == place for one in targets]
        part = float(held[mine].sum() / held.sum()) if held.sum() > 0 else 1.0
        churn = churn_per_s * float(many[mine].sum()) / max(1, plan.requests)
        at_home = place[1].startswith(LOOPBACK)
        most = None if plan.cycles else int(many[mine].sum())
        found.append(
            TargetConnections(url, math.ceil(in_flight * part - 1e-9), churn, at_home, place[0] != "unix", most)
        )
    return found
