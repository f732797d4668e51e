"""What the warm-up of a saved plan sends of sessions that are under way: a plan of these prompts, which is saved with it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from fastllmload import settings as asked
from fastllmload.documents.fields import known
from fastllmload.endpoint import Endpoint
from fastllmload.errors import InputError
from fastllmload.plan.bodies import Bodies, BodyFile, disk_errors
from fastllmload.plan.build import build_plan, clear, finish, opening_of, origin_of, warms_up
from fastllmload.plan.conversations.turns import scheduled
from fastllmload.plan.pace import warmup_pace
from fastllmload.plan.plan import BODIES, CALLS, DOCUMENT, EDGE, EDGES, PIECES, SCHEDULE, SEEN, TURNS, Plan
from fastllmload.plan.prompts.load import LoadedWorkload
from fastllmload.workload.graph import gathered


def build_seen(settings: asked.RunSettings, endpoint: Endpoint, measured: Plan, loaded: LoadedWorkload | None) -> None:
    """Write to SEEN of the *measured* plan, built for *settings*, what a warm-up has to send of the sessions under way, once
    each; nothing where there is none.
    """
    opening = opening_of(settings)
    if opening is None or not opening.primed or not known(measured.description.calls_before):
        return
    once = replace(settings.load, warmup_requests=1, warmup_tokens=None, warmup_seconds=None)
    build_plan(
        replace(settings, load=once), phase="warmup", endpoint=endpoint, model=str(measured.description.model),
        out_dir=measured.directory / SEEN, loaded=loaded,
    )  # fmt: skip


def repeat_seen(settings: asked.RunSettings, measured: Plan, out_dir: Path, file: str | None) -> Plan | None:
    """The warm-up in *out_dir* that sends SEEN of the *measured* plan again and again until it is long enough; None without
    SEEN. InputError where the *settings* have no warm-up, or empty caches after it: the plan of *file* counts on them.
    """
    if not (measured.directory / SEEN / DOCUMENT).exists():
        return None
    if not warms_up(settings):
        raise InputError(
            "plan-mismatch",
            f"--plan {file} begins with sessions under way, and its ideal hit rate counts what the warm-up sends of them; "
            "leave --warmup 0 and --between out, or save the plan with them",
        )
    seen, pace = (
        Plan.open(measured.directory / SEEN),
        warmup_pace(settings.load, f"{origin_of(settings, 'warmup')}/arrivals"),
    )
    assert seen.calls is not None and seen.turns is not None
    number = tokens = prompts = 0
    while number < seen.requests or not pace.quota.met(number, tokens, prompts):
        one = -1 - number % seen.requests
        number, tokens = number + 1, tokens + int(seen.output_tokens[one])
        prompts += int(seen.input_tokens[one])
    place = np.arange(-number, 0) % seen.requests
    clear(out_dir)
    graph: dict[str, npt.NDArray[Any]] = {CALLS: seen.calls[place]}
    if seen.edges is not None:
        graph[EDGES] = np.empty(0, EDGE)
    with disk_errors(out_dir / BODIES):
        if seen.pieces is None:
            with BodyFile(out_dir / BODIES) as file_of_bodies:
                for one in place.tolist():
                    file_of_bodies.add(seen.body(one), int(seen.input_tokens[one]), int(seen.output_tokens[one]))
                bodies = file_of_bodies.bodies()
        else:
            shutil.copyfile(seen.directory / BODIES, out_dir / BODIES)
            pieces, first = gathered(seen.body_offset.astype(np.int64), place)
            bodies = Bodies(
                seen.input_tokens[place], seen.output_tokens[place], first.astype(np.uint64),
                seen.document.members[BODIES], np.zeros(number, np.uint16),
            )  # fmt: skip
            graph[PIECES] = seen.pieces[pieces]
    turns = seen.turns[place]
    turns["session"] = np.arange(number)
    arrays = {SCHEDULE: scheduled(pace.schedule(number), turns), TURNS: turns, **graph}
    description = replace(seen.description, load=pace.describe(), requests=number)
    return finish(out_dir, description, bodies, bodies.kinds, arrays)
