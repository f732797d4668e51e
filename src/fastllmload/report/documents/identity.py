"""What was tested and how, as labelled texts: declarations, and what the run saw itself (IETF C.1; C.2 sections 1, 2).

A declaration is not proof: what only the tester says is marked `(declared)` where it stands beside what was seen.
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
SAID_ELSEWHERE = ("name", "tokenizer", "tokenizer_facts", "counting", "deviations")
Document = Mapping[str, Any]
Pairs = list[tuple[str, str]]


def declared(subject: Subject) -> dict[str, str]:
    """Declarations of a run or a procedure."""
    document = subject.document
    found = part(document, "manifest", "declarations") if subject.is_procedure else document.get("declarations")
    there = found.items() if isinstance(found, Mapping) else ()
    return {str(name): str(value) for name, value in there if value is not None}


def run_document(subject: Subject) -> Document:
    """run.json of the run, or of a procedure's best level; empty without one."""
    level = subject.level
    return {} if level is None else level.document


def simulated(subject: Subject) -> bool:
    return bool(part(subject.document, "manifest", "simulated") or part(run_document(subject), "target", "simulated"))


def model(subject: Subject) -> str:
    said = declared(subject)
    seen = part(run_document(subject), "target", "model")
    name = said.get("sut.model.name") or (str(seen) if seen else UNDECLARED)
    version = said.get("sut.model.version")
    return f"{name} {version}" if version and version != "none" else name


def hardware(subject: Subject) -> str:
    """`<GPU type> x <count>`."""
    said = declared(subject)
    kind = said.get("sut.hardware.accelerator")
    number = said.get("sut.hardware.count") or part(run_document(subject), "config", "output", "gpus")
    if simulated(subject) and kind is None:
        return "none (simulated) x 0"
    return f"{kind or UNDECLARED} x {number if number is not None else UNDECLARED}"


def software(subject: Subject) -> str:
    said = declared(subject).get("software.engine")
    engine = part(run_document(subject), "environment", "engine") or {}
    seen = " ".join(str(engine[name]) for name in ("name", "version") if engine.get(name))
    if said and seen and said.casefold() != seen.casefold():
        return f"{said} (declared; the server says {seen})"
    return said or seen or UNDECLARED


def boundary(subject: Subject) -> str:
    said = declared(subject).get("sut.boundary")
    if said is None:
        return "Model Engine" if simulated(subject) else UNDECLARED
    return BOUNDARIES.get(said, said)


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
    said = declared(subject)
    filters = [said.get(f"guardrails.{name}_filter") for name in ("input", "output")]
    if not any(filters):
        return "no guardrails (simulated engine)" if simulated(subject) else UNDECLARED
    texts = [f"{name} filter {value or UNDECLARED}" for name, value in zip(("input", "output"), filters, strict=True)]
    named = said.get("guardrails.names")
    return ", ".join([*texts, *([named] if named else [])])


def prefix_cache(subject: Subject) -> str:
    said = declared(subject)
    found = [said[name] for name in ("prefix_cache.enabled", "prefix_cache.state") if name in said]
    return ", ".join(found) if found else UNDECLARED


def system_pairs(subject: Subject) -> Pairs:
    """Section 1: what was tested."""
    said, environment = declared(subject), part(run_document(subject), "environment") or {}
    return [
        ("Model", model(subject)),
        ("Quantization", said.get("sut.model.quantization", UNDECLARED)),
        ("Model format", said.get("sut.model.format", UNDECLARED)),
        ("Hardware", hardware(subject)),
        ("Memory per accelerator", _gib(said.get("sut.hardware.memory_gib"))),
        ("Software", software(subject)),
        ("Operating system of the server", said.get("software.os", UNDECLARED)),
        ("SUT boundary", boundary(subject)),
        ("Deployment", said.get("sut.deployment", UNDECLARED)),
        ("Target", _targets(subject)),
        ("Client host", joined(environment, ("cpu", "machine", "kernel"))),
    ]


