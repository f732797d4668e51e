"""Renders all cells of a sweep as one table and one page: sweep.json, sweep.md, sweep.html, terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from fastllmload.documents.experiment import FindingTable
from fastllmload.documents.fields import known
from fastllmload.documents.sweep import Cell, CellFigure, SweepDocument
from fastllmload.experiment.level.result import Level
from fastllmload.experiment.report.findings import SHARES, format_cell, in_percent
from fastllmload.experiment.report.parts import facts, table_of, terminal_lines, with_state
from fastllmload.experiment.saved_report import SavedReport
from fastllmload.report.blocks import Items, Page, Section
from fastllmload.report.charts import Axis, Chart, Series
from fastllmload.report.documents.titled_page import titled_page
from fastllmload.report.text.tokens import OF_REASONING, reasoned
from fastllmload.statistics.student import t_interval
from fastllmload.sweep.spacing import ALL_AT_ONCE, ONE_AT_A_TIME

JSON = "sweep.json"
# Key → (heading, metric, its statistic)
FIGURES = {
    "req_s": ("req/s", "req_s", "value"),
    "output_tok_s": ("tok/s", "output_tok_s", "value"),
    "ttft_p50_ms": ("TTFT P50 (ms)", "ttft", "p50"),
    "ttft_p99_ms": ("TTFT P99 (ms)", "ttft", "p99"),
    "ttft_any_p50_ms": ("TTFT (any token) P50 (ms)", "ttft_any", "p50"),
    "ttft_any_p99_ms": ("TTFT (any token) P99 (ms)", "ttft_any", "p99"),
    "tpot_p50_ms": ("TPOT P50 (ms)", "tpot", "p50"),
    "tpot_p99_ms": ("TPOT P99 (ms)", "tpot", "p99"),
    "tpot_any_p50_ms": ("TPOT (all tokens) P50 (ms)", "tpot_any", "p50"),
    "tpot_any_p99_ms": ("TPOT (all tokens) P99 (ms)", "tpot_any", "p99"),
    "e2e_p99_ms": ("E2E P99 (ms)", "e2e", "p99"),
    "success_rate": ("Success", "success_rate", "value"),
}
OF_OBJECTIVES = {"slo_attainment": "SLO attainment", "request_goodput": "Goodput (req/s)"}


def cell_entry(values: Sequence[tuple[str, str]], levels: Sequence[Level], refused: str | None) -> Cell:
    """One cell of sweep.json: each figure's mean over the runs, and its 95% t interval if there are two or more."""
    figures: dict[str, CellFigure] = {}
    for key in (*FIGURES, *OF_OBJECTIVES):
        found = [value for level in levels if (value := figure(level, key)) is not None]
        if found:
            interval = t_interval(found)
            figures[key] = CellFigure(mean=sum(found) / len(found), ci95=interval, runs=tuple(found))
    return Cell(
        values=dict(values),
        runs=len(levels),
        folders=tuple(level.folder_name for level in levels),
        verdicts=tuple(str(level.verdict) for level in levels),
        figures=figures,
        refused=refused,
    )


def figure(level: Level, key: str) -> float | None:
    """A figure of one run; None if it was not measured or not requested."""
    if key in OF_OBJECTIVES:
        slo = level.document.slo
        return None if slo is None else known(slo.slo_attainment if key == "slo_attainment" else slo.request_goodput)
    _, metric, statistic = FIGURES[key]
    if metric in OF_REASONING and not reasoned(level.document):
        return None
    return level.figure(metric, statistic)


def mean(cell: Cell, key: str) -> float | None:
    found = cell.figures.get(key)
    return None if found is None else found.mean


def client(cell: Cell) -> str:
    """The worst verdict on the client, and how many of the runs have it."""
    if cell.refused is not None:
        return "not measured"
    for verdict in ("invalid", "suspect"):
        count = cell.verdicts.count(verdict)
        if count:
            return verdict if cell.runs == 1 else f"{verdict} in {count} of {cell.runs}"
    return "valid" if cell.runs else "not measured"


def combinations(document: SweepDocument) -> FindingTable:
    """One row per cell; with several runs each mean is followed by the half-width of its interval."""
    cells = document.cells
    keys = [key for key in (*FIGURES, *OF_OBJECTIVES) if any(key in cell.figures for cell in cells)]
    several = any(cell.runs > 1 for cell in cells)
    heads = [FIGURES[key][0] if key in FIGURES else OF_OBJECTIVES[key] for key in keys]
    columns = (*cells[0].values, *(("Runs",) if several else ()), *heads, "Client")
    rows = tuple(
        (
            *cell.values.values(),
            *((cell.runs,) if several else ()),
            *(cell_text(cell, key) if several else in_percent(key, mean(cell, key)) for key in keys),
            client(cell),
        )
        for cell in cells
    )
    notes = [f"{words(cell)}: {cell.refused}" for cell in cells if cell.refused is not None]
    if several:
        notes.append("Means over runs with the half-width of their 95% interval (Student's t).")
    return FindingTable(title="Combinations", columns=columns, rows=rows, notes=tuple(notes))


