"""The page put together: one file, nothing fetched, no script but its own."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files

from fastllmload import __version__
from fastllmload.report.html import client, latency, overtime, overview, requests, setup, telemetry
from fastllmload.report.html.figure import Figures
from fastllmload.report.html.markup import Markup, element, joined
from fastllmload.report.html.scene import Scene

NAMES = {
    "verdict": "Verdict",
    "latency": "Latency",
    "objectives": "Objectives",
    "time": "Over time",
    "requests": "Requests",
    "client": "Client",
    "telemetry": "Telemetry",
    "setup": "Setup",
}


def page(scene: Scene) -> str:
    """The whole document."""
    sections = {
        "verdict": joined(overview.header(scene), overview.tiles(scene)),
        "latency": latency.section(scene),
        "objectives": setup.objectives(scene),
        "time": overtime.section(scene),
        "requests": requests.section(scene),
        "client": client.section(scene),
        "telemetry": telemetry.section(scene),
        "setup": setup.section(scene),
    }
    there = {name: section for name, section in sections.items() if section is not None}
    script = asset("page.js")
    body = element(
        "body",
        overview.banner(scene),
        _bar(scene, list(there)),
        element("main", *there.values()),
        overview.banner(scene),
        _foot(scene),
        element("div", id="tip", role="status", hidden=""),
        element("script", numbers(scene.figures), type="application/json", id="numbers"),
        element("script", Markup(script)),
    )
    html = element("html", _head(scene, script), body, lang="en")
    return f"<!doctype html>\n{html}\n"


def asset(name: str) -> str:
    """Text of a file of this package."""
    return files("fastllmload.report.html").joinpath("assets", name).read_text(encoding="utf-8")


def _head(scene: Scene, script: str) -> Markup:
    """The policy lets nothing be fetched and no other script run, whatever stands in the page."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content=f"fastllmload {__version__}"),
        element("title", overview.title(scene)),
        element("style", Markup(asset("page.css"))),
    )


def numbers(figures: Figures) -> Markup:
    """JSON for the script; `<` is escaped so that no text in it can end the element."""
    found = {"charts": figures.charts, "columns": figures.columns}
    text = json.dumps(found, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _bar(scene: Scene, there: list[str]) -> Markup:
    links = [element("a", NAMES[name], href=f"#{name}") for name in there]
    logo = element("svg", element("path", d="M2 15L6 9l4 3 4-8 4 5"), class_="logo", viewBox="0 0 20 18", aria_hidden="true")
    found = overview.verdict(scene)
    tag = element("span", found, class_=f"tag {found if found in overview.WORDS else 'note'}")
    theme = element("button", "Theme: auto", type="button", id="theme", title="light, dark, or as the system says")
    return element("header", element("b", logo, "fastllmload", class_="name"), tag, element("nav", *links), theme, class_="bar")


def _foot(scene: Scene) -> Markup:
    run_id = scene.get("run_id")
    text = f"fastllmload {__version__}" + ("" if run_id is None else f", run {run_id}")
    return element("footer", text, ". All figures are in run.json beside this file.")
