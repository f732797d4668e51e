"""Before the clock: is the target there, does it know the model, does it answer with tokens? A clear refusal now is
better than a mess during the run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastllmload.endpoint import ENDPOINTS, Endpoint
from fastllmload.engine.preflight.addresses import parse_base, request_head, target_spec
from fastllmload.engine.preflight.probe import PROBE_TOKENS, Probe
from fastllmload.engine.preflight.progress import Say, silent
from fastllmload.engine.workers.affinity import refuse_sources
from fastllmload.engine.workers.spec import TargetSpec
from fastllmload.errors import InputError, TargetError
from fastllmload.metrics.run.cold_start import declared_cold
from fastllmload.plan.classes import class_settings
from fastllmload.report.terminal.outlet import Redact
from fastllmload.settings import RunSettings, Secret, TrafficClass


@dataclass
class Preflight:
    """What the checks found. *usage_reported* None: not known; *connect_ms*: TCP connect times of the *first* target."""

    targets: list[TargetSpec] = field(default_factory=list)
    model: str = ""
    usage_reported: bool | None = None
    way: str | None = (
        None  # in which the events of all targets say what they carry (`probe.USAGE` ...); None: not asked
    )
    connect_ms: list[float] = field(default_factory=list)
    first: Probe | None = None
    context_limit: int | None = None  # tokens of prompt and answer, the least that a server reports as max_model_len
    answer_s: float | None = None  # the probe of the first target, of PROBE_TOKENS tokens, whole
    class_heads: list[list[str]] = field(default_factory=list)  # per class, per target; empty without classes
    class_targets: list[tuple[int, int]] = field(default_factory=list)  # per class: its first target, and how many
    class_models: list[str] = field(default_factory=list)  # per class
    class_urls: list[str] = field(default_factory=list)  # of targets that only classes have, behind the run's
    notes: list[str] = field(default_factory=list)


def preflight(
    settings: RunSettings,
    urls: Sequence[str],
    endpoint: Endpoint,
    secret: Secret | None,
    redact: Redact,
    say: Say = silent,
) -> Preflight:
    """Check every URL of the run and of its classes. InputError (exit 2) or TargetError (exit 3), one sentence each;
    *redact* blanks secrets in what a server said; *say* hears what is waited for.
    """
    key = None if secret is None else secret.reveal()
    refuse_sources(settings.target.source_addresses)
    found = Preflight()
    general = most_general(settings)
    spoken = endpoint if general is settings else ENDPOINTS[general.target.endpoint_type]
    probes = []
    for url in urls:
        probe = Probe(general, parse_base(url, settings.target.unix_socket), spoken, key, redact, say)
        found.model = look_at(probe, found, found.model or general.target.model)
        probes.append(probe)
    places = {settings.target.urls: (0, len(probes)), (): (0, len(probes))}
    for one in settings.classes:
        each = class_settings(settings, one)
        if one.urls not in places:
            places[one.urls] = len(probes), len(one.urls)
            with named(one):
                probes += look_away(each, one.urls, found, key, redact, say)
        found.class_targets.append(places[one.urls])
    probe_classes(settings, probes, found)
    return found


def look_at(probe: Probe, found: Preflight, wanted: str | None) -> str:
    """Whether the server of *probe* is there and answers, into *found*; the model that it serves."""
    address = probe.reach([] if found.targets else found.connect_ms)
    found.first = found.first or probe
    model = probe.model(wanted)
    if probe.context_limit is not None:
        found.context_limit = min(found.context_limit or probe.context_limit, probe.context_limit)
    usage = None if stays_cold(probe, found.notes) else ask(probe, found, model)
    if usage is not None:
        found.answer_s = found.answer_s or probe.answer_s * PROBE_TOKENS / probe.asked_tokens
        found.usage_reported = usage if found.usage_reported is None else found.usage_reported and usage
    target = probe.settings.target
    found.targets.append(target_spec(probe.base, address, probe.path, target.headers, probe.key, target.server_name))
    return model


def ask(probe: Probe, found: Preflight, model: str) -> bool | None:
    """The answer of *probe*. All targets are asked in the same way what events carry, and one that does not say it so is
    enough for the run not to ask.
    """
    probe.known = found.way
    usage = probe.answer(model, found.notes)
    found.way = probe.way or found.way
    return usage


def stays_cold(probe: Probe, notes: list[str]) -> bool:
    """Whether the first request shall find a server that has answered nothing yet (IETF 4.5.3): its list of models says
    that it is ready, and no answer is asked for before the clock.
    """
    if not declared_cold(dict(probe.settings.output.declare)):
        return False
    remark = "cold start: no answer was asked for before the first request"
    notes += [remark] if remark not in notes else []
    return True


def look_away(
    settings: RunSettings, urls: Sequence[str], found: Preflight, key: str | None, redact: Redact, say: Say
) -> list[Probe]:
    """The same for the URLs of a class of its own, whose *settings* these are."""
    probes, model = [], settings.target.model
    for url in urls:
        probe = Probe(settings, parse_base(url), ENDPOINTS[settings.target.endpoint_type], key, redact, say)
        probe.served = model = look_at(probe, found, model)
        probes.append(probe)
    found.class_urls += urls
    return probes


def at_home(settings: RunSettings, one: TrafficClass) -> bool:
    """Whether class *one* goes to the run's own targets."""
    return not one.urls or one.urls == settings.target.urls


def most_general(settings: RunSettings) -> RunSettings:
    """The run itself, or the first class that goes to its targets where none of them asks as the run would: in its
    protocol, for a model that the run says or that is found.
    """
    home = [one for one in settings.classes if at_home(settings, one)]
    plain = [one for one in home if one.endpoint_type in (None, settings.target.endpoint_type)]
    if not home or (plain and (settings.target.model is not None or any(one.model is None for one in plain))):
        return settings
    return class_settings(settings, home[0])


def probe_classes(settings: RunSettings, probes: Sequence[Probe], found: Preflight) -> None:
    """Each class's model and answer at each of its targets, once for classes that ask the same; and its request heads."""
    asked: set[tuple[Any, ...]] = set()
    for one, (first, many) in zip(settings.classes, found.class_targets, strict=True):
        each = class_settings(settings, one)
        heads = [""] * len(probes)
        model = one.model or found.model
        for number in range(first, first + many):
            general = probes[number]
            probe = Probe(
                each, general.base, ENDPOINTS[each.target.endpoint_type], general.key, general.redact, general.tell
            )
            probe.address = general.address
            model = one.model or general.served or found.model
            question = (number, probe.path, model, each.target.headers, one.workload.extra_body, probe.endpoint.name)
            if question not in asked:
                asked.add(question)
                with named(one):
                    ask(probe, found, probe.model(model))
            heads[number] = request_head(probe.base, probe.path, each.target.headers, probe.key)
        found.class_heads.append(heads)
        found.class_models.append(model)


@contextlib.contextmanager
def named(one: TrafficClass) -> Iterator[None]:
    """What is refused in here says of which class."""
    try:
        yield
    except (InputError, TargetError) as problem:
        raise type(problem)(f"class {one.name!r}: {problem}") from None
