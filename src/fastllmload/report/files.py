"""The report files of a run folder. Each is written by its own part of this package; one that fails costs no other."""

from __future__ import annotations

import importlib
from typing import Any

from fastllmload.records.run import Run

# Module of this package -> what it writes; each has `write(run, document) -> None` and writes into run.directory.
WRITERS: dict[str, str] = {
    "html": "report.html",
    "markdown": "report.md",
    "hlog": "latency.hlog",
}


def write_reports(run: Run, document: dict[str, Any]) -> list[str]:
    """Write all report files of a measured run; *document* is its run.json.

    Returns a sentence for each file that could not be written; what was measured is in run.json already.
    """
    problems = []
    for module, what in WRITERS.items():
        try:
            importlib.import_module(f"fastllmload.report.{module}").write(run, document)
        except OSError as problem:
            problems.append(f"{what} could not be written: {problem.strerror}; make room and run `fastllmload report`")
    return problems
