"""The report over all runs of one test: runs.json, runs.md, runs.html, terminal text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastllmload.compliance.verdict import CONDITIONAL, NOT, UNCONDITIONAL
from fastllmload.experiment.report.output import write_files
from fastllmload.experiment.report.parts import (
    REMARKS,
    escaped,
    facts,
    markdown_head,
    markdown_remarks,
    markdown_tables,
    terminal_remarks,
    terminal_tables,
    with_state,
)
from fastllmload.metrics.levels.asiai import STABLE_BELOW, VARIABLE_BELOW
from fastllmload.procedure import over_runs

Document = Mapping[str, Any]

JSON, MARKDOWN, PAGE = "runs.json", "runs.md", "runs.html"
FEW = 3  # runs, for a comparison of systems (IETF 6.3)
VERDICTS = (NOT, CONDITIONAL, UNCONDITIONAL)  # the worst first
RULE = (
    f"Spread: population standard deviation over mean of the runs; below {STABLE_BELOW:g}% stable, below "
    f"{VARIABLE_BELOW:g}% variable, else unstable."
)
INTERVAL = "+/-: half-width of the 95% interval of the mean over runs (Student's t)."


def entries(runs: Sequence[Document]) -> dict[str, Any]:
    """Entries of runs.json for *runs*, each a procedure.json with its `folder`. Only finished runs enter figures."""
    done = [run for run in runs if run["status"] == "done"]
    verdicts = [str((run.get("compliance") or {}).get("verdict")) for run in done]
    return {
        "runs": [
            {
                "folder": run["folder"],
                "status": run["status"],
                "started_utc": run["started_utc"],
                "levels": len(run["levels"]),
                "compliance": (run.get("compliance") or {}).get("verdict"),
                "client": worst_client(run),
                "sentences": list(run.get("sentences") or ()),
            }
            for run in runs
        ],
        "compliance_verdict": next((verdict for verdict in VERDICTS if verdict in verdicts), None),
        "figures": over_runs.figures(done),
        "tables": over_runs.tables(done),
        "deviations": list(dict.fromkeys(text for run in runs for text in run["deviations"])),
    }


def worst_client(run: Document) -> str | None:
    """The worst certificate among the levels of a run."""
    verdicts = [level.get("certificate") for level in run["levels"]]
    return next((verdict for verdict in ("invalid", "suspect", "valid") if verdict in verdicts), None)


def headline(document: Document) -> str:
    done = sum(run["status"] == "done" for run in document.get("runs", ()))
    return with_state(f"IETF {document['section']} {document['title']}, {done} runs", document)


def run_table(document: Document) -> dict[str, Any]:
    columns = ["Run", "Started", "Status", "Levels", "Client", "Compliance"]
    rows = [
        [run["folder"], run["started_utc"], run["status"], run["levels"], run["client"], run["compliance"]]
        for run in document["runs"]
    ]
    return {"title": "Runs", "columns": columns, "rows": rows, "notes": []}


def figure_table(document: Document) -> dict[str, Any]:
    """Every figure of the findings; its n is the number of runs that have it."""
    columns = ["Figure", "n", "Median", "Mean", "CI95 low", "high", "Std Dev", "Spread (%)", "", "Runs"]
    rows = [
        [name, one["n"], one["median"], one["mean"], *(one["ci95"] or (None, None)), one["std"], one["cv_percent"],
         one["stability"], ", ".join(f"{value:.4g}" for value in one["runs"])]
        for name, one in document["figures"].items()
    ]  # fmt: skip
    return {"title": "Figures over the runs", "columns": columns, "rows": rows, "notes": [RULE]}


def all_tables(document: Document) -> list[dict[str, Any]]:
    own = [{**table, "title": f"{table['title']}, mean over runs", "notes": [INTERVAL]}
           for table in document["tables"]]  # fmt: skip
    return [*own, figure_table(document), run_table(document)]


def remarks(document: Document) -> Iterator[str]:
    """Remarks on all runs together."""
    done = sum(run["status"] == "done" for run in document["runs"])
    if done < FEW:
        yield f"{done} finished runs: a comparison of systems needs {FEW} or more (IETF 6.3)"
    verdict = document["compliance_verdict"]
    if verdict is not None:
        yield f"compliance of the worst run: {verdict}; what to do: fastllmload compliance FOLDER/run-1"


def lines(document: Document) -> Iterator[str]:
    yield ""
    yield headline(document)
    yield from terminal_tables(all_tables(document))
    yield ""
    yield from remarks(document)
    yield from terminal_remarks(document)


def markdown(document: Document) -> str:
    return "\n".join(_markdown(document)) + "\n"


def _markdown(document: Document) -> Iterator[str]:
    yield from markdown_head(headline(document), document)
    yield from (f"* {escaped(text)}" for text in remarks(document))
    yield from markdown_tables(all_tables(document))
    yield from markdown_remarks(document)


def page(document: Document) -> str:
    from fastllmload.report.html.page_layout import PageHead, PageSection, PageTable, page_layout

    own, (figures, runs) = all_tables(document)[:-2], all_tables(document)[-2:]

    def table(found: Document) -> PageTable:
        return PageTable(found["columns"], found["rows"], title=found["title"], notes=found["notes"])

    sections = [PageSection("Results", [*remarks(document), *map(table, own), table(figures)])]
    sections += [PageSection(title, document[name]) for name, title in REMARKS if document[name]]
    sections.append(PageSection("Runs", [table(runs)]))
    simulated = bool(document["manifest"].get("simulated"))
    return page_layout(PageHead(headline(document), facts=facts(document), simulated=simulated), sections)


def write(folder: Path, document: Document) -> Sequence[str]:
    """Write runs.md and runs.html. Returns their names."""
    return write_files(folder, {MARKDOWN: markdown(document), PAGE: page(document)})
