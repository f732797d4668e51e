"""Blocks shared by the reports of procedures, repeated tests, searches and sweeps; their files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from fastllmload.documents.experiment import ExperimentDocument, FindingPlot, FindingTable
from fastllmload.experiment.report.findings import format_cell
from fastllmload.files import replace_with
from fastllmload.report.blocks import Block, Code, Facts, Items, Page, Paragraph, Section, Table, Text
from fastllmload.report.charts import Axis, Chart, Rule, Series, floats
from fastllmload.report.documents.identity import command_line
from fastllmload.report.html import page as html
from fastllmload.report.render import markdown
from fastllmload.report.render import text as as_text
from fastllmload.report.series.curves import cdf

NOT_DONE = {
    "running": "INCOMPLETE (killed)",
    "interrupted": "INCOMPLETE (interrupted)",
    "failed": "INCOMPLETE (cut short)",
}
SCALES: dict[bool | None, Literal["", "log", "linear"]] = {None: "", True: "log", False: "linear"}


def with_state(title: str, document: ExperimentDocument) -> str:
    """*title* with the document's state: cold start, incomplete, quick."""
    cold = "COLD START" if document.cold_start is not None else ""
    quick = "QUICK (does not conform)" if document.quick else ""
    state = ", ".join(text for text in (cold, NOT_DONE.get(document.status, ""), quick) if text)
    return f"{title}: {state}" if state else title


def facts(document: ExperimentDocument) -> dict[str, Text]:
    """Start time, command and target, for the head of a report."""
    typed, command = isinstance(document.command, tuple), command_line(document.command) or "not recorded"
    return {
        "Started": document.started_utc,
        "Command": (Code(command),) if typed else command,
        "Target": ", ".join(document.manifest.urls) or "the simulated engine",
    }


def table_of(found: FindingTable, title: str | None = None) -> Table:
    cells = [[format_cell(cell, name) for cell, name in zip(row, found.columns, strict=False)] for row in found.rows]
    return Table(found.title if title is None else title, found.columns, cells, found.notes)


def chart_of(plot: FindingPlot) -> Chart:
    if plot.kind == "cdf":
        return cdf(plot.title, {one.name: floats(one.y) for one in plot.series}, plot.y[1], plot.note, plot.y[0])
    style: Literal["points", "curve"] = "points" if plot.kind == "scatter" else "curve"
    series = [Series(one.name, floats(one.y), one.x, style=one.style or style) for one in plot.series]
    x, y = (Axis(label, unit, SCALES[log]) for label, unit, log in (plot.x, plot.y))
    marks = [Rule(mark.axis, mark.at, mark.label) for mark in plot.marks]
    return Chart(plot.title, series, replace(x, names=plot.names), y, plot.note, marks)


def remarks(document: ExperimentDocument) -> list[Section]:
    """Warnings and deviations, of which there are any."""
    kinds = (("Warnings", document.warnings), ("Deviations from the methodology", document.deviations))
    return [Section(title, [Items(texts)]) for title, texts in kinds if texts]


def terminal_lines(
    title: str, blocks: Iterable[Block], document: ExperimentDocument, *more: tuple[str, str]
) -> Iterator[str]:
    """A report for a terminal: *blocks*, then warnings, deviations and *more* with their labels."""
    labelled = [
        *(("warning", text) for text in document.warnings), *(("deviation", text) for text in document.deviations), *more
    ]  # fmt: skip
    yield ""
    yield from as_text.lines([Paragraph(title), *blocks, Facts(labelled)])


def write_files(folder: Path, name: str, page: Page) -> tuple[str, str]:
    """Write *page* into *folder* as NAME.md and NAME.html, each completely or not at all. Their names."""
    texts = {f"{name}.md": markdown.render_page(page), f"{name}.html": html.render(page)}
    for file, text in texts.items():
        replace_with(folder / file, text)
    return f"{name}.md", f"{name}.html"
