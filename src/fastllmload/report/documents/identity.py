"""Describes the system and the test configuration as labelled texts (IETF C.1; C.2 sections 1, 2).

Sources are declarations and what the run observed. A declaration that differs from the observation is marked
`(declared)`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from fastllmload.documents.certificate import Certificate
from fastllmload.documents.fields import Number, known
from fastllmload.documents.metric import Metric
from fastllmload.documents.plan import ArrivalFacts, TokenizerFacts
from fastllmload.documents.procedure import stored_parameters
from fastllmload.documents.run import RunDocument
from fastllmload.documents.run_parts.target import EngineFacts
from fastllmload.documents.write import values
from fastllmload.report.blocks import Table
from fastllmload.report.documents.subject import Subject
from fastllmload.report.text.control import control_texts
from fastllmload.report.text.numbers import NOT_KNOWN, asked_rate, count, quantity, some
from fastllmload.report.text.tokens import event_tokens_text, has_tokens
from fastllmload.report.text.traffic import concurrent, protocols

UNDECLARED = "not declared"
BOUNDARIES = {"model_engine": "Model Engine", "application_gateway": "Gateway", "compound_system": "Compound"}
REPORTED_SEPARATELY = ("name", "tokenizer", "tokenizer_facts", "counting", "deviations")
Pairs = list[tuple[str, str]]


def declared(subject: Subject) -> dict[str, str]:
    """Declarations of a run or a procedure."""
    document = subject.document
    return document.declarations if isinstance(document, RunDocument) else document.manifest.declarations


def run_document(subject: Subject) -> RunDocument:
    """run.json of the run, or of the representative level of a procedure; one without figures where no level finished."""
    return subject.run_document or RunDocument()


def simulated(subject: Subject) -> bool:
    of_procedure = subject.procedure is not None and subject.procedure.manifest.simulated
    return of_procedure or bool(run_document(subject).target.simulated)


def model(subject: Subject) -> str:
    declarations = declared(subject)
    name = declarations.get("sut.model.name") or run_document(subject).target.model or UNDECLARED
    version = declarations.get("sut.model.version")
    return f"{name} {version}" if version and version != "none" else name


def hardware(subject: Subject) -> str:
    """`<GPU type> x <count>`."""
    declarations = declared(subject)
    kind = declarations.get("sut.hardware.accelerator")
    number = declarations.get("sut.hardware.count") or run_document(subject).config.output.gpus
    if simulated(subject) and kind is None:
        return "none (simulated) x 0"
    return f"{kind or UNDECLARED} x {number if number is not None else UNDECLARED}"


def software(subject: Subject) -> str:
    given = declared(subject).get("software.engine")
    engine = run_document(subject).environment.engine or EngineFacts()
    observed = " ".join(text for text in (engine.name, engine.version) if text)
    if given and observed and given.casefold() != observed.casefold():
        return f"{given} (declared; the server reports {observed})"
    return given or observed or UNDECLARED


def boundary(subject: Subject) -> str:
    value = declared(subject).get("sut.boundary")
    if value is None:
        return "Model Engine" if simulated(subject) else UNDECLARED
    return BOUNDARIES.get(value, value)


def workload(subject: Subject) -> str:
    if subject.run_document is None:
        return (subject.procedure and subject.procedure.manifest.workload) or NOT_KNOWN
    document = subject.run_document
    return document.plan.description.workload.name or document.config.workload.name


def load_model(document: RunDocument) -> str:
    """`open-loop 50/s (poisson)`, `closed-loop ramp:1,64 in flight`, of a mix `open-loop 50/s (classes) + 16 concurrent`."""
    load, asked = document.plan.description.load, document.config.load
    slots = load.concurrency or asked.concurrency
    if load.is_withheld:
        return f"{'open-loop' if slots is None else 'closed-loop'}, load withheld"
    waiting = "" if asked.max_prefill is None else f", at most {count(asked.max_prefill)} waiting for a first token"
    if slots is not None:
        most = "up to " if document.plan.description.slots_change else ""
        return f"closed-loop {most}{load.concurrency_changes or count(slots)} in flight{waiting}"
    arrivals = load.arrivals or ArrivalFacts()
    rate = arrivals.rate or asked.rate
    if rate is None:
        return NOT_KNOWN
    capped = "" if asked.max_concurrency is None else f", at most {count(asked.max_concurrency)} in flight"
    return f"open-loop {asked_rate(rate)} ({arrivals.name or asked.arrival}{capped}{waiting}){concurrent(document)}"


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
    declarations, environment = declared(subject), run_document(subject).environment
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
        ("Client host", joined((environment.cpu, environment.machine, environment.kernel))),
    ]


def _gib(value: str | None) -> str:
    return UNDECLARED if value is None else f"{value} GiB"


def joined(values: Iterable[object]) -> str:
    """Those of *values* that are known; n/a without any."""
    return ", ".join(str(value) for value in values if value) or NOT_KNOWN


def _targets(subject: Subject) -> str:
    if simulated(subject):
        return "SIMULATED ENGINE: fastllmload's own simulator, not a server"
    of_procedure = () if subject.procedure is None else subject.procedure.manifest.urls
    return ", ".join(run_document(subject).target.urls or of_procedure) or NOT_KNOWN


def command_line(found: object) -> str | None:
    """The arguments quoted for a shell; a string (`withheld`) unchanged; None where nothing was recorded."""
    if isinstance(found, (list, tuple)):
        return shlex.join(map(str, found)) or None
    return None if found is None else str(found)


def pairs(found: Pairs) -> Table:
    return Table("", ["Item", "Value"], found)


def configuration_pairs(subject: Subject) -> Pairs:
    """Section 2: workload, load, execution parameters."""
    return [*_workload_pairs(subject), *_load_pairs(subject), *_measuring_pairs(subject)]


def _workload_pairs(subject: Subject) -> Iterator[tuple[str, str]]:
    document, declarations = run_document(subject), declared(subject)
    yield "Workload", workload(subject)
    for name, value in values(document.plan.description.workload).items():
        if name not in REPORTED_SEPARATELY and value not in (None, [], {}):
            yield f"Workload: {name}", readable(value)
    yield "Tokenizer", _tokenizer(document, declarations)
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


def _tokenizer(document: RunDocument, declarations: Mapping[str, str]) -> str:
    """The tokenizer that the run counted with; else the declared or planned one."""
    used = document.plan.counting.tokenizer
    if used != TokenizerFacts():
        return readable(msgspec.to_builtins(used))
    parts = [declarations.get("tokenizer.name") or document.plan.description.workload.tokenizer or NOT_KNOWN]
    parts += [
        f"{name} {declarations[f'tokenizer.{name}']}"
        for name in ("vocabulary", "source")
        if f"tokenizer.{name}" in declarations
    ]
    return ", ".join(parts)


def _counting(document: RunDocument, declarations: Mapping[str, str]) -> str:
    """The declared option, and the sources of output token counts."""
    sources = document.counts.output_tokens_source
    by_source = ", ".join(f"{count(n)} by {name}" for name, n in sources.items() if n and name != "none")
    option = declarations.get("token_counting.option") or document.plan.counting.option or UNDECLARED
    of_output = f"; output tokens: {by_source or NOT_KNOWN}" if has_tokens(document) else ""
    return f"option {option}{of_output}"


def _load_pairs(subject: Subject) -> Iterator[tuple[str, str]]:
    document = run_document(subject)
    settings = None if subject.run_document is None else document.config
    if subject.procedure is not None:
        yield "Procedure", subject.procedure.procedure
        for name, value in stored_parameters(subject.json).items():
            yield f"Parameter: {name}", readable(value)
    yield "Load model", load_model(document)
    duration = document.config.load.duration
    yield "Duration", seconds(duration) if duration else "until all requests have ended"
    yield "Window", seconds(document.window.seconds)
    yield "Requests planned", count(document.counts.planned)
    yield "Seed", readable(settings and settings.client.seed)
    yield "Plan (SHA-256)", document.plan.digest or NOT_KNOWN
    yield "Schedule (SHA-256)", document.plan.schedule_hash or NOT_KNOWN
    yield "Warm-up", _warmup(document)
    for text in control_texts(document):
        yield "Control of servers", text
    yield "Request time-out", seconds(None if settings is None else settings.load.timeout)


def seconds(value: Number) -> str:
    found = known(value)
    return NOT_KNOWN if found is None else f"{found:g} s"


def _warmup(document: RunDocument) -> str:
    phase = document.phase("warmup")
    if phase is None:
        return "none"
    return f"{count(phase.ok)} of {count(phase.released)} requests ok, then drained"


def _measuring_pairs(subject: Subject) -> Iterator[tuple[str, str]]:
    document, declarations = run_document(subject), declared(subject)
    single, rtt = document.metric("share_single"), document.metric("rtt_ms")
    yield "Prefix cache", prefix_cache(subject)
    yield "Guardrails", guardrails(subject)
    yield "Protocol", _protocol(document)
    if has_tokens(document):
        yield (
            "ITL option (IETF B.2.1)",
            f"{single.itl_option or NOT_KNOWN}, reported as {single.pooled_as or NOT_KNOWN}",
        )
    source = event_tokens_text(document)
    if source is not None:
        yield "Source of tokens per event", source
    yield "Clock", declarations.get("clock.method") or _clock(document)
    yield "Timestamps", (document.certificate or Certificate()).timestamp_source or NOT_KNOWN
    yield (
        "Round trip to the target",
        f"P50 {quantity(rtt.p50)} ms of {count(rtt.n)} {rtt.method or 'connects'}" if some(rtt.n) else "not measured",
    )
    secured = document.metric("handshake_ms")
    if some(secured.made):
        yield "TLS handshakes", _handshakes(secured)
    shared = document.metric("streams_per_connection")
    if some(shared.n):
        yield "Connections of HTTP/2", _shared(shared)
    adjusted = document.config.output.ttft_net_adjusted
    yield "Adjustments", "TTFT less the median round trip, in addition to the unadjusted TTFT" if adjusted else "none"


def _handshakes(secured: Metric) -> str:
    waited = (
        f"; P50 {quantity(secured.p50)} ms of {count(secured.n)} that a request waited for" if some(secured.n) else ""
    )
    return (
        f"{count(secured.made)}, {count(secured.resumed)} of them continued a session; {quantity(secured.mean)} ms each, of "
        f"which {quantity(secured.cpu_ms)} ms of the client's processor{waited}"
    )


def _shared(shared: Metric) -> str:
    waited = (
        f"; {count(shared.window_waits)} waited for the server's flow control window"
        if some(shared.window_waits)
        else ""
    )
    return (
        f"{count(shared.connections)}, each with {quantity(shared.mean)} requests in flight when one was sent (P95 "
        f"{quantity(shared.p95)}, most {count(shared.max)}){waited}"
    )


def _clock(document: RunDocument) -> str:
    if not document.hosts:
        return "single client clock, CLOCK_MONOTONIC"
    bounds = [known(host.clock.bound_ns) for host in document.judged_hosts if host.clock is not None]
    within = max((bound for bound in bounds if bound is not None), default=None)
    error = NOT_KNOWN if within is None else f"{quantity(within / 1e3)} us"
    return f"CLOCK_MONOTONIC of each host; instants in that of the driver, error at most {error}"


def _protocol(document: RunDocument) -> str:
    streamed = document.plan.description.streaming is not False and has_tokens(document)
    version = document.target.http_version
    spoken = "" if version is None else f", HTTP/{version}"
    return f"{protocols(document) or NOT_KNOWN}, {'streaming' if streamed else 'not streaming'}{spoken}"
