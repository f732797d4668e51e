"""Renders the frame of every HTML page: head, bar, banner, foot, script. One file that loads nothing and runs no other
script.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files

from fastllmload import __version__
from fastllmload.report.blocks import tone_of
from fastllmload.report.html.charts.figure import Figures
from fastllmload.report.render.html import Markup, element
from fastllmload.report.text.verdict import SIMULATED

NOT_A_SERVER = (
    "The target was fastllmload's own simulator, not a server. These figures do not describe any model server."
)


def html_document(
    title: str,
    sections: Mapping[str, tuple[str, Markup]],
    figures: Figures,
    *,
    tag: str = "",
    tone: str = "",
    marks: Sequence[str] = (),
    foot: str = "",
    simulated: bool = False,
) -> str:
    """A complete document.

    *sections*: name in the bar (empty: not listed) and markup of each section by id. *figures*: their charts. *tag*: a
    verdict next to the product name, in the colour of *tone*; *marks* follow it; *foot* is at the end of the page.
    """
    script = asset("page.js")
    banner = _banner() if simulated else None
    body = element(
        "body",
        banner,
        _bar({key: name for key, (name, _) in sections.items() if name != ""}, tag, tone or tone_of(tag), marks),
        element("main", *(section for _, section in sections.values())),
        banner,
        element("footer", f"fastllmload {__version__}", f", {foot}" if foot != "" else "."),
        element("div", id="tip", role="status", hidden=""),
        element("script", _numbers(figures), type="application/json", id="numbers"),
        element("script", Markup(script)),
    )
    html = element("html", _head(title, script), body, lang="en")
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


def _numbers(figures: Figures) -> Markup:
    """JSON for the script; `<` is escaped so that no text can end the element."""
    found = {"charts": figures.charts, "columns": figures.columns}
    text = json.dumps(found, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _banner() -> Markup:
    """The warning at the top and bottom of the page of a simulated engine."""
    return element(
        "div", element("strong", SIMULATED.mark), element("span", NOT_A_SERVER), class_="banner", role="note"
    )


def _bar(links: Mapping[str, str], tag: str, tone: str, marks: Sequence[str]) -> Markup:
    line = element("path", d="M2 15L6 9l4 3 4-8 4 5")
    logo = element("svg", line, class_="logo", viewBox="0 0 20 18", aria_hidden="true")
    return element(
        "header",
        element("b", logo, "fastllmload", class_="name"),
        element("span", tag, class_=f"tag {tone}") if tag != "" else None,
        *(element("strong", mark, class_="tag invalid") for mark in marks),
        element("nav", *(element("a", name, href=f"#{key}") for key, name in links.items())),
        element("button", "Theme: auto", type="button", id="theme", title="light, dark, or the system setting"),
        class_="bar",
    )
