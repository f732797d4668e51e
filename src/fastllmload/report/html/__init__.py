"""Renders report.html: a run as one self-contained page, light and dark, for screen and print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastllmload.files import replace_with
from fastllmload.records.run import Run

NAME = "report.html"


def write(run: Run, document: Mapping[str, Any]) -> None:
    """Write report.html into the run folder atomically; *document* is its run.json.

    OSError when the disk is full; RunFolderError for a damaged file of the run.
    """
    replace_with(run.directory / NAME, render(run, document))


def render(run: Run, document: Mapping[str, Any]) -> str:
    """The HTML text, also of a run that is incomplete: killed, without a successful request, without samples."""
    from fastllmload.report.html.context import ReportContext
    from fastllmload.report.html.page import page

    return page(ReportContext(run, document))
