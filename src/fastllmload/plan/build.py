"""Build the plan of one phase: schedule, lengths and encoded bodies, all before its time zero.

Random streams of seed S (independent, so that changing the load never changes the requests):

| phase | content and lengths | instants | shared prefixes | users | models |
|---|---|---|---|---|---|
| measure | S | S/arrivals | S/prefix | S/users | S/model |
| warmup | S/warmup | S/warmup/arrivals | S/warmup/prefix | | S/warmup/model |

Repetition r > 0 takes its instants from S/arrivals/r; a workload's `stream` is appended to S in all of them.

The stream of users gives two draws per request, whatever the options: the first selects who cancels, the second who reads
slowly. In a warm-up all users wait.

A warm-up therefore shares no prompt and no prefix with the measured phase.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload import settings as asked
from fastllmload.arrivals.process import GrowingSchedule, Recorded
from fastllmload.documents.plan import ArrivalFacts, PlanDescription, PlanDocument, UserBehaviorDescription
from fastllmload.endpoint import Endpoint
from fastllmload.errors import InputError, value_code
from fastllmload.plan.bodies import Bodies, as_messages, disk_errors
from fastllmload.plan.conversations.opening import Opening
from fastllmload.plan.conversations.turns import line_calls, scheduled
from fastllmload.plan.models import DrawnModels, name_models
from fastllmload.plan.pace import Pace, measured_arrivals, measured_pace, recorded_pace, warmup_pace
from fastllmload.plan.plan import (
    ARRAYS,
    BODIES,
    CALLS,
    CLIENT,
    CLIENT_ROW,
    DOCUMENT,
    MODELS,
    PREFIX,
    SCHEDULE,
    SCHEMA_VERSION,
    SEEN,
    TURNS,
    Plan,
    array_hash,
    write_document,
)
from fastllmload.plan.prompts.load import LoadedWorkload, load_workload
from fastllmload.plan.standard import without_output
from fastllmload.workload.trace import rounds
from fastllmload.workload.underway import FRESH, SHARE, read_start
from fastllmload.workload.user_behavior import read_abandon, read_cancel_after, read_slow_readers

Numbers = npt.NDArray[np.int64]


def build_plan(
    settings: asked.RunSettings,
    *,
    phase: str,
    endpoint: Endpoint,
    model: str,
    out_dir: Path,
    share: float = 1.0,
    token_share: float | None = None,
    loaded: LoadedWorkload | None = None,
    drawn: GrowingSchedule | None = None,
) -> Plan:
    """Write the plan of *phase* (`measure` or `warmup`) to *out_dir* and open it; one class of traffic.

    *share* scales the usual warm-up, *token_share* (None: as much) its tokens; *loaded*, *drawn*: workload and schedule, if
    known. InputError for settings of which no plan can be made, HostLimitError for a full disk.
    """
    origin, measured = origin_of(settings, phase), phase == "measure"
    loaded = load_workload(settings.workload) if loaded is None else loaded
    source = loaded.source(settings.workload, origin, not measured, opening_of(settings))
    if measured:
        pace = measured_pace_of(settings, source.instants, arrivals_stream(settings), drawn)
    else:
        pace = warmup_pace(settings.load, f"{origin}/arrivals", share, token_share if endpoint.tokens else 0.0)
    clear(out_dir)
    bodies = source.write(out_dir / BODIES, pace.quota, endpoint, model, by_starts=measured and not pace.cycles)
    models = DrawnModels(np.empty(0, np.uint16))
    if settings.target.models:
        bodies, models = name_models(out_dir / BODIES, bodies, settings.target, f"{origin}/model", endpoint)
    if endpoint.call is not None:
        bodies = as_messages(out_dir / BODIES, bodies, endpoint.call)
    if not endpoint.tokens:
        bodies = with_fields(bodies, output_tokens=np.zeros_like(bodies.output_tokens))
    requests, turns = len(bodies.input_tokens), bodies.turns
    schedule = None
    if SCHEDULE not in bodies.graph:
        schedule = pace.schedule(requests if turns is None else int((turns["turn"] == 0).sum()))
        schedule = schedule if turns is None else scheduled(schedule, turns)
    # In a warm-up all users wait: it exists to warm up the server.
    users = drawn_users(settings.behaviour, f"{origin}/users", requests) if measured else None
    arrays: dict[str, npt.NDArray[Any] | None] = {
        SCHEDULE: schedule,
        TURNS: turns,
        PREFIX: bodies.shared if bodies.shared.any() else None,
        CLIENT: users,
        CALLS: None if turns is None else line_calls(turns),
        MODELS: models.of_request if models.described else None,
        **bodies.graph,
    }
    content = source.describe()
    description = PlanDescription(
        phase=phase,
        load=pace.describe(),
        workload=content if endpoint.tokens else without_output(content),
        requests=requests,
        conversations=bodies.conversations,
        joint=None if bodies.conversations is None else endpoint.joint.described(),
        behaviour=None if users is None else described_users(settings.behaviour, users),
        models=models.described,
        **common(settings, model),
    )
    return finish(out_dir, description, bodies, bodies.kinds, arrays)


def warms_up(settings: asked.RunSettings) -> bool:
    """Whether there is a warm-up, and caches have what it sent when the measurement begins."""
    load = settings.load
    asked_for = load.default_warmup or bool(load.warmup_requests or load.warmup_tokens or load.warmup_seconds)
    return asked_for and not settings.control.empties_caches


def opening_of(settings: asked.RunSettings) -> Opening | None:
    """How the measured phase begins, where not with the first calls of its sessions."""
    load, start = settings.load, read_start(settings.workload.session_start)
    if start.how == FRESH:
        return None
    instants = arrivals_stream(settings)
    pace, origin = measured_pace(load, instants), origin_of(settings, "measure")
    primed = warms_up(settings)
    if load.concurrency is None:
        turns = settings.workload.turns
        if load.rate is None or start.how == SHARE or turns is not None:  # of a search: the rules refuse it elsewhere
            raise InputError(
                "option-not-applicable",
                f"--session-start {settings.workload.session_start} goes with --concurrency; use stationary with --rate",
            )
        arrivals = measured_arrivals(load), load.rate, pace.schedule(pace.quota.requests)
        return Opening(start, 0, pace.quota, True, origin, f"{instants}/start", primed, *arrivals)
    slots = load.concurrency if pace.cycles else min(load.concurrency, pace.quota.requests)
    return Opening(start, slots, pace.quota, not pace.cycles, origin, f"{origin}/start", primed)


def common(settings: asked.RunSettings, model: str) -> dict[str, Any]:
    """Fields of a description that are the same with and without classes."""
    return {
        "seed": settings.client.seed,
        "endpoint": settings.target.endpoint_type,
        "model": model,
        "streaming": settings.workload.streaming,
        **settings.workload.usage_asked("continuous_usage"),
        **settings.workload.ids_asked("token_ids"),
    }


def origin_of(settings: asked.RunSettings, phase: str) -> int | str:
    """Seed of a phase's content; an integer where IETF A.1.4 has one: its text would be another random stream."""
    seed, stream = settings.client.seed, settings.workload.stream
    if phase not in ("measure", "warmup"):
        raise ValueError(f"phase {phase!r} is neither measure nor warmup")
    if phase == "measure":
        return f"{seed}/{stream}" if stream else seed
    return f"{seed}/warmup/{stream}" if stream else f"{seed}/warmup"


