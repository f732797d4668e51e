"""report.html of one run, put together of its sections."""

from __future__ import annotations

from fastllmload.report.html import client, compliance, latency, overtime, overview, requests, setup, telemetry, traffic
from fastllmload.report.html.markup import joined
from fastllmload.report.html.scene import Scene
from fastllmload.report.html.shell import shell
from fastllmload.report.summary import simulated

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


def page(scene: Scene) -> str:
    """The whole document."""
    found = {
        "verdict": joined(overview.header(scene), overview.tiles(scene)),
        "latency": latency.section(scene),
        "objectives": setup.objectives(scene),
        "traffic": traffic.section(scene),
        "time": overtime.section(scene),
        "requests": requests.section(scene),
        "client": client.section(scene),
        "telemetry": telemetry.section(scene),
        "methodology": compliance.section(scene),
        "setup": setup.section(scene),
    }
    run_id = scene.get("run_id")
    which = "" if run_id is None else f"run {run_id}. "
    return shell(
        overview.title(scene),
        {key: (NAMES[key], section) for key, section in found.items() if section is not None},
        scene.figures,
        tag=overview.verdict(scene),
        marks=overview.marks(scene),
        foot=f"{which}All figures are in run.json beside this file.",
        simulated=simulated(scene.document),
    )
