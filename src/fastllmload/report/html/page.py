"""Renders a page as HTML: one file that loads nothing and runs only its own script, light and dark, for screen and print.

All text is escaped, so it may be external; redact secrets before (`redact.Redactor`). Nothing is computed here.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files

from fastllmload import __version__
from fastllmload.report.blocks import Page, tone_of
from fastllmload.report.html.charts.figure import ChartNumbers
from fastllmload.report.html.markup import Markup, element, visible
from fastllmload.report.html.render import sections


def render(page: Page) -> str:
    """The complete document. ValueError for a series of a chart whose columns are uneven."""
    script, figures = asset("page.js"), ChartNumbers()
    found = sections(page.sections, figures)
    links = [(key, each.link or each.title) for key, each in zip(found, page.sections, strict=True)]
    banner = None if page.banner is None else _banner(*page.banner)
    body = element(
        "body",
        banner,
        _bar(page, [(key, visible(name, 40)) for key, name in links if name != ""]),
        element("main", *found.values()),
        banner,
        element("footer", f"fastllmload {__version__}", f", {page.foot}" if page.foot != "" else "."),
        element("div", id="tip", role="status", hidden=""),
        element("script", _numbers(figures), type="application/json", id="numbers"),
        element("script", Markup(script)),
    )
    html = element("html", _head(page.title, script), body, lang="en")
    return f"<!doctype html>\n{html}\n"


def asset(name: str) -> str:
    """Text of a file of this package."""
    return files("fastllmload.report.html").joinpath("assets", name).read_text(encoding="utf-8")


def _head(title: str, script: str) -> Markup:
    """The content policy blocks all requests and all other scripts, whatever the page contains."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    ours = f"style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    policy = f"default-src 'none'; {ours}; base-uri 'none'; form-action 'none'"
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content=f"fastllmload {__version__}"),
        element("title", title),
        element("style", Markup(asset("page.css"))),
    )


def _numbers(figures: ChartNumbers) -> Markup:
    """JSON for the script; `<` is escaped so that no text can end the element."""
    found = {"charts": figures.charts, "columns": figures.columns}
    text = json.dumps(found, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _banner(mark: str, sentence: str) -> Markup:
    return element("div", element("strong", mark), element("span", sentence), class_="banner", role="note")


def _bar(page: Page, links: Sequence[tuple[str, str]]) -> Markup:
    line = element("path", d="M2 15L6 9l4 3 4-8 4 5")
    logo = element("svg", line, class_="logo", viewBox="0 0 20 18", aria_hidden="true")
    tag = element("span", visible(page.tag, 30), class_=f"tag {page.tone or tone_of(page.tag)}") if page.tag else None
    return element(
        "header",
        element("b", logo, "fastllmload", class_="name"),
        tag,
        *(element("strong", mark, class_="tag invalid") for mark in page.marks),
        element("nav", *(element("a", name, href=f"#{key}") for key, name in links)),
        element("button", "Theme: auto", type="button", id="theme", title="light, dark, or the system setting"),
        class_="bar",
    )