def _gib(said: str | None) -> str:
    return UNDECLARED if said is None else f"{said} GiB"


def joined(found: Mapping[str, Any], names: Iterable[str]) -> str:
    """The values of *names* that are there; n/a without any."""
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
    document, said = run_document(subject), declared(subject)
    description = part(document, "plan", "description", "workload") or {}
    yield "Workload", workload(subject)
    for name, value in description.items():
        if name not in SAID_ELSEWHERE and value not in (None, [], {}):
            yield f"Workload: {name}", readable(value)
    yield "Tokenizer", _tokenizer(part(document, "plan", "counting", "tokenizer"), description.get("tokenizer"), said)
    yield "Token counting", _counting(document, said)
    for key, label in (
        ("token_counting.bos_eos", "Special tokens"),
        ("token_counting.system_prompt", "System prompt tokens"),
        ("token_counting.tool_formatting", "Tool formatting tokens"),
        ("workload.domain", "Domain"),
        ("workload.language", "Language"),
    ):
        if key in said:
            yield label, said[key]


def readable(value: object) -> str:
    """Lists and tables of a plan's description in one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {readable(inner)}" for name, inner in value.items() if inner is not None)
    if isinstance(value, (list, tuple)):
        return "; ".join(map(readable, value))
    return f"{value:g}" if isinstance(value, float) else NOT_KNOWN if value is None else str(value)


def _tokenizer(seen: object, planned: object, said: Mapping[str, str]) -> str:
    """What the run counted with; else what was planned, or is declared."""
    if isinstance(seen, Mapping):
        return readable(seen)
    parts = [said.get("tokenizer.name") or str(planned or NOT_KNOWN)]
    parts += [f"{name} {said[f'tokenizer.{name}']}" for name in ("vocabulary", "source") if f"tokenizer.{name}" in said]
    return ", ".join(parts)


def _counting(document: Document, said: Mapping[str, str]) -> str:
    """Declared option, and where the counts of output tokens came from."""
    sources = part(document, "counts", "output_tokens_source") or {}
    seen = ", ".join(f"{count(n)} by {name}" for name, n in sources.items() if n and name != "none")
    option = said.get("token_counting.option") or part(document, "plan", "counting", "option") or UNDECLARED
    return f"option {option}; output tokens: {seen or NOT_KNOWN}"


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
    document, said = run_document(subject), declared(subject)
    certificate, single = document.get("certificate"), part(document, "metrics", "share_single")
    yield "Prefix cache", prefix_cache(subject)
    yield "Guardrails", guardrails(subject)
    yield "Protocol", _protocol(document)
    yield (
        "ITL option (IETF B.2.1)",
        f"{part(single, 'itl_option') or NOT_KNOWN}, reported as {part(single, 'pooled_as') or NOT_KNOWN}",
    )
    told = event_tokens_text(document)
    if told is not None:
        yield "Tokens of an event known by", told
    yield "Clock", said.get("clock.method", "single client clock, CLOCK_MONOTONIC")
    yield "Time stamps", str(part(certificate, "timestamp_source") or NOT_KNOWN)
    rtt = part(document, "metrics", "rtt_ms") or {}
    yield (
        "Round trip to the target",
        f"P50 {quantity(rtt.get('p50'))} ms of {count(rtt.get('n'))} {rtt.get('method') or 'connects'}"
        if some(rtt.get("n"))
        else "not measured",
    )
    adjusted = part(document, "config", "output", "ttft_net_adjusted")
    yield "Adjustments", "TTFT less the median round trip, beside the unadjusted" if adjusted else "none"


def _protocol(document: Document) -> str:
    kind = part(document, "target", "endpoint_type") or part(document, "config", "target", "endpoint_type")
    spoken = dict.fromkeys(str(part(one, "endpoint_type")) for one in part(document, "target", "classes") or ())
    kind = ", ".join(spoken) or kind
    streamed = part(document, "plan", "description", "streaming")
    return f"{kind or NOT_KNOWN}, {'streaming' if streamed in (None, True) else 'not streaming'}"
