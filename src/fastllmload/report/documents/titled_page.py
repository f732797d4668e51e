"""The page of a comparison or an experiment: title, verdict and what was run above its sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastllmload.report.blocks import Block, Card, Columns, Facts, Heading, Page, Paragraph, Section, Text, Verdict
from fastllmload.report.text.verdict import BANNER


def titled_page(
    title: str,
    sections: Sequence[Section],
    facts: Mapping[str, Text],
    *,
    lead: str = "",
    verdict: Verdict | None = None,
    simulated: bool = False,
) -> Page:
    """*facts*: what was run, name to text. *simulated*: adds a banner."""
    run = Card("What was run", [Facts(list(facts.items()))])
    head: list[Block] = [Heading(title, 1), *([Paragraph(lead)] if lead else [])]
    top = Section("", [*head, run if verdict is None else Columns([verdict, run])], "top")
    where = f"{BANNER[0]} · " if simulated else ""
    word, tone = ("", "") if verdict is None else (verdict.word, verdict.tone)
    shown = f"{where}{title[:120]} · fastllmload"
    return Page(shown, [top, *sections], word, tone, banner=BANNER if simulated else None)
