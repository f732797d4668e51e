"""Checks the target before the clock starts: is it reachable, has it the model, does it answer with tokens?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastllmload.endpoint import resolve_endpoint
from fastllmload.endpoint.endpoint import named
from fastllmload.engine.preflight import routing
from fastllmload.engine.preflight.addresses import parse_base, request_head, target_spec
from fastllmload.engine.preflight.calls import refuse_unless_serving
from fastllmload.engine.preflight.client import H2, HTTP1, ReportProgress, no_report
from fastllmload.engine.preflight.probe import PROBE_TOKENS, ServerProbe, add_notes
from fastllmload.engine.workers.affinity import check_source_addresses
from fastllmload.engine.workers.spec import TargetSpec
from fastllmload.errors import InputError, TargetError, coded
from fastllmload.plan.classes import class_settings
from fastllmload.report.terminal.outlet import Redact
from fastllmload.settings import RunSettings, Secret, TrafficClass

SPOKEN = {HTTP1: "HTTP/1.1", H2: "HTTP/2 only"}


@dataclass
class Preflight:
    """What the checks found. *usage_reported* None: not known; *connect_ms*: TCP connect times of the *first* target."""

    targets: list[TargetSpec] = field(default_factory=list)
    model: str = ""
    http_version: str = HTTP1  # what is spoken with all targets, by its name in ALPN
    usage_reported: bool | None = None
    way: str | None = None  # how the events of all targets report tokens (`answers.USAGE` ...); None: not requested
    connect_ms: list[float] = field(default_factory=list)
    first: ServerProbe | None = None
    context_limit: int | None = None  # tokens of prompt and answer, the least that a server reports as max_model_len
    answer_s: float | None = None  # duration of the first target's complete probe answer, for PROBE_TOKENS tokens
    class_heads: list[list[str]] = field(default_factory=list)  # per class, per target; empty without classes
    class_targets: list[tuple[int, int]] = field(default_factory=list)  # per class: first target, number of targets
    class_models: list[str] = field(default_factory=list)  # per class
    class_urls: list[str] = field(default_factory=list)  # of targets that only classes have; after the run's
    own_urls: bool = False  # whether a class has URLs of its own
    notes: list[str] = field(default_factory=list)

    @property
    def routes(self) -> Sequence[tuple[int, int]]:
        """`class_targets` if they differ; empty: all requests go to all targets."""
        return self.class_targets if self.own_urls else ()


def preflight(
    settings: RunSettings,
    urls: Sequence[str],
    secret: Secret | None,
    redact: Redact,
    report_progress: ReportProgress = no_report,
    *,
    cold: bool = False,
    simulated: str | None = None,
) -> Preflight:
    """Check every URL of the run and of its classes. InputError, TargetError. *redact* replaces secrets of a server's text;
    *report_progress* receives one line for each long wait. *cold*: the run measures a cold start. *simulated*: the model of
    the run's own simulated engine, which serves those of classes too.
    """
    key = None if secret is None else secret.reveal()
    check_source_addresses(settings.target.source_addresses)
    found = Preflight(own_urls=any(one.urls for one in settings.classes))
    asking = asking_class(settings)
    general = settings if asking is None else class_settings(settings, asking)
    probes = []
    for url in urls:
        probe = ServerProbe(general, parse_base(url, settings.target.unix_socket), key, redact, report_progress)
        found.model = check_server(probe, found, found.model or general.target.model or simulated, cold)
        probes.append(probe)
    targets_of = {settings.target.urls: (0, len(probes)), (): (0, len(probes))}
    for one in settings.classes:
        if one.urls not in targets_of:
            targets_of[one.urls] = len(probes), len(one.urls)
            with errors_naming(one):
                of_class = class_settings(settings, one)
                probes += check_class_servers(of_class, one.urls, found, key, redact, report_progress, cold)
        found.class_targets.append(targets_of[one.urls])
    usual = settings.target.model or simulated or (found.model if asking is None else None)
    probe_classes(settings, probes, found, usual)
    add_notes(found.notes, *routing.of_identity(settings))
    if probes and probes[0].endpoint.call is None and not cold:
        add_notes(found.notes, *routing.of_key(probes[0]))
    return found


def check_server(probe: ServerProbe, found: Preflight, wanted: str | None, cold: bool) -> str:
    """Check that the server of *probe* answers, add that to *found*, and return its model. *cold*: only list its models."""
    address = probe.reach([] if found.targets else found.connect_ms)
    found.first = found.first or probe
    if probe.endpoint.call is not None and not cold:
        refuse_unless_serving(probe)
    model = probe.model(wanted)
    probe.path = named(probe.path, model)
    if probe.context_limit is not None:
        found.context_limit = min(found.context_limit or probe.context_limit, probe.context_limit)
    usage = None
    if cold:
        add_notes(found.notes, coded("cold-start", "cold start: no answer was asked for before the first request"))
    else:
        usage = ask(probe, found, model)
    if usage is not None:
        of_tokens = probe.endpoint.tokens
        if found.answer_s is None or (of_tokens and found.usage_reported is None):  # the first one of tokens, if any is
            found.answer_s = probe.answer_s * PROBE_TOKENS / probe.asked_tokens
        if of_tokens:
            found.usage_reported = usage if found.usage_reported is None else found.usage_reported and usage
    if found.first is probe:
        found.http_version = probe.protocol
    elif probe.protocol != found.http_version:
        raise TargetError(
            "http-versions-differ",
            f"{probe.base.public_url} speaks {SPOKEN[probe.protocol]}, but {found.first.base.public_url} "
            f"{SPOKEN[found.http_version]}, and a run speaks one of them; name in --http-version the one that both do",
        )
    server_name = probe.settings.target.server_name
    method = probe.endpoint.method
    found.targets.append(
        target_spec(probe.base, address, probe.path, probe.headers, probe.key, server_name, method=method)
    )
    return model


def ask(probe: ServerProbe, found: Preflight, model: str) -> bool | None:
    """Whether the answer of *probe*'s server reported usage. All targets get the same request for token counts in events."""
    probe.known = found.way
    usage = probe.answer(model, found.notes)
    found.way = probe.way or found.way
    return usage


