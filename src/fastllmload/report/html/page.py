"""report.html: a run as one self-contained page, light and dark, for screen and print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastllmload.documents.run import Compliance
from fastllmload.files import replace_with
from fastllmload.records.run import Run
from fastllmload.report.blocks import Block, Table
from fastllmload.report.documents import compliance, traffic
from fastllmload.report.documents.results import objective_table
from fastllmload.report.html.context import ReportContext
from fastllmload.report.html.html_document import html_document
from fastllmload.report.html.sections import client, latency, over_time, overview, requests, setup, telemetry
from fastllmload.report.render.html import Markup, element, folded, joined, render_block, render_table
from fastllmload.report.text.verdict import simulated, verdict

NAME = "report.html"


def write(run: Run, document: Mapping[str, Any]) -> None:
    """Write report.html into the run folder atomically; *document* is its run.json.

    OSError when the disk is full; RunFolderError for a damaged file of the run.
    """
    replace_with(run.directory / NAME, render(run, document))


def render(run: Run, document: Mapping[str, Any]) -> str:
    """The HTML text, also of a run that is incomplete: killed, without a successful request, without samples."""
    context = ReportContext(run, document)
    found = context.document
    objectives, judged = objective_table(found), found.compliance
    sections = {
        "verdict": ("Verdict", joined(overview.header(context), overview.tiles(context))),
        "latency": ("Latency", latency.section(context)),
        "objectives": ("Objectives", of_blocks("objectives", "Objectives", [objectives] if objectives else [])),
        "traffic": ("Traffic", of_blocks("traffic", "Traffic", list(traffic.blocks(found)))),
        "time": ("Over time", over_time.section(context)),
        "requests": ("Requests", requests.section(context)),
        "client": ("Client", client.section(context)),
        "telemetry": ("Telemetry", telemetry.section(context)),
        "methodology": ("Methodology", of_blocks("methodology", "Methodology", requirements(judged))),
        "setup": ("Setup", setup.section(context)),
    }
    which = "" if found.run_id is None else f"run {found.run_id}. "
    return html_document(
        overview.title(context),
        {key: (name, section) for key, (name, section) in sections.items() if section is not None},
        context.figures,
        tag=verdict(found).word,
        marks=overview.marks(context),
        foot=f"{which}All figures are in run.json in the same folder.",
        simulated=simulated(found),
    )


def requirements(found: Compliance | None) -> list[Block]:
    """Nothing where compliance was not evaluated."""
    return [] if found is None or found.verdict is None else list(compliance.verdict(found))


def of_blocks(key: str, title: str, blocks: list[Block]) -> Markup | None:
    """A section; None without blocks. Long lists are shown on demand."""
    if not blocks:
        return None
    return element("section", element("h2", title), *map(_block, blocks), id=key, class_="blocks-below")


def _block(block: Block) -> Markup:
    if isinstance(block, Table) and tuple(block.columns) == compliance.UNMET:
        untitled = Table("", block.columns, block.rows)
        return folded(block.title, render_table(untitled, "told"), len(block.rows), class_="on-paper")
    return render_block(block)
