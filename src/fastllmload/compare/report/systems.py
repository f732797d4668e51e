"""A comparison of systems as blocks, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from fastllmload.compare.between import LEAST_RUNS
from fastllmload.compare.checklist import NO, NOT_DECLARED
from fastllmload.compare.report.blocks import (
    change_cells,
    differences_in_brief,
    setup_table,
    side_text,
    test_text,
    value_text,
)
from fastllmload.compare.systems import NORMALISATION, Systems, middle
from fastllmload.report.blocks import Block, Facts, Heading, Items, Paragraph, Table

PAIR = ["figure", "change", "95 % interval", "p Holm", "effect", "result"]


def for_terminal(found: Systems) -> Iterator[Block]:
    sides, *rest = blocks(found)
    yield from (sides, *differences_in_brief(found.manifest), *rest)


def for_markdown(found: Systems) -> Iterator[Block]:
    """Everything that a published comparison must contain."""
    names = [side.name for side in found.sides]
    yield Heading(" against ".join(names))
    yield from blocks(found)
    if found.manifest:
        yield Heading("Differences in configuration", 3)
        yield setup_table(found.manifest, names)


def blocks(found: Systems) -> Iterator[Block]:
    yield Items([side_text(side) for side in found.sides])
    yield Paragraph("Median over runs, and 95 % interval of the mean:")
    yield Table(
        "",
        ["figure", *(side.name for side in found.sides), "unit"],
        [
            [
                figure.name,
                *(value_text(middle(each), each.ci95, each.at_least) for each in found.measured(figure)),
                figure.unit,
            ]
            for figure in found.figures
        ],
    )
    for pair in found.pairs:
        yield Heading(f"{pair.new.name} against {pair.base.name} ({test_text(pair)})", 3)
        yield Table("", PAIR, [[row.figure.name, *change_cells(row, True)] for row in pair.rows])
    yield Heading("Checklist (IETF 6.4)", 3)
    yield Facts([(str(item.name), f"{item.state}: {item.evidence}") for item in found.checklist])
    yield Heading("Notes and claims", 3)
    yield Items(list(summary(found)))


def summary(found: Systems) -> Iterator[str]:
    if found.normalised:
        yield f"normalised: {', '.join(figure.name for figure in found.normalised)}: {NORMALISATION}"
    elif found.same_hardware:
        yield "normalised: none; the declared hardware is the same"
    open_items = [str(item.name) for item in found.checklist if item.state in (NO, NOT_DECLARED)]
    if open_items:
        yield f"open before publication: {', '.join(open_items)}"
    yield from (f"note: {note}" for note in found.notes)
    claims = found.claims()
    yield from (f"claim: {claim}" for claim in claims)
    if not claims:
        few = min(side.independent for side in found.sides) < LEAST_RUNS and len(found.sides) == 2
        none = "No figure differs with p < 0.05 after Holm and an interval without 0"
        yield f"claim: none. {'There are too few independent runs for any' if few else none}"
