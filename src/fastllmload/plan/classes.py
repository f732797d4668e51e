"""Plans with several request classes: each is drawn from its own streams, then all are merged in order of time.

Class NAME of seed S has the streams S/class/NAME (content), S/class/NAME/arrivals and S/class/NAME/prefix, so its
requests do not depend on other classes. Equal instants are ordered by class, then by their order in it. The requests of
classes that are closed loops have no instants and come last, ordered by class.

In a warm-up, open classes share its requests and tokens by their rates. Closed ones share as many again by their slots, each
in a closed loop of its own, so that neither kind changes what the other sends.
"""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload.arrivals.process import GrowingSchedule
from fastllmload.documents.fields import known
from fastllmload.documents.plan import (
    ArrivalFacts,
    ClassDescription,
    ExactPrompts,
    LoadDescription,
    ModelPlan,
    PlanDescription,
    WorkloadDescription,
)
from fastllmload.endpoint import resolve_endpoint, silent_classes
from fastllmload.plan.bodies import Bodies, disk_errors
from fastllmload.plan.build import arrivals_stream, build_plan, clear, common, finish
from fastllmload.plan.conversations.turns import line_edges
from fastllmload.plan.models import joined
from fastllmload.plan.pace import WARMUP_REQUESTS, measured_pace
from fastllmload.plan.plan import (
    BODIES,
    CALL,
    CALLS,
    CLIENT,
    CLIENT_ROW,
    EDGES,
    FOLLOWS,
    LAST_TURN,
    MODELS,
    PREFIX,
    SCHEDULE,
    TURN,
    TURNS,
    Plan,
)
from fastllmload.plan.prompts.load import LoadedWorkload, load_workloads
from fastllmload.plan.prompts.source import exactness
from fastllmload.settings import RunSettings, TrafficClass
from fastllmload.workload.underway import FRESH

Numbers = npt.NDArray[np.int64]
MIXED = "classes"  # name of the arrivals and of the workload of such a plan
NEVER = np.iinfo(np.int64).max  # instant of what has none
COPIED = 1 << 24  # bytes of bodies that are joined before they are written


def build_classes(
    settings: RunSettings, *, phase: str, model: str, out_dir: Path, loaded: Sequence[LoadedWorkload] | None = None
) -> Plan:
    """As `build_plan`, with the requests of all `settings.classes`. *loaded*: the workload of each, if known."""
    begun = [one.workload.session_start != FRESH for one in settings.classes]
    unknown = [PlannedClass()] * len(settings.classes)
    planned = planned_classes(settings) if phase == "measure" or any(begun) else unknown
    loaded = load_workloads(settings) if loaded is None else loaded
    shares = warmup_shares(settings.classes)
    endpoints = [resolve_endpoint(one.endpoint_type or settings.target.endpoint_type) for one in settings.classes]
    token_shares = warmup_shares(settings.classes, [endpoint.tokens for endpoint in endpoints])
    # In a warm-up, classes whose answers are not tokens last until the others have planned their tokens.
    built = sorted(range(len(endpoints)), key=lambda number: not endpoints[number].tokens)
    clear(out_dir)
    plans: dict[int, Plan] = {}
    try:
        for number in built:
            # What a warm-up sends of sessions under way depends on those of the run, and nothing else in it does.
            known = planned[number] if phase == "measure" or begun[number] else PlannedClass()
            if known.count == 0 or (phase == "warmup" and shares[number] == 0.0):
                continue
            each = class_settings(settings, settings.classes[number], known.count)
            if phase == "warmup" and not endpoints[number].tokens:
                starts = [plan.t_start for plan in plans.values() if plan.t_start is not None]
                each = lasting(each, [int(start[-1]) for start in starts if len(start)])
            plans[number] = build_plan(
                each, phase=phase, endpoint=endpoints[number], model=settings.classes[number].model or model,
                out_dir=out_dir / f"class-{number}", share=shares[number], token_share=token_shares[number],
                loaded=loaded[number], drawn=known.drawn,
            )  # fmt: skip
        return merge(settings, phase, model, [(settings.classes[at], plans[at]) for at in sorted(plans)], out_dir)
    finally:
        for folder in out_dir.glob("class-*"):
            shutil.rmtree(folder)


