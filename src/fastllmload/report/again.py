"""`fastllmload report RUN`: the closing summary again, from the folder; of a killed run, measured now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastllmload.records.run import DONE, load, read_manifest
from fastllmload.report.outlet import Outlet, Redact, Writable
from fastllmload.report.screen import write_summary


def show_again(folder: Path, stream: Writable, redact: Redact = str) -> None:
    """RunFolderError for a folder that is no run."""
    write_summary(Outlet(stream, redact), document_of(folder), redact, str(folder))


def document_of(folder: Path) -> dict[str, Any]:
    """run.json; when the run did not come to its end, with what its rows still tell."""
    document = read_manifest(folder)
    if document.get("status") == DONE or document.get("metrics") is not None:
        return document
    from fastllmload.certificate.judge import judge
    from fastllmload.metrics.core import measure
    from fastllmload.telemetry.summary import added

    run = load(folder)
    measured = measure(run)
    return {**document, **measured, **added(run, measured), "certificate": judge(run)}