def cell_text(cell: Cell, key: str) -> str | float | None:
    """`312 +/- 8.1`; for a single run the mean alone."""
    value, found = mean(cell, key), cell.figures.get(key)
    if value is None or found is None or found.ci95 is None:
        return in_percent(key, value)
    half = (found.ci95[1] - found.ci95[0]) / 2
    if half == 0:
        return in_percent(key, value)
    if key in SHARES:
        return f"{100 * value:.1f} +/- {100 * half:.2g} %"
    return f"{format_cell(value)} +/- {format_cell(float(f'{half:.2g}'))}"


def words(cell: Cell) -> str:
    return ", ".join(f"{name} {value}" for name, value in cell.values.items())


def headline(document: SweepDocument) -> str:
    return with_state(f"Sweep over {' and '.join(document.cells[0].values)}", document)


def lines(document: SweepDocument) -> Iterator[str]:
    return terminal_lines(headline(document), [table_of(combinations(document), "")], document)


def page(document: SweepDocument) -> Page:
    runs = tuple(
        (run.name, f"{(run.repetition or 0) + 1}",
         *map(known, (run.req_s, run.output_tok_s, run.ttft_p99_ms, run.tpot_p99_ms)),
         run.certificate, run.folder)
        for run in document.levels if run.cell is not None
    )  # fmt: skip
    columns = ("Combination", "Run", "req/s", "tok/s", "TTFT P99 (ms)", "TPOT P99 (ms)", "Client", "Folder")
    drawn = charts(document)
    sections = [
        Section("All combinations", [table_of(combinations(document), "")]),
        *([Section("Against the first option", drawn)] if drawn else []),
        Section("Runs in the order measured", [table_of(FindingTable(columns=columns, rows=runs))]),
        *([Section("Warnings", [Items(document.warnings)])] if document.warnings else []),
    ]
    return titled_page(headline(document), sections, facts(document), simulated=document.manifest.simulated)


PLOTTED = (
    ("Output tokens/s", "output_tok_s", "tokens/s"),
    ("TTFT P99", "ttft_p99_ms", "ms"),
    ("TPOT P99", "tpot_p99_ms", "ms"),
)


def charts(document: SweepDocument) -> list[Chart]:
    """Over the first varied option whose values are numbers; one line per combination of the others."""
    cells = [cell for cell in document.cells if cell.runs]
    option = next(
        (name for name in document.cells[0].values if all(math.isfinite(position(cell, name)) for cell in cells)), None
    )
    if option is None or len({cell.values[option] for cell in cells}) < 2:
        return []
    names = dict.fromkeys(line_name(cell, option) for cell in cells)
    return [
        Chart(title, [series(cells, option, name, key) for name in names], Axis(option), Axis(title, unit))
        for title, key, unit in PLOTTED
        if any(key in cell.figures for cell in cells)
    ]


def position(cell: Cell, axis: str) -> float:
    """The value of the option *axis*, for one at a time and all at once the rate completed; NaN where it is not a number."""
    text = cell.values[axis]
    if text in (ONE_AT_A_TIME, ALL_AT_ONCE):
        return mean(cell, "req_s") or math.nan
    try:
        return float(text)
    except ValueError:
        return math.nan


def line_name(cell: Cell, axis: str) -> str:
    return ", ".join(f"{name} {value}" for name, value in cell.values.items() if name != axis) or "all"


def series(cells: Sequence[Cell], axis: str, name: str, key: str) -> Series:
    """One line in ascending order of *axis*, with intervals where there are several runs."""
    mine = sorted((c for c in cells if line_name(c, axis) == name), key=lambda cell: position(cell, axis))

    def end(cell: Cell, side: int) -> float:
        found = cell.figures.get(key)
        return math.nan if found is None or found.ci95 is None else found.ci95[side]

    y = [math.nan if (value := mean(cell, key)) is None else value for cell in mine]
    several = any(cell.runs > 1 for cell in mine)
    low, high = ([end(cell, side) for cell in mine] if several else () for side in (0, 1))
    return Series(name, y, [position(cell, axis) for cell in mine], low, high, style="curve")


REPORT = SavedReport(JSON, SweepDocument, lambda found: bool(found.cells), lines, page)