def class_settings(settings: RunSettings, one: TrafficClass, count: int | None = None) -> RunSettings:
    """The run as if class *one* were its only traffic; *count* bounds its arrivals."""
    stream = f"class/{one.name}" if not settings.workload.stream else f"{settings.workload.stream}/class/{one.name}"
    load = msgspec.structs.replace(one.load, repetition=settings.load.repetition)
    load = load if count is None else msgspec.structs.replace(load, num_requests=count)
    target = msgspec.structs.replace(
        settings.target, model=one.model or settings.target.model, models=one.models, model_zipf=one.model_zipf,
        model_order=one.model_order, urls=one.urls or settings.target.urls,
        endpoint_path=one.endpoint_path or settings.target.endpoint_path,
        endpoint_type=one.endpoint_type or settings.target.endpoint_type,
        headers=settings.target.headers + one.headers,
    )  # fmt: skip
    in_events = one.workload.streaming and resolve_endpoint(target.endpoint_type).tokens
    usage = settings.workload.continuous_usage if in_events else "off"  # tokens are counted alike in all classes
    return msgspec.structs.replace(
        settings,
        target=target,
        load=load,
        workload=msgspec.structs.replace(
            one.workload, continuous_usage=usage, stream=stream, salt=settings.workload.salt
        ),
        behaviour=one.behaviour,
        classes=(),
    )


def lasting(settings: RunSettings, starts_ns: Sequence[int]) -> RunSettings:
    """*settings* with a warm-up, if there is one, that lasts at least until the last of *starts_ns*."""
    load = settings.load
    if not starts_ns or not (load.default_warmup or load.warmup_tokens):
        return settings
    requests = WARMUP_REQUESTS if load.default_warmup else load.warmup_requests
    seconds = max(load.warmup_seconds or 0.0, max(starts_ns) / 1e9)
    load = msgspec.structs.replace(load, warmup_requests=requests, warmup_tokens=0, warmup_seconds=seconds)
    return msgspec.structs.replace(settings, load=load)


@dataclass(frozen=True)
class PlannedClass:
    """Number of the arrivals of one class, and its schedule; None: the class's own bounds, nothing is drawn yet."""

    count: int | None = None
    drawn: GrowingSchedule | None = None


def planned_classes(settings: RunSettings) -> list[PlannedClass]:
    """The arrivals of each class when --num-requests bounds all of them together."""
    wanted = settings.load.num_requests
    if wanted is None:
        return [PlannedClass()] * len(settings.classes)
    schedules, drawn = [], []
    for one in settings.classes:
        each = class_settings(settings, one, wanted)
        growing = measured_pace(each.load, arrivals_stream(each)).drawn
        assert growing is not None  # a closed class has no end but --duration, so that the number is not bounded
        drawn.append(growing)
        schedules.append(growing.part(count=wanted))
    order = in_order(schedules)[:wanted]
    ends = np.cumsum([len(schedule) for schedule in schedules])
    counts = np.bincount(np.searchsorted(ends, order, side="right"), minlength=len(drawn))
    return [PlannedClass(int(count), each) for count, each in zip(counts, drawn, strict=True)]


def warmup_shares(classes: Sequence[TrafficClass], of: Sequence[bool] | None = None) -> list[float]:
    """Share of each class in the warm-up: of its rate in those of open classes, of its slots in those of closed ones; 0 for
    one that replays recorded instants, or is not in *of*.
    """
    taking = [True] * len(classes) if of is None else of
    found = [0.0] * len(classes)
    for closed in (False, True):
        mine = [place for place, one in enumerate(classes) if (one.load.concurrency is not None) == closed]
        parts = [float(has * ((one.load.concurrency if closed else one.load.rate) or 0.0))
                 for one, has in ((classes[place], taking[place]) for place in mine)]  # fmt: skip
        total = sum(parts)
        for place, part in zip(mine, parts, strict=True):
            found[place] = part / total if total else 0.0
    return found


