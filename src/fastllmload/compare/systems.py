"""Compares two or more systems by the draft's rules (IETF 6, spec/procedures 3): equal set-ups, three runs each, no claim
without a significant test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from fastllmload.compare.between import LEAST_RUNS
from fastllmload.compare.checklist import BOUNDARY, checklist, hardware, stated, unequal_systems
from fastllmload.compare.comparison import Comparison, Row, compare, measured, with_holm
from fastllmload.compare.figure import ComparedFigure, figure_of
from fastllmload.compare.side import Side, manifest_diff
from fastllmload.documents.comparison import ChecklistEntry, SideFigure
from fastllmload.documents.fields import known
from fastllmload.documents.run import RunDocument
from fastllmload.errors import InputError

NORMALISATION = "output tokens per second over the number of GPUs, and over the price per hour, as declared at each run"
NORMALISED = {"tok_per_gpu_s": "gpus", "tok_s_per_dollar_hour": "price_per_hour"}  # figure: what it is divided by


@dataclass(frozen=True)
class Systems:
    """*pairs*: in the order of the sides, with p adjusted over all. *normalised*: figures per GPU and per price."""

    sides: list[Side]
    figures: list[ComparedFigure]
    pairs: list[Comparison]
    normalised: list[ComparedFigure]
    same_hardware: bool
    checklist: list[ChecklistEntry]
    manifest: dict[str, tuple[str, ...]]
    notes: list[str]

    def measured(self, figure: ComparedFigure) -> list[SideFigure]:
        return [measured(figure, side) for side in self.sides]

    def claims(self) -> list[str]:
        """A sentence per significant difference; none for systems with fewer than 3 independent runs."""
        return [
            claim(row, pair)
            for pair in self.pairs
            if min(pair.base.independent, pair.new.independent) >= LEAST_RUNS
            for row in pair.rows
            if row.change.shown
        ]


def compare_systems(
    sides: list[Side], names: Sequence[str] = (), test: str = "auto", different_workload: bool = False
) -> Systems:
    """Compare the systems. InputError lists all inequalities of the set-ups where the draft says MUST."""
    foreign = next((side for side in sides if side.foreign is not None), None)
    if foreign is not None and foreign.foreign is not None:
        raise InputError(
            "methods-differ",
            f"{foreign.name} is a result file of {foreign.foreign.tool}, which does not say how it was measured, as a "
            "comparison of systems needs (IETF 6.1); compare two sides",
        )
    unequal = [] if different_workload else unequal_systems(sides)
    unequal += unequal_boundary(sides)
    same_hardware = len({hardware(side) for side in sides}) == 1
    normalised = normalised_figures(sides)
    if not same_hardware and not normalised:
        unequal.append(
            "hardware: it differs and no figure is normalised; measure every system with --gpus or --price-per-hour"
        )
    if unequal:
        listed = "".join(f"\n  {line}" for line in unequal)
        raise InputError(
            "methods-differ",
            f"these systems were not measured in the same way (IETF 6.1), so they cannot be compared:{listed}",
        )
    chosen = list(names) + [figure.name for figure in normalised if figure.name not in names] if names else []
    pairs = [compare(a, b, chosen, test, different_workload, [figure.name for figure in normalised])
             for a, b in combinations(sides, 2)]  # fmt: skip
    pairs = together(pairs)
    return Systems(
        sides, [row.figure for row in pairs[0].rows], pairs, normalised, same_hardware, list(checklist(sides)),
        manifest_diff(sides), notes_of(sides, pairs),
    )  # fmt: skip


def unequal_boundary(sides: list[Side]) -> list[str]:
    """A sentence where the declared boundaries differ. The checklist covers the case that none is declared."""
    declared = {side.name: stated(side, BOUNDARY) for side in sides}
    if len(set(declared.values())) < 2:
        return []
    missing = [name for name, value in declared.items() if value is None]
    text = f"{BOUNDARY}: " + ", ".join(f"{value or 'not declared'} for {name}" for name, value in declared.items())
    return [f"{text}; measure {', '.join(missing)} with --declare {BOUNDARY}=..." if missing else text]


def normalised_figures(sides: list[Side]) -> list[ComparedFigure]:
    """Normalised figures that every run has, except those with the same divisor everywhere, which add nothing."""
    documents = [document for side in sides for document in side.documents]
    unlike = [name for name, by in NORMALISED.items() if len({divisor(each, by) for each in documents}) > 1]
    figures = [figure_of(name, documents[0]) for name in unlike if name in (documents[0].metrics or {})]
    return [figure for figure in figures if all(figure.value(document) is not None for document in documents)]


def divisor(document: RunDocument, name: str) -> float | None:
    return known(getattr(document.config.output, name))


def together(pairs: list[Comparison]) -> list[Comparison]:
    """The pairs with p adjusted by Holm's method over the figures of all pairs."""
    rows = with_holm([row for pair in pairs for row in pair.rows])
    found, taken = [], 0
    for pair in pairs:
        found.append(
            Comparison(pair.base, pair.new, pair.test, rows[taken : taken + len(pair.rows)], pair.workload,
                       pair.manifest, pair.notes)
        )  # fmt: skip
        taken += len(pair.rows)
    return found


def notes_of(sides: list[Side], pairs: list[Comparison]) -> list[str]:
    notes = list(dict.fromkeys(note for pair in pairs for note in pair.notes)) + token_notes(sides)
    few = [f"{side.name} has {side.independent}" for side in sides if side.independent < LEAST_RUNS]
    if few:
        notes.append(
            f"no claim is made: IETF 6.3 asks for {LEAST_RUNS} independent runs of each system; {', '.join(few)}"
        )
    return notes


def token_notes(sides: list[Side]) -> list[str]:
    """A note where each system counts tokens with its own tokenizer, so that they have no common unit."""
    documents = [document for side in sides for document in side.documents]
    models = {document.target.model for document in documents}
    options = {document.config.workload.counting for document in documents}
    if options == {"B"} or len(models) == 1:
        return []
    return [
        "tokens are counted by each system itself (option A): figures per token have a different unit in each system"
    ]


def middle(found: SideFigure) -> float | None:
    """Median over runs (spec/procedures 3.4)."""
    known = [value for value in found.runs if value is not None]
    return median(known) if known and len(known) == len(found.runs) else None


def claim(row: Row, pair: Comparison) -> str:
    """One sentence with the figures and the test that support it."""
    better, worse = (pair.new, pair.base) if row.result == "better" else (pair.base, pair.new)
    values = {pair.base.name: row.base.value, pair.new.name: row.new.value}
    ends, p = row.change.interval or (0.0, 0.0), row.change.p_holm or 0.0
    return (
        f"{better.name} is better than {worse.name} in {row.figure.name}: mean {values[better.name]:,.4g} against "
        f"{values[worse.name]:,.4g} {row.figure.unit}; {pair.new.name} less {pair.base.name} {ends[0]:+,.4g} to "
        f"{ends[1]:+,.4g} (95 %), {row.change.test}, p {p:.2g} after Holm, "
        f"{len(pair.base.runs)} and {len(pair.new.runs)} runs"
    )