def arrivals_stream(settings: asked.RunSettings) -> str:
    repetition = settings.load.repetition
    return f"{origin_of(settings, 'measure')}/arrivals" + (f"/{repetition}" if repetition else "")


def measured_pace_of(
    settings: asked.RunSettings, instants: Numbers | None, seed: str, drawn: GrowingSchedule | None = None
) -> Pace:
    """A trace has *instants* of its own, unless a rate or a concurrency is set."""
    load, workload = settings.load, settings.workload
    if instants is None or load.rate is not None or load.concurrency is not None:
        return measured_pace(load, seed, drawn)
    speed = workload.trace_speed
    recorded = Recorded(lambda: rounds(instants, speed), ArrivalFacts(speed=speed, loop=workload.trace_loop))
    return recorded_pace(load, recorded, len(instants), workload.trace_loop, seed)


def drawn_users(behaviour: asked.UserBehavior, seed: str, requests: int) -> npt.NDArray[Any] | None:
    """User behavior of each request; None when every user waits for the end. InputError for invalid options."""
    if behaviour == asked.UserBehavior():
        return None
    rows = np.zeros(requests, CLIENT_ROW)
    stream = random.Random(seed)
    drawn = np.array([stream.random() for _ in range(2 * requests)]).reshape(requests, 2)
    try:
        if behaviour.cancel_after is not None:
            after, cancels = read_cancel_after(behaviour.cancel_after), drawn[:, 0] < behaviour.cancel_share
            rows["cancel_tokens"][cancels], rows["cancel_ns"][cancels] = after.tokens, after.ns
        if behaviour.slow_readers is not None:
            slow = read_slow_readers(behaviour.slow_readers)
            slow_users = drawn[:, 1] < slow.share
            rows["read_rate"][slow_users], rows["read_bytes"][slow_users] = slow.rate, slow.in_bytes
        if behaviour.abandon is not None:
            abandonment = read_abandon(behaviour.abandon)
            rows["abandon_ns"], rows["abandon_e2e"] = abandonment.ns, abandonment.e2e
    except ValueError as problem:
        raise InputError(value_code(problem), f"what users do {problem}") from None
    return rows


