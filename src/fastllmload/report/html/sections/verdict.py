"""Renders the verdict card at the top of a page: a word, its meaning, and its reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fastllmload.report.html.html_document import tone_of
from fastllmload.report.html.markup import Markup, element, visible

ICONS = {
    "valid": "M5 12.5l4.5 4.5L19 7.5",
    "suspect": "M12 6v7.5M12 17.4v.1",
    "invalid": "M7 7l10 10M17 7L7 17",
    "note": "M12 10.5v7M12 6.6v.1",
}


TAGS = {"failures": "invalid", "incident": "suspect", "unsteady": "suspect"}


class VerdictReason(NamedTuple):
    """*severity*: invalid, suspect, or another word for a note. *todo*: a remedy."""

    severity: str
    text: str
    todo: str = ""


def verdict_card(
    word: str,
    meaning: str,
    reasons: Sequence[VerdictReason] = (),
    *,
    over: str = "Verdict",
    tone: str = "note",
    heading: str = "p",
    extra: Markup | None = None,
    below: Markup | None = None,
) -> Markup:
    """*over* is above the word, which is a *heading* element; *extra* follows the meaning, *below* the reasons, which keep
    their order.
    """
    mark = element(
        "svg",
        element("circle", cx=12, cy=12, r=11),
        element("path", d=ICONS[tone]),
        class_="mark",
        viewBox="0 0 24 24",
        aria_hidden="true",
    )
    named = element("div", element("p", over, class_="over"), element(heading, visible(word, 60).upper(), class_="big"))
    listed = element("ul", *(_item(reason) for reason in reasons), class_="reasons") if reasons else None
    sentence = element("p", visible(meaning, 600), class_="meaning") if meaning != "" else None
    return element(
        "div", element("div", mark, named, class_="word"), sentence, extra, listed, below, class_=f"card verdict {tone}"
    )


def _item(reason: VerdictReason) -> Markup:
    label = element(
        "b", visible(reason.severity, 20), class_=f"tag {TAGS.get(reason.severity) or tone_of(reason.severity)}"
    )
    todo = element("span", visible(reason.todo, 600), class_="todo") if reason.todo != "" else None
    return element("li", label, element("span", visible(reason.text, 900), " " if todo else None, todo))
