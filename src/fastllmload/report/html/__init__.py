"""report.html: a run as one self-contained page, light and dark, on screen and printed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastllmload.files import replace_with
from fastllmload.records.run import Run

NAME = "report.html"


def write(run: Run, document: Mapping[str, Any]) -> None:
    """Write report.html into the run's folder, whole or not at all; *document* is its run.json.

    OSError when there is no room; RunFolderError for a file of the run that is damaged.
    """
    replace_with(run.directory / NAME, render(run, document))


def render(run: Run, document: Mapping[str, Any]) -> str:
    """The page's text. Copes with whatever is missing: a killed run, no successful request, no samples."""
    from fastllmload.report.html.context import ReportContext
    from fastllmload.report.html.page import page

    return page(ReportContext(run, document))
