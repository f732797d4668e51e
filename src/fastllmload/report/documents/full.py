"""Renders the full report (IETF C.2) as Markdown: six sections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastllmload.report.documents import identity, results
from fastllmload.report.documents.compliance import section as compliance
from fastllmload.report.documents.reproduction import pairs, reproduction
from fastllmload.report.documents.subject import Subject
from fastllmload.report.redaction.document import notice
from fastllmload.report.text.deviations import headlines
from fastllmload.report.text.doubts import doubt_texts
from fastllmload.report.text.numbers import NOT_KNOWN, WITHHELD, number, quantity
from fastllmload.report.text.remedies import reason_lines
from fastllmload.report.text.tables import Table, escaped, from_mapping, markdown

ALL = ("mean", "std", "min", "p50", "p75", "p90", "p95", "p99", "p999", "max")
SECTIONS = (
    "System Identification",
    "Test Configuration",
    "Results",
    "Detailed Results",
    "Methodology Compliance",
    "Reproduction Information",
)


def render(subject: Subject) -> str:
    """The complete report."""
    return "\n".join(lines(subject)) + "\n"


def lines(subject: Subject) -> Iterator[str]:
    yield f"# {title(subject)}"
    for headline in headlines(subject):
        yield from ("", f"**{headline}.**")
    redaction = notice(subject.document)
    if redaction is not None:
        yield from ("", f"{escaped(redaction[0].upper() + redaction[1:])}.")
    bodies = (system, configuration, outcome, details, compliance, reproduction)
    for number_, (heading, body) in enumerate(zip(SECTIONS, bodies, strict=True), 1):
        yield from ("", f"## {number_}. {heading}")
        yield from body(subject)


def title(subject: Subject) -> str:
    if subject.is_procedure:
        name = subject.document.get("title") or subject.document.get("procedure")
        return f"LLM Benchmark Report (Full): {escaped(name)}"
    what = f"{identity.model(subject)}, {identity.load_model(subject.document)}"
    return f"LLM Benchmark Report (Full): {escaped(what)}"


def system(subject: Subject) -> Iterator[str]:
    yield from pairs(identity.system_pairs(subject))


def configuration(subject: Subject) -> Iterator[str]:
    yield from pairs(identity.configuration_pairs(subject))
    declared = identity.declared(subject)
    if declared:
        yield from markdown(Table("Declarations", ["Key", "Declared"], sorted(declared.items())))


def outcome(subject: Subject) -> Iterator[str]:
    """Latency summary, throughput summary, success metrics, health of the generator."""
    document = identity.run_document(subject)
    if not document:
        yield from ("", "No level finished: nothing was measured.")
        return
    if subject.is_procedure and subject.level is not None:
        where = "" if subject.redacted else f" (`{subject.level.folder.parent.name}/{subject.level.folder.name}`)"
        yield from ("", f"Figures of the representative level of the test{where}.")
    unsteady = doubt_texts(document)
    if unsteady:
        yield from ("", *(f"* **{escaped(each)}**" for each in unsteady))
    yield from markdown(results.latency_table(document, title="Latency summary"))
    yield from markdown(results.throughput_table(document, "Throughput summary"))
    yield from markdown(results.success_table(document, "Success metrics"))
    failures = results.failure_table(document, "Failures")
    by_url = results.target_table(document, "Failures by URL")
    messages = results.error_text_table(document, "Error messages of the server")
    yield from (line for table in (failures, by_url, messages) if table is not None for line in markdown(table))
    yield from markdown(results.client_table(document, "Generator health"))
    yield from reason_lines(document)


def details(subject: Subject) -> Iterator[str]:
    """Tables of the test, then all figures of the run."""
    document = identity.run_document(subject)
    for sentence in subject.document.get("sentences") or () if subject.is_procedure else ():
        yield from ("", escaped(sentence))
    for table in subject.document.get("tables") or () if subject.is_procedure else ():
        yield from markdown(from_mapping(table))
    if not document:
        return
    yield from markdown(results.latency_table(document, statistics=ALL, title="All latencies"))
    tables = (
        results.interval_table(document),
        results.objective_table(document, "Objectives"),
        results.class_table(document, "Request classes"),
        user_table(document),
        server_table(document),
    )
    for table in tables:
        if table is not None:
            yield from markdown(table)
    plots = "procedure.html; each level's folder has" if subject.is_procedure else "report.html; the run folder has"
    yield from ("", f"Plots are in {plots} histograms by second in latency.hlog.")


USER = {
    "fluidity_index": ("Fluidity index", ("d_p_ms", "d_d_ms")),
    "fluid_share": ("Share of fluid requests", ("fluidity_index_at_least",)),
    "fluid_token_rate_stream": ("Fluid token rate per stream (tok/s)", ("miss_rate_at_most",)),
    "deadline_miss_rate": ("Deadline miss rate", ("d_p_ms", "d_d_ms")),
    "idle_latency": ("User idle latency (ms)", ("speed_tok_s", "d1_ms")),
    "smooth_goodput_sg_default": ("Smooth goodput, preset sg-default (tok/s)", ("alpha", "speed_tok_s", "f")),
    "smooth_goodput_sg_fig6": ("Smooth goodput, preset sg-fig6 (tok/s)", ("alpha", "speed_tok_s", "f")),
    "gen_tok_s": ("Generation rate per request (tok/s)", ()),
    "tail_ratio": ("ITL P99/P50", ()),
    "modality": ("ITL modes", ("label",)),
    "tail_index": ("ITL tail index", ("label",)),
    "cache_hit_rate": ("Prefix cache hit rate", ()),
}


def user_table(document: Mapping[str, Any]) -> Table:
    """User-side figures, each with the parameters that it depends on."""
    rows = []
    for name, (label, parameters) in USER.items():
        found = results.metric(document, name)
        value = found.get("value") if "value" in found else found.get("mean")
        p99 = quantity(found.get("p99")) if number(found.get("p99")) is not None else "-"
        given = ", ".join(f"{key} {found[key]:g}" if isinstance(found[key], float) else f"{key} {found[key]}"
                          for key in parameters if found.get(key) is not None)  # fmt: skip
        rows.append([label, quantity(value), p99, given or "-"])
    return Table("User experience", ["Figure", "Value or mean", "P99", "With"], rows)


def server_table(document: Mapping[str, Any]) -> Table | None:
    """The server's own figures with their source; a figure without one was not measured."""
    server = document.get("server")
    if not isinstance(server, Mapping):
        return None
    rows = [
        [name, _measured(each), *(results.text_or_dash(each.get(key)) for key in ("unit", "source"))]
        for name, each in server.items()
        if each
    ]
    return Table("Server figures", ["Figure", "Value", "Unit", "Source"], rows)


def _measured(each: Mapping[str, Any]) -> str:
    value = each.get("value")
    if number(value) is None and value != WITHHELD:
        return "not measured" if each.get("source") == "not measured" else NOT_KNOWN
    return quantity(value)
