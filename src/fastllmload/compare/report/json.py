"""Comparisons as documents, and as the values of their JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from msgspec.structs import replace

from fastllmload.compare.comparison import Comparison, Row
from fastllmload.compare.gate import GateResult
from fastllmload.compare.side import Side
from fastllmload.compare.systems import NORMALISATION, Systems, middle
from fastllmload.documents.comparison import (
    ComparedRun,
    ComparedSide,
    ComparisonDocument,
    FigureChange,
    GateLimit,
    Pairing,
    SideFigure,
    SystemsDocument,
)
from fastllmload.documents.write import plain
from fastllmload.statistics.batches import BATCHES

SCHEMA_VERSION = 1


def document(comparison: Comparison, gates: Sequence[GateResult]) -> dict[str, Any]:
    """What `--json` writes."""
    return plain(comparison_document(comparison, gates))


def systems_document(found: Systems) -> dict[str, Any]:
    """What `--json` writes of several systems."""
    return plain(
        SystemsDocument(
            schema_version=SCHEMA_VERSION,
            systems=tuple(side_document(side, figures(found, k)) for k, side in enumerate(found.sides)),
            pairs=tuple(comparison_document(pair, []) for pair in found.pairs),
            checklist=tuple(found.checklist),
            normalised=tuple(figure.name for figure in found.normalised),
            normalisation_method=NORMALISATION if found.normalised else None,
            same_hardware=found.same_hardware,
            setup_differences=found.manifest,
            claims=tuple(found.claims()),
            notes=tuple(found.notes),
        )
    )


def figures(found: Systems, k: int) -> dict[str, SideFigure]:
    every = {figure.name: found.measured(figure)[k] for figure in found.figures}
    return {name: replace(each, median=middle(each)) for name, each in every.items()}


def comparison_document(comparison: Comparison, gates: Sequence[GateResult]) -> ComparisonDocument:
    by, pairs = comparison.paired_by, {row.figure.name: row.change.pairs for row in comparison.rows if row.change.pairs}
    return ComparisonDocument(
        schema_version=SCHEMA_VERSION,
        base=side_document(comparison.base),
        new=side_document(comparison.new),
        same_workload=True if comparison.same_requests else False if comparison.workload else None,
        workload_differences=tuple(comparison.workload),
        test=comparison.test,
        paired=None if by is None else Pairing(by=by, blocks=BATCHES, pairs=pairs),
        figures={row.figure.name: _row(row) for row in comparison.rows},
        setup_differences=comparison.manifest,
        notes=tuple(comparison.notes),
        gates=tuple(GateLimit(**asdict(each.gate), outcome=each.outcome, why=each.why) for each in gates),
    )


def side_document(side: Side, figures: dict[str, SideFigure] | None = None) -> ComparedSide:
    runs = tuple(
        ComparedRun(
            folder=str(run.folder),
            plan_digest=run.digest,
            verdict=run.verdict,
            complete=run.complete,
            foreign=None if run.foreign is None else run.foreign.tool,
            foreign_version=None if run.foreign is None else run.foreign.version,
            values_of_requests=run.foreign is None or run.foreign.requests is not None,
        )
        for run in side.runs
    )
    return ComparedSide(name=side.name, runs=runs, figures=figures)


def _row(row: Row) -> FigureChange:
    return FigureChange(
        unit=row.figure.unit,
        higher_is_better=row.figure.higher_is_better,
        base=row.base,
        new=row.new,
        **asdict(row.change),
        shown=row.change.shown,
        result=row.result,
        definitions=row.definitions,
    )
