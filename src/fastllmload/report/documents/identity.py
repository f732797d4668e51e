"""Describes the system and the test configuration as labelled texts (IETF C.1; C.2 sections 1, 2).

Sources are declarations and what the run observed. A declaration that differs from the observation is marked
`(declared)`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fastllmload.report.documents.subject import Subject
from fastllmload.report.terminal.summary import part
from fastllmload.report.text.event_tokens import event_tokens_text
from fastllmload.report.text.numbers import NOT_KNOWN, WITHHELD, asked_rate, count, number, quantity, some

UNDECLARED = "not declared"
BOUNDARIES = {"model_engine": "Model Engine", "application_gateway": "Gateway", "compound_system": "Compound"}
REPORTED_SEPARATELY = ("name", "tokenizer", "tokenizer_facts", "counting", "deviations")
Document = Mapping[str, Any]
Pairs = list[tuple[str, str]]


def declared(subject: Subject) -> dict[str, str]:
    """Declarations of a run or a procedure."""
    document = subject.document
    found = part(document, "manifest", "declarations") if subject.is_procedure else document.get("declarations")
    there = found.items() if isinstance(found, Mapping) else ()
    return {str(name): str(value) for name, value in there if value is not None}


def run_document(subject: Subject) -> Document:
    """run.json of the run, or of the representative level of a procedure; empty without one."""
    level = subject.level
    return {} if level is None else level.document


def simulated(subject: Subject) -> bool:
    return bool(part(subject.document, "manifest", "simulated") or part(run_document(subject), "target", "simulated"))


def model(subject: Subject) -> str:
    declarations = declared(subject)
    observed = part(run_document(subject), "target", "model")
    name = declarations.get("sut.model.name") or (str(observed) if observed else UNDECLARED)
    version = declarations.get("sut.model.version")
    return f"{name} {version}" if version and version != "none" else name


def hardware(subject: Subject) -> str:
    """`<GPU type> x <count>`."""
    declarations = declared(subject)
    kind = declarations.get("sut.hardware.accelerator")
    number = declarations.get("sut.hardware.count") or part(run_document(subject), "config", "output", "gpus")
    if simulated(subject) and kind is None:
        return "none (simulated) x 0"
    return f"{kind or UNDECLARED} x {number if number is not None else UNDECLARED}"


def software(subject: Subject) -> str:
    given = declared(subject).get("software.engine")
    engine = part(run_document(subject), "environment", "engine") or {}
    observed = " ".join(str(engine[name]) for name in ("name", "version") if engine.get(name))
    if given and observed and given.casefold() != observed.casefold():
        return f"{given} (declared; the server reports {observed})"
    return given or observed or UNDECLARED


def boundary(subject: Subject) -> str:
    value = declared(subject).get("sut.boundary")
    if value is None:
        return "Model Engine" if simulated(subject) else UNDECLARED
    return BOUNDARIES.get(value, value)


def workload(subject: Subject) -> str:
    document = run_document(subject)
    found = (
        part(document, "plan", "description", "workload", "name")
        or part(document, "config", "workload", "name")
        or part(subject.document, "manifest", "workload")
    )
    return str(found or NOT_KNOWN)


def load_model(document: Document) -> str:
    """`open-loop 50/s (poisson)` or `closed-loop 64 in flight`."""
    load = part(document, "plan", "description", "load")
    slots = part(load, "concurrency") or part(document, "config", "load", "concurrency")
    if WITHHELD in (slots, part(load, "arrivals", "rate")):
        return f"{'open-loop' if slots is None else 'closed-loop'}, load withheld"
    if slots is not None:
        return f"closed-loop {count(slots)} in flight"
    rate = part(load, "arrivals", "rate") or part(document, "config", "load", "rate")
    if rate is None:
        return NOT_KNOWN
    name = part(load, "arrivals", "name") or part(document, "config", "load", "arrival")
    cap = part(document, "config", "load", "max_concurrency")
    capped = "" if cap is None else f", at most {count(cap)} in flight"
    return f"open-loop {asked_rate(math.inf if rate == 'inf' else rate)} ({name or 'arrivals not known'}{capped})"


def guardrails(subject: Subject) -> str:
    declarations = declared(subject)
    filters = [declarations.get(f"guardrails.{name}_filter") for name in ("input", "output")]
    if not any(filters):
        return "no guardrails (simulated engine)" if simulated(subject) else UNDECLARED
    texts = [f"{name} filter {value or UNDECLARED}" for name, value in zip(("input", "output"), filters, strict=True)]
    named = declarations.get("guardrails.names")
    return ", ".join([*texts, *([named] if named else [])])


def prefix_cache(subject: Subject) -> str:
    declarations = declared(subject)
    found = [declarations[name] for name in ("prefix_cache.enabled", "prefix_cache.state") if name in declarations]
    return ", ".join(found) if found else UNDECLARED


def system_pairs(subject: Subject) -> Pairs:
    """Section 1: what was tested."""
    declarations, environment = declared(subject), part(run_document(subject), "environment") or {}
    return [
        ("Model", model(subject)),
        ("Quantization", declarations.get("sut.model.quantization", UNDECLARED)),
        ("Model format", declarations.get("sut.model.format", UNDECLARED)),
        ("Hardware", hardware(subject)),
        ("Memory per accelerator", _gib(declarations.get("sut.hardware.memory_gib"))),
        ("Software", software(subject)),
        ("Operating system of the server", declarations.get("software.os", UNDECLARED)),
        ("SUT boundary", boundary(subject)),
        ("Deployment", declarations.get("sut.deployment", UNDECLARED)),
        ("Target", _targets(subject)),
        ("Client host", joined(environment, ("cpu", "machine", "kernel"))),
    ]


def _gib(value: str | None) -> str:
    return UNDECLARED if value is None else f"{value} GiB"


def joined(found: Mapping[str, Any], names: Iterable[str]) -> str:
    """The values of *names* that are present; n/a without any."""
    return ", ".join(str(found[name]) for name in names if found.get(name)) or NOT_KNOWN


def _targets(subject: Subject) -> str:
    if simulated(subject):
        return "SIMULATED ENGINE: fastllmload's own simulator, not a server"
    document = run_document(subject)
    urls = part(document, "target", "urls") or part(subject.document, "manifest", "urls") or ()
    return ", ".join(map(str, urls)) or NOT_KNOWN


def configuration_pairs(subject: Subject) -> Pairs:
    """Section 2: workload, load, execution parameters."""
    return [*_workload_pairs(subject), *_load_pairs(subject), *_measuring_pairs(subject)]


def _workload_pairs(subject: Subject) -> Iterator[tuple[str, str]]:
    document, declarations = run_document(subject), declared(subject)
    description = part(document, "plan", "description", "workload") or {}
    yield "Workload", workload(subject)
    for name, value in description.items():
        if name not in REPORTED_SEPARATELY and value not in (None, [], {}):
            yield f"Workload: {name}", readable(value)
    yield (
        "Tokenizer",
        _tokenizer(part(document, "plan", "counting", "tokenizer"), description.get("tokenizer"), declarations),
    )
    yield "Token counting", _counting(document, declarations)
    for key, label in (
        ("token_counting.bos_eos", "Special tokens"),
        ("token_counting.system_prompt", "System prompt tokens"),
        ("token_counting.tool_formatting", "Tool formatting tokens"),
        ("workload.domain", "Domain"),
        ("workload.language", "Language"),
    ):
        if key in declarations:
            yield label, declarations[key]


def readable(value: object) -> str:
    """Lists and tables of a plan's description in one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {readable(inner)}" for name, inner in value.items() if inner is not None)
    if isinstance(value, (list, tuple)):
        return "; ".join(map(readable, value))
    return f"{value:g}" if isinstance(value, float) else NOT_KNOWN if value is None else str(value)


