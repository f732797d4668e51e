"""Loads the document of a report: run.json, completed by measuring now where the run was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastllmload.records.integrity import EVENTS
from fastllmload.records.run import DONE, load, read_manifest


def document_of(folder: Path) -> dict[str, Any]:
    """run.json; for a run that was stopped early, with the figures of its rows."""
    document = read_manifest(folder)
    if document.get("status") == DONE or document.get("metrics") is not None:
        return document
    from fastllmload.certificate.judge import judge
    from fastllmload.metrics.run.measure import measure
    from fastllmload.telemetry.summary import added

    run = load(folder)
    measured = measure(run)
    # The certificate needs all rows and events; without them no verdict is computed.
    judged = {} if run.lost(EVENTS) else {"certificate": judge(run)}
    return {**document, **measured, **added(run.intact, measured), **judged}