def check_class_servers(
    settings: RunSettings,
    urls: Sequence[str],
    found: Preflight,
    key: str | None,
    redact: Redact,
    report_progress: ReportProgress,
    cold: bool,
) -> list[ServerProbe]:
    """Check the URLs of a class that has its own; *settings* is that of the class."""
    probes, model = [], settings.target.model
    for url in urls:
        probe = ServerProbe(settings, parse_base(url), key, redact, report_progress)
        probe.served = model = check_server(probe, found, model, cold)
        probes.append(probe)
    found.class_urls += urls
    return probes


def asking_class(settings: RunSettings) -> TrafficClass | None:
    """Whose requests the first probe asks: the first class's if no class at these targets asks as the run, else None.

    Classes whose answers are tokens are first, as usage and the time of an answer are about tokens.
    """
    target = settings.target
    home = [one for one in settings.classes if not one.urls or one.urls == target.urls]
    home = [one for one in home if resolve_endpoint(one.endpoint_type or target.endpoint_type).tokens] or home
    plain = [one for one in home if one.endpoint_type in (None, target.endpoint_type)]
    if not home or (plain and (target.model is not None or any(one.model is None for one in plain))):
        return None
    return home[0]


def probe_classes(run: RunSettings, probes: Sequence[ServerProbe], found: Preflight, usual: str | None) -> None:
    """Probe each class's model at each of its targets, once for classes with the same request, and build request heads.

    *usual*: the model of classes without one; None: the only one that their server offers.
    """
    probed: set[tuple[Any, ...]] = set()
    for one, (first, many) in zip(run.classes, found.class_targets, strict=True):
        each = class_settings(run, one)
        heads = [""] * len(probes)
        model = one.model or usual or ""
        for number in range(first, first + many):
            general = probes[number]
            probe = ServerProbe(each, general.base, general.key, general.redact, general.report_progress)
            probe.address = general.address
            with errors_naming(one):
                model = one.model or general.served or usual or probe.model(None)
            probe.path = named(probe.path, model)
            question = (
                number,
                probe.path,
                model,
                each.target.headers,
                one.workload.extra_body,
                probe.endpoint.name,
                one.workload.streaming,
            )
            if question not in probed:
                probed.add(question)
                with errors_naming(one):
                    ask(probe, found, probe.model(model))
            heads[number] = request_head(probe.base, probe.path, probe.headers, probe.key, method=probe.endpoint.method)
        found.class_heads.append(heads)
        found.class_models.append(model)


@contextlib.contextmanager
def errors_naming(one: TrafficClass) -> Iterator[None]:
    """Add the name of class *one* to errors raised in the block."""
    try:
        yield
    except (InputError, TargetError) as problem:
        raise type(problem)(problem.code, f"class {one.name!r}: {problem.message}") from None