def _tokenizer(used: object, planned: object, declarations: Mapping[str, str]) -> str:
    """The tokenizer that the run counted with; else the declared or planned one."""
    if isinstance(used, Mapping):
        return readable(used)
    parts = [declarations.get("tokenizer.name") or str(planned or NOT_KNOWN)]
    parts += [
        f"{name} {declarations[f'tokenizer.{name}']}"
        for name in ("vocabulary", "source")
        if f"tokenizer.{name}" in declarations
    ]
    return ", ".join(parts)


def _counting(document: Document, declarations: Mapping[str, str]) -> str:
    """The declared option, and the sources of output token counts."""
    sources = part(document, "counts", "output_tokens_source") or {}
    by_source = ", ".join(f"{count(n)} by {name}" for name, n in sources.items() if n and name != "none")
    option = declarations.get("token_counting.option") or part(document, "plan", "counting", "option") or UNDECLARED
    return f"option {option}; output tokens: {by_source or NOT_KNOWN}"


def _load_pairs(subject: Subject) -> Iterator[tuple[str, str]]:
    document = run_document(subject)
    load = part(document, "config", "load") or {}
    if subject.is_procedure:
        yield "Procedure", readable(subject.document.get("procedure"))
        for name, value in (subject.document.get("parameters") or {}).items():
            yield f"Parameter: {name}", readable(value)
    yield "Load model", load_model(document)
    yield "Duration", seconds(load.get("duration")) if load.get("duration") else "until all requests have ended"
    yield "Window", seconds(part(document, "window", "seconds"))
    yield "Requests planned", count(part(document, "counts", "planned"))
    yield "Seed", readable(part(document, "config", "client", "seed"))
    yield "Plan (SHA-256)", str(part(document, "plan", "digest") or NOT_KNOWN)
    yield "Schedule (SHA-256)", str(part(document, "plan", "schedule_hash") or NOT_KNOWN)
    yield "Warm-up", _warmup(document)
    yield "Request time-out", seconds(load.get("timeout"))


