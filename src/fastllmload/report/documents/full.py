"""The full report (IETF C.2): six sections."""

from __future__ import annotations

from collections.abc import Iterator

from fastllmload.documents.fields import known
from fastllmload.documents.run import RunDocument
from fastllmload.documents.run_parts.telemetry import ServerFigure
from fastllmload.report.blocks import Block, Callout, Code, Heading, Items, Paragraph, Strong, Table
from fastllmload.report.documents import cluster, identity, results
from fastllmload.report.documents.compliance import section as compliance
from fastllmload.report.documents.hosts import host_table, interface_table
from fastllmload.report.documents.subject import Subject
from fastllmload.report.text.deviations import headlines
from fastllmload.report.text.doubts import doubt_texts
from fastllmload.report.text.numbers import NOT_KNOWN, quantity, unknown
from fastllmload.report.text.verdict import verdict

ALL = ("mean", "std", "min", "p50", "p75", "p90", "p95", "p99", "p999", "max")
SECTIONS = (
    "System Identification",
    "Test Configuration",
    "Results",
    "Detailed Results",
    "Methodology Compliance",
    "Reproduction Information",
)


def blocks(subject: Subject) -> Iterator[Block]:
    yield Heading(title(subject), 1)
    yield from callouts(subject)
    bodies = (system, configuration, outcome, details, compliance, reproduction)
    for number_, (heading, body) in enumerate(zip(SECTIONS, bodies, strict=True), 1):
        yield Heading(f"{number_}. {heading}")
        yield from body(subject)


def title(subject: Subject) -> str:
    if subject.procedure is not None:
        return f"LLM Benchmark Report (Full): {subject.procedure.title or subject.procedure.procedure}"
    what = f"{identity.model(subject)}, {identity.load_model(identity.run_document(subject))}"
    return f"LLM Benchmark Report (Full): {what}"


def callouts(subject: Subject) -> Iterator[Block]:
    for headline in headlines(subject):
        yield Callout((Strong(headline.mark), f": {headline.text}."))


def system(subject: Subject) -> Iterator[Block]:
    yield identity.pairs(identity.system_pairs(subject))


def configuration(subject: Subject) -> Iterator[Block]:
    yield identity.pairs(identity.configuration_pairs(subject))
    declared = identity.declared(subject)
    if declared:
        yield Table("Declarations", ["Key", "Declared"], sorted(declared.items()))


def outcome(subject: Subject) -> Iterator[Block]:
    """Latency summary, throughput summary, success metrics, health of the generator."""
    document = subject.run_document
    if document is None:
        yield Paragraph("No level finished: nothing was measured.")
        return
    if subject.is_procedure and subject.level is not None:
        folder, of_test = subject.level.folder, "Figures of the representative level of the test"
        where = Code(f"{folder.parent.name}/{folder.name}")
        yield Paragraph(f"{of_test}." if subject.redacted else (f"{of_test} (", where, ")."))
    yield from doubts(document)
    yield results.latency_table(document, title="Latency summary")
    yield results.throughput_table(document, "Throughput summary")
    yield results.success_table(document, "Success metrics")
    failures = results.failure_table(document, "Failures")
    by_url = results.target_table(document, "Failures by URL")
    messages = results.error_text_table(document, "Error messages of the server")
    yield from (table for table in (failures, by_url, messages) if table is not None)
    yield results.client_table(document, "Generator health")
    network = (host_table(document, "Hosts"), interface_table(document, "Network interfaces"))
    yield from (table for table in network if table is not None)
    yield verdict(document)


def doubts(document: RunDocument) -> Iterator[Block]:
    """Reasons to doubt the figures; nothing without any."""
    found = doubt_texts(document)
    if found:
        yield Items([Strong(text) for text in found])


def details(subject: Subject) -> Iterator[Block]:
    """Tables of the test, then all figures of the run."""
    document, procedure = subject.run_document, subject.procedure
    if procedure is not None:
        yield from map(Paragraph, procedure.sentences)
        yield from (Table(each.title or each.id, each.columns, each.rows, each.notes) for each in procedure.tables)
    if document is None:
        return
    yield results.latency_table(document, statistics=ALL, title="All latencies")
    tables = (
        results.interval_table(document),
        results.objective_table(document, "Objectives"),
        results.class_table(document, "Request classes"),
        user_table(document),
        server_table(document),
    )
    yield from (table for table in tables if table is not None)
    yield from cluster.blocks(document)
    plots = "procedure.html; each level's folder has" if subject.is_procedure else "report.html; the run folder has"
    yield Paragraph(f"Plots are in {plots} histograms by second in latency.hlog.")


def reproduction(subject: Subject) -> Iterator[Block]:
    """Everything needed to reproduce the test."""
    document, tool = identity.run_document(subject), subject.document.tool
    environment, started = document.environment, "" if subject.procedure is None else subject.procedure.started_utc
    versions = [f"{name} {version}" for name, version in environment.libraries.items() if version]
    yield identity.pairs(
        [
            ("Tool", f"{tool.name or 'fastllmload'} {tool.version or NOT_KNOWN}"),
            ("Command", identity.command_line(subject.document.command) or "not recorded"),
            ("Started", environment.time_utc or started or NOT_KNOWN),
            ("Folder", subject.shown_folder),
            ("Plan (SHA-256)", document.plan.digest or NOT_KNOWN),
            ("Raw records", "requests.npy, tokens.npy; fastllmload export writes them as JSONL, CSV or Parquet"),
            ("Configuration", "config of run.json; its declarations are the manifest"),
            ("Client", identity.joined((environment.cpu, environment.cores, environment.kernel))),
            ("Python", ", ".join([environment.python or NOT_KNOWN, *versions])),
        ]
    )


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


def user_table(document: RunDocument) -> Table:
    """User-side figures, each with the parameters that it depends on."""
    rows = []
    for name, (label, parameters) in USER.items():
        found = document.metric(name)
        p99 = quantity(found.p99) if known(found.p99) is not None else "-"
        values = {key: getattr(found, key) for key in parameters}
        given = ", ".join(
            f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in values.items()
            if value is not None
        )
        rows.append([label, quantity(found.figure), p99, given or "-"])
    return Table("User experience", ["Figure", "Value or mean", "P99", "With"], rows)


def server_table(document: RunDocument) -> Table | None:
    """The server's own figures with their source; a figure without one was not measured."""
    if document.server is None:
        return None
    rows = [
        [name, _measured(each), results.text_or_dash(each.unit), results.text_or_dash(each.source)]
        for name, each in document.server.items()
        if each is not None
    ]
    return Table("Server figures", ["Figure", "Value", "Unit", "Source"], rows)


def _measured(each: ServerFigure) -> str:
    if known(each.value) is None:
        return "not measured" if each.source == "not measured" and each.value is None else unknown(each.value)
    return quantity(each.value)
