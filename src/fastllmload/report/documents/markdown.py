"""report.md: a run as one page that can be pasted into a pull request, verdict first."""

from __future__ import annotations

from collections.abc import Iterator

from fastllmload.documents.run import RunDocument
from fastllmload.report.blocks import Block, Folded, Heading, Items, Table
from fastllmload.report.documents import cluster, full, identity, results, traffic
from fastllmload.report.documents.hosts import host_table
from fastllmload.report.documents.subject import Subject
from fastllmload.report.text.control import control_texts
from fastllmload.report.text.numbers import NOT_KNOWN, count, percent, quantity
from fastllmload.report.text.tokens import has_tokens
from fastllmload.report.text.verdict import verdict


def blocks(subject: Subject) -> Iterator[Block]:
    if subject.is_procedure:
        yield from full.blocks(subject)
        return
    document = identity.run_document(subject)
    yield Heading(title(document, subject), 1)
    yield from full.callouts(subject)
    yield verdict(document)
    yield from full.doubts(document)
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
    several = list(traffic.blocks(document))
    if several:
        yield from (Heading("Traffic"), *several)
    system_wide = list(cluster.blocks(document))
    if system_wide:
        yield from (Heading("System"), *system_wide)
    controlled = control_texts(document)
    if controlled:
        yield from (Heading("Control of servers"), Items(controlled))
    if document.incidents:
        yield from (Heading("Incidents"), Items(document.incidents))
    system, configuration = (identity.system_pairs(subject), identity.configuration_pairs(subject))
    yield Folded("Setup", [identity.pairs(system), identity.pairs(configuration), *full.reproduction(subject)])


def title(document: RunDocument, subject: Subject) -> str:
    return f"{identity.model(subject)}, {identity.load_model(document)}: {verdict(document).word.upper()}"


def overview(document: RunDocument, subject: Subject) -> list[list[str]]:
    rate = percent(document.metric("success_rate").value)
    rows = [
        ["Target", ", ".join(document.target.urls) or NOT_KNOWN],
        ["Load", f"{identity.load_model(document)}; window {quantity(document.window.seconds)} s"],
        ["Workload", identity.workload(subject)],
        ["Requests", f"{count(document.completed)} ok, {count(document.failed)} failed; success rate in the window {rate}"],
        ["Throughput", (f"{quantity(document.output_throughput)} output tok/s, " if has_tokens(document) else "")
                       + f"{quantity(document.request_throughput)} requests/s completed"],
    ]  # fmt: skip
    compliance = document.compliance and document.compliance.verdict
    return [*rows, ["Methodology", compliance]] if compliance else rows


def sections(document: RunDocument) -> Iterator[tuple[str, Table | None]]:
    yield "Objectives", results.objective_table(document)
    yield "Failures", results.failure_table(document)
    yield "Failures by URL", results.target_table(document)
    yield "Error messages of the server", results.error_text_table(document)
    yield "Throughput", results.throughput_table(document)
    yield "Client", results.client_table(document)
    yield "Hosts", host_table(document)
