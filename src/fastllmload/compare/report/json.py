"""Comparisons as documents, and as the values of their JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fastllmload.compare.comparison import Comparison, MeasuredFigure, Row
from fastllmload.compare.gate import GateResult
from fastllmload.compare.setup import SetupDifference
from fastllmload.compare.side import Side
from fastllmload.compare.systems import NORMALISATION, Systems, middle
from fastllmload.documents.comparison import (
    ChecklistEntry,
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
            systems=tuple(side_document(side, _figures(found, k)) for k, side in enumerate(found.sides)),
            pairs=tuple(comparison_document(pair, []) for pair in found.pairs),
            checklist=tuple(ChecklistEntry(**asdict(item)) for item in found.checklist),
            normalised=tuple(figure.name for figure in found.normalised),
            normalisation_method=NORMALISATION if found.normalised else None,
            same_hardware=found.same_hardware,
            setup_differences=differences_document(found.manifest),
            claims=tuple(found.claims()),
            notes=tuple(found.notes),
        )
    )


def _figures(found: Systems, k: int) -> dict[str, SideFigure]:
    every = {figure.name: found.measured(figure)[k] for figure in found.figures}
    return {name: measured_document(each, middle(each)) for name, each in every.items()}


def comparison_document(comparison: Comparison, gates: Sequence[GateResult]) -> ComparisonDocument:
    return ComparisonDocument(
        schema_version=SCHEMA_VERSION,
        base=side_document(comparison.base),
        new=side_document(comparison.new),
        same_workload=not comparison.workload,
        workload_differences=tuple(comparison.workload),
        test=comparison.test,
        paired=_paired(comparison),
        figures={row.figure.name: _row(row) for row in comparison.rows},
        setup_differences=differences_document(comparison.manifest),
        notes=tuple(comparison.notes),
        gates=tuple(GateLimit(**asdict(each.gate), outcome=each.outcome, why=each.why) for each in gates),
    )


def _paired(comparison: Comparison) -> Pairing | None:
    """How requests were paired, and how many per figure; None where they were not."""
    if comparison.paired_by is None:
        return None
    pairs = {row.figure.name: row.change.pairs for row in comparison.rows if row.change.pairs}
    return Pairing(by=comparison.paired_by, blocks=BATCHES, pairs=pairs)


def side_document(side: Side, figures: dict[str, SideFigure] | None = None) -> ComparedSide:
    runs = [
        ComparedRun(folder=str(run.folder), plan_digest=run.digest, verdict=run.verdict, complete=run.complete)
        for run in side.runs
    ]
    return ComparedSide(name=side.name, runs=tuple(runs), figures=figures)


def differences_document(found: list[SetupDifference]) -> dict[str, tuple[str, ...]]:
    return {each.key: each.values for each in found}


def measured_document(found: MeasuredFigure, median: float | None = None) -> SideFigure:
    return SideFigure(value=found.value, ci95=found.interval, runs=found.runs, median=median)


def _row(row: Row) -> FigureChange:
    return FigureChange(
        unit=row.figure.unit,
        higher_is_better=row.figure.higher_is_better,
        base=measured_document(row.base),
        new=measured_document(row.new),
        **asdict(row.change),
        shown=row.change.shown,
        result=row.result,
    )
