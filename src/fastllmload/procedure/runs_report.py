"""The report over all runs of one test: runs.json, runs.md, runs.html, terminal text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from fastllmload.compliance.verdict import CONDITIONAL, NOT, UNCONDITIONAL
from fastllmload.documents.experiment import FindingTable
from fastllmload.documents.procedure import ProcedureDocument, RepeatedRun, RunsDocument
from fastllmload.experiment.report.parts import facts, table_of, terminal_lines, with_state
from fastllmload.experiment.report.parts import remarks as kinds_of_remarks
from fastllmload.experiment.saved_report import SavedReport
from fastllmload.metrics.levels.asiai import STABLE_BELOW, VARIABLE_BELOW
from fastllmload.procedure import over_runs
from fastllmload.report.blocks import Block, Items, Page, Paragraph, Section
from fastllmload.report.documents.titled_page import titled_page

JSON = "runs.json"
FEW = 3  # runs, for a comparison of systems (IETF 6.3)
VERDICTS = (NOT, CONDITIONAL, UNCONDITIONAL)  # the worst first
RULE = (
    f"Spread: population standard deviation over mean of the runs; below {STABLE_BELOW:g}% stable, below "
    f"{VARIABLE_BELOW:g}% variable, else unstable."
)
INTERVAL = "+/-: half-width of the 95% interval of the mean over runs (Student's t)."


def entries(runs: Mapping[str, ProcedureDocument]) -> dict[str, Any]:
    """Entries of runs.json for *runs* by folder. Only finished runs enter figures."""
    done = [run for run in runs.values() if run.status == "done"]
    verdicts = [verdict_of(run) for run in done]
    return {
        "runs": tuple(repeated_run(folder, run) for folder, run in runs.items()),
        "compliance_verdict": next((verdict for verdict in VERDICTS if verdict in verdicts), None),
        "figures": over_runs.figures(done),
        "tables": tuple(over_runs.tables(done)),
        "deviations": tuple(dict.fromkeys(text for run in runs.values() for text in run.deviations)),
    }


def repeated_run(folder: str, run: ProcedureDocument) -> RepeatedRun:
    return RepeatedRun(
        folder=folder, status=run.status, started_utc=run.started_utc, levels=len(run.levels),
        compliance=verdict_of(run), client=worst_client(run), sentences=run.sentences,
    )  # fmt: skip


def verdict_of(run: ProcedureDocument) -> str | None:
    return None if run.compliance is None else run.compliance.verdict


def worst_client(run: ProcedureDocument) -> str | None:
    """The worst certificate among the levels of a run."""
    verdicts = [level.certificate for level in run.levels]
    return next((verdict for verdict in ("invalid", "suspect", "valid") if verdict in verdicts), None)


def headline(document: RunsDocument) -> str:
    return with_state(f"IETF {document.section} {document.title}, {finished_runs(document)} runs", document)


def finished_runs(document: RunsDocument) -> int:
    return sum(run.status == "done" for run in document.runs or ())


def run_table(document: RunsDocument) -> FindingTable:
    columns = ("Run", "Started", "Status", "Levels", "Client", "Compliance")
    rows = tuple(
        (run.folder, run.started_utc, run.status, run.levels, run.client, run.compliance) for run in document.runs or ()
    )
    return FindingTable(title="Runs", columns=columns, rows=rows)


def figure_table(document: RunsDocument) -> FindingTable:
    """Every figure of the findings; its n is the number of runs that have it."""
    columns = ("Figure", "n", "Median", "Mean", "CI95 low", "high", "Std Dev", "Spread (%)", "", "Runs")
    rows = tuple(
        (name, one.n, one.median, one.mean, *(one.ci95 or (None, None)), one.std, one.cv_percent, one.stability,
         ", ".join(f"{value:.4g}" for value in one.runs))
        for name, one in document.figures.items()
    )  # fmt: skip
    return FindingTable(title="Figures over the runs", columns=columns, rows=rows, notes=(RULE,))


def all_tables(document: RunsDocument) -> list[FindingTable]:
    own = [msgspec.structs.replace(table, title=f"{table.title}, mean over runs", notes=(INTERVAL,))
           for table in document.tables]  # fmt: skip
    return [*own, figure_table(document), run_table(document)]


def remarks(document: RunsDocument) -> Iterator[str]:
    """Remarks on all runs together."""
    done = finished_runs(document)
    if done < FEW:
        yield f"{done} finished runs: a comparison of systems needs {FEW} or more (IETF 6.3)"
    if document.compliance_verdict is not None:
        yield f"compliance of the worst run: {document.compliance_verdict}; what to do: fastllmload compliance FOLDER/run-1"


def lines(document: RunsDocument) -> Iterator[str]:
    blocks: list[Block] = [*map(table_of, all_tables(document)), *map(Paragraph, remarks(document))]
    return terminal_lines(headline(document), blocks, document)


def page(document: RunsDocument) -> Page:
    *tables, runs = map(table_of, all_tables(document))
    said = list(remarks(document))
    sections = [
        Section("Results", [*([Items(said)] if said else []), *tables]),
        *kinds_of_remarks(document),
        Section("Runs", [replace(runs, title="")]),
    ]
    return titled_page(headline(document), sections, facts(document), simulated=document.manifest.simulated)


REPORT = SavedReport(JSON, RunsDocument, lambda found: found.runs is not None, lines, page, "run-1/")
