"""Figures of a test over its runs: median, mean, spread, interval (spec/procedures 0.13). Each run is one sample."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from fastllmload.documents.experiment import Cell, FindingTable
from fastllmload.documents.fields import known
from fastllmload.documents.procedure import OverRuns, ProcedureDocument
from fastllmload.documents.write import plain
from fastllmload.experiment.report.findings import format_cell
from fastllmload.metrics.levels.asiai import pooled_spread
from fastllmload.statistics.student import t_interval


def summary(values: Sequence[float]) -> OverRuns:
    """Summary of one figure with a value per run. *std*: sample standard deviation; *ci95*: Student's t interval of the
    mean; both None for a single run.

    *cv_percent*, *stability*: ASIAI-M8 over runs of one kind (spec/metrics 6.7): stable below 5 %, variable below 10 %.
    """
    spread = pooled_spread([values])
    interval = t_interval(values)
    return OverRuns(
        n=len(values),
        median=statistics.median(values),
        mean=spread.mean,
        std=statistics.stdev(values) if len(values) > 1 else None,
        ci95=interval,
        cv_percent=spread.cv_percent,
        stability=spread.stability,
        runs=tuple(values),
    )


def half_width(found: OverRuns) -> float | None:
    return None if found.ci95 is None else (found.ci95[1] - found.ci95[0]) / 2


def figures(runs: Sequence[ProcedureDocument]) -> dict[str, OverRuns]:
    """Path in `findings` → summary over the runs that have a number there, in the order of the first run."""
    flat = [dict(numbers(plain(run.findings))) for run in runs]
    names = list(dict.fromkeys(name for one in flat for name in one))
    return {name: summary([one[name] for one in flat if name in one]) for name in names}


def numbers(found: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number below *found*, with its path: `overheads.0.25.total_e2e_ms.mean`, `levels.0.p99`."""
    if isinstance(found, bool) or found is None:
        return
    if isinstance(found, int | float):
        yield path, float(found)
        return
    inner = found.items() if isinstance(found, Mapping) else enumerate(found) if isinstance(found, list) else ()
    for name, value in inner:
        yield from numbers(value, f"{path}.{name}" if path else str(name))


def tables(runs: Sequence[ProcedureDocument]) -> list[FindingTable]:
    """The test's tables that all runs have with the same rows and columns. Each cell is the mean over the runs, followed
    by the half-width of its 95 % interval; texts that differ between runs are listed.
    """
    found = []
    for table in runs[0].tables if runs else ():
        same = [one for run in runs for one in run.tables if one.id == table.id]
        if len(same) == len(runs) and all(frame(one) == frame(table) for one in same):
            rows = tuple(
                tuple(cell([one.rows[r][c] for one in same]) for c in range(len(table.columns)))
                for r in range(len(table.rows))
            )
            found.append(msgspec.structs.replace(table, rows=rows, notes=()))
    return found


def frame(table: FindingTable) -> tuple[Any, ...]:
    """The columns and the first cell of each row, which must be equal for tables to be comparable."""
    return table.columns, tuple(row[0] if row else None for row in table.rows)


def cell(values: Sequence[Cell]) -> Cell:
    """One cell over the runs. Missing numbers are ignored; None if all are missing."""
    given = [value for value in values if value is not None]
    numeric = [number for value in given if (number := known(value)) is not None]
    if given and len(numeric) == len(given):
        found = summary(numeric)
        half = half_width(found)
        text = format_cell(found.mean)
        return text if not half else f"{text} +/- {format_cell(float(f'{half:.2g}'))}"
    if len(set(map(str, values))) == 1:
        return values[0]
    return " / ".join("n/a" if value is None else str(value) for value in values)
