"""procedure.html: the content of procedure.md, and plots."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from fastllmload.documents.experiment import FindingPlot, FindingTable
from fastllmload.documents.procedure import ProcedureDocument
from fastllmload.documents.redaction import HIDDEN
from fastllmload.experiment.incomplete import level_table, with_final_remarks
from fastllmload.experiment.report.parts import facts, notice, remarks, write_files
from fastllmload.experiment.report.text import MARKDOWN, PAGE, headline, markdown, verdict_lines
from fastllmload.report.html.page_layout import (
    Forest,
    PageHead,
    PageSection,
    Plot,
    PlotAxis,
    PlotSeries,
    Rule,
    Table,
    page_layout,
)

TONES = {"unconditionally compliant": "valid", "conditionally compliant": "suspect", "not compliant": "invalid"}


def write(folder: Path, document: ProcedureDocument) -> None:
    """Write procedure.md and procedure.html."""
    write_files(folder, {MARKDOWN: markdown(document), PAGE: page(document)})


def page(document: ProcedureDocument) -> str:
    """The HTML text."""
    document = with_final_remarks(document)
    redacted = notice(document)
    results: list[Table | Plot | Forest | str] = [*document.sentences, *map(table_of, document.tables)]
    sections = [
        PageSection("Results", [*([] if redacted is None else [f"{redacted[0].upper()}{redacted[1:]}."]), *results])
    ]
    if document.plots:
        sections.append(PageSection("Plots", [plot_of(plot) for plot in document.plots]))
    sections += [PageSection(title, texts) for title, texts in remarks(document)]
    if redacted is None:
        levels = msgspec.structs.replace(level_table(document), title="Levels in the order measured")
        sections.append(PageSection("Levels", [table_of(levels)]))
    declared = document.manifest.declarations
    if declared:
        sections.append(PageSection("Declarations", [Table("", ["Name", "Declared"], list(declared.items()))]))
    return page_layout(head_of(document), sections)


def head_of(document: ProcedureDocument) -> PageHead:
    compliance, manifest = document.compliance, document.manifest
    verdict = "" if compliance is None else str(compliance.verdict)
    levels = str(len(document.levels)) if notice(document) is None else HIDDEN
    more = {"Workload": str(manifest.workload), "Levels": levels}
    return PageHead(
        headline(document),
        verdict=verdict,
        meaning="; ".join(verdict_lines(compliance)) if verdict else "",
        tone=TONES.get(verdict, ""),
        facts={**facts(document), **more},
        simulated=manifest.simulated,
    )


def table_of(table: FindingTable) -> Table:
    return Table(table.title, table.columns, table.rows, table.notes)


def plot_of(plot: FindingPlot) -> Plot:
    return Plot(
        plot.kind,
        plot.title,
        [
            PlotSeries(one.name, y=[math.nan if y is None else y for y in one.y], x=one.x, style=one.style)
            for one in plot.series
        ],
        x=PlotAxis(*plot.x),
        y=PlotAxis(*plot.y),
        names=plot.names,
        marks=[Rule(mark.axis, mark.at, mark.label) for mark in plot.marks],
        note=plot.note,
    )
