"""Assembles report.html of one run from its sections."""

from __future__ import annotations

from fastllmload.report.html.context import ReportContext
from fastllmload.report.html.html_document import html_document
from fastllmload.report.html.markup import joined
from fastllmload.report.html.sections import (
    client,
    compliance,
    latency,
    over_time,
    overview,
    requests,
    setup,
    telemetry,
    traffic,
)
from fastllmload.report.terminal.summary import simulated

NAMES = {
    "verdict": "Verdict",
    "latency": "Latency",
    "objectives": "Objectives",
    "traffic": "Traffic",
    "time": "Over time",
    "requests": "Requests",
    "client": "Client",
    "telemetry": "Telemetry",
    "methodology": "Methodology",
    "setup": "Setup",
}


def page(context: ReportContext) -> str:
    """The complete document."""
    found = {
        "verdict": joined(overview.header(context), overview.tiles(context)),
        "latency": latency.section(context),
        "objectives": setup.objectives(context),
        "traffic": traffic.section(context),
        "time": over_time.section(context),
        "requests": requests.section(context),
        "client": client.section(context),
        "telemetry": telemetry.section(context),
        "methodology": compliance.section(context),
        "setup": setup.section(context),
    }
    run_id = context.document.run_id
    which = "" if run_id is None else f"run {run_id}. "
    return html_document(
        overview.title(context),
        {key: (NAMES[key], section) for key, section in found.items() if section is not None},
        context.figures,
        tag=overview.verdict(context),
        marks=overview.marks(context),
        foot=f"{which}All figures are in run.json in the same folder.",
        simulated=simulated(context.document),
    )
