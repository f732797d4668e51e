"""Renders report.md: a run as one page of Markdown that can be pasted into a pull request, verdict first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastllmload.documents.run import RunDocument
from fastllmload.files import replace_with
from fastllmload.metrics.run.cold_start import declared_cold
from fastllmload.records.run import DONE, Run
from fastllmload.report.documents import full, identity, results
from fastllmload.report.documents.reproduction import reproduction
from fastllmload.report.documents.subject import Subject
from fastllmload.report.text.deviations import SIMULATED
from fastllmload.report.text.doubts import doubt_texts
from fastllmload.report.text.numbers import NOT_KNOWN, count, milliseconds, percent, quantity, redaction_notice
from fastllmload.report.text.remedies import codes, reason_lines
from fastllmload.report.text.tables import Table, escaped, markdown

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
    """The complete page."""
    return "\n".join(lines(subject)) + "\n"


def lines(subject: Subject) -> Iterator[str]:
    if subject.is_procedure:
        yield from full.lines(subject)
        return
    document = identity.run_document(subject)
    yield f"# {title(document, subject)}"
    if identity.simulated(subject):
        yield from ("", f"> **{SIMULATED}.**")
    redaction = redaction_notice(document.withheld)
    if redaction is not None:
        yield from ("", f"{escaped(redaction[0].upper() + redaction[1:])}.")
    yield from verdict_lines(document)
    yield from markdown(Table("", ["Run", " "], overview(document, subject)))
    yield from ("", "## Latency")
    yield from markdown(results.latency_table(document))
    intervals = results.interval_table(document)
    if intervals is not None:
        yield from markdown(intervals)
    for heading, table in sections(document):
        if table is not None:
            yield from ("", f"## {heading}")
            yield from markdown(table)
    yield from listed("Traffic", results.traffic_lines(document))
    yield from listed("Incidents", document.incidents)
    yield from folded("Setup", setup(subject))


def title(document: RunDocument, subject: Subject) -> str:
    verdict = (document.certificate and document.certificate.verdict) or "not judged"
    return f"{escaped(identity.model(subject))}, {escaped(identity.load_model(document))}: {verdict.upper()}"


def verdict_lines(document: RunDocument) -> Iterator[str]:
    if declared_cold(document.declarations):
        first = milliseconds(document.metric("cold_start_latency"), "value")
        took = "" if first is None else f" The first request had its first token after {quantity(first)} ms."
        yield from (
            "",
            f"> **COLD START**: the target had just become ready and had received no earlier request.{took}",
        )
    status = document.status
    if status != DONE:
        yield from ("", f"> **INCOMPLETE ({escaped(status or 'no status')})**: what was measured before the run ended.")
    verdict = (document.certificate and document.certificate.verdict) or "not judged"
    meaning = MEANING.get(verdict, "nothing is known about the client")
    if "nothing_measured" in codes(document):
        meaning = "no request succeeded, so nothing was measured"
    yield from ("", f"**{escaped(verdict)}**: {meaning}.")
    yield from reason_lines(document)
    unsteady = doubt_texts(document)
    if unsteady:
        yield from ("", *(f"* **{escaped(text)}**" for text in unsteady))


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


def listed(heading: str, texts: Sequence[str]) -> Iterator[str]:
    """A heading and its items; nothing without items."""
    if texts:
        yield from ("", f"## {heading}", "")
        yield from (f"* {escaped(text)}" for text in texts)


def folded(summary: str, body: Iterator[str]) -> Iterator[str]:
    """A collapsed part of the page."""
    yield from ("", "<details>", f"<summary>{summary}</summary>")
    yield from body
    yield from ("", "</details>")


def setup(subject: Subject) -> Iterator[str]:
    yield from markdown(Table("", ["Item", "Value"], identity.system_pairs(subject)))
    yield from markdown(Table("", ["Item", "Value"], identity.configuration_pairs(subject)))
    yield from reproduction(subject)
