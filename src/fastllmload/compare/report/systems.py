"""Renders a comparison of systems as lines for a terminal, as Markdown, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from fastllmload.compare.between import LEAST_RUNS
from fastllmload.compare.checklist import NO, NOT_DECLARED
from fastllmload.compare.comparison import Comparison, MeasuredFigure
from fastllmload.compare.report import json as two_sides
from fastllmload.compare.report.text import (
    aligned,
    change_text,
    differences_text,
    interval_text,
    manifest_table,
    p_text,
    side_text,
    table_of,
    test_text,
)
from fastllmload.compare.systems import Systems, middle
from fastllmload.documents.comparison import ChecklistEntry, SideFigure, SystemsDocument
from fastllmload.documents.write import plain
from fastllmload.report.text.numbers import NOT_KNOWN, quantity

NORMALISATION = "output tokens per second over the number of GPUs, and over the price per hour, as declared at each run"


def lines(found: Systems, width: int) -> list[str]:
    """For a terminal of *width* columns."""
    text: list[str] = [f"{'system' if k == 0 else '':<9}{side_text(side)}" for k, side in enumerate(found.sides)]
    text += [*differences_text(found.manifest, found.sides), "", "median over runs, and 95 % interval of the mean:", ""]
    text += [*aligned(system_cells(found)), ""]
    for pair in found.pairs:
        text += [
            f"{pair.new.name} against {pair.base.name} ({test_text(pair)}):",
            "",
            *aligned(pair_cells(pair)),
            "",
        ]
    text += ["checklist of a fair comparison (IETF 6.4)", *_checklist(found, width), ""]
    for line in _summary(found):
        text += wrap(line, width, subsequent_indent="      ")
    return text


def system_cells(found: Systems) -> list[list[str]]:
    table = [["figure", *(side.name for side in found.sides), "unit"]]
    for figure in found.figures:
        cells = [_system_value(each) for each in found.measured(figure)]
        table.append([figure.name, *cells, figure.unit])
    return table


def _system_value(measured: MeasuredFigure) -> str:
    value = middle(measured)
    if value is None:
        return NOT_KNOWN
    ends = measured.interval
    return quantity(value) if ends is None else f"{quantity(value)} ({quantity(ends[0])}..{quantity(ends[1])})"


def pair_cells(pair: Comparison) -> list[list[str]]:
    """The change with its interval, in percent, the test's p after Holm, effect size and result."""
    table = [["figure", "change", "95 % interval", "p Holm", "effect", "result"]]
    for row in pair.rows:
        effect = quantity(row.change.effect)
        table.append([row.figure.name, change_text(row), interval_text(row), p_text(row), effect, row.result])
    return table


def _checklist(found: Systems, width: int) -> Iterator[str]:
    for item in found.checklist:
        yield from wrap(f"{item.state:<13}{item.name}: {item.evidence}", width, subsequent_indent=" " * 13)


def _summary(found: Systems) -> Iterator[str]:
    if found.normalised:
        yield f"normalised: {', '.join(figure.name for figure in found.normalised)}: {NORMALISATION}"
    elif found.same_hardware:
        yield "normalised: none; the declared hardware is the same"
    open_items = [item.name for item in found.checklist if item.state in (NO, NOT_DECLARED)]
    if open_items:
        yield f"open before publication: {', '.join(open_items)}"
    yield from (f"note: {note}" for note in found.notes)
    claims = found.claims()
    yield from (f"claim: {claim}" for claim in claims)
    if not claims:
        yield f"claim: none. {why_none(found)}"


def why_none(found: Systems) -> str:
    """Why no claim is made: too few runs, or no significant test."""
    if min(side.independent for side in found.sides) < LEAST_RUNS and len(found.sides) == 2:
        return "There are too few independent runs for any"
    return "No figure differs with p < 0.05 after Holm and an interval without 0"


def markdown(found: Systems) -> str:
    """Everything that a published comparison must contain."""
    names = [side.name for side in found.sides]
    body = [f"## {' against '.join(names)}", "", *(f"- {side_text(side)}" for side in found.sides), ""]
    body += ["Median over runs, and 95 % interval of the mean.", "", *table_of(system_cells(found)), ""]
    for pair in found.pairs:
        body += [
            f"### {pair.new.name} against {pair.base.name}",
            "",
            f"Test: {test_text(pair)}.",
            "",
            *table_of(pair_cells(pair)),
            "",
        ]
    body += ["### Checklist (IETF 6.4)", "", *table_of([["item", "state", "evidence"], *_items(found)]), ""]
    body += [f"- {line}" for line in _summary(found)]
    if found.manifest:
        body += ["", "### Differences in configuration", "", *manifest_table(found.manifest, names)]
    return "\n".join(body) + "\n"


def _items(found: Systems) -> list[list[str]]:
    return [[item.name, item.state, item.evidence] for item in found.checklist]


def document(found: Systems) -> dict[str, Any]:
    """What `--json` writes."""
    return plain(
        SystemsDocument(
            schema_version=two_sides.SCHEMA_VERSION,
            systems=tuple(two_sides.side_document(side, _figures(found, k)) for k, side in enumerate(found.sides)),
            pairs=tuple(two_sides.comparison_document(pair, []) for pair in found.pairs),
            checklist=tuple(
                ChecklistEntry(name=item.name, state=item.state, evidence=item.evidence) for item in found.checklist
            ),
            normalised=tuple(figure.name for figure in found.normalised),
            normalisation_method=NORMALISATION if found.normalised else None,
            same_hardware=found.same_hardware,
            setup_differences=two_sides.differences_document(found.manifest),
            claims=tuple(found.claims()),
            notes=tuple(found.notes),
        )
    )


def _figures(found: Systems, k: int) -> dict[str, SideFigure]:
    every = {figure.name: found.measured(figure)[k] for figure in found.figures}
    return {name: two_sides.measured_document(each, middle(each)) for name, each in every.items()}