def in_order(schedules: Sequence[Numbers]) -> Numbers:
    """Positions in the joined *schedules*, ordered by instant, then class, then position."""
    order: Numbers = np.argsort(np.concatenate([*schedules, np.empty(0, np.int64)]), kind="stable")
    return order


@dataclass(frozen=True)
class Order:
    """Request i of the merged plan is request `local[i]` of part `part[i]`."""

    part: Numbers
    local: Numbers


def merged_order(plans: Sequence[Plan]) -> Order:
    """All requests by the instants of their starts, those without at the end; turns of a conversation stay together."""
    schedules = [
        np.full(len(plan.starts), NEVER) if plan.t_start is None else np.asarray(plan.t_start) for plan in plans
    ]
    starts = [plan.starts for plan in plans]
    lengths = [np.diff(np.append(begin, plan.requests)) for begin, plan in zip(starts, plans, strict=True)]
    order = in_order(schedules)
    if not len(order):
        return Order(np.empty(0, np.int64), np.empty(0, np.int64))
    part = np.repeat(np.arange(len(plans)), [len(each) for each in starts])[order]
    first, many = np.concatenate(starts)[order], np.concatenate(lengths)[order]
    offset = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
    return Order(np.repeat(part, many), np.repeat(first, many) + offset)


def merge(
    settings: RunSettings, phase: str, model: str, parts: Sequence[tuple[TrafficClass, Plan]], out_dir: Path
) -> Plan:
    """One plan of the *parts*, each with its class; classes keep their numbers in the settings."""
    plans = [plan for _, plan in parts]
    order = merged_order(plans)
    numbers = np.array([settings.classes.index(one) for one, _ in parts] or [0], np.uint16)
    bodies = merged_bodies(plans, order, out_dir / BODIES)
    classes = numbers[order.part] if len(order.part) else np.empty(0, np.uint16)
    turns, edges = merged_turns(plans, order), merged_edges(plans, order)
    if turns is not None and edges is not None:
        turns["waits_for"] = np.bincount(edges["target"], minlength=len(turns))
    arrays: dict[str, npt.NDArray[Any] | None] = {
        SCHEDULE: None if all_closed(plans) else gathered(plans, order, "t_sched", np.dtype(np.int64), FOLLOWS),
        TURNS: turns,
        EDGES: edges,
        CALLS: merged_calls(plans, order, turns),
        PREFIX: optional(plans, order, "prefix_tokens", np.dtype(np.int32)),
        MODELS: merged_models(plans, order),
        CLIENT: optional(plans, order, "client", CLIENT_ROW),
    }
    return finish(out_dir, described(settings, phase, model, parts), bodies, classes, arrays)


def all_closed(plans: Sequence[Plan]) -> bool:
    """Whether there are plans, and each is a closed loop."""
    return bool(plans) and all(plan.concurrency is not None for plan in plans)


def gathered(plans: Sequence[Plan], order: Order, name: str, dtype: np.dtype[Any], missing: int) -> npt.NDArray[Any]:
    """One item per merged request out of the parts' arrays *name*; *missing* where a part has none."""
    found = np.zeros(len(order.part), dtype)
    if missing:
        found[:] = missing
    for number, plan in enumerate(plans):
        array = getattr(plan, name)
        if array is not None:
            mine = order.part == number
            found[mine] = array[order.local[mine]]
    return found


