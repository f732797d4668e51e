"""Renders the reports of searches, sweeps, overheads and repeated tests again from their folders, also after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastllmload.errors import InputError
from fastllmload.experiment.saved_report import SavedReport
from fastllmload.overhead import report as overhead_report
from fastllmload.procedure import runs_report
from fastllmload.search import report as search_report
from fastllmload.sweep import report as sweep_report

FORMS = ("terminal", "markdown", "html", "json")
REPORTS: tuple[SavedReport[Any], ...] = (
    search_report.REPORT, sweep_report.REPORT, overhead_report.REPORT, runs_report.REPORT
)  # fmt: skip


def saved_report(folder: Path, form: str, redact: bool = False) -> str | None:
    """The report as one of FORMS; None if *folder* holds none of REPORTS. InputError for other forms, or without results."""
    report = next((report for report in REPORTS if (folder / report.file).exists()), None)
    if report is None:
        return None
    if redact:
        raise InputError(
            "redaction-unsupported",
            f"--redact removes capacities (IETF 7.1), and {report.file} holds little else; redact the runs in "
            f"{report.parts}",
        )
    if form not in FORMS:
        raise InputError(
            "report-form-unsupported",
            f"--as {form} is a form of single runs; {folder} holds {report.file}, which has {', '.join(FORMS)}; for other "
            f"forms name a run in {report.parts}",
        )
    return report.rendered(folder, form)
