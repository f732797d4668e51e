"""report.html: a run as one page."""

from __future__ import annotations

from fastllmload.documents.run_parts.compliance import Compliance
from fastllmload.report.blocks import Block, Folded, Page, Section, Table
from fastllmload.report.documents import compliance, traffic
from fastllmload.report.documents.results import objective_table
from fastllmload.report.run_page import client, latency, over_time, overview, requests, setup, telemetry
from fastllmload.report.run_page.context import ReportContext
from fastllmload.report.text.verdict import BANNER, simulated, verdict


def page(context: ReportContext) -> Page:
    found = context.document
    objectives = objective_table(found)
    optional = (
        Section("Objectives", [objectives] if objectives else [], "objectives"),
        Section("Traffic", list(traffic.blocks(found)), "traffic"),
    )
    sections = [
        overview.section(context),
        latency.section(context),
        *(section for section in optional if section.blocks),
        over_time.section(context),
        *requests.sections(context),
        client.section(context),
        *telemetry.sections(context),
        *requirements(found.compliance),
        setup.section(context),
    ]
    which = "" if found.run_id is None else f"run {found.run_id}. "
    return Page(
        overview.title(context),
        sections,
        verdict(found).word,
        marks=overview.marks(context),
        banner=BANNER if simulated(found) else None,
        foot=f"{which}All figures are in run.json in the same folder.",
    )


def requirements(found: Compliance | None) -> list[Section]:
    """Nothing where compliance was not evaluated. Unmet requirements are shown on demand."""
    if found is None or found.verdict is None:
        return []
    return [Section("Methodology", [_folded(block) for block in compliance.verdict(found)], "methodology")]


def _folded(block: Block) -> Block:
    if isinstance(block, Table) and tuple(block.columns) == compliance.UNMET:
        return Folded(block.title, [Table("", block.columns, block.rows)], printed=True)
    return block