def optional(plans: Sequence[Plan], order: Order, name: str, dtype: np.dtype[Any]) -> npt.NDArray[Any] | None:
    """As `gathered`, of zeros where a part has none; None when no part has any."""
    return None if all(getattr(plan, name) is None for plan in plans) else gathered(plans, order, name, dtype, 0)


def models_of(plan: Plan) -> tuple[ModelPlan, ...]:
    """The models of a class: its only one too."""
    own = plan.description
    tokens = {"input_tokens": int(plan.input_tokens.sum()), "output_tokens": int(plan.output_tokens.sum())}
    return own.models or (
        ModelPlan(name=own.model, share=1.0, starts=len(plan.starts), requests=plan.requests, **tokens),
    )


def joint_models(plans: Sequence[Plan]) -> tuple[ModelPlan, ...]:
    """The models of all classes; empty where no class has several."""
    if not any(plan.description.models for plan in plans):
        return ()
    return joined([(models_of(plan), len(plan.starts)) for plan in plans])


def merged_models(plans: Sequence[Plan], order: Order) -> npt.NDArray[np.uint16] | None:
    """Index into `joint_models` of each request; None where no class has several."""
    place = {one.name: number for number, one in enumerate(joint_models(plans))}
    if not place:
        return None
    found = gathered(plans, order, "request_model", np.dtype(np.uint16), 0)
    for number, plan in enumerate(plans):
        mine = order.part == number
        found[mine] = np.array([place[one.name] for one in models_of(plan)], np.uint16)[found[mine]]
    return found


def merged_turns(plans: Sequence[Plan], order: Order) -> npt.NDArray[Any] | None:
    """None when no part has conversations; a single request is a conversation of one turn."""
    if all(plan.turns is None for plan in plans):
        return None
    turns = gathered(plans, order, "turns", TURN, 0)
    alone = np.isin(order.part, [number for number, plan in enumerate(plans) if plan.turns is None])
    turns["flags"][alone] = LAST_TURN
    turns["session"] = np.cumsum(turns["turn"] == 0) - 1
    return turns