def seconds(value: object) -> str:
    found = number(value)
    return NOT_KNOWN if found is None else f"{found:g} s"


def _warmup(document: Document) -> str:
    phase = next((each for each in document.get("phases") or () if each.get("name") == "warmup"), None)
    if phase is None:
        return "none"
    return f"{count(phase.get('ok'))} of {count(phase.get('released'))} requests ok, then drained"


def _measuring_pairs(subject: Subject) -> Iterator[tuple[str, str]]:
    document, declarations = run_document(subject), declared(subject)
    certificate, single = document.get("certificate"), part(document, "metrics", "share_single")
    yield "Prefix cache", prefix_cache(subject)
    yield "Guardrails", guardrails(subject)
    yield "Protocol", _protocol(document)
    yield (
        "ITL option (IETF B.2.1)",
        f"{part(single, 'itl_option') or NOT_KNOWN}, reported as {part(single, 'pooled_as') or NOT_KNOWN}",
    )
    source = event_tokens_text(document)
    if source is not None:
        yield "Source of tokens per event", source
    yield "Clock", declarations.get("clock.method", "single client clock, CLOCK_MONOTONIC")
    yield "Timestamps", str(part(certificate, "timestamp_source") or NOT_KNOWN)
    rtt = part(document, "metrics", "rtt_ms") or {}
    yield (
        "Round trip to the target",
        f"P50 {quantity(rtt.get('p50'))} ms of {count(rtt.get('n'))} {rtt.get('method') or 'connects'}"
        if some(rtt.get("n"))
        else "not measured",
    )
    adjusted = part(document, "config", "output", "ttft_net_adjusted")
    yield "Adjustments", "TTFT less the median round trip, in addition to the unadjusted TTFT" if adjusted else "none"


def _protocol(document: Document) -> str:
    kind = part(document, "target", "endpoint_type") or part(document, "config", "target", "endpoint_type")
    protocols = dict.fromkeys(str(part(one, "endpoint_type")) for one in part(document, "target", "classes") or ())
    kind = ", ".join(protocols) or kind
    streamed = part(document, "plan", "description", "streaming")
    return f"{kind or NOT_KNOWN}, {'streaming' if streamed in (None, True) else 'not streaming'}"
