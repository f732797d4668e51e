"""report.md: a run as one page that can be pasted into a pull request, verdict first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastllmload.documents.run import RunDocument
from fastllmload.files import replace_with
from fastllmload.metrics.run.cold_start import declared_cold
from fastllmload.records.run import DONE, Run
from fastllmload.report.blocks import Block, Callout, Folded, Heading, Items, Paragraph, Strong, Table
from fastllmload.report.documents import full, identity, results
from fastllmload.report.documents.reproduction import reproduction
from fastllmload.report.documents.subject import Subject
from fastllmload.report.render import markdown
from fastllmload.report.text.deviations import SIMULATED
from fastllmload.report.text.numbers import NOT_KNOWN, count, milliseconds, percent, quantity
from fastllmload.report.text.remedies import codes

NAME = "report.md"
MEANING = {
    "valid": "the client was not the limit: these numbers describe the target",
    "suspect": "the client may have affected these numbers",
    "invalid": "the client was the limit: these numbers do not describe the target",
}


def write(run: Run, document: Mapping[str, Any]) -> None:
    """Write report.md into the run folder."""
    subject = Subject(run.directory, document)
    replace_with(run.directory / NAME, render(subject))


def render(subject: Subject) -> str:
    return markdown.render(blocks(subject))


def blocks(subject: Subject) -> Iterator[Block]:
    if subject.is_procedure:
        yield from full.blocks(subject)
        return
    document = identity.run_document(subject)
    yield Heading(title(document, subject), 1)
    if identity.simulated(subject):
        yield Callout(Strong(f"{SIMULATED}."))
    yield from full.redaction(subject)
    yield from verdict(document)
    yield Table("", ["Run", " "], overview(document, subject))
    yield Heading("Latency")
    yield results.latency_table(document)
    intervals = results.interval_table(document)
    if intervals is not None:
        yield intervals
    for heading, table in sections(document):
        if table is not None:
            yield Heading(heading)
            yield table
    yield from listed("Traffic", results.traffic_lines(document))
    yield from listed("Incidents", document.incidents)
    system, configuration = (identity.system_pairs(subject), identity.configuration_pairs(subject))
    yield Folded("Setup", [identity.pairs(system), identity.pairs(configuration), *reproduction(subject)])


def title(document: RunDocument, subject: Subject) -> str:
    verdict = (document.certificate and document.certificate.verdict) or "not judged"
    return f"{identity.model(subject)}, {identity.load_model(document)}: {verdict.upper()}"


def verdict(document: RunDocument) -> Iterator[Block]:
    if declared_cold(document.declarations):
        first = milliseconds(document.metric("cold_start_latency"), "value")
        took = "" if first is None else f" The first request had its first token after {quantity(first)} ms."
        text = f": the target had just become ready and had received no earlier request.{took}"
        yield Callout((Strong("COLD START"), text))
    status = document.status
    if status != DONE:
        incomplete = Strong(f"INCOMPLETE ({status or 'no status'})")
        yield Callout((incomplete, ": what was measured before the run ended."))
    found = (document.certificate and document.certificate.verdict) or "not judged"
    meaning = MEANING.get(found, "nothing is known about the client")
    if "nothing_measured" in codes(document):
        meaning = "no request succeeded, so nothing was measured"
    yield Paragraph((Strong(found), f": {meaning}."))
    yield from results.reasons(document)
    yield from full.doubts(document)


def overview(document: RunDocument, subject: Subject) -> list[list[str]]:
    rate = percent(document.metric("success_rate").value)
    rows = [
        ["Target", ", ".join(document.target.urls) or NOT_KNOWN],
        ["Load", f"{identity.load_model(document)}; window {quantity(document.window.seconds)} s"],
        ["Workload", identity.workload(subject)],
        ["Requests", f"{count(document.completed)} ok, {count(document.failed)} failed; success rate in the window {rate}"],
        ["Throughput", f"{quantity(document.output_throughput)} output tok/s, "
                       f"{quantity(document.request_throughput)} requests/s completed"],
    ]  # fmt: skip
    compliance = document.compliance and document.compliance.verdict
    return [*rows, ["Methodology", compliance]] if compliance else rows


def sections(document: RunDocument) -> Iterator[tuple[str, Table | None]]:
    yield "Objectives", results.objective_table(document)
    yield "Failures", results.failure_table(document)
    yield "Failures by URL", results.target_table(document)
    yield "Error messages of the server", results.error_text_table(document)
    yield "Request classes", results.class_table(document)
    yield "Throughput", results.throughput_table(document)
    yield "Client", results.client_table(document)


def listed(heading: str, texts: Sequence[str]) -> Iterator[Block]:
    """A heading and its items; nothing without items."""
    if texts:
        yield Heading(heading)
        yield Items(texts)