def merged_calls(plans: Sequence[Plan], order: Order, turns: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
    calls = optional(plans, order, "calls", CALL)
    if calls is not None and turns is not None:
        calls["session"] = turns["session"]
    return calls


def merged_edges(plans: Sequence[Plan], order: Order) -> npt.NDArray[Any] | None:
    """None when no part has graphs; in the conversations of the others each turn waits for the one before it."""
    if all(plan.edges is None for plan in plans):
        return None
    found = []
    for number, plan in enumerate(plans):
        if plan.turns is None:
            continue
        place = np.empty(plan.requests, np.int64)
        mine = np.flatnonzero(order.part == number)
        place[order.local[mine]] = mine
        edges = np.array(line_edges(plan.turns) if plan.edges is None else plan.edges)
        edges["source"], edges["target"] = place[edges["source"]], place[edges["target"]]
        found.append(edges)
    joined = np.concatenate(found)
    return joined[np.lexsort((joined["target"], joined["source"]))]


def merged_bodies(plans: Sequence[Plan], order: Order, path: Path) -> Bodies:
    hasher = hashlib.sha256()
    ends = [np.asarray(plan.body_offset).astype(np.int64) for plan in plans]
    sizes = np.zeros(len(order.part), np.uint64)
    pending: list[Any] = []
    pending_bytes = 0
    with disk_errors(path), open(path, "wb") as file:
        for place, (part, local) in enumerate(zip(order.part.tolist(), order.local.tolist(), strict=True)):
            if plans[part].pieces is None:
                begin, end = int(ends[part][local]), int(ends[part][local + 1])
                pending.append(plans[part].bodies[begin:end].data)
            else:
                pending.append(plans[part].body(local))
            sizes[place] = len(pending[-1])
            pending_bytes += len(pending[-1])
            if pending_bytes > COPIED:
                write_joined(pending, hasher, file)
                pending_bytes = 0
        write_joined(pending, hasher, file)
    offsets = np.concatenate([np.zeros(1, np.uint64), np.cumsum(sizes, dtype=np.uint64)])
    tokens = [gathered(plans, order, name, np.dtype(np.int32), 0) for name in ("input_tokens", "output_tokens")]
    return Bodies(tokens[0], tokens[1], offsets, hasher.hexdigest())


def write_joined(pending: list[Any], hasher: Any, file: Any) -> None:
    joined = b"".join(pending)
    hasher.update(joined)
    file.write(joined)
    pending.clear()


def described(
    settings: RunSettings, phase: str, model: str, parts: Sequence[tuple[TrafficClass, Plan]]
) -> PlanDescription:
    """Description of the merged plan; `classes` has an entry per class of the run, in their order."""
    by_name = {one.name: plan for one, plan in parts}
    plans = [plan for _, plan in parts]
    rates = [
        rate for plan in plans if (rate := known((plan.description.load.arrivals or ArrivalFacts()).rate)) is not None
    ]
    bounds = [known(plan.description.load.duration_s) for plan in plans if plan.concurrency is not None]
    duration_s = settings.load.duration if phase == "measure" else max((each for each in bounds if each), default=None)
    stream = f"{settings.client.seed}/class"
    if all_closed(plans):
        load = LoadDescription(
            loop="closed", concurrency=sum(plan.concurrency or 0 for plan in plans),
            duration_s=duration_s, cycles=any(plan.cycles for plan in plans),
        )  # fmt: skip
    else:
        arrivals = ArrivalFacts(name=MIXED, rate=math.fsum(rates), stream=stream)
        load = LoadDescription(loop="open", arrivals=arrivals, duration_s=duration_s, cycles=False)
    return PlanDescription(
        phase=phase,
        load=load,
        workload=WorkloadDescription(
            name=MIXED, isl="by class", osl="by class", tokenizer=settings.workload.tokenizer, prompt="by class",
            prefix_len=0, num_prefixes=1, exact=exact_of(plans),
        ),
        requests=sum(plan.requests for plan in plans),
        models=joint_models(plans),
        classes=tuple(described_class(one, by_name.get(one.name)) for one in settings.classes),
        **common(settings, model) | {"streaming": any(one.workload.streaming for one in with_tokens(settings))},
    )  # fmt: skip


def with_tokens(settings: RunSettings) -> list[TrafficClass]:
    """The classes whose answers are tokens; all where those of none are."""
    silent = silent_classes(settings.target.endpoint_type, settings.classes)
    return [one for one in settings.classes if one.name not in silent] or list(settings.classes)


def exact_of(plans: Sequence[Plan]) -> ExactPrompts | None:
    """Count of the prompts of all classes that have the drawn length; None when no class draws prompts."""
    found = [one for plan in plans if (one := plan.description.workload.exact) is not None]
    prompts = sum(int(known(one.prompts) or 0) for one in found)
    checked = sum(int(known(one.checked) or 0) for one in found)
    exact = sum(int(known(one.exact) or 0) for one in found)
    return exactness(checked, exact, prompts) if found else None


def described_class(one: TrafficClass, plan: Plan | None) -> ClassDescription:
    """Settings of class *one*, to build its warm-up from, and its plan; None: it has no request in this phase."""
    found = ClassDescription(
        name=one.name,
        settings=msgspec.structs.replace(one, urls=()),  # a plan does not depend on its target
        own_targets=bool(one.urls),
        requests=0,
        starts=0,
    )
    if plan is None:
        return found
    own = plan.description
    return msgspec.structs.replace(
        found, endpoint=own.endpoint, model=own.model, load=own.load, workload=own.workload, behaviour=own.behaviour,
        conversations=own.conversations, joint=own.joint, digest=plan.digest, requests=plan.requests,
        starts=len(plan.starts), input_tokens=int(plan.input_tokens.sum()), output_tokens=int(plan.output_tokens.sum()),
    )  # fmt: skip