def described_users(behaviour: asked.UserBehavior, rows: npt.NDArray[Any]) -> UserBehaviorDescription:
    """The user behavior as plan.json describes it: counts and conditions."""
    return UserBehaviorDescription(
        cancel_share=behaviour.cancel_share,
        cancel_after=behaviour.cancel_after,
        cancelling=int(np.count_nonzero((rows["cancel_tokens"] > 0) | (rows["cancel_ns"] > 0))),
        slow_readers=behaviour.slow_readers,
        reading_slowly=int(np.count_nonzero(rows["read_rate"] > 0)),
        abandon=behaviour.abandon,
    )


def finish(
    directory: Path,
    description: PlanDescription,
    bodies: Bodies,
    classes: npt.NDArray[np.uint16],
    optional: Mapping[str, npt.NDArray[Any] | None],
) -> Plan:
    """Write arrays and document of a plan whose bodies are written; *optional*: arrays that not every plan has."""
    arrays: dict[str, Any] = {
        "input_tokens.npy": bodies.input_tokens,
        "output_tokens.npy": bodies.output_tokens,
        "request_class.npy": classes,
        "body_offset.npy": bodies.offsets,
        **optional,
    }
    members = {BODIES: bodies.sha256}
    with disk_errors(directory / DOCUMENT):
        for name, array in arrays.items():
            if array is not None:
                np.save(directory / name, array)
                members[name] = array_hash(array)
        document = PlanDocument(schema_version=SCHEMA_VERSION, members=members, description=description)
        write_document(directory, document)
    return Plan.open(directory)


def clear(directory: Path) -> None:
    """Create *directory* and remove the files of an earlier plan in it."""
    with disk_errors(directory / DOCUMENT):
        directory.mkdir(parents=True, exist_ok=True)
        for name in (DOCUMENT, BODIES, *ARRAYS):
            (directory / name).unlink(missing_ok=True)
        if (directory / SEEN).exists():
            shutil.rmtree(directory / SEEN)


def check_context_limit(plan: Plan, limit: int | None) -> None:
    """InputError when a request of *plan* exceeds *limit* tokens; not checked without limit or tokenizer."""
    if limit is None or not plan.requests or plan.description.workload.tokenizer == "none":
        return
    lengths = plan.input_tokens.astype(np.int64) + plan.output_tokens
    beyond = np.flatnonzero(lengths > limit)
    if not len(beyond):
        return
    worst = int(beyond[np.argmax(lengths[beyond])])
    raise InputError(
        "context-exceeded",
        f"{len(beyond):,} of {plan.requests:,} requests do not fit into the model's context of {limit:,} tokens; "
        f"request {worst:,} has {plan.input_tokens[worst]:,} for the prompt and {plan.output_tokens[worst]:,} for the "
        "answer: use shorter lengths with --isl and --osl, or set the model's limit with --context-limit",
    )
