"""The plans of a run: built for its settings, or the measured one replayed from a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from fastllmload.documents.fields import known
from fastllmload.documents.plan import ArrivalFacts, LoadDescription, PlanDescription, WorkloadDescription
from fastllmload.endpoint import resolve_endpoint, shown
from fastllmload.engine.preflight.check import Preflight
from fastllmload.engine.preflight.client import H2
from fastllmload.errors import InputError
from fastllmload.plan.archive import load_plan
from fastllmload.plan.build import build_plan, check_context_limit
from fastllmload.plan.classes import build_classes
from fastllmload.plan.description.facts import generating
from fastllmload.plan.pace import WARMUP_REQUESTS, WARMUP_TOKENS
from fastllmload.plan.plan import Plan
from fastllmload.plan.prompts.load import LoadedWorkload, load_workloads
from fastllmload.plan.seen import build_seen, repeat_seen
from fastllmload.plan.standard import LENGTHS, OWN_TEXT
from fastllmload.records import layout
from fastllmload.settings import Load, Output, RunSettings, Target, TrafficClass, Workload

WARMUP, MEASURE = "plan-warmup", "plan-measure"
PHASES = (("warmup", layout.WARMUP, WARMUP), ("measure", layout.MEASURE, MEASURE))  # name, code, folder


@dataclass(frozen=True)
class ResolvedSettings:
    """Settings whose load and workload are known, and the saved plan that they come from, if any."""

    settings: RunSettings
    plan: Plan | None = None
    loaded: tuple[LoadedWorkload, ...] = ()  # of each class, or of the run; empty: not loaded yet

    def with_findings(self, found: Preflight) -> ResolvedSettings:
        """With what the preflight *found* and the command line does not set: the context limit, the request for usage or
        token ids in every event, the models of classes that name none, and HTTP/2 where servers speak nothing else.
        """
        workload = self.settings.workload
        limit, asked = workload.context_limit, workload.continuous_usage
        workload = msgspec.structs.replace(
            workload,
            context_limit=found.context_limit if limit is None else limit,
            continuous_usage=(found.way or "off") if asked == "auto" else asked,
        )
        classes = tuple(
            msgspec.structs.replace(one, model=model)
            if one.model is None and (one.urls or model != found.model)
            else one
            for one, model in zip(self.settings.classes, found.class_models, strict=True)
        )
        client = self.settings.client
        if found.http_version == H2:
            client = msgspec.structs.replace(client, http_version="2")
        return replace(
            self, settings=msgspec.structs.replace(self.settings, workload=workload, classes=classes, client=client)
        )


@dataclass(frozen=True)
class RunPhase:
    name: str
    code: int
    plan: Plan


@dataclass(frozen=True)
class Plans:
    """The plans of both phases; a disabled warm-up has no requests."""

    warmup: Plan
    measure: Plan

    @property
    def phases(self) -> list[RunPhase]:
        both = [RunPhase("warmup", layout.WARMUP, self.warmup), RunPhase("measure", layout.MEASURE, self.measure)]
        return [phase for phase in both if phase.plan.requests]

    @property
    def warmup_deviation(self) -> str | None:
        """How the warm-up falls short of IETF 4.5.1, as a sentence; None when it does not."""
        if not generating(self.measure).any():
            return None
        tokens = int(self.warmup.output_tokens.sum())
        asked = f"IETF 4.5.1 asks for {WARMUP_REQUESTS} requests and {WARMUP_TOKENS:,} output tokens"
        if not self.warmup.requests:
            return f"the run has no warm-up; {asked}"
        if self.warmup.cycles or self.warmup.closed_cycles:
            return f"the warm-up ends by time alone; {asked}"
        if self.warmup.requests >= WARMUP_REQUESTS and tokens >= WARMUP_TOKENS:
            return None
        return f"the warm-up has {self.warmup.requests:,} requests and at most {tokens:,} output tokens; {asked}"


def resolve_settings(settings: RunSettings, work: Path) -> ResolvedSettings:
    """The settings with their loaded workloads, or those of --plan. InputError when the command line contradicts it."""
    if settings.output.plan is None:
        return ResolvedSettings(settings, loaded=load_workloads(settings))
    plan = load_plan(Path(settings.output.plan), work / MEASURE)
    described = plan.description
    spoken, asked = shown(str(described.endpoint)), settings.target.endpoint_type
    if described.endpoint not in (asked, resolve_endpoint(asked).name):
        raise InputError(
            "plan-mismatch",
            f"--plan {settings.output.plan} was made for {spoken}; add --endpoint-type {spoken}, as it was then",
        )
    model = settings.target.model
    if model is not None and model != described.model:
        raise InputError(
            "plan-mismatch",
            f"--plan {settings.output.plan} names model {described.model!r} in every body, not {model!r}",
        )
    asked = settings.workload.continuous_usage
    planned = "on" if described.continuous_usage else "token-ids" if described.token_ids else "off"
    if asked not in ("auto", planned):
        raise InputError(
            "plan-mismatch",
            f"--plan {settings.output.plan} has --continuous-usage {planned} in every body, not {asked}",
        )
    if plan.closed_classes and settings.load.max_concurrency is not None:
        name = plan.classes[next(iter(plan.closed_classes))]
        raise InputError(
            "option-not-applicable",
            f"--max-concurrency caps open loops, and class {name!r} of --plan {settings.output.plan} holds its own number "
            "in flight; leave --max-concurrency out",
        )
    classes = with_plan_urls(classes_of(described), settings.output, described)
    return ResolvedSettings(
        msgspec.structs.replace(
            settings,
            target=msgspec.structs.replace(
                with_class_target(settings.target, classes),
                model=described.model,
                models=tuple((str(one.name), known(one.share) or 0.0) for one in described.models),
            ),
            load=load_of(settings.load, described.load, plan),
            workload=msgspec.structs.replace(
                workload_of(settings.workload, described.workload),
                streaming=described.streaming,
                continuous_usage=planned,
            ),
            classes=classes,
        ),
        plan,
    )


def with_plan_urls(
    classes: tuple[TrafficClass, ...], output: Output, described: PlanDescription
) -> tuple[TrafficClass, ...]:
    """*classes* with the command line's URLs, which a plan does not store. InputError for an unknown or a missing one."""
    urls = dict(output.plan_urls)
    names = [one.name for one in classes]
    for name in urls:
        if name not in names:
            has = f"its classes are {', '.join(names)}" if names else "it has no classes"
            raise InputError("class-unknown", f"--class {name!r} is not in --plan {output.plan}; {has}")
    for one in described.classes:
        if one.own_targets and one.name not in urls:
            raise InputError(
                "class-without-url",
                f"class {one.name!r} of --plan {output.plan} goes to a URL of its own, which no plan holds; "
                f"add --class '{one.name} url=URL'",
            )
    return tuple(msgspec.structs.replace(one, urls=urls.get(one.name, ())) for one in classes)


def with_class_target(target: Target, classes: tuple[TrafficClass, ...]) -> Target:
    """The run's own target; when all classes have their own URLs, no request goes to it, so it is the first class's."""
    if not classes or not all(one.urls for one in classes):
        return target
    if target.urls or target.unix_socket is not None or target.simulate:
        given = "--url" if target.urls else "--unix-socket" if target.unix_socket is not None else "--simulate"
        raise InputError(
            "url-unused", f"every class of the plan has a URL of its own, so nothing goes to {given}; leave it out"
        )
    return msgspec.structs.replace(target, urls=classes[0].urls)


def load_of(load: Load, described: LoadDescription, plan: Plan) -> Load:
    """The load that the plan was made for, so that the warm-up has the same load."""
    rate = (described.arrivals or ArrivalFacts()).rate
    return msgspec.structs.replace(
        load,
        rate=math.inf if rate == "inf" else rate,
        concurrency=described.concurrency,
        duration=described.duration_s,
        num_requests=bounding(plan) if described.duration_s is None else None,
    )


def bounding(plan: Plan) -> int:
    """The --num-requests that gives *plan*: slots of a closed loop count sessions that began before time zero too."""
    return len(plan.starts if plan.t_sched is None else plan.arrivals)


def workload_of(workload: Workload, content: WorkloadDescription) -> Workload:
    """The workload of a replayed plan's warm-up. A plan does not contain its file: Synthetic-Uniform replaces it."""
    drawn = content.name in LENGTHS
    substitute = content.name in OWN_TEXT and content.stand_in is True
    return msgspec.structs.replace(
        workload,
        name=content.name if drawn or substitute else "synthetic-uniform",
        isl=content.isl if drawn else None,
        osl=content.osl if drawn else None,
        tokenizer=content.tokenizer,
        prefix_len=content.prefix_len,
        num_prefixes=content.num_prefixes,
        prefix_share=workload.prefix_share if content.prefix_share is None else content.prefix_share,
        prefix_zipf=workload.prefix_zipf if content.prefix_zipf is None else content.prefix_zipf,
        prompt_form=content.prompt_form or workload.prompt_form,
    )


def classes_of(described: PlanDescription) -> tuple[TrafficClass, ...]:
    """The classes of the plan, for their request heads and warm-up, with the models that its bodies name. A class that
    was read from a file has Synthetic-Uniform as its warm-up.
    """
    found = []
    for entry in described.classes:
        one = entry.settings
        assert one is not None  # every plan with classes has their settings
        workload = one.workload
        if workload.dataset_path is not None:
            workload = Workload(tokenizer=workload.tokenizer, streaming=workload.streaming)
        model = one.model if entry.model is None else entry.model
        found.append(msgspec.structs.replace(one, model=model, workload=workload))
    return tuple(found)


def build_plans(asked: ResolvedSettings, model: str, work: Path) -> Plans:
    """Build the plans of warm-up and measurement in *work*. InputError for a request beyond the model's context."""
    measure, loaded = asked.plan, asked.loaded or load_workloads(asked.settings)
    if measure is None:
        measure = build(asked.settings, "measure", model, work / MEASURE, loaded)
    seen = (
        None
        if asked.plan is None
        else repeat_seen(asked.settings, asked.plan, work / WARMUP, asked.settings.output.plan)
    )
    warmup = build(asked.settings, "warmup", model, work / WARMUP, loaded) if seen is None else seen
    check_context_limit(measure, asked.settings.workload.context_limit)
    return Plans(warmup, measure)


def add_seen(settings: RunSettings, plan: Plan, loaded: Sequence[LoadedWorkload] = ()) -> None:
    """Build what the warm-up of *plan*, built for *settings*, sends of sessions under way: it is saved with the plan."""
    if not settings.classes:
        build_seen(settings, resolve_endpoint(settings.target.endpoint_type), plan, loaded[0] if loaded else None)


def build(
    settings: RunSettings, phase: str, model: str, out_dir: Path, loaded: Sequence[LoadedWorkload] | None = None
) -> Plan:
    if settings.classes:
        return build_classes(settings, phase=phase, model=model, out_dir=out_dir, loaded=loaded)
    one, endpoint = loaded[0] if loaded else None, resolve_endpoint(settings.target.endpoint_type)
    return build_plan(settings, phase=phase, endpoint=endpoint, model=model, out_dir=out_dir, loaded=one)
